//! TLS between roles: whether a server of the installation offers it, and whether a caller uses it.
//!
//! A server proves a key that its caller knows: that of metadata agents of a generation, or that which a master has signed for
//! the engine. The caller is authenticated inside, with or without TLS.

use std::net::{IpAddr, SocketAddr};

use hs2::{ClientTls, ServerKey, ServerTls};
use keys::{PublicKey, SecretKey};
use model::error::{ErrorKind, UserError};

/// `cluster.tls`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClusterTls {
    /// No connection between roles has TLS.
    Off {
        /// Whether this holds for other machines too.
        anywhere: bool,
    },
    /// For a migration: a server offers TLS and accepts callers without, and a caller uses TLS wherever it is offered.
    Optional,
    /// No connection between roles is without TLS.
    Required,
}

impl ClusterTls {
    pub const fn is_off(self) -> bool {
        matches!(self, Self::Off { .. })
    }

    /// What a server of the installation offers; `None` if that is nothing. Its key may change while it serves.
    pub fn server(
        self,
        key: impl Fn() -> Option<SecretKey> + Send + Sync + 'static,
    ) -> Result<Option<ServerTls>, UserError> {
        if self.is_off() {
            return Ok(None);
        }
        let key = move || ServerKey::from_seed(key()?.bytes()).ok();
        let tls = ServerTls::pinned(key, self == Self::Required, refusal);
        tls.map(Some).map_err(|error| UserError::internal(format!("TLS cannot be used: {error}")))
    }

    /// Whether a plain connection to this server is accepted: it offers no TLS.
    pub(crate) fn permits_plain(self, server: &str, address: &str) -> Result<(), UserError> {
        match self {
            Self::Off { anywhere } if !anywhere && !is_loopback(address) => Err(refused(format!(
                "{server} is on another machine, {address}, and cluster.tls is \"off\""
            ))
            .hint("Set cluster.tls = \"required\" for all roles; or access.insecure = true if this network is trusted.")),
            Self::Off { .. } | Self::Optional => Ok(()),
            Self::Required => Err(refused(format!("{server} does not offer TLS"))
                .hint("Set cluster.tls = \"required\" for all roles, and restart the engines that are older; enginehouse doctor lists them.")),
        }
    }
}

/// How a caller verifies a server that may have any of these keys.
pub(crate) fn client(keys: &[PublicKey]) -> Result<ClientTls, UserError> {
    let keys: Vec<_> = keys.iter().map(|key| *key.bytes()).collect();
    ClientTls::pinned(&keys).map_err(|error| UserError::internal(format!("TLS cannot be used: {error}")))
}

/// The error of a caller whose keys do not verify the server's.
pub(crate) fn unknown_key(server: &str) -> UserError {
    refused(format!("the TLS key of {server} is not known here"))
        .detail(
            "It is of a generation that this process does not accept, or no master of this installation has signed it.",
        )
        .hint("enginehouse doctor shows which generations each process accepts.")
}

fn refused(message: String) -> UserError {
    UserError::new(ErrorKind::InvalidAuthorization, message)
}

/// The error of a plain caller of a server that requires TLS.
fn refusal() -> UserError {
    refused("this agent requires TLS between roles".to_owned())
        .hint("Set cluster.tls = \"required\", or \"optional\", for the role that calls.")
}

fn is_loopback(address: &str) -> bool {
    if let Ok(address) = address.parse::<SocketAddr>() {
        return address.ip().is_loopback();
    }
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn plain_connections_leave_the_machine_only_where_that_is_configured() {
        let off = ClusterTls::Off { anywhere: false };
        for address in ["127.0.0.1:1", "[::1]:1", "localhost:1"] {
            off.permits_plain("the server", address).unwrap();
        }
        for address in ["10.0.0.1:1", "localhost.example:1", "[2001:db8::1]:1", "db:1", ""] {
            let error = off.permits_plain("the server", address).unwrap_err().text();
            assert!(error.contains("on another machine") && error.contains("cluster.tls"), "{error}");
            ClusterTls::Off { anywhere: true }.permits_plain("the server", address).unwrap();
            ClusterTls::Optional.permits_plain("the server", address).unwrap();
            let error = ClusterTls::Required.permits_plain("the server", address).unwrap_err().text();
            assert!(error.contains("the server does not offer TLS"), "{error}");
        }
    }
}
