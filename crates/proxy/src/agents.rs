//! The metadata agents as a proxy reaches them: connections for control statements, and the catalog.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use agent_api::{
    AgentApi as _, AgentClient, AgentPool, ApiError, ApiErrorKind, Caller, MetadataAgentEndpoint, PoolOptions,
    ReservationApi as _, ReservationReply, ReservationRequest,
};
use coordination::RegistrySnapshot;
use hs2::{Client, ClientError};
use model::demand_report::{DemandRecorded, DemandReport};
use model::error::{ErrorKind, UserError};
use model::snapshot::ProxySnapshot;
use tokio::sync::watch;

use crate::settings::{AGENT_DEADLINE, CONNECT_DEADLINE, CONTROL_CALL_DEADLINE, Settings};

/// How long the catalog may take to arrive.
const SNAPSHOT_DEADLINE: Duration = Duration::from_secs(10);
/// The pause before all agents are tried again.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

async fn connect(pool: &AgentPool, agent: &MetadataAgentEndpoint, user: &str) -> Result<Client, ClientError> {
    let mut options = pool.caller().metadata_agent(agent, user)?;
    options.connect_deadline = CONNECT_DEADLINE.min(AGENT_DEADLINE / 2);
    options.call_deadline = CONTROL_CALL_DEADLINE;
    Client::connect(&options).await
}

#[derive(Clone)]
pub(crate) struct Agents {
    registered: watch::Receiver<Arc<RegistrySnapshot>>,
    pool: Arc<AgentPool>,
}

impl Agents {
    pub(crate) fn new(settings: &Settings, registered: watch::Receiver<Arc<RegistrySnapshot>>) -> Self {
        let pool = AgentPool::new(PoolOptions {
            caller: Caller::new(settings.keys.clone(), settings.cluster_tls),
            call_deadline: SNAPSHOT_DEADLINE,
            max_tried: usize::MAX,
            keep_connections: false,
        });
        Self { registered, pool: Arc::new(pool) }
    }

    /// The pool with the agents that are registered now.
    fn pool(&self) -> &AgentPool {
        let registered = self.registered.borrow().clone();
        let endpoint = |agent: &coordination::Agent| MetadataAgentEndpoint {
            address: agent.address.clone(),
            keys: agent.keys.clone(),
            tls: agent.tls,
        };
        self.pool.set_agents(registered.agents.iter().map(endpoint));
        &self.pool
    }

    /// The next call begins with another agent.
    pub(crate) fn give_up_preferred(&self) {
        self.pool.first_failed();
    }

    /// A connection to any metadata agent on behalf of the user. Tries all registered agents repeatedly until
    /// [`AGENT_DEADLINE`]; nothing was sent when it fails.
    pub(crate) async fn connect(&self, user: &str) -> Result<Client, UserError> {
        let connecting = async {
            let mut last = None;
            loop {
                let pool = self.pool();
                for agent in pool.agents() {
                    match connect(pool, &agent, user).await {
                        Ok(client) => return Ok::<_, UserError>(client),
                        Err(error) => {
                            pool.failed(&agent.address);
                            last = Some(error.to_string());
                        }
                    }
                }
                tracing::debug!(last, "no metadata agent yet");
                tokio::time::sleep(RETRY_PAUSE).await;
            }
        };
        tokio::time::timeout(AGENT_DEADLINE, connecting).await.unwrap_or_else(|_| Err(self.none_reachable()))
    }

    /// The error of a statement that reached no metadata agent.
    pub(crate) fn none_reachable(&self) -> UserError {
        let known: Vec<String> = self.pool().agents().into_iter().map(|agent| agent.address).collect();
        let detail = if known.is_empty() {
            "No agent is registered in ZooKeeper.".to_owned()
        } else {
            format!("Registered agents that do not respond: {}.", known.join(", "))
        };
        UserError::new(ErrorKind::Unavailable, "no metadata agent can be reached")
            .detail(detail)
            .hint("Nothing was changed, and queries still run. Retry when an operator has started a metadata agent.")
    }

    /// The catalog, from the first agent that answers.
    pub(crate) async fn snapshot(&self) -> Result<ProxySnapshot, ApiError> {
        let pool = self.pool();
        if pool.agents().is_empty() {
            return Err(ApiError::Unavailable("no metadata agent is registered".into()));
        }
        pool.call(|agent| async move { agent.proxy_snapshot().await }, |_| true).await
    }

    /// Records the demand of this proxy.
    pub(crate) async fn record_demand(&self, report: &DemandReport) -> Result<DemandRecorded, ApiError> {
        let pool = self.pool();
        if pool.agents().is_empty() {
            return Err(ApiError::Unavailable("no metadata agent is registered".into()));
        }
        // A repeat of a report that was recorded has no effect.
        pool.call(|agent| async move { agent.record_demand(report).await }, |_| true).await
    }

    /// The reply to a call about reservations, from the first agent that decides it.
    pub(crate) async fn reservations(&self, request: &ReservationRequest) -> Result<ReservationReply, ApiError> {
        let pool = self.pool();
        if pool.agents().is_empty() {
            return Err(ApiError::Unavailable("no metadata agent is registered".into()));
        }
        let is_in_doubt = AtomicBool::new(false);
        let call = |agent: Arc<AgentClient>| {
            let is_in_doubt = &is_in_doubt;
            async move {
                let reply = agent.reservations(request.clone()).await;
                if let Err(ApiError::OutcomeUnknown(_)) = &reply {
                    is_in_doubt.store(true, Ordering::Relaxed);
                }
                reply
            }
        };
        match pool.call(call, |kind| kind != ApiErrorKind::Refused).await {
            // What the last agent did not do, an earlier one may have done.
            Err(error @ (ApiError::Unavailable(_) | ApiError::Conflict(_))) if is_in_doubt.load(Ordering::Relaxed) => {
                Err(ApiError::OutcomeUnknown(error.to_string().into()))
            }
            reply => reply,
        }
    }
}
