//! The listener of an engine agent: authenticates connections and serves their calls one after another.

use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;

use agent_api::Audience;
use async_trait::async_trait;
use hs2::{Authenticator, Connection, Credentials, Handler, Principal, ServiceProof};
use model::cause::chain;
use model::error::UserError;
use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};
use tracing::debug;

use super::calls;
use super::context::AgentContext;
use super::settings::LINGER;

#[async_trait]
impl Authenticator for AgentContext {
    /// Accepts proxies and masters of generation 0 with this engine's own key, acting for a user.
    async fn authenticate(&self, _peer: SocketAddr, credentials: &Credentials) -> Result<Principal, UserError> {
        agent_api::authenticate_password(&self.settings.callers, self.audience(), credentials)
    }

    fn accepts_services(&self) -> bool {
        true
    }

    /// Accepts proxies and masters with the key of their role, acting for a user.
    async fn authenticate_service(&self, _peer: SocketAddr, proof: &ServiceProof) -> Result<Principal, UserError> {
        agent_api::authenticate(&self.settings.callers, self.audience(), proof)
    }

    fn unready(&self) -> Option<String> {
        if self.drain.is_draining() {
            return Some("the engine is draining".to_owned());
        }
        if let Some(reason) = self.silence.reason() {
            return Some(reason);
        }
        (!self.registered.is_set()).then(|| "the engine is not registered in ZooKeeper yet".to_owned())
    }
}

#[async_trait]
impl Handler for AgentContext {
    async fn connection(self: Arc<Self>, mut connection: Connection, stop: CancellationToken) {
        let id = connection.id();
        // Both waits go on from call to call, because to begin one costs more than to keep it.
        let (mut stopped, mut cut) = (pin!(stop.cancelled()), pin!(self.cut.cancelled()));
        loop {
            // Calls sent before the engine ends still get a reply: a statement that is refused because the engine drains
            // can be sent elsewhere, one whose connection broke cannot.
            let message = tokio::select! {
                biased;
                message = connection.next() => message,
                () = shortly_after(stopped.as_mut()) => break,
            };
            let message = match message {
                Ok(Some(message)) => message,
                Ok(None) => break,
                Err(error) => {
                    debug!(%error, "proxy connection failed");
                    break;
                }
            };
            let serving = self.sessions.count_call();
            let served = tokio::select! {
                biased;
                // In a box: most connections are idle most of the time, and a call needs much state.
                served = Box::pin(calls::serve(&self, &mut connection, message)) => served,
                () = &mut cut => break,
            };
            drop(serving);
            if let Err(reason) = served {
                debug!(reason = %chain(&reason), "closing a proxy connection");
                break;
            }
        }
        self.sessions.close_connection(id);
        Box::pin(connection.close()).await;
    }
}

impl AgentContext {
    /// This engine, as a proof names it.
    fn audience(&self) -> Audience<'_> {
        Audience::Engine { engine: &self.settings.engine, uid: &self.settings.uid }
    }
}

async fn shortly_after(stopped: Pin<&mut WaitForCancellationFuture<'_>>) {
    stopped.await;
    tokio::time::sleep(LINGER).await;
}
