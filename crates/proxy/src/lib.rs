//! The gateway: accepts HiveServer2 clients, executes or answers each of their statements, and relays results.
//!
//! A statement runs at a metadata agent (control statements) or at an engine agent (all other SQL); both speak HiveServer2.
//! Results are never decoded on the way. A call passes through these files in this order:
//!
//! | file | phase |
//! | --- | --- |
//! | `accept` | reads the calls of a connection, and sends the replies that are not relayed |
//! | `handshake` | negotiates the protocol version of an `OpenSession` |
//! | `authenticate` | determines the user |
//! | `impersonate` | replaces the user by the one on whose behalf it acts |
//! | `session` | opens a session, or finds the session that the call names |
//! | `classify` | decides which component executes a statement |
//! | `bind` | gives the session an engine and replays its settings there |
//! | `relay` | sends the call to the backend and the reply to the client |
//! | `close` | ends sessions, in the background |
//! | `idle` | unbinds idle sessions, and closes abandoned and old ones |
//! | `demand` | reports the sessions that wait for an engine |
//!
//! `session::execute` has a statement classified, and `session::engine` has it bound and relayed. `session::state` is
//! below all phases: the settings, bindings and operations of one session. Calls that leave this path are in
//! `session::local` (answered by the proxy), `session::control` (control statements, which `control` executes),
//! `session::waiting` (statements that wait for an engine), `session::operation_calls` and `session::cancel`. Each
//! returns a `session::reply`.
//!
//! Requests below `/api/` do not take this path: `api` serves them, and runs their statements through `control`, too.
//!
//! A proxy holds no business state: it can die at any moment, and its clients connect to another. It writes nothing to
//! ZooKeeper for a session. Without ZooKeeper or metadata agents it uses what it last read (`catalog`, `routes`) and reports
//! that (`staleness`). A stale route leads to an engine that refuses before it executes anything.

mod accept;
mod activity;
mod agents;
mod api;
mod authenticate;
mod authorize;
mod bind;
mod budget;
mod catalog;
mod classify;
mod close;
mod control;
mod demand;
mod drain;
pub mod failpoints;
#[doc(hidden)]
pub mod fuzzing;
mod gateway;
mod handshake;
mod idle;
mod impersonate;
mod origin;
mod relay;
mod routes;
mod session;
mod settings;
mod staleness;
mod usage;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use authentication::{CookieKey, CookieKeys, Cookies, RefusalEvent, RefusalLog};
use coordination::discovery::DriverSettings;
use coordination::{Identity, Logins, Supervisor, View};
use hs2::Server;
use keys::{Current, KeyGeneration, ProxyKeys};
use model::advertised::Advertised;
use model::clock::SharedClock;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

pub use settings::{IdleLimits, Limits, Product, Settings, StartError};

use crate::activity::Activity;
use crate::agents::Agents;
use crate::api::Api;
use crate::api::admission::ApiCalls;
use crate::budget::Budget;
use crate::catalog::CatalogView;
use crate::demand::DemandCount;
use crate::drain::Discovery;
use crate::gateway::Gateway;
use crate::routes::Routes;
use crate::session::table::Sessions;
use crate::staleness::ZooKeeperStatus;
use crate::usage::Usage;

/// The configuration key of the address for discovery.
const ADVERTISE: &str = "proxy.advertise";
/// How long the tasks of the proxy may take to end.
const CLOSE_DEADLINE: Duration = Duration::from_secs(10);

/// A running proxy.
pub struct Proxy {
    address: SocketAddr,
    gateway: Arc<Gateway>,
    discovery: Arc<Discovery>,
    stop: CancellationToken,
    serving: JoinHandle<()>,
    polling: JoinHandle<()>,
    sweeping: JoinHandle<()>,
    reporting: JoinHandle<()>,
    summarizing: JoinHandle<()>,
    supervisor: Supervisor,
}

/// The ZooKeeper identity of proxies with these keys.
pub fn identity(keys: &Current<ProxyKeys>) -> Identity {
    Identity::changing(keys.map(|keys| Logins::proxy(keys.zookeeper_passwords(), &keys.digests())))
}

fn cookie_keys(keys: Current<ProxyKeys>) -> CookieKeys {
    let key = |(generation, key): (KeyGeneration, String)| CookieKey { generation: generation.0, key };
    Box::new(move || keys.get().cookies().into_iter().map(key).collect())
}

impl Proxy {
    /// Listens and serves. Needs neither ZooKeeper nor a metadata agent yet.
    pub async fn start(settings: Settings, clock: SharedClock) -> Result<Self, StartError> {
        let failed = |source| StartError::Listen { address: settings.listen, source };
        let mut server = Server::bind(settings.listen, settings.limits.wire.clone()).await.map_err(failed)?;
        server = server.with_clock(clock.clone());
        if let Some(tls) = &settings.tls {
            server = server.with_tls(Arc::clone(tls));
        }
        let address = server.local_addr().map_err(failed)?;
        let advertised = settings.discovery.as_ref().map(|text| Advertised::new(ADVERTISE, text, address));
        let advertised = advertised.transpose().map_err(StartError::Advertise)?;
        let name = advertised.as_ref().map_or_else(|| address.to_string(), ToString::to_string);
        let draining = CancellationToken::new();
        let use_tls = settings.tls.as_ref().is_some_and(|tls| tls.is_required());
        let drivers = DriverSettings { use_tls, principal: settings.principal.clone() };
        let discovery = Arc::new(Discovery { advertised, drivers, draining: draining.clone() });
        let supervisor = Supervisor::start(settings.zookeeper.clone(), clock.clone(), Arc::clone(&discovery) as _);
        let view = View::start(supervisor.sessions(), settings.zookeeper.reread, clock.clone());
        let agents = Agents::new(&settings, view.changes());
        let catalog = Arc::new(CatalogView::new(agents.clone(), clock.clone()));
        let stop = CancellationToken::new();
        let polling = tokio::spawn(catalog::poll(Arc::clone(&catalog), settings.snapshot_poll, stop.clone()));
        let zookeeper =
            ZooKeeperStatus::follow(supervisor.states(), view.changes(), &settings.zookeeper, clock.clone());
        let routes = Routes::new(view, &settings, clock.clone());
        let demand = Arc::new(DemandCount::new(clock.clone()));
        let reporting =
            tokio::spawn(demand::report(Arc::clone(&demand), agents.clone(), settings.demand_lease, stop.clone()));
        let sessions = Sessions::new(&settings.limits);
        let usage = Usage::new(&settings.limits);
        let budget = Budget::new(settings.limits.held_bytes, Arc::clone(&settings.limits.wire.hits));
        let hits = Arc::clone(&settings.limits.wire.hits);
        let activity = Arc::new(Activity::default());
        let cookies = Cookies::new(cookie_keys(settings.keys.clone()));
        let refused_impersonations = Arc::new(RefusalLog::new(RefusalEvent::Impersonation, clock.clone()));
        refused_impersonations.start_reporting();
        let gateway = Arc::new_cyclic(|gateway| Gateway {
            api: Arc::new(Api::new(gateway.clone())),
            api_calls: Arc::new(ApiCalls::new(Arc::clone(&hits))),
            settings,
            address: name,
            clock,
            cookies,
            refused_impersonations,
            agents,
            catalog,
            routes,
            demand: Arc::clone(&demand),
            zookeeper,
            sessions,
            usage,
            budget,
            activity,
            draining,
        });
        let open_sessions = {
            let gateway = Arc::clone(&gateway);
            move || gateway.sessions.count()
        };
        let summarizing =
            tokio::spawn(activity::summarize(Arc::clone(&gateway.activity), hits, open_sessions, stop.clone()));
        let sweeping = tokio::spawn(idle::sweep(Arc::clone(&gateway), stop.clone()));
        let serving = tokio::spawn({
            let (gateway, stop) = (Arc::clone(&gateway), stop.clone());
            async move { server.serve_connections(gateway, stop).await }
        });
        info!(%address, "proxy serves");
        Ok(Self { address, gateway, discovery, stop, serving, polling, sweeping, reporting, summarizing, supervisor })
    }

    pub fn addr(&self) -> SocketAddr {
        self.address
    }

    /// Waits for the session with ZooKeeper and the registration for discovery, if it is configured. Clients are served
    /// before that.
    pub async fn ready(&self) {
        // The sender lives as long as the supervisor.
        let _ = self.supervisor.sessions().wait_for(Option::is_some).await;
    }

    /// Stops accepting, waits a short time for running calls, and closes everything.
    pub async fn shutdown(self) {
        self.stop.cancel();
        let ended = async {
            for task in [self.serving, self.polling, self.sweeping, self.reporting, self.summarizing] {
                if let Err(error) = task.await {
                    warn!(%error, "proxy task failed");
                }
            }
        };
        if tokio::time::timeout(CLOSE_DEADLINE, ended).await.is_err() {
            warn!("shutdown timed out; cutting the remaining connections");
        }
        self.supervisor.close().await;
    }
}
