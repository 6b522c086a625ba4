//! Connections that are not admitted: the reason, as an authenticator that rejects the client in the client's own protocol.
//!
//! Nothing is kept for such a connection but its rejection, and nothing that it sends is authenticated.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use model::error::{ErrorKind, UserError};

use crate::auth::{Authenticator, Credentials, HttpScheme, Principal};
use crate::connect_rate::ConnectRate;
use crate::security_context::SecurityContext;
use crate::service_proof::ServiceProof;

/// Too many connections in total.
pub(crate) fn too_many() -> UserError {
    UserError::new(ErrorKind::ProgramLimit, "too many connections").hint("Retry later, or close other sessions.")
}

/// Why a connection is not admitted.
pub(crate) enum NotAdmitted {
    /// Too many connections are unauthenticated.
    Full,
    /// Too many connections of the address are unauthenticated.
    AddressFull {
        peer: IpAddr,
        limit: usize,
        /// How long the connection has waited for a place; zero if too many wait already.
        waited: Duration,
        /// The authenticator of connections that are admitted.
        authenticator: Arc<dyn Authenticator>,
    },
    /// The address opens more connections than [`Limits::connect_rate`](crate::Limits::connect_rate).
    TooFast {
        peer: IpAddr,
        per_second: u32,
        /// The authenticator of connections that are admitted.
        authenticator: Arc<dyn Authenticator>,
    },
}

impl NotAdmitted {
    pub(crate) fn error(&self) -> UserError {
        match self {
            Self::Full => too_many(),
            Self::AddressFull { peer, limit, waited, .. } => {
                let since = if waited.is_zero() {
                    "others wait for a place already".to_owned()
                } else {
                    format!("none became free within {} s", waited.as_secs_f64().ceil())
                };
                let text = "too many unauthenticated connections from one address";
                UserError::new(ErrorKind::ProgramLimit, text)
                    .detail(format!("{limit} connections of {peer} have not authenticated yet, and {since}."))
                    .hint("Retry later. The limit of a proxy is proxy.max_unauthenticated_per_address.")
            }
            Self::TooFast { peer, per_second, .. } => {
                let burst = ConnectRate::burst(*per_second);
                UserError::new(ErrorKind::ProgramLimit, "too many new connections from one address")
                    .detail(format!(
                        "The limit for {peer} is {per_second} new connections per second, with bursts of {burst}."
                    ))
                    .hint("Retry later, or reuse connections.")
            }
        }
    }
}

#[async_trait]
impl Authenticator for NotAdmitted {
    async fn authenticate(&self, _: SocketAddr, _: &Credentials) -> Result<Principal, UserError> {
        Err(self.error())
    }

    fn accepts_services(&self) -> bool {
        true
    }

    async fn authenticate_service(&self, _: SocketAddr, _: &ServiceProof) -> Result<Principal, UserError> {
        Err(self.error())
    }

    async fn authenticate_bearer(&self, _: SocketAddr, _: &str, _: &str) -> Result<Principal, UserError> {
        Err(self.error())
    }

    fn begin_ticket_login(&self, _: SocketAddr) -> Result<Box<dyn SecurityContext>, UserError> {
        Err(self.error())
    }

    /// All, so that each client gets the error.
    fn http_schemes(&self) -> Vec<HttpScheme> {
        vec![HttpScheme::Basic, HttpScheme::Bearer, HttpScheme::Negotiate]
    }

    fn accepts_no_user_name(&self) -> bool {
        true
    }

    fn unready(&self) -> Option<String> {
        match self {
            Self::Full => Some(too_many().message),
            // Other addresses are served. Where clients come through a load balancer, its probe has their address, and must not
            // take the server out of service.
            Self::AddressFull { authenticator, .. } | Self::TooFast { authenticator, .. } => authenticator.unready(),
        }
    }
}
