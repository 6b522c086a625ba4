//! The status call of an engine agent: inexpensive, so that proxies and masters may poll it.

use std::time::Duration;

use hs2::{Call, Client};
use model::millis;

use crate::error::ApiError;
use crate::wire::{TEngineStatusReq, TEngineStatusResp};

pub const ENGINE_STATUS: &str = "GetEngineStatus";

/// The load of an engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineStatus {
    pub engine: String,
    pub uid: String,
    /// Open sessions, and those that are being opened.
    pub sessions: u32,
    /// Running statements.
    pub running: u32,
    pub draining: bool,
    /// For how long no session has been open; zero while one is open or is being opened. `None`: the agent does not know
    /// the call to retire.
    pub idle: Option<Duration>,
    /// Whether it has agreed to retire, and opens no sessions now.
    pub retiring: bool,
    /// The sessions whose state cannot be replayed at another engine. `None`: an agent of an earlier version.
    pub stateful: Option<u32>,
    /// The sessions that may be open at the same time. `None`: an agent of an earlier version.
    pub seats: Option<u32>,
    /// The sessions that it has opened since it started. `None`: an agent of an earlier version.
    pub served: Option<u64>,
}

impl EngineStatus {
    /// Whether the engine opens no session now, as far as its agent reports it.
    pub fn is_full(&self) -> bool {
        self.retiring || self.seats.is_some_and(|seats| self.sessions >= seats)
    }
}

/// Calls an engine agent. The call changes nothing, so every failure is *unavailable*.
pub async fn engine_status(client: &mut Client, deadline: Duration) -> Result<EngineStatus, ApiError> {
    let answer: TEngineStatusResp = client
        .call(ENGINE_STATUS, &TEngineStatusReq {}, deadline)
        .await
        .map_err(|error| ApiError::Unavailable(error.into()))?;
    Ok(EngineStatus {
        engine: answer.engine,
        uid: answer.uid,
        sessions: answer.sessions.max(0).unsigned_abs(),
        running: answer.running.max(0).unsigned_abs(),
        draining: answer.draining,
        idle: answer.idle_ms.map(millis::to_duration),
        retiring: answer.retiring.unwrap_or(false),
        stateful: answer.stateful_sessions.map(|count| count.max(0).unsigned_abs()),
        seats: answer.seats.map(|count| count.max(0).unsigned_abs()),
        served: answer.served.map(|count| count.max(0).unsigned_abs()),
    })
}

/// Encodes the engine agent's reply.
pub fn answer_engine_status(call: &Call<'_>, status: &EngineStatus) -> Vec<u8> {
    call.reply(&TEngineStatusResp {
        engine: status.engine.clone(),
        uid: status.uid.clone(),
        sessions: i32::try_from(status.sessions).unwrap_or(i32::MAX),
        running: i32::try_from(status.running).unwrap_or(i32::MAX),
        draining: status.draining,
        idle_ms: status.idle.map(millis::from_duration),
        retiring: Some(status.retiring),
        stateful_sessions: status.stateful.map(|count| i32::try_from(count).unwrap_or(i32::MAX)),
        seats: status.seats.map(|count| i32::try_from(count).unwrap_or(i32::MAX)),
        served: status.served.map(|count| i64::try_from(count).unwrap_or(i64::MAX)),
    })
}
