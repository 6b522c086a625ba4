//! Authentication: the credentials that a client sends, and what makes a principal of them.

use std::fmt;
use std::net::SocketAddr;

use async_trait::async_trait;
use model::error::{ErrorKind, UserError};

pub use crate::principal::Principal;
use crate::security_context::SecurityContext;
use crate::service_proof::ServiceProof;

/// The transport of the credentials.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mechanism {
    /// SASL PLAIN, framed messages.
    SaslPlain,
    /// Plain Thrift (`auth=noSasl`): user and password in `OpenSession`.
    PlainThrift,
    /// HTTP: credentials or a bearer token on every request.
    Http,
}

/// A scheme of HTTP authentication that a server offers. SASL has the mechanism PLAIN for the first and GSSAPI for the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HttpScheme {
    /// User name and password.
    Basic,
    /// A token that names its user.
    Bearer,
    /// A Kerberos ticket (RFC 4559).
    Negotiate,
}

/// The credentials that a client sends. Nothing is verified before [`Authenticator::authenticate`] accepts them.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    pub mechanism: Mechanism,
    /// The user on whose behalf the client connects; empty or equal to `user` for itself.
    pub authzid: String,
    pub user: String,
    /// The password or key.
    pub password: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("mechanism", &self.mechanism)
            .field("authzid", &self.authzid)
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

/// Decides which clients may connect.
#[async_trait]
pub trait Authenticator: Send + Sync {
    /// Returns the principal, or the error for the client. It must return within the limit for authentication;
    /// otherwise the connection is closed.
    async fn authenticate(&self, peer: SocketAddr, credentials: &Credentials) -> Result<Principal, UserError>;

    /// Whether components of the installation log in here with the key of their role.
    fn accepts_services(&self) -> bool {
        false
    }

    /// Returns the principal of a component that has proven its role, or the error for the client.
    async fn authenticate_service(&self, peer: SocketAddr, proof: &ServiceProof) -> Result<Principal, UserError> {
        let _ = (peer, proof);
        Err(UserError::new(ErrorKind::InvalidAuthorization, "components of the installation are not accepted"))
    }

    /// Returns the principal of a token that an HTTP client sends in place of credentials, or the error for the client.
    /// `authzid` is that of [`Credentials`].
    async fn authenticate_bearer(&self, peer: SocketAddr, token: &str, authzid: &str) -> Result<Principal, UserError> {
        let _ = (peer, token, authzid);
        Err(UserError::new(ErrorKind::InvalidAuthorization, "bearer tokens are not accepted")
            .hint("Log in with a user name and a password."))
    }

    /// Begins the login of a client with a ticket, or returns the error for the client.
    fn begin_ticket_login(&self, peer: SocketAddr) -> Result<Box<dyn SecurityContext>, UserError> {
        let _ = peer;
        Err(UserError::new(ErrorKind::InvalidAuthorization, "tickets are not accepted")
            .hint("Log in with a user name and a password."))
    }

    /// Returns the principal of an established context, or the error for the client. `authzid` is that of [`Credentials`].
    async fn authenticate_ticket(
        &self,
        peer: SocketAddr,
        context: Box<dyn SecurityContext>,
        authzid: &str,
    ) -> Result<Principal, UserError> {
        let _ = (peer, context, authzid);
        Err(UserError::new(ErrorKind::InvalidAuthorization, "tickets are not accepted"))
    }

    /// The schemes that HTTP clients can use. Not empty.
    fn http_schemes(&self) -> Vec<HttpScheme> {
        vec![HttpScheme::Basic]
    }

    /// Whether a client may leave its user name empty, because its password is a token that names the user.
    fn accepts_no_user_name(&self) -> bool {
        false
    }

    /// Returns the principal of an HTTP client's cookie, or the error for the client.
    fn authenticate_cookie(&self, cookie: &str) -> Result<Principal, UserError> {
        let _ = cookie;
        Err(UserError::new(ErrorKind::InvalidAuthorization, "cookies are not accepted"))
    }

    /// The cookie with which an HTTP client may authenticate its next calls, without the name; `None` if there is none
    /// for this principal.
    fn issue_cookie(&self, principal: &Principal) -> Option<String> {
        let _ = principal;
        None
    }

    /// Whether this server is reachable under that name: a valid HTTP `Host`, apart from IP addresses, `localhost`
    /// and the machine's own name.
    fn serves_host(&self, name: &str) -> bool {
        let _ = name;
        false
    }

    /// Why no client should be sent here, as a text for operators; `None` when this process is ready. `GET /readyz`
    /// returns it without authentication, so it contains no secrets.
    fn unready(&self) -> Option<String> {
        None
    }
}
