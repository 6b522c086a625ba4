//! Finding metadata agents and changing over between them.
//!
//! They are found by their nodes below `agents/`, and nowhere else. Every call is idempotent, so one whose agent could
//! not answer is made again at another one: that is the same call, not a retry of a decision.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use agent_api::{AgentClient, ApiError, ApiErrorKind, Role};
use coordination::Agent;
use parking_lot::Mutex;

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
    /// Addresses, the one that answered last in front, those that could not answer at the end.
    addresses: Vec<String>,
    clients: BTreeMap<String, Arc<AgentClient>>,
}

impl Agents {
    pub(super) fn new(key: String, call_deadline: Duration) -> Self {
        Self { key, call_deadline, known: Mutex::default() }
    }

    /// Takes the agents that are registered now. Who answered last stays in front.
    pub(super) fn registered(&self, agents: &[Agent]) {
        let mut known = self.known.lock();
        let there = |address: &String| agents.iter().any(|agent| agent.address == *address);
        known.addresses.retain(there);
        for agent in agents {
            if !known.addresses.contains(&agent.address) {
                known.addresses.push(agent.address.clone());
            }
        }
        known.clients.retain(|address, _| there(address));
    }

    /// Makes a call, at another agent if one can't answer. An agent that could not answer is asked last from then on, so
    /// that the next call reaches those that this one did not.
    pub(super) async fn call<T, F>(&self, call: impl Fn(Arc<AgentClient>) -> F) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, ApiError>>,
    {
        self.call_at(call, |kind| matches!(kind, ApiErrorKind::Unavailable | ApiErrorKind::OutcomeUnknown)).await
    }

    /// Makes a call that only reads. A refusal may be a defect of the one agent, such as a row that it is too old to read:
    /// another agent is asked too.
    pub(super) async fn read<T, F>(&self, call: impl Fn(Arc<AgentClient>) -> F) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, ApiError>>,
    {
        let elsewhere =
            |kind| matches!(kind, ApiErrorKind::Unavailable | ApiErrorKind::OutcomeUnknown | ApiErrorKind::Refused);
        self.call_at(call, elsewhere).await
    }

    async fn call_at<T, F>(
        &self,
        call: impl Fn(Arc<AgentClient>) -> F,
        elsewhere: impl Fn(ApiErrorKind) -> bool,
    ) -> Result<T, Failure>
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
                    let goes_on = elsewhere(error.kind());
                    last = failure(error);
                    if !goes_on {
                        return Err(last);
                    }
                    self.failed(&address);
                }
            }
        }
        Err(last)
    }

    fn clients(&self) -> Vec<Arc<AgentClient>> {
        let mut known = self.known.lock();
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
        let mut known = self.known.lock();
        if let Some(at) = known.position(address) {
            known.addresses[..=at].rotate_right(1);
        }
    }

    /// Puts the agent that could not answer at the end.
    fn failed(&self, address: &str) {
        let mut known = self.known.lock();
        if let Some(at) = known.position(address) {
            known.addresses[at..].rotate_left(1);
        }
    }
}

impl Known {
    fn position(&self, address: &str) -> Option<usize> {
        self.addresses.iter().position(|it| it == address)
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use model::error::{ErrorKind, UserError};

    use super::*;

    fn agents(count: usize) -> Agents {
        let agents = Agents::new("key".to_owned(), Duration::from_secs(1));
        let all: Vec<Agent> = (0..count)
            .map(|at| Agent { id: format!("agent-{at}"), address: format!("host-{at}:1"), session: at as i64 })
            .collect();
        agents.registered(&all);
        agents
    }

    async fn asked(agents: &Agents, well: &str) -> (Vec<String>, Result<(), Failure>) {
        let asked = Mutex::new(Vec::new());
        let answer = agents
            .call(|agent| {
                let address = agent.address().to_owned();
                let is_well = address == well;
                asked.lock().push(address);
                async move { if is_well { Ok(()) } else { Err(ApiError::Unavailable("no database".to_owned())) } }
            })
            .await;
        (asked.into_inner(), answer)
    }

    #[tokio::test]
    async fn the_fourth_agent_is_reached_by_the_second_call() {
        let agents = agents(5);
        let (first, answer) = asked(&agents, "host-3:1").await;
        assert_eq!(first, ["host-0:1", "host-1:1", "host-2:1"]);
        assert!(answer.is_err());
        let (second, answer) = asked(&agents, "host-3:1").await;
        assert_eq!((second, answer), (vec!["host-3:1".to_owned()], Ok(())));
        let (third, _) = asked(&agents, "host-3:1").await;
        assert_eq!(third, ["host-3:1"], "the agent that answered stays in front");
    }

    #[tokio::test]
    async fn a_refusal_sends_a_reading_elsewhere_and_ends_a_write() {
        let refusing = |agent: Arc<AgentClient>| {
            let is_first = agent.address() == "host-0:1";
            async move {
                if is_first { Err(ApiError::Refused(UserError::new(ErrorKind::Internal, "a row"))) } else { Ok(()) }
            }
        };
        assert!(matches!(agents(2).call(refusing).await, Err(Failure::Refused(_))));
        assert_eq!(agents(2).read(refusing).await, Ok(()));
    }
}
