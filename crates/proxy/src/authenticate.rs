//! Authentication: the user of a connection.
//!
//! The methods are those of the settings. Without one, the user name that the client sends is trusted. An authorization id
//! of SASL and `doAs` of HTTP name a user to impersonate. A proxy that serves no clients rejects every login.

use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use hs2::{Authenticator, Connection, Credentials, Mechanism, Principal};
use model::error::{ErrorKind, UserError};
use model::user_name::{MAX_USER_NAME_BYTES, is_user_name};

use crate::gateway::Gateway;
use crate::handshake::Handshake;
use crate::impersonate;

/// The user of a client that sends no name to a proxy that trusts names; Hive's own clients use the same.
const ANONYMOUS: &str = "anonymous";

#[async_trait]
impl Authenticator for Gateway {
    async fn authenticate(&self, peer: SocketAddr, credentials: &Credentials) -> Result<Principal, UserError> {
        if !self.settings.serves_clients {
            return Err(UserError::new(ErrorKind::InvalidAuthorization, "this proxy serves no clients")
                .hint("Connect to another proxy."));
        }
        let principal = match &self.settings.authentication {
            Some(chain) => chain.authenticate(peer, credentials).await?,
            None => trusted(&credentials.user)?,
        };
        match credentials.authzid.as_str() {
            "" => Ok(principal),
            user => impersonate::on_behalf_of(self, principal, peer.ip(), user).await,
        }
    }

    fn authenticate_cookie(&self, cookie: &str) -> Result<Principal, UserError> {
        let methods = self.settings.authentication.as_ref().map(|chain| chain.method_names()).unwrap_or_default();
        self.cookies.verify(cookie, self.clock.wall_ms(), &methods)
    }

    /// None where names are trusted: a cookie would prove nothing.
    fn issue_cookie(&self, principal: &Principal) -> Option<String> {
        self.settings.authentication.as_ref()?;
        self.cookies.issue(principal, self.clock.wall_ms())
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
        "User names have at most {MAX_USER_NAME_BYTES} bytes, contain no control characters and do not begin with @."
    )))
}

/// The principal of a session that is being opened.
///
/// SASL and HTTP authenticate before the first call. Plain Thrift has no such step: there the credentials of the first
/// `OpenSession` count, and later ones must name the same user.
pub(crate) async fn principal_of(connection: &mut Connection, handshake: &Handshake) -> Result<Principal, UserError> {
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
        Some(principal) => Ok(principal.clone()),
        None => Err(UserError::new(ErrorKind::InvalidAuthorization, "connection is not authenticated")),
    }
}
