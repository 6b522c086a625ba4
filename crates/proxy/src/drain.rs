//! The drain of a proxy, and its registration for discovery until then.
//!
//! A session lives in its proxy, so a proxy that ends cuts its sessions. A proxy that is replaced, as in a rolling
//! restart, drains first: it is withdrawn from discovery, `GET /readyz` fails, no session is opened, no REST call is
//! served, and open sessions and running calls continue until they end or the grace is over. A client that still uses
//! the proxy's address loses nothing: its session is refused before it exists, with a hint to reconnect.

use std::time::Duration;

use async_trait::async_trait;
use coordination::discovery::DriverSettings;
use coordination::{Rebuild, Session, discovery};
use model::advertised::Advertised;
use model::error::{ErrorKind, UserError};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

use crate::Proxy;
use crate::gateway::Gateway;

/// The pause between two attempts to withdraw from discovery.
const WITHDRAW_INTERVAL: Duration = Duration::from_secs(1);
/// The version in the discovery node.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Registers the proxy for Hive JDBC's discovery with each new ZooKeeper session, until it drains.
pub(crate) struct Discovery {
    /// `None`: the proxy is not registered.
    pub(crate) advertised: Option<Advertised>,
    /// How drivers connect to it.
    pub(crate) drivers: DriverSettings,
    pub(crate) draining: CancellationToken,
}

#[async_trait]
impl Rebuild for Discovery {
    async fn rebuild(&self, session: &Session) -> Result<Vec<String>, coordination::Error> {
        // A draining proxy has withdrawn its node and must not create it again.
        let Some(Advertised { host, port }) = self.advertised.as_ref().filter(|_| !self.draining.is_cancelled()) else {
            return Ok(Vec::new());
        };
        let path = discovery::register(session, host, *port, VERSION, &self.drivers).await?;
        info!(path, "registered for discovery");
        // The drain may have begun meanwhile, when there was nothing to withdraw yet.
        if self.draining.is_cancelled() {
            self.withdraw(session).await;
            return Ok(Vec::new());
        }
        Ok(vec![path])
    }
}

impl Discovery {
    /// Deletes the discovery node; `false` if it may still exist.
    async fn withdraw(&self, session: &Session) -> bool {
        let Some(Advertised { host, port }) = &self.advertised else { return true };
        let withdrawn = discovery::withdraw(session, host, *port, VERSION).await;
        if let Err(error) = &withdrawn {
            debug!(%error, "could not withdraw from discovery");
        }
        withdrawn.is_ok()
    }
}

impl Gateway {
    /// Refuses a new session while the proxy drains.
    pub(crate) fn check_accepts_sessions(&self) -> Result<(), UserError> {
        if !self.draining.is_cancelled() {
            return Ok(());
        }
        Err(UserError::new(ErrorKind::Unavailable, "the proxy is shutting down")
            .hint("Reconnect; you will be routed to another proxy."))
    }

    /// Why the proxy is not ready. It stays ready when it cannot read the catalog again.
    pub(crate) fn unready_reason(&self) -> Option<String> {
        if let Err(error) = self.check_accepts_sessions() {
            return Some(error.message);
        }
        let has_catalog = self.catalog.age().is_some();
        (!has_catalog).then(|| "the catalog has not been read from a metadata agent yet".to_owned())
    }
}

impl Proxy {
    /// Stops opening sessions and waits until the open ones are closed, at most for the grace; [`Proxy::shutdown`] cuts the
    /// rest. A grace of zero has no effect.
    pub async fn drain(&self, grace: Duration) {
        if grace.is_zero() {
            return;
        }
        self.gateway.draining.cancel();
        let (sessions, api_calls) = (&self.gateway.sessions, &self.gateway.api_calls);
        info!(sessions = sessions.count(), grace_s = grace.as_secs(), "draining; no new sessions");
        let emptied = async {
            let none_left = async {
                sessions.none_left().await;
                api_calls.none_left().await;
            };
            tokio::select! {
                () = none_left => {}
                () = self.stay_withdrawn() => {}
            }
        };
        if tokio::time::timeout(grace, emptied).await.is_err() {
            info!(sessions = sessions.count(), "drain grace is over; cutting the remaining sessions");
        }
    }

    /// Withdraws the proxy from discovery as soon as ZooKeeper allows, and never returns: a later ZooKeeper session
    /// registers nothing.
    async fn stay_withdrawn(&self) {
        while !self.withdrawn().await {
            tokio::time::sleep(WITHDRAW_INTERVAL).await;
        }
        std::future::pending::<()>().await;
    }

    async fn withdrawn(&self) -> bool {
        match self.supervisor.session() {
            Ok(session) => self.discovery.withdraw(&session).await,
            Err(_) => false,
        }
    }
}
