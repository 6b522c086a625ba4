//! The metadata agent: a `HiveServer2` server whose SQL is the control language, and the only role with database
//! credentials.
//!
//! It executes control statements for proxies, with the whole write path of an alteration (`alter`), and serves the calls
//! of masters (`agent_api`). Agents are equal, hold no durable state and can die at any moment: every statement carries a
//! request id, so that another agent can report what the first one did.
//!
//! Invariants: nothing is committed without its alter node, except statements that change nothing; *nothing changed* is
//! reported only after `abort` has confirmed it; a statement whose deadline has passed is refused inside its transaction.
//! A stale agent (stopped, then continued) is refused by the generation of the object or by the row of its id.

mod alter;
mod answer;
mod api;
mod audit;
mod cancel;
mod context;
mod database;
pub mod failpoints;
mod holders;
mod operation;
mod overview_poller;
mod refusal_limit;
mod registration;
mod request;
mod secrets;
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
use metadata::{DeletedRows, Store};
use model::advertised::Advertised;
use model::clock::SharedClock;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

pub use holders::HolderSettings;
pub use registration::identity;
pub use settings::{STALE_AFTER_TICKS, Settings, StartError};

use context::Agent;
use database::Database;
use holders::ReservationPoller;
use overview_poller::OverviewPoller;
use refusal_limit::RefusalLimit;
use registration::Registration;
use service::ControlService;

/// The configuration key of the address to register.
const ADVERTISE: &str = "metadata_agent.advertise";
/// How long the tasks of the agent may take to end.
const CLOSE_DEADLINE: Duration = Duration::from_secs(10);
/// How often old rows are deleted.
const HOUSEKEEPING_INTERVAL: Duration = Duration::from_hours(1);

/// A running metadata agent.
pub struct MetadataAgent {
    address: SocketAddr,
    agent: Arc<Agent>,
    stop: CancellationToken,
    serving: JoinHandle<()>,
    housekeeping: JoinHandle<()>,
    sealing: JoinHandle<()>,
    watching: JoinHandle<()>,
}

/// The bound port of a metadata agent that does not serve yet. Bound before the database is used, so that a port in use is
/// an error at once; early connections wait.
pub struct Listener {
    server: Server,
    address: SocketAddr,
}

impl Listener {
    pub async fn bind(listen: SocketAddr, limits: hs2::Limits) -> Result<Self, StartError> {
        let listening = |source| StartError::Listen { address: listen, source };
        let server = Server::bind(listen, limits).await.map_err(listening)?;
        let address = server.local_addr().map_err(listening)?;
        Ok(Self { server, address })
    }
}

impl MetadataAgent {
    /// Listens, registers, serves. Does not need ZooKeeper yet.
    pub async fn start(settings: Settings, store: Store, clock: SharedClock) -> Result<Self, StartError> {
        let listener = Listener::bind(settings.listen, settings.limits.clone()).await?;
        Self::serve(listener, settings, store, clock)
    }

    /// Registers and serves on a bound port.
    pub fn serve(listener: Listener, settings: Settings, store: Store, clock: SharedClock) -> Result<Self, StartError> {
        let Listener { server, address } = listener;
        let id = uuid::Uuid::new_v4().simple().to_string();
        let advertised = Advertised::new(ADVERTISE, settings.advertise.as_deref().unwrap_or_default(), address)
            .map_err(StartError::Advertise)?;
        let keys = settings.keys.clone();
        let tls = settings.tls.server(move || keys.get().tls().map(|(_, seed)| seed)).map_err(StartError::Tls)?;
        let registration = Arc::new(Registration {
            id: id.clone(),
            address: advertised.to_string(),
            keys: settings.keys.clone(),
            offers_tls: tls.is_some(),
        });
        let supervisor = Supervisor::start(settings.zookeeper.clone(), clock.clone(), registration);
        let overviews = OverviewPoller::new(store.clone(), clock.clone());
        let reservations = ReservationPoller::new(store.clone(), clock.clone());
        let database = Database::default();
        let agent = Arc::new(Agent {
            id,
            settings,
            store,
            overviews,
            reservations,
            clock,
            supervisor,
            database,
            refusals: RefusalLimit::default(),
        });
        let stop = CancellationToken::new();
        let service = Arc::new(ControlService::new(Arc::clone(&agent)));
        let server = match tls {
            Some(tls) => server.with_tls(tls),
            None => server,
        };
        let serving = tokio::spawn(server.serve(service, stop.clone()));
        let housekeeping = tokio::spawn(delete_old_rows(Arc::clone(&agent), stop.clone()));
        let sealing = tokio::spawn(secrets::keep_sealed(Arc::clone(&agent), stop.clone()));
        let watched = (Arc::clone(&agent), stop.clone());
        let watching = tokio::spawn(async move {
            let (agent, stop) = watched;
            agent.database.watch(agent.store.clone(), agent.clock.clone(), stop).await;
        });
        info!(%address, id = agent.id, "metadata agent serves");
        Ok(Self { address, agent, stop, serving, housekeeping, sealing, watching })
    }

    /// Waits until it has registered in ZooKeeper, so that proxies and masters find it.
    pub async fn ready(&self) {
        // The sender lives as long as the supervisor.
        let _ = self.agent.supervisor.sessions().wait_for(Option::is_some).await;
    }

    pub fn addr(&self) -> SocketAddr {
        self.address
    }

    /// Stops accepting calls, waits a short time for running ones, and closes everything.
    pub async fn shutdown(self) {
        self.stop.cancel();
        let ended = async {
            for task in [self.serving, self.housekeeping, self.sealing, self.watching] {
                if let Err(error) = task.await {
                    warn!(%error, "metadata agent task failed");
                }
            }
        };
        if tokio::time::timeout(CLOSE_DEADLINE, ended).await.is_err() {
            warn!("shutdown timed out; cutting the remaining connections");
        }
        self.agent.supervisor.close().await;
        self.agent.store.close().await;
    }
}

async fn delete_old_rows(agent: Arc<Agent>, stop: CancellationToken) {
    let (audit_keep, reservation_keep) = (agent.settings.audit_keep, agent.settings.reservation_keep);
    loop {
        match agent.store.housekeep(audit_keep, reservation_keep).await {
            Ok(deleted) => {
                let DeletedRows { requests, alterations, engines, reservations, scopes, audit, demand } = deleted;
                tracing::debug!(
                    requests,
                    alterations,
                    engines,
                    reservations,
                    scopes,
                    audit,
                    demand,
                    "old rows deleted"
                );
            }
            Err(error) => tracing::debug!(%error, "could not delete old rows"),
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(HOUSEKEEPING_INTERVAL) => {}
        }
    }
}
