//! The call with which a master asks an idle engine to retire.
//!
//! The agent agrees only if no session is open and none was opened for the time that the master names, and then opens none
//! for a while. A repeat by a master that lost the answer receives the same one.

use std::time::Duration;

use hs2::{Call, Client, ClientError};
use model::millis;

use crate::error::ApiError;
use crate::wire::{TRetireReq, TRetireResp};

pub const RETIRE: &str = "Retire";

/// Asks an engine agent to open no more sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetireRequest {
    /// The instance that is asked.
    pub uid: String,
    /// For how long no session must have been open: since the load that the master decided upon.
    pub idle: Duration,
}

/// Calls an engine agent; returns whether it agreed. After a failure it may have agreed: its consent ends by itself.
pub async fn retire(client: &mut Client, request: &RetireRequest, deadline: Duration) -> Result<bool, ApiError> {
    let request = TRetireReq { uid: request.uid.clone(), idle_ms: millis::from_duration(request.idle) };
    let answer: Result<TRetireResp, ClientError> = client.call(RETIRE, &request, deadline).await;
    answer.map(|answer| answer.agreed).map_err(|error| ApiError::Unavailable(error.into()))
}

/// Decodes the request of a master.
pub fn retire_request(call: &Call<'_>) -> Result<RetireRequest, hs2::WireError> {
    let request: TRetireReq = call.decode()?;
    Ok(RetireRequest { uid: request.uid, idle: millis::to_duration(request.idle_ms) })
}

/// Encodes the engine agent's reply.
pub fn answer_retire(call: &Call<'_>, agreed: bool) -> Vec<u8> {
    call.reply(&TRetireResp { agreed })
}
