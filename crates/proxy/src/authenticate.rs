//! Authentication: the user of a connection.
//!
//! The only method is `none`: the user name that the client sends is trusted. Impersonation is rejected, because no
//! configuration says who may impersonate whom.

use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use hs2::{Authenticator, Connection, Credentials, Mechanism, Principal};
use model::error::{ErrorKind, UserError};

use crate::gateway::Gateway;
use crate::handshake::Handshake;

/// The longest user name, in bytes.
const MAX_USER_BYTES: usize = 255;
/// The user of a client that sends no name; Hive's own clients use the same.
const ANONYMOUS: &str = "anonymous";

#[async_trait]
impl Authenticator for Gateway {
    async fn authenticate(&self, _peer: SocketAddr, credentials: &Credentials) -> Result<Principal, UserError> {
        let user = if credentials.user.is_empty() { ANONYMOUS } else { &credentials.user };
        if !credentials.authzid.is_empty() && credentials.authzid != user {
            return Err(UserError::new(
                ErrorKind::InvalidAuthorization,
                format!("user \"{user}\" may not impersonate another user"),
            ));
        }
        if user.len() > MAX_USER_BYTES || user.chars().any(char::is_control) {
            return Err(UserError::new(ErrorKind::InvalidAuthorization, "invalid user name")
                .detail(format!("User names have at most {MAX_USER_BYTES} bytes and contain no control characters.")));
        }
        Ok(Principal::user(user))
    }

    fn serves_host(&self, name: &str) -> bool {
        self.settings.hosts.iter().any(|host| host == "*" || host.eq_ignore_ascii_case(name))
    }

    fn unready(&self) -> Option<String> {
        self.unready_reason()
    }
}

/// The user of a session that is being opened.
///
/// SASL and HTTP authenticate before the first call. Plain Thrift has no such step: there the credentials of the first
/// `OpenSession` count, and later ones must name the same user.
pub(crate) async fn user_of(connection: &mut Connection, handshake: &Handshake) -> Result<String, UserError> {
    if connection.mechanism() == Mechanism::PlainThrift {
        let credentials = Credentials {
            mechanism: Mechanism::PlainThrift,
            authzid: String::new(),
            user: handshake.user.clone().unwrap_or_default(),
            password: handshake.password.clone().unwrap_or_default(),
        };
        let principal = Arc::clone(connection.authenticator()).authenticate(connection.peer(), &credentials).await?;
        if connection.principal().is_some_and(|current| *current != principal) {
            return Err(UserError::new(
                ErrorKind::InvalidAuthorization,
                "connection is already authenticated as another user",
            )
            .hint("Open another connection."));
        }
        connection.set_principal(principal);
    }
    match connection.principal() {
        Some(principal) => Ok(principal.user.clone()),
        None => Err(UserError::new(ErrorKind::InvalidAuthorization, "connection is not authenticated")),
    }
}
