//! The metadata agents as the master calls them: registered agents only, three at most for each call.

use std::sync::Arc;
use std::time::Duration;

use agent_api::{AgentClient, AgentPool, ApiError, ApiErrorKind, Caller, MetadataAgentEndpoint, PoolOptions};
use coordination::Agent;

use super::Failure;

/// The most agents that one call is sent to.
const MAX_AGENTS_TRIED: usize = 3;

pub(super) struct Agents(AgentPool);

impl Agents {
    pub(super) fn new(caller: Caller, call_deadline: Duration) -> Self {
        Self(AgentPool::new(PoolOptions { caller, call_deadline, max_tried: MAX_AGENTS_TRIED, keep_connections: true }))
    }

    /// Replaces the registered agents.
    pub(super) fn registered(&self, agents: &[Agent]) {
        let endpoint = |agent: &Agent| MetadataAgentEndpoint {
            address: agent.address.clone(),
            keys: agent.keys.clone(),
            tls: agent.tls,
        };
        self.0.set_agents(agents.iter().map(endpoint));
    }

    /// Sends a call; the next agent is tried where one is unavailable or its answer is lost.
    pub(super) async fn call<T, F>(&self, call: impl Fn(Arc<AgentClient>) -> F) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, ApiError>>,
    {
        self.0.call(call, tries_next).await.map_err(failure)
    }

    /// Sends a call that only reads. A refusal may be a defect of the one agent, such as a row that it is too old to read:
    /// the next agent is tried also then.
    pub(super) async fn read<T, F>(&self, call: impl Fn(Arc<AgentClient>) -> F) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, ApiError>>,
    {
        let read = self.0.call(call, |kind| tries_next(kind) || kind == ApiErrorKind::Refused);
        read.await.map_err(failure)
    }
}

fn tries_next(kind: ApiErrorKind) -> bool {
    matches!(kind, ApiErrorKind::Unavailable | ApiErrorKind::OutcomeUnknown)
}

/// What a failed call means to the master.
fn failure(error: ApiError) -> Failure {
    match error {
        ApiError::Deposed(record) => Failure::Deposed(format!("epoch {} is held by {}", record.epoch, record.holder)),
        ApiError::Conflict(what) => Failure::Moved(what),
        ApiError::Unavailable(cause) => Failure::Unavailable(format!("a metadata agent: {cause}")),
        ApiError::OutcomeUnknown(cause) => Failure::Unknown(cause.to_string()),
        ApiError::Refused(error) => Failure::Refused(error.text()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use agent_api::ClusterTls;
    use keys::{KeyGeneration, Root, SecretKey};
    use model::error::{ErrorKind, UserError};

    use super::*;

    #[tokio::test]
    async fn a_refusal_sends_a_reading_to_the_next_agent_and_ends_a_write() {
        let agents = || {
            let (root, first) = (Root::new("eh", SecretKey::new([1; 32])), KeyGeneration::FIRST);
            let keys = root.all_roles(first, &[first], coordination::digest).unwrap();
            let agents = Agents::new(Caller::new(keys.master, ClusterTls::Optional), Duration::from_secs(1));
            let agent = |at: i64| Agent {
                id: format!("agent-{at}"),
                address: format!("host-{at}:1"),
                keys: vec![first],
                tls: None,
                session: at,
            };
            agents.registered(&[agent(0), agent(1)]);
            agents
        };
        let refusing = |agent: Arc<AgentClient>| {
            let is_first = agent.address() == "host-0:1";
            async move {
                if is_first { Err(ApiError::Refused(UserError::new(ErrorKind::Internal, "a row"))) } else { Ok(()) }
            }
        };
        assert!(matches!(agents().call(refusing).await, Err(Failure::Refused(_))));
        assert_eq!(agents().read(refusing).await, Ok(()));
    }
}
