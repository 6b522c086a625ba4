//! The extensions of `HiveServer2` that an engine agent serves: the status call of proxies and masters, and the call with
//! which a master asks the engine to retire. Plain Thrift carries no identity, so their calls are rejected.

use agent_api::{EngineStatus, RetireRequest};
use hs2::message::{ExceptionKind, encode_exception};
use hs2::{Message, Principal};
use tracing::info;

use super::context::AgentContext;

/// Runs such a call and encodes its reply.
pub(super) fn reply(agent: &AgentContext, principal: Option<&Principal>, message: &Message) -> Vec<u8> {
    let role = principal.and_then(|principal| principal.service.as_deref());
    let (name, seqid) = (message.name(), message.seqid());
    let failed = |text: &str| encode_exception(name, seqid, ExceptionKind::InternalError, text);
    if role.is_none() {
        failed("only proxies and masters may call this method")
    } else if name == agent_api::ENGINE_STATUS {
        match agent.silence.reason() {
            Some(reason) => failed(&format!("engine \"{}\" does not respond: {reason}", agent.settings.engine)),
            None => agent_api::answer_engine_status(&message.call(), &status_of(agent)),
        }
    } else if name == agent_api::RETIRE {
        if role == Some(agent_api::SERVICE_MASTER) {
            match agent_api::retire_request(&message.call()) {
                Ok(request) => agent_api::answer_retire(&message.call(), agrees_to_retire(agent, &request)),
                Err(error) => failed(&format!("malformed {name} request: {error}")),
            }
        } else {
            failed("only masters may call this method")
        }
    } else {
        encode_exception(name, seqid, ExceptionKind::UnknownMethod, &format!("unknown method {name}"))
    }
}

fn status_of(agent: &AgentContext) -> EngineStatus {
    let (idle, counts) = (agent.sessions.idle(), agent.sessions.counts());
    EngineStatus {
        engine: agent.settings.engine.to_string(),
        uid: agent.settings.uid.clone(),
        sessions: counts.taken,
        running: agent.sessions.running(),
        draining: agent.drain.is_draining(),
        idle: Some(idle.lasted),
        retiring: idle.is_retiring,
        stateful: Some(counts.stateful),
        seats: Some(counts.seats),
        served: Some(counts.served),
    }
}

/// Whether the engine opens no more sessions for a while, because it is idle. A request for another instance changes nothing.
fn agrees_to_retire(agent: &AgentContext, request: &RetireRequest) -> bool {
    let agrees = request.uid == agent.settings.uid && agent.sessions.retire(request.idle);
    if agrees {
        info!("agreed to retire; no new sessions for a while");
    }
    agrees
}
