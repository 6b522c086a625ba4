//! The gateway: takes HiveServer2 clients, and for each statement parses what is ours, chooses a backend, relays.
//!
//! A backend is one of two kinds, both HiveServer2: a *metadata agent* (control statements) or an *engine agent*
//! (user SQL). Results are never decoded on the way. The files follow a session's life:
//!
//! | file | phase |
//! | --- | --- |
//! | [`listener`](crate) | a connection: authenticate, read calls, end what it leaves behind |
//! | `session::open` | `OpenSession`: whose it is, which keys are ours, which go on to the engine |
//! | `session::statement` | `ExecuteStatement`: ours, answered here, or the engine's |
//! | `session::queue` | the queue that a session names, and the pool that it means |
//! | `session::unbound` | `GetInfo`, USE and SET while no engine is bound |
//! | `session::timeout` | how long a statement may take |
//! | `session::binding` | choose an engine, open its session, replay, hand over when it drains |
//! | `session::control` | a control statement at a metadata agent, sent again under the same id if that dies |
//! | `session::absence` | why there is no engine: what is waited for, or what to say |
//! | `session::operation`, `session::relayed`, `session::cancel` | everything that names an operation |
//! | `budget` | how many bytes sessions may make the proxy keep |
//! | `activity` | the summary of a minute in the log |
//! | `drain` | a proxy that is told to end: it lets sessions end by themselves for a while |
//!
//! A proxy holds no business state: it can die at any moment, and its clients connect to another. It writes nothing
//! to ZooKeeper for a session. Without ZooKeeper or metadata agents it goes on with what it last knew ([`catalog`],
//! [`routes`]) and says so (`missing`): a route that is no longer true leads to an engine that refuses before it
//! executes anything.

mod accept;
mod activity;
mod agents;
mod authorize;
mod budget;
mod catalog;
mod drain;
pub mod failpoints;
mod routes;
mod session;
mod settings;
mod staleness;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use coordination::{Supervisor, View};
use hs2::Server;
use model::advertised::Advertised;
use model::clock::SharedClock;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

pub use settings::{Limits, Product, Settings, StartError};

use crate::activity::Activity;
use crate::agents::Agents;
use crate::budget::Budget;
use crate::catalog::CatalogView;
use crate::drain::Discovery;
use crate::routes::Routes;
use crate::session::Sessions;
use crate::staleness::ZooKeeperStatus;

/// The key of the configuration that says what discovery tells.
const ADVERTISE: &str = "proxy.advertise";
/// How long closing what a proxy leaves behind may take.
const CLOSE_DEADLINE: Duration = Duration::from_secs(10);

/// What every session of the proxy shares.
pub(crate) struct Gateway {
    pub(crate) settings: Settings,
    pub(crate) clock: SharedClock,
    pub(crate) agents: Agents,
    pub(crate) catalog: Arc<CatalogView>,
    pub(crate) routes: Routes,
    pub(crate) zookeeper: ZooKeeperStatus,
    pub(crate) sessions: Sessions,
    /// What sessions make the proxy keep.
    pub(crate) budget: Arc<Budget>,
    /// What happened since the last summary in the log.
    pub(crate) activity: Activity,
    /// Cancelled when the proxy begins to leave: from then on no session is opened.
    pub(crate) leaving: CancellationToken,
}

/// A proxy that serves.
pub struct Proxy {
    address: SocketAddr,
    gateway: Arc<Gateway>,
    discovery: Arc<Discovery>,
    stop: CancellationToken,
    serving: JoinHandle<()>,
    polling: JoinHandle<()>,
    idling: JoinHandle<()>,
    summing: JoinHandle<()>,
    supervisor: Supervisor,
}

impl Proxy {
    /// Listens and serves. Neither ZooKeeper nor a metadata agent need be there yet.
    pub async fn start(settings: Settings, clock: SharedClock) -> Result<Self, StartError> {
        let server = Server::bind(settings.listen, settings.limits.wire.clone())
            .await
            .map_err(|error| StartError::Listen { address: settings.listen, reason: error.to_string() })?;
        let address = server
            .local_addr()
            .map_err(|error| StartError::Listen { address: settings.listen, reason: error.to_string() })?;
        let advertised = settings.discovery.as_ref().map(|text| Advertised::new(ADVERTISE, text, address));
        let advertised = advertised.transpose().map_err(StartError::Advertise)?;
        let leaving = CancellationToken::new();
        let discovery = Arc::new(Discovery { advertised, leaving: leaving.clone() });
        let supervisor = Supervisor::start(settings.zookeeper.clone(), clock.clone(), Arc::clone(&discovery) as _);
        let view = View::start(supervisor.sessions(), settings.zookeeper.reread, clock.clone());
        let agents = Agents::new(&settings, view.changes());
        let catalog = Arc::new(CatalogView::new(agents.clone(), clock.clone()));
        let stop = CancellationToken::new();
        let polling = tokio::spawn(catalog::poll(Arc::clone(&catalog), settings.snapshot_poll, stop.clone()));
        let zookeeper =
            ZooKeeperStatus::follow(supervisor.states(), view.changes(), &settings.zookeeper, clock.clone());
        let routes = Routes::new(view, &settings, clock.clone());
        let sessions = Sessions::new(&settings.limits);
        let budget = Budget::new(settings.limits.held_bytes);
        let activity = Activity::default();
        let gateway = Arc::new(Gateway {
            settings,
            clock,
            agents,
            catalog,
            routes,
            zookeeper,
            sessions,
            budget,
            activity,
            leaving,
        });
        let summing = tokio::spawn(activity::summarize(Arc::clone(&gateway), stop.clone()));
        let idling = tokio::spawn(session::close::end_idle(Arc::clone(&gateway), stop.clone()));
        let serving = tokio::spawn({
            let (gateway, stop) = (Arc::clone(&gateway), stop.clone());
            async move { server.serve_connections(gateway, stop).await }
        });
        info!(%address, "proxy serves");
        Ok(Self { address, gateway, discovery, stop, serving, polling, idling, summing, supervisor })
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.address
    }

    /// Waits until ZooKeeper has accepted its session and it is registered for discovery, if it is to be. It serves
    /// clients before that.
    pub async fn ready(&self) {
        // The sender lives as long as the supervisor.
        let _ = self.supervisor.sessions().wait_for(Option::is_some).await;
    }

    /// Accepts nothing more, lets running calls end for a short time, closes everything.
    pub async fn shutdown(self) {
        self.stop.cancel();
        let ended = async {
            for task in [self.serving, self.polling, self.idling, self.summing] {
                if let Err(error) = task.await {
                    warn!(%error, "a task of the proxy ended badly");
                }
            }
        };
        if tokio::time::timeout(CLOSE_DEADLINE, ended).await.is_err() {
            warn!("the proxy did not close in time, what is left is cut");
        }
        self.supervisor.close().await;
    }
}
