//! The metadata agent: a `HiveServer2` server whose SQL is the control language, and the only role with database
//! credentials.
//!
//! It executes control statements for proxies, carries out the whole write path of an alteration ([`alter`](self)), and
//! answers what masters ask (`agent_api`). Agents are equal, hold no state that matters and can die at any moment:
//! every statement carries a request id, so that another agent answers what the first one did.
//!
//! Invariants: nothing is committed without its alter node (except what changes nothing); nobody is told *nothing
//! changed* before `abort` has answered so; a statement whose deadline has passed is refused inside its transaction.
//! A stale agent (stopped, then continued) is refused by the generation of the object or by the row of its id.

mod alter;
mod answer;
mod api;
mod context;
mod database;
pub mod failpoints;
mod looks;
mod operation;
mod registration;
mod request;
mod service;
mod sessions;
mod settings;
mod show;
mod starting;
mod statement;
mod wait;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use coordination::Supervisor;
use hs2::Server;
use metadata::Store;
use model::advertised::Advertised;
use model::clock::SharedClock;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

pub use settings::{STALE_AFTER_TICKS, Settings, StartError};

use context::Agent;
use database::Database;
use looks::Looks;
use registration::Registration;
use service::ControlService;

/// The key of the configuration that says what is registered.
const ADVERTISE: &str = "metadata_agent.advertise";
/// How long closing may take.
const CLOSE_DEADLINE: Duration = Duration::from_secs(10);
/// How often old rows are deleted.
const HOUSEKEEPING_INTERVAL: Duration = Duration::from_hours(1);

/// A metadata agent that serves.
pub struct MetadataAgent {
    address: SocketAddr,
    agent: Arc<Agent>,
    stop: CancellationToken,
    serving: JoinHandle<()>,
    housekeeping: JoinHandle<()>,
    watching: JoinHandle<()>,
}

/// A metadata agent's port, taken before its database is asked: a port in use is told at once. Nobody is served and
/// nobody knows of it; who connects already waits.
pub struct Listener {
    server: Server,
    address: SocketAddr,
}

impl Listener {
    /// Takes the port.
    pub async fn bind(listen: SocketAddr, limits: hs2::Limits) -> Result<Self, StartError> {
        let listening = |error: std::io::Error| StartError::Listen { address: listen, reason: error.to_string() };
        let server = Server::bind(listen, limits).await.map_err(listening)?;
        let address = server.local_addr().map_err(listening)?;
        Ok(Self { server, address })
    }
}

impl MetadataAgent {
    /// Listens, registers, serves. ZooKeeper need not be there yet.
    pub async fn start(settings: Settings, store: Store, clock: SharedClock) -> Result<Self, StartError> {
        let listener = Listener::bind(settings.listen, settings.limits.clone()).await?;
        Self::serve(listener, settings, store, clock)
    }

    /// Registers and serves on a port that was taken before.
    pub fn serve(listener: Listener, settings: Settings, store: Store, clock: SharedClock) -> Result<Self, StartError> {
        let Listener { server, address } = listener;
        let id = uuid::Uuid::new_v4().simple().to_string();
        let advertised = Advertised::new(ADVERTISE, settings.advertise.as_deref().unwrap_or_default(), address)
            .map_err(StartError::Advertise)?;
        let registration = Arc::new(Registration { id: id.clone(), address: advertised.to_string() });
        let supervisor = Supervisor::start(settings.zookeeper.clone(), clock.clone(), registration);
        let looks = Looks::new(store.clone(), clock.clone());
        let database = Database::default();
        let agent = Arc::new(Agent { id, settings, store, looks, clock, supervisor, database });
        let stop = CancellationToken::new();
        let service = Arc::new(ControlService::new(Arc::clone(&agent)));
        let serving = tokio::spawn(server.serve(service, stop.clone()));
        let housekeeping = tokio::spawn(keep_house(agent.store.clone(), stop.clone()));
        let watched = (Arc::clone(&agent), stop.clone());
        let watching = tokio::spawn(async move {
            let (agent, stop) = watched;
            agent.database.watch(agent.store.clone(), agent.clock.clone(), stop).await;
        });
        info!(%address, id = agent.id, "metadata agent serves");
        Ok(Self { address, agent, stop, serving, housekeeping, watching })
    }

    /// Waits until it has registered in ZooKeeper, so that proxies and masters find it.
    pub async fn ready(&self) {
        // The sender lives as long as the supervisor.
        let _ = self.agent.supervisor.sessions().wait_for(Option::is_some).await;
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.address
    }

    /// Takes no more calls, lets running ones end for a short time, closes everything.
    pub async fn shutdown(self) {
        self.stop.cancel();
        let ended = async {
            for task in [self.serving, self.housekeeping, self.watching] {
                if let Err(error) = task.await {
                    warn!(%error, "a task of the metadata agent ended badly");
                }
            }
        };
        if tokio::time::timeout(CLOSE_DEADLINE, ended).await.is_err() {
            warn!("the metadata agent did not close in time, what is left is cut");
        }
        self.agent.supervisor.close().await;
        self.agent.store.close().await;
    }
}

async fn keep_house(store: Store, stop: CancellationToken) {
    loop {
        match store.housekeep().await {
            Ok(deleted) => tracing::debug!(?deleted, "old rows deleted"),
            Err(error) => tracing::debug!(%error, "old rows could not be deleted"),
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(HOUSEKEEPING_INTERVAL) => {}
        }
    }
}
