//! Who is at the other end: what it claims, and what the server makes of it.

use std::fmt;
use std::net::SocketAddr;

use async_trait::async_trait;
use model::error::UserError;

/// How the client said who it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mechanism {
    /// SASL PLAIN, framed messages.
    SaslPlain,
    /// Plain Thrift (`auth=noSasl`): user and password in `OpenSession`.
    PlainThrift,
    /// HTTP, Basic on every request.
    HttpBasic,
}

/// What a client claims. Nothing of it is true before [`Authenticator::authenticate`] says so.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// How it came.
    pub mechanism: Mechanism,
    /// For whom the client wants to speak, as it was sent; empty or equal to `user` when it speaks for itself.
    pub authzid: String,
    /// Who the client is.
    pub user: String,
    /// Its proof.
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

/// Who a connection, or one HTTP request, speaks for, after it was authenticated.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Principal {
    /// The user whose rights count.
    pub user: String,
    /// The role of ours that proved who it is and speaks for the user; none when the user came himself.
    pub service: Option<String>,
}

impl Principal {
    /// A user who came himself.
    pub fn user(user: impl Into<String>) -> Self {
        Self { user: user.into(), service: None }
    }

    /// A role of ours that speaks for a user.
    pub fn service(service: impl Into<String>, user: impl Into<String>) -> Self {
        Self { user: user.into(), service: Some(service.into()) }
    }
}

/// Decides who may connect.
#[async_trait]
pub trait Authenticator: Send + Sync {
    /// Who the client is, or the text that it is refused with. It has to answer within the limit for
    /// authentication; the connection is closed otherwise.
    async fn authenticate(&self, peer: SocketAddr, credentials: &Credentials) -> Result<Principal, UserError>;

    /// Whether clients reach this server under that name: what HTTP's `Host` may be, apart from IP addresses,
    /// `localhost` and the machine's own name.
    fn serves_host(&self, name: &str) -> bool {
        let _ = name;
        false
    }

    /// Why nobody should be sent here now, in words for an operator; nothing when this process is ready to serve. What
    /// `GET /readyz` answers, to anybody: it names nothing that is secret.
    fn unready(&self) -> Option<String> {
        None
    }
}
