//! The agent's port: who may connect, and the calls of a connection one after another.

use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use hs2::{Authenticator, Connection, Credentials, Handler, Principal};
use model::credential::keys_match;
use model::error::{ErrorKind, UserError};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::calls;
use super::drain::Drain;
use super::membership::Registered;
use super::sessions::Sessions;
use super::settings::{LINGER, Settings};
use super::silence::Silence;

/// What every connection shares.
pub(super) struct Relay {
    pub(super) settings: Arc<Settings>,
    pub(super) sessions: Arc<Sessions>,
    pub(super) drain: Drain,
    pub(super) registered: Registered,
    pub(super) silence: Silence,
    /// Cancelled when calls that still run are to be cut: the grace is over.
    pub(super) cut: CancellationToken,
}

#[async_trait]
impl Authenticator for Relay {
    /// Only proxies and masters, with this engine's own key, speaking for a user.
    async fn authenticate(&self, _peer: SocketAddr, credentials: &Credentials) -> Result<Principal, UserError> {
        let role = [agent_api::SERVICE_PROXY, agent_api::SERVICE_MASTER].into_iter().find(|it| *it == credentials.user);
        match role {
            Some(role) if keys_match(&credentials.password, &self.settings.key.0) => {
                Ok(Principal::service(role, credentials.authzid.clone()))
            }
            _ => Err(UserError::new(ErrorKind::InvalidAuthorization, "an engine takes connections of proxies only")
                .hint("connect to a proxy")),
        }
    }

    fn unready(&self) -> Option<String> {
        if self.drain.is_draining() {
            return Some("this engine drains".to_owned());
        }
        if let Some(reason) = self.silence.reason() {
            return Some(reason);
        }
        (!self.registered.is_said()).then(|| "this engine has not registered in ZooKeeper yet".to_owned())
    }
}

#[async_trait]
impl Handler for Relay {
    async fn connection(self: Arc<Self>, mut connection: Connection, stop: CancellationToken) {
        let id = connection.id();
        loop {
            // What was sent before the engine ends is still answered: a statement that is refused because the engine
            // drains can be sent elsewhere, one whose connection broke can't.
            let message = tokio::select! {
                biased;
                message = connection.next() => message,
                () = a_moment_after(&stop) => break,
            };
            let message = match message {
                Ok(Some(message)) => message,
                Ok(None) => break,
                Err(error) => {
                    debug!(%error, "a proxy's connection failed");
                    break;
                }
            };
            let serving = self.sessions.serving();
            let served = tokio::select! {
                served = calls::serve(&self, &mut connection, message) => served,
                () = self.cut.cancelled() => break,
            };
            drop(serving);
            if let Err(error) = served {
                debug!(%error, "a proxy's connection is closed");
                break;
            }
        }
        self.sessions.end_connection(id);
        connection.close().await;
    }
}

async fn a_moment_after(stop: &CancellationToken) {
    stop.cancelled().await;
    tokio::time::sleep(LINGER).await;
}
