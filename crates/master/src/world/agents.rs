//! Finding metadata agents and changing over between them.
//!
//! They are found by their nodes below `agents/`, and nowhere else. Every call is idempotent, so one whose agent could
//! not answer is made again at another one: that is the same call, not a retry of a decision.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agent_api::{AgentClient, ApiError, ApiErrorKind, Role};
use coordination::Agent;

use super::Failure;

/// At how many agents one call is tried at most.
const MAX_AGENTS_TRIED: usize = 3;
/// How many clients are kept at most.
const MAX_CLIENTS: usize = 64;

/// The metadata agents as they are known now.
pub(super) struct Agents {
    key: String,
    call_deadline: Duration,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// Addresses, the one that answered last in front.
    addresses: Vec<String>,
    clients: BTreeMap<String, Arc<AgentClient>>,
}

impl Agents {
    pub(super) fn new(key: String, call_deadline: Duration) -> Self {
        Self { key, call_deadline, known: Mutex::default() }
    }

    /// Takes the agents that are registered now. Who answered last stays in front.
    pub(super) fn registered(&self, agents: &[Agent]) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let there = |address: &String| agents.iter().any(|agent| agent.address == *address);
        known.addresses.retain(there);
        for agent in agents {
            if !known.addresses.contains(&agent.address) {
                known.addresses.push(agent.address.clone());
            }
        }
        known.clients.retain(|address, _| there(address));
    }

    /// Makes a call, at another agent if one can't answer.
    pub(super) async fn call<T, F>(&self, call: impl Fn(Arc<AgentClient>) -> F) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, ApiError>>,
    {
        let mut last = Failure::Unavailable("a metadata agent: none is registered".to_owned());
        for client in self.clients() {
            let address = client.address().to_owned();
            match call(client).await {
                Ok(answer) => {
                    self.answered(&address);
                    return Ok(answer);
                }
                Err(error) => {
                    let elsewhere = matches!(error.kind(), ApiErrorKind::Unavailable | ApiErrorKind::OutcomeUnknown);
                    last = failure(error);
                    if !elsewhere {
                        return Err(last);
                    }
                }
            }
        }
        Err(last)
    }

    fn clients(&self) -> Vec<Arc<AgentClient>> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let addresses: Vec<String> = known.addresses.iter().take(MAX_AGENTS_TRIED).cloned().collect();
        if known.clients.len() > MAX_CLIENTS {
            known.clients.clear();
        }
        addresses
            .into_iter()
            .map(|address| {
                let client = known.clients.entry(address.clone()).or_insert_with(|| {
                    let key = self.key.clone();
                    Arc::new(AgentClient::new(address, Role::Master, key, self.call_deadline))
                });
                Arc::clone(client)
            })
            .collect()
    }

    /// Puts the agent that answered in front, so that the next call begins with it.
    fn answered(&self, address: &str) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = known.addresses.iter().position(|it| it == address) {
            known.addresses[..=at].rotate_right(1);
        }
    }
}

/// What a failed call means to the driver.
fn failure(error: ApiError) -> Failure {
    match error {
        ApiError::Deposed(record) => Failure::Deposed(format!("epoch {} is held by {}", record.epoch, record.holder)),
        ApiError::Conflict(what) => Failure::Moved(what),
        ApiError::Unavailable(what) => Failure::Unavailable(format!("a metadata agent: {what}")),
        ApiError::OutcomeUnknown(what) => Failure::Unknown(what),
        ApiError::Refused(error) => Failure::Refused(error.text()),
    }
}
