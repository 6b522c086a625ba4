//! How a proxy leaves, and how it is found until then.
//!
//! A session lives in its proxy, so a proxy that ends cuts the sessions that it has. One that is to be replaced, as in a
//! rolling restart, is therefore told to drain first: discovery names it no more, `GET /readyz` says no, no session is
//! opened, and what is open goes on until its clients have closed it or the time is over. Nothing is lost with a client
//! that still knows the proxy's address: its session is refused before it exists, with a hint to connect again.

use std::time::Duration;

use async_trait::async_trait;
use coordination::{Rebuild, Session, discovery};
use model::advertised::Advertised;
use model::error::{ErrorKind, UserError};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

use crate::{Gateway, Proxy};

/// How long to wait before discovery is tried again.
const WITHDRAW_AGAIN: Duration = Duration::from_secs(1);
/// The version that discovery tells.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Registers the proxy for Hive JDBC's discovery, anew with each ZooKeeper session, until it leaves.
pub(crate) struct Discovery {
    /// `None`: not registered.
    pub(crate) advertised: Option<Advertised>,
    pub(crate) leaving: CancellationToken,
}

#[async_trait]
impl Rebuild for Discovery {
    async fn rebuild(&self, session: &Session) -> Result<Vec<String>, coordination::Error> {
        // One that leaves has withdrawn its node: that it is gone is nothing to mend.
        let Some(Advertised { host, port }) = self.advertised.as_ref().filter(|_| !self.leaving.is_cancelled()) else {
            return Ok(Vec::new());
        };
        let path = discovery::register(session, host, *port, VERSION).await?;
        info!(path, "registered for discovery");
        // It may have begun to leave meanwhile, when there was nothing to withdraw yet.
        if self.leaving.is_cancelled() {
            self.withdraw(session).await;
            return Ok(Vec::new());
        }
        Ok(vec![path])
    }
}

impl Discovery {
    /// Whether nothing is left to take away on this session.
    async fn withdraw(&self, session: &Session) -> bool {
        let Some(Advertised { host, port }) = &self.advertised else { return true };
        let withdrawn = discovery::withdraw(session, host, *port, VERSION).await;
        if let Err(error) = &withdrawn {
            debug!(%error, "discovery still names this proxy");
        }
        withdrawn.is_ok()
    }
}

impl Gateway {
    /// Refuses whoever would open a session at a proxy that leaves.
    pub(crate) fn admits(&self) -> Result<(), UserError> {
        if !self.leaving.is_cancelled() {
            return Ok(());
        }
        Err(UserError::new(ErrorKind::Unavailable, "this proxy is being stopped and opens no session")
            .hint("connect again: another proxy takes you"))
    }

    /// Why no client should be sent here now. Once it has known the catalog it goes on by what it knows.
    pub(crate) fn why_unready(&self) -> Option<String> {
        if let Err(error) = self.admits() {
            return Some(error.message);
        }
        let known = self.catalog.age().is_some();
        (!known).then(|| "it has not read the catalog from a metadata agent yet".to_owned())
    }
}

impl Proxy {
    /// Opens no session any more and waits until the open ones are closed, at most so long; what is left then is for
    /// [`Proxy::shutdown`] to cut. With no time at all it does nothing.
    pub async fn drain(&self, grace: Duration) {
        if grace.is_zero() {
            return;
        }
        self.gateway.leaving.cancel();
        let sessions = &self.gateway.sessions;
        info!(sessions = sessions.count(), grace_s = grace.as_secs(), "opens no session any more");
        let left = async {
            tokio::select! {
                () = sessions.none_left() => {}
                () = self.stay_withdrawn() => {}
            }
        };
        if tokio::time::timeout(grace, left).await.is_err() {
            info!(sessions = sessions.count(), "the time is over, sessions that are left are cut");
        }
    }

    /// Takes the proxy out of discovery as soon as ZooKeeper lets it, and never ends: a session that is made later
    /// registers nothing.
    async fn stay_withdrawn(&self) {
        while !self.withdrawn().await {
            tokio::time::sleep(WITHDRAW_AGAIN).await;
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
