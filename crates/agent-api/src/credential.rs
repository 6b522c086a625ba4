//! Authentication of the callers of a metadata agent: roles with their key.

use hs2::{Credentials, Principal};
use model::credential::{ClusterSecret, Purpose, keys_match};
use model::error::{ErrorKind, UserError};

/// The user name of a master.
pub const SERVICE_MASTER: &str = "master";
/// The user name of a proxy, which acts for a user.
pub const SERVICE_PROXY: &str = "proxy";

/// Accepts a proxy or master with the derived key; rejects all others.
pub fn authenticate(secret: &ClusterSecret, credentials: &Credentials) -> Result<Principal, UserError> {
    let role = [SERVICE_MASTER, SERVICE_PROXY].into_iter().find(|role| *role == credentials.user);
    let key = secret.derive(&Purpose::MetadataAgent);
    match role {
        Some(role) if keys_match(&credentials.password, &key) => {
            Ok(Principal::service(role, credentials.authzid.clone()))
        }
        _ => Err(UserError::new(ErrorKind::InvalidAuthorization, "a metadata agent accepts only proxies and masters")
            .hint("Connect to a proxy.")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;
    use hs2::Mechanism;

    #[test]
    fn only_our_roles_with_the_key_get_in() {
        let secret = ClusterSecret::new("0123456789abcdef").unwrap();
        let key = secret.derive(&Purpose::MetadataAgent);
        let try_in = |user: &str, password: &str| {
            let credentials = Credentials {
                mechanism: Mechanism::SaslPlain,
                authzid: "ann".to_owned(),
                user: user.to_owned(),
                password: password.to_owned(),
            };
            authenticate(&secret, &credentials)
        };
        assert_eq!(try_in("proxy", &key).unwrap(), Principal::service("proxy", "ann"));
        assert!(try_in("master", &key).is_ok());
        for (user, password) in [("proxy", ""), ("proxy", "x"), ("admin", key.as_str()), ("", key.as_str())] {
            assert_eq!(try_in(user, password).unwrap_err().sqlstate(), "28000");
        }
    }
}
