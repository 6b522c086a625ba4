//! The connection handler: reads the calls of a client connection one after another and serves each to its reply.
//!
//! `hs2::Server` has accepted the connection and finished its transport handshake. A binary connection without a session
//! is closed after a time limit; when it ends, its sessions end with it. Over HTTP a session outlives its connections. An idle
//! session has neither a timer nor a buffer nor the state of a call.

use std::pin::pin;
use std::sync::Arc;

use async_trait::async_trait;
use hs2::message::{ExceptionKind, encode_exception};
use hs2::{Connection, Handler, HttpApi, Mechanism, Message, Method};
use model::cause::chain;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, debug};

use crate::gateway::Gateway;
use crate::session::reply::{self, CallError, Disconnect, Reply};
use crate::session::table::Entry;
use crate::{authenticate, close, handshake, origin, session};

#[async_trait]
impl Handler for Gateway {
    async fn connection(self: Arc<Self>, mut connection: Connection, stop: CancellationToken) {
        let (id, peer) = (connection.id(), connection.peer());
        let is_http = connection.mechanism() == Mechanism::Http;
        // This wait and that for the end of a session go on from call to call, because to begin one costs more than to keep it.
        let mut stopped = pin!(stop.cancelled());
        'connection: loop {
            // One of the sessions that end with the connection.
            let session = if is_http { None } else { self.sessions.any_of_connection(id) };
            let mut closed = pin!(closed(session.as_deref()));
            while is_http || session.as_ref().is_none_or(|session| !session.closed.is_set()) {
                let message = tokio::select! {
                    // The message first: once it is there, nothing else has to be looked at.
                    biased;
                    message = connection.next() => message,
                    () = &mut stopped => break 'connection,
                    () = &mut closed, if session.is_some() => break,
                    () = sleep(self.settings.limits.without_session), if session.is_none() && !is_http => {
                        debug!(connection = id, %peer, "closing an idle connection");
                        break 'connection;
                    }
                };
                let message = match message {
                    Ok(Some(message)) => message,
                    Ok(None) => break 'connection,
                    Err(error) => {
                        debug!(connection = id, %peer, %error, "client connection failed");
                        break 'connection;
                    }
                };
                let span = origin::span_of_call(&connection, &message);
                // In a box: most connections are idle most of the time, and a call needs much state.
                if let Err(reason) = Box::pin(serve(&self, &mut connection, message)).instrument(span).await {
                    debug!(connection = id, %peer, reason = %chain(&reason), "closing a client connection");
                    break 'connection;
                }
                if session.is_none() && !is_http {
                    break;
                }
            }
        }
        if !is_http {
            close::close_sessions_of(&self, id);
        }
        Box::pin(connection.close()).await;
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
        Method::OpenSession => Box::pin(open_session(gateway, connection, &message)).await,
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

/// Completes when the session is closed, which may have been idle for too long.
async fn closed(session: Option<&Entry>) {
    if let Some(session) = session {
        session.closed.wait().await;
    }
}
