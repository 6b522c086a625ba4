//! A pool of metadata agents with failover: the order in which they are tried, and a client for each.
//!
//! Agents are equal: the one that answered last is tried first, those that failed are tried last. Every call is
//! idempotent, so a call that failed at one agent may be sent to the next: that is the same call, not a retry of a
//! decision. The addresses come from the registry and are kept while ZooKeeper is away.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::caller::{Caller, MetadataAgentEndpoint};
use crate::client::AgentClient;
use crate::error::{ApiError, ApiErrorKind};

/// The most clients that are kept.
const MAX_CLIENTS: usize = 64;

/// How a pool calls its agents.
pub struct PoolOptions {
    /// The role that calls.
    pub caller: Caller,
    /// The deadline of a call to one agent.
    pub call_deadline: Duration,
    /// The most agents that one call is sent to.
    pub max_tried: usize,
    /// Whether the connection to an agent is kept for the next call.
    pub keep_connections: bool,
}

/// The registered metadata agents.
pub struct AgentPool {
    options: PoolOptions,
    state: Mutex<PoolState>,
}

#[derive(Default)]
struct PoolState {
    /// In the order in which they are tried.
    agents: Vec<MetadataAgentEndpoint>,
    clients: BTreeMap<String, Arc<AgentClient>>,
}

impl AgentPool {
    pub fn new(options: PoolOptions) -> Self {
        Self { options, state: Mutex::default() }
    }

    /// Replaces the registered agents. Those that stay keep their order, new ones come last.
    pub fn set_agents(&self, agents: impl Iterator<Item = MetadataAgentEndpoint> + Clone) {
        let mut state = self.state.lock();
        let is_registered = |known: &MetadataAgentEndpoint| agents.clone().any(|agent| agent == *known);
        // The order is by address: an agent whose keys were replaced keeps its place.
        let PoolState { agents: known, clients } = &mut *state;
        for agent in known.iter_mut() {
            if let Some(renewed) = agents.clone().find(|renewed| renewed.address == agent.address)
                && *agent != renewed
            {
                clients.remove(&agent.address);
                *agent = renewed;
            }
        }
        known.retain(is_registered);
        clients.retain(|address, _| known.iter().any(|agent| agent.address == *address));
        for agent in agents {
            if state.position(&agent.address).is_none() {
                state.agents.push(agent);
            }
        }
    }

    /// The registered agents in the order in which they are tried.
    pub fn agents(&self) -> Vec<MetadataAgentEndpoint> {
        self.state.lock().agents.clone()
    }

    /// The role that calls.
    pub fn caller(&self) -> &Caller {
        &self.options.caller
    }

    /// Sends a call to one agent after the other until one answers, or fails in a way that is not to be tried at another
    /// agent. An agent that failed is tried last from then on, so that the next call reaches those that this one did not.
    pub async fn call<T, F>(
        &self,
        call: impl Fn(Arc<AgentClient>) -> F,
        tries_next: impl Fn(ApiErrorKind) -> bool,
    ) -> Result<T, ApiError>
    where
        F: Future<Output = Result<T, ApiError>>,
    {
        let mut last = ApiError::Unavailable("none is registered".into());
        for client in self.clients() {
            let address = client.address().to_owned();
            match call(client).await {
                Ok(answer) => {
                    self.prefer(&address);
                    return Ok(answer);
                }
                Err(error) if !tries_next(error.kind()) => return Err(error),
                Err(error) => {
                    self.failed(&address);
                    last = error;
                }
            }
        }
        Err(last)
    }

    fn clients(&self) -> Vec<Arc<AgentClient>> {
        let mut state = self.state.lock();
        let PoolState { agents, clients } = &mut *state;
        if clients.len() > MAX_CLIENTS {
            clients.clear();
        }
        let PoolOptions { caller, call_deadline, max_tried, keep_connections } = &self.options;
        let new =
            |agent: &MetadataAgentEndpoint| Arc::new(AgentClient::new(agent.clone(), caller.clone(), *call_deadline));
        let tried = agents.iter().take(*max_tried);
        if !keep_connections {
            return tried.map(new).collect();
        }
        tried.map(|agent| Arc::clone(clients.entry(agent.address.clone()).or_insert_with(|| new(agent)))).collect()
    }

    /// The next call begins with this agent.
    fn prefer(&self, address: &str) {
        let mut state = self.state.lock();
        if let Some(at) = state.position(address) {
            state.agents[..=at].rotate_right(1);
        }
    }

    /// The agent is tried last from now on.
    pub fn failed(&self, address: &str) {
        let mut state = self.state.lock();
        if let Some(at) = state.position(address) {
            state.agents[at..].rotate_left(1);
        }
    }

    /// The agent that is tried first is tried last from now on.
    pub fn first_failed(&self) {
        let mut state = self.state.lock();
        if !state.agents.is_empty() {
            state.agents.rotate_left(1);
        }
    }
}

impl PoolState {
    fn position(&self, address: &str) -> Option<usize> {
        self.agents.iter().position(|known| known.address == address)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use keys::{Current, KeyGeneration, MasterSecrets, Root, SecretKey};
    use model::error::{ErrorKind, UserError};

    use super::*;
    use crate::tls::ClusterTls;

    fn caller() -> Caller {
        let root = Root::new("eh", SecretKey::new([1; 32]));
        let file = root.role_file::<MasterSecrets>(KeyGeneration(1), &[KeyGeneration(1)], |user, _| user.to_owned());
        Caller::new(Current::fixed(file.unwrap().verified("eh").unwrap()), ClusterTls::Required)
    }

    fn agent(address: &str, keys: u32) -> MetadataAgentEndpoint {
        MetadataAgentEndpoint { address: address.to_owned(), keys: vec![KeyGeneration(keys)], tls: None }
    }

    fn addresses(pool: &AgentPool) -> Vec<String> {
        pool.agents().into_iter().map(|agent| agent.address).collect()
    }

    fn pool(count: usize) -> AgentPool {
        let pool = AgentPool::new(PoolOptions {
            caller: caller(),
            call_deadline: Duration::from_secs(1),
            max_tried: 3,
            keep_connections: true,
        });
        pool.set_agents((0..count).map(|at| agent(&format!("host-{at}:1"), 1)));
        pool
    }

    /// The agents that a call is sent to if only one of them works.
    async fn tried(pool: &AgentPool, working: &str) -> (Vec<String>, Result<(), ApiError>) {
        let tried = Mutex::new(Vec::new());
        let call = |agent: Arc<AgentClient>| {
            let works = agent.address() == working;
            tried.lock().push(agent.address().to_owned());
            async move { if works { Ok(()) } else { Err(ApiError::Unavailable("no database".into())) } }
        };
        let answer = pool.call(call, |kind| kind == ApiErrorKind::Unavailable).await;
        (tried.into_inner(), answer)
    }

    #[tokio::test]
    async fn the_fourth_agent_is_reached_by_the_second_call() {
        let pool = pool(5);
        let (first, answer) = tried(&pool, "host-3:1").await;
        assert_eq!(first, ["host-0:1", "host-1:1", "host-2:1"]);
        assert!(answer.is_err());
        let (second, answer) = tried(&pool, "host-3:1").await;
        assert_eq!((second, answer), (vec!["host-3:1".to_owned()], Ok(())));
        let (third, _) = tried(&pool, "host-3:1").await;
        assert_eq!(third, ["host-3:1"], "the agent that answered stays first");
    }

    #[tokio::test]
    async fn an_error_that_is_no_reason_to_try_the_next_agent_is_returned() {
        let pool = pool(2);
        let refusing = |_| async { Err::<(), _>(ApiError::Refused(UserError::new(ErrorKind::Internal, "a row"))) };
        let answer = pool.call(refusing, |kind| kind == ApiErrorKind::Unavailable).await;
        assert!(matches!(answer, Err(ApiError::Refused(_))));
        assert_eq!(addresses(&pool), ["host-0:1", "host-1:1"], "the agent did not fail");
    }

    #[test]
    fn agents_that_stay_registered_keep_their_order() {
        let pool = pool(3);
        pool.first_failed();
        pool.set_agents(["host-9:1", "host-0:1", "host-2:1"].into_iter().map(|address| agent(address, 1)));
        assert_eq!(addresses(&pool), ["host-2:1", "host-0:1", "host-9:1"]);
    }

    #[test]
    fn an_agent_with_new_keys_keeps_its_place_and_gets_a_new_client() {
        let pool = pool(2);
        let clients = pool.clients();
        pool.set_agents([agent("host-1:1", 1), agent("host-0:1", 2)].into_iter());
        assert_eq!(pool.agents(), [agent("host-0:1", 2), agent("host-1:1", 1)]);
        let now = pool.clients();
        assert!(!Arc::ptr_eq(&clients[0], &now[0]) && Arc::ptr_eq(&clients[1], &now[1]));
    }
}
