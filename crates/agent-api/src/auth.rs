//! The service credential: which of our roles may connect to a metadata agent, and for whom it speaks.

use hs2::{Auth, Credentials, Mechanism, Principal};
use model::credential::{ClusterSecret, Purpose, keys_match};
use model::error::{ErrorKind, UserError};

/// The user name of a master's connections.
pub const SERVICE_MASTER: &str = "master";
/// The user name of a proxy's connections.
pub const SERVICE_PROXY: &str = "proxy";

/// A role of ours that connects to agents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The elected candidate.
    Master,
    /// A proxy, for itself or for a client's user.
    Proxy,
}

impl Role {
    /// The user name of its connections.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Master => SERVICE_MASTER,
            Self::Proxy => SERVICE_PROXY,
        }
    }

    /// The credentials of a connection that speaks for the role itself.
    pub(crate) fn auth(self, key: &str) -> Auth {
        Auth::service(self.as_str(), key, "")
    }
}

/// What a metadata agent answers to credentials: one of our roles with the derived key is accepted, and speaks for the
/// user whom it names (for itself if it names none); everything else is refused alike.
pub fn authenticate(secret: &ClusterSecret, credentials: &Credentials) -> Result<Principal, UserError> {
    let key = secret.derive(&Purpose::MetadataAgent);
    let role = [Role::Master, Role::Proxy].into_iter().find(|role| role.as_str() == credentials.user);
    // The keys are compared whoever it claims to be.
    let proven = keys_match(&key, &credentials.password) && credentials.mechanism == Mechanism::SaslPlain;
    match role {
        Some(role) if proven => {
            let user = if credentials.authzid.is_empty() { role.as_str() } else { &credentials.authzid };
            Ok(Principal::service(role.as_str(), user))
        }
        _ => Err(UserError::new(ErrorKind::InvalidAuthorization, "a metadata agent takes connections of our own roles only")
            .hint("connect to a proxy")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    fn credentials(user: &str, password: &str, authzid: &str) -> Credentials {
        Credentials {
            mechanism: Mechanism::SaslPlain,
            authzid: authzid.to_owned(),
            user: user.to_owned(),
            password: password.to_owned(),
        }
    }

    #[test]
    fn only_a_role_with_the_derived_key_is_accepted() {
        let secret = ClusterSecret::new(*b"0123456789abcdef").unwrap();
        let key = secret.derive(&Purpose::MetadataAgent);
        let principal = authenticate(&secret, &credentials("proxy", &key, "alice")).unwrap();
        assert_eq!(principal, Principal::service("proxy", "alice"));
        let principal = authenticate(&secret, &credentials("master", &key, "")).unwrap();
        assert_eq!(principal, Principal::service("master", "master"));
        for (user, password) in [("proxy", ""), ("proxy", "0123456789abcdef"), ("alice", &key), ("", &key)] {
            let error = authenticate(&secret, &credentials(user, password, "alice")).unwrap_err();
            assert_eq!(error.sqlstate(), "28000", "{user}");
        }
        let mut plain = credentials("proxy", &key, "alice");
        plain.mechanism = Mechanism::PlainThrift;
        assert!(authenticate(&secret, &plain).is_err(), "without SASL nobody says for whom it speaks");
    }
}
