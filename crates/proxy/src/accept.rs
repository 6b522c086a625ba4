//! A connection: who it is, its calls one after another, and the end of what it leaves behind.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use hs2::message::ExceptionKind;
use hs2::{Authenticator, Connection, Credentials, Handler, Mechanism, Principal};
use model::error::{ErrorKind, UserError};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, debug, info_span};

use crate::Gateway;
use crate::session;
use crate::settings::HTTP_CONNECTION_IDLE;

/// The longest name of a user that is accepted, in bytes.
const MAX_USER_BYTES: usize = 255;
/// Who a client is that names nobody: what Hive's own clients use.
const ANONYMOUS: &str = "anonymous";

#[async_trait]
impl Authenticator for Gateway {
    /// Authentication `none`: the name that the client gives is believed. Speaking for another user is refused,
    /// because who may impersonate whom is configuration, and there is none here.
    async fn authenticate(&self, _peer: SocketAddr, credentials: &Credentials) -> Result<Principal, UserError> {
        let user = if credentials.user.is_empty() { ANONYMOUS } else { &credentials.user };
        if !credentials.authzid.is_empty() && credentials.authzid != user {
            return Err(UserError::new(
                ErrorKind::InvalidAuthorization,
                format!("user \"{user}\" may not speak for another user"),
            ));
        }
        if user.len() > MAX_USER_BYTES || user.chars().any(char::is_control) {
            return Err(UserError::new(ErrorKind::InvalidAuthorization, "the name of the user can't be one"));
        }
        Ok(Principal::user(user))
    }

    fn serves_host(&self, name: &str) -> bool {
        self.settings.hosts.iter().any(|host| host == "*" || host.eq_ignore_ascii_case(name))
    }

    fn unready(&self) -> Option<String> {
        self.why_unready()
    }
}

#[async_trait]
impl Handler for Gateway {
    async fn connection(self: Arc<Self>, mut connection: Connection, stop: CancellationToken) {
        let id = connection.id();
        let span = info_span!("connection", id, peer = %connection.peer());
        let is_http = connection.mechanism() == Mechanism::HttpBasic;
        async {
            loop {
                let wait = self.longest_silence(&connection);
                let message = tokio::select! {
                    () = stop.cancelled() => break,
                    () = after(wait) => {
                        debug!("closing a connection that is not used");
                        break;
                    }
                    message = connection.next() => message,
                };
                let message = match message {
                    Ok(Some(message)) => message,
                    Ok(None) => break,
                    Err(error) => {
                        debug!(%error, "the client's connection failed");
                        break;
                    }
                };
                let Some(method) = message.method() else {
                    let text = format!("unknown method {}", message.name());
                    let reply = hs2::message::encode_exception(
                        message.name(),
                        message.seqid(),
                        ExceptionKind::UnknownMethod,
                        &text,
                    );
                    if connection.send(&reply).await.is_err() {
                        break;
                    }
                    continue;
                };
                if let Err(gone) = session::serve(&self, &mut connection, method, message).await {
                    debug!(%gone, "the client's connection is closed");
                    break;
                }
            }
        }
        .instrument(span)
        .await;
        // A session ends with its binary connection; over HTTP sessions are found by their handle from any.
        if !is_http {
            session::close::abandon(&self, id);
        }
        connection.close().await;
    }
}

impl Gateway {
    /// How long the connection may be silent. One with a session over it has no limit: the session ends with it, and is
    /// limited itself.
    fn longest_silence(&self, connection: &Connection) -> Option<Duration> {
        if connection.mechanism() == Mechanism::HttpBasic {
            return Some(HTTP_CONNECTION_IDLE);
        }
        (!self.sessions.is_any_of_connection(connection.id())).then_some(self.settings.limits.without_session)
    }
}

async fn after(wait: Option<Duration>) {
    match wait {
        Some(wait) => tokio::time::sleep(wait).await,
        None => std::future::pending().await,
    }
}
