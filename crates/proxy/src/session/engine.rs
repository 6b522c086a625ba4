//! Calls that an engine executes: the session is bound, and the call relayed.

use std::sync::Arc;

use hs2::Connection;
use model::error::UserError;

use super::operation::EngineCall;
use super::reply::{self, CallError, Disconnect, Reply};
use super::state::Session;
use super::table::Entry;
use super::waiting;
use crate::bind::{self, NotBound, Wait, no_engine};
use crate::classify;
use crate::gateway::Gateway;
use crate::relay::{self, Deliver, Relayed};
use crate::settings::{MAX_HANDOVERS, POLL_STEP};

/// Binds the session and relays the call; to another engine as long as engines refuse because they drain.
pub(crate) async fn bind_and_relay(
    gateway: &Arc<Gateway>,
    connection: &mut Connection,
    entry: &Arc<Entry>,
    session: &mut Session,
    call: EngineCall,
) -> Result<Reply, CallError> {
    let since = gateway.clock.boottime();
    let mut handovers = 0;
    let mut changes = gateway.routes.changes();
    // The session is counted as demand until the call is over.
    let mut demand = None;
    loop {
        let bound = tokio::select! {
            bound = bind::bind(gateway, session) => bound,
            // An engine session that is being opened is cut with its connection.
            () = connection.closed() => return Err(Disconnect::ClientLeft { during: "its session was bound" }.into()),
        };
        match bound {
            Ok(()) => {
                drop(demand.take());
                bind::count_statement(gateway, session, &call)?;
            }
            Err(NotBound::Refused(error)) => return Err(classify::with_near_miss(error, call.text()).into()),
            Err(NotBound::Wait(wait)) if call.run_async => {
                let handle = waiting::begin(gateway, entry, session, call, since, wait);
                return Ok(reply::accepted(&handle, true).into());
            }
            Err(NotBound::Wait(Wait { reason, demand: counted })) => {
                demand = counted;
                let now = gateway.clock.boottime();
                let waited = now.saturating_sub(since);
                if waited >= gateway.settings.bind_deadline {
                    return Err(no_engine::waited_too_long(waited, &reason).into());
                }
                let pause = match call.timeout {
                    Some(timeout) if timeout.left(now).is_zero() => {
                        return Err(timeout.error_waiting_for(&reason).into());
                    }
                    Some(timeout) => timeout.left(now).min(POLL_STEP),
                    None => POLL_STEP,
                };
                tokio::select! {
                    _ = tokio::time::timeout(pause, changes.changed()) => {}
                    () = connection.closed() => return Err(Disconnect::ClientLeft { during: "it waited for an engine" }.into()),
                }
                continue;
            }
        }
        match relay::relay(gateway, connection, entry, session, &call, Deliver::ToClient).await? {
            Relayed::Delivered => return Ok(Reply::Relayed),
            Relayed::Draining(_) if handovers < MAX_HANDOVERS => handovers += 1,
            Relayed::Draining(error) | Relayed::Lost(error) | Relayed::TimedOut(error) | Relayed::Refused(error) => {
                return Err(error.into());
            }
            Relayed::Running { .. } => {
                return Err(UserError::internal("the reply of the engine was not delivered").into());
            }
        }
    }
}
