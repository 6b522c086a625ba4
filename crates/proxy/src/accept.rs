//! The connection handler: reads the calls of a client connection one after another and serves each to its reply.
//!
//! `hs2::Server` has accepted the connection and finished its transport handshake. A binary connection without a session
//! is closed after a time limit; when it ends, its sessions end with it. Over HTTP a session outlives its connections.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use hs2::message::{ExceptionKind, encode_exception};
use hs2::{Connection, Handler, HttpApi, Mechanism, Message, Method};
use model::cause::chain;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, debug, info_span};

use crate::gateway::Gateway;
use crate::session::reply::{self, CallError, Disconnect, Reply};
use crate::{authenticate, close, handshake, session};

#[async_trait]
impl Handler for Gateway {
    async fn connection(self: Arc<Self>, mut connection: Connection, stop: CancellationToken) {
        let id = connection.id();
        let span = info_span!("connection", id, peer = %connection.peer());
        let is_http = connection.mechanism() == Mechanism::Http;
        // A binary connection without a session may be silent for this long; others have limits of their own.
        let limit = (!is_http).then_some(self.settings.limits.without_session);
        async {
            loop {
                let message = tokio::select! {
                    () = stop.cancelled() => break,
                    () = after(limit) => {
                        // Its sessions may have been closed meanwhile, because they were idle.
                        if self.sessions.has_connection(id) {
                            continue;
                        }
                        debug!("closing an idle connection");
                        break;
                    }
                    message = connection.next() => message,
                };
                let message = match message {
                    Ok(Some(message)) => message,
                    Ok(None) => break,
                    Err(error) => {
                        debug!(%error, "client connection failed");
                        break;
                    }
                };
                if let Err(reason) = serve(&self, &mut connection, message).await {
                    debug!(reason = %chain(&reason), "closing a client connection");
                    break;
                }
            }
        }
        .instrument(span)
        .await;
        if !is_http {
            close::close_sessions_of(&self, id);
        }
        connection.close().await;
    }

    fn http_api(&self) -> Option<Arc<dyn HttpApi>> {
        Some(Arc::clone(&self.api))
    }
}

/// Serves one call and sends its reply, unless that was relayed.
async fn serve(gateway: &Arc<Gateway>, connection: &mut Connection, message: Message) -> Result<(), Disconnect> {
    let seqid = message.seqid();
    let Some(method) = message.method() else {
        let text = format!("unknown method {}", message.name());
        let reply = encode_exception(message.name(), seqid, ExceptionKind::UnknownMethod, &text);
        return Ok(connection.send(&reply).await?);
    };
    let served = match method {
        Method::OpenSession => open_session(gateway, connection, &message).await,
        _ => session::serve(gateway, connection, method, message).await,
    };
    if let Some(reply) = reply::encode(method, seqid, served)? {
        connection.send(&reply).await?;
    }
    Ok(())
}

/// `OpenSession`: handshake, authentication, and the session itself.
async fn open_session(
    gateway: &Arc<Gateway>,
    connection: &mut Connection,
    message: &Message,
) -> Result<Reply, CallError> {
    let handshake = handshake::negotiate(message)?;
    let principal = authenticate::principal_of(connection, &handshake).await?;
    Ok(session::open(gateway, connection, principal, handshake).await?.into())
}

async fn after(limit: Option<Duration>) {
    match limit {
        Some(limit) => tokio::time::sleep(limit).await,
        None => std::future::pending().await,
    }
}
