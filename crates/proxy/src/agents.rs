//! Which metadata agents there are, and connections to them.
//!
//! The list comes from the registry and is kept while ZooKeeper is away. Agents are equal: the next call goes to the
//! one that answered last, then to the others in turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use agent_api::{AgentApi, AgentClient, ApiError, Role};
use coordination::RegistrySnapshot;
use hs2::{Auth, Client, ClientOptions};
use model::credential::Purpose;
use model::error::{ErrorKind, UserError};
use model::snapshot::ProxySnapshot;
use tokio::sync::watch;

use crate::settings::{AGENT_DEADLINE, CONNECT_DEADLINE, CONTROL_CALL_DEADLINE, Settings};

/// How long the catalog may take to arrive.
const SNAPSHOT_DEADLINE: Duration = Duration::from_secs(10);
/// How long to wait for the registry to show an agent before looking again.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// The metadata agents as a proxy sees them.
#[derive(Clone)]
pub(crate) struct Agents {
    registered: watch::Receiver<Arc<RegistrySnapshot>>,
    key: String,
    preferred: Arc<AtomicUsize>,
}

impl Agents {
    pub(crate) fn new(settings: &Settings, registered: watch::Receiver<Arc<RegistrySnapshot>>) -> Self {
        let key = settings.secret.derive(&Purpose::MetadataAgent);
        Self { registered, key, preferred: Arc::default() }
    }

    /// Addresses in the order in which they should be tried.
    fn addresses(&self) -> Vec<String> {
        let registered = self.registered.borrow().clone();
        let mut addresses: Vec<String> = registered.agents.iter().map(|agent| agent.address.clone()).collect();
        if !addresses.is_empty() {
            let first = self.preferred.load(Ordering::Relaxed) % addresses.len();
            addresses.rotate_left(first);
        }
        addresses
    }

    /// The next call begins with another agent.
    pub(crate) fn give_up_preferred(&self) {
        self.preferred.fetch_add(1, Ordering::Relaxed);
    }

    /// A connection to any metadata agent, speaking for the user. Tries all that are known, again and again until
    /// [`AGENT_DEADLINE`]; nothing was sent when it fails.
    pub(crate) async fn connect(&self, user: &str) -> Result<Client, UserError> {
        let trying = async {
            let mut last = None;
            loop {
                for address in self.addresses() {
                    let mut options =
                        ClientOptions::new(address, Auth::service(agent_api::SERVICE_PROXY, &*self.key, user));
                    options.connect_deadline = CONNECT_DEADLINE.min(AGENT_DEADLINE / 2);
                    options.call_deadline = CONTROL_CALL_DEADLINE;
                    match Client::connect(&options).await {
                        Ok(client) => return Ok::<_, UserError>(client),
                        Err(error) => {
                            self.give_up_preferred();
                            last = Some(error.to_string());
                        }
                    }
                }
                tracing::debug!(last, "no metadata agent yet");
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        };
        tokio::time::timeout(AGENT_DEADLINE, trying).await.unwrap_or_else(|_| Err(self.none_reachable()))
    }

    /// What a user reads when no metadata agent answers.
    pub(crate) fn none_reachable(&self) -> UserError {
        let known = self.addresses();
        let detail = if known.is_empty() {
            "none is registered in ZooKeeper".to_owned()
        } else {
            format!("registered and silent: {}", known.join(", "))
        };
        UserError::new(ErrorKind::Unavailable, "no metadata agent can be reached")
            .detail(detail)
            .hint("nothing was changed; queries go on; try again when an operator has started one")
    }

    /// The catalog, from the first agent that answers.
    pub(crate) async fn snapshot(&self) -> Result<ProxySnapshot, ApiError> {
        let mut last = ApiError::Unavailable("no metadata agent is registered".to_owned());
        for address in self.addresses() {
            let client = AgentClient::new(address, Role::Proxy, self.key.clone(), SNAPSHOT_DEADLINE);
            match client.proxy_snapshot().await {
                Ok(snapshot) => return Ok(snapshot),
                Err(error) => {
                    self.give_up_preferred();
                    last = error;
                }
            }
        }
        Err(last)
    }
}
