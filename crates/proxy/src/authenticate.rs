//! Authentication: the user of a connection.
//!
//! The methods are those of the settings. Without one, the user name that the client sends is trusted. An authorization id
//! of SASL and `doAs` of HTTP name a user to impersonate. A proxy that serves no clients rejects every login.

use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use authentication::Chain;
use hs2::{Authenticator, Connection, Credentials, HttpScheme, Mechanism, Principal, SecurityContext, TicketHolder};
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
        self.check_serves_clients()?;
        let principal = match &self.settings.authentication {
            Some(chain) => chain.authenticate(peer, credentials).await?,
            None => trusted(&credentials.user)?,
        };
        on_behalf_of(self, principal, peer, &credentials.authzid).await
    }

    async fn authenticate_bearer(&self, peer: SocketAddr, token: &str, authzid: &str) -> Result<Principal, UserError> {
        self.check_serves_clients()?;
        let takes_tokens = |chain: &&Arc<Chain>| chain.http_schemes().contains(&HttpScheme::Bearer);
        let Some(chain) = self.settings.authentication.as_ref().filter(takes_tokens) else {
            return Err(UserError::new(ErrorKind::InvalidAuthorization, "bearer tokens are not accepted")
                .hint("Log in with a user name and a password."));
        };
        let principal = chain.authenticate_token(peer, token).await?;
        on_behalf_of(self, principal, peer, authzid).await
    }

    fn begin_ticket_login(&self, peer: SocketAddr) -> Result<Box<dyn SecurityContext>, UserError> {
        self.check_serves_clients()?;
        let chain = self.settings.authentication.as_ref();
        chain.and_then(|chain| chain.begin_ticket_login(peer)).ok_or_else(|| {
            UserError::new(ErrorKind::InvalidAuthorization, "tickets are not accepted")
                .hint("Log in with a user name and a password, or as the admin of the proxy says.")
        })
    }

    async fn authenticate_ticket(
        &self,
        peer: SocketAddr,
        context: Box<dyn SecurityContext>,
        authzid: &str,
    ) -> Result<Principal, UserError> {
        let TicketHolder { principal, name } = context.holder().await?;
        let authzid = if authzid == name { "" } else { authzid };
        on_behalf_of(self, principal, peer, authzid).await
    }

    fn http_schemes(&self) -> Vec<HttpScheme> {
        match &self.settings.authentication {
            Some(chain) => chain.http_schemes(),
            None => vec![HttpScheme::Basic],
        }
    }

    fn accepts_no_user_name(&self) -> bool {
        self.settings.authentication.as_ref().is_some_and(|chain| chain.accepts_no_user_name())
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

impl Gateway {
    fn check_serves_clients(&self) -> Result<(), UserError> {
        if self.settings.serves_clients {
            return Ok(());
        }
        Err(UserError::new(ErrorKind::InvalidAuthorization, "this proxy serves no clients")
            .hint("Connect to another proxy."))
    }
}

/// The principal as the user whom the client names, who is empty for itself.
async fn on_behalf_of(
    gateway: &Gateway,
    principal: Principal,
    peer: SocketAddr,
    authzid: &str,
) -> Result<Principal, UserError> {
    match authzid {
        "" => Ok(principal),
        user => impersonate::on_behalf_of(gateway, principal, peer.ip(), user).await,
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
