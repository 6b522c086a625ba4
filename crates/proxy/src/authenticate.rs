//! Authentication: the user of a connection.
//!
//! The methods are those of the settings. Without one, the user name that the client sends is trusted. Impersonation is
//! rejected, because no configuration says who may impersonate whom.

use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use authentication::{MAX_NAME_BYTES, is_user_name};
use hs2::{Authenticator, Connection, Credentials, Mechanism, Principal};
use model::error::{ErrorKind, UserError};

use crate::gateway::Gateway;
use crate::handshake::Handshake;

/// The user of a client that sends no name to a proxy that trusts names; Hive's own clients use the same.
const ANONYMOUS: &str = "anonymous";

#[async_trait]
impl Authenticator for Gateway {
    async fn authenticate(&self, peer: SocketAddr, credentials: &Credentials) -> Result<Principal, UserError> {
        let principal = match &self.settings.authentication {
            Some(chain) => chain.authenticate(peer, credentials).await?,
            None => trusted(&credentials.user)?,
        };
        if !credentials.authzid.is_empty() && credentials.authzid != principal.user {
            return Err(UserError::new(
                ErrorKind::InvalidAuthorization,
                format!("user \"{}\" may not impersonate another user", principal.user),
            ));
        }
        Ok(principal)
    }

    fn serves_host(&self, name: &str) -> bool {
        self.settings.hosts.iter().any(|host| host == "*" || host.eq_ignore_ascii_case(name))
    }

    fn unready(&self) -> Option<String> {
        self.unready_reason()
    }
}

/// Method `none`.
fn trusted(user: &str) -> Result<Principal, UserError> {
    let user = if user.is_empty() { ANONYMOUS } else { user };
    if is_user_name(user) {
        return Ok(Principal::user(user));
    }
    Err(UserError::new(ErrorKind::InvalidAuthorization, "invalid user name").detail(format!(
        "User names have at most {MAX_NAME_BYTES} bytes, contain no control characters and do not begin with @."
    )))
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
        if connection.principal().is_some_and(|current| current.user != principal.user) {
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
