//! Access control lists as in ZooKeeper: one per node, not inherited, without a super-user.
//!
//! Schemes: `world` (only `anyone`), `auth` (when setting: the identities that the connection has authenticated), `digest`
//! (`user:base64(sha1(user:password))`) and `ip` (address, optionally with a prefix length). A connection always
//! has its `ip` identity; auth requests add others, for the lifetime of the connection.

use std::net::IpAddr;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha1::{Digest, Sha1};

use crate::proto::codes::ErrorCode;
use crate::proto::records::{AclEntry, Identity};

pub(crate) const READ: i32 = 1;
pub(crate) const WRITE: i32 = 2;
pub(crate) const CREATE: i32 = 4;
pub(crate) const DELETE: i32 = 8;
pub(crate) const ADMIN: i32 = 16;
pub(crate) const ALL: i32 = 31;

/// A node's list; shared, because there are few distinct lists.
pub(crate) type Acl = Arc<[AclEntry]>;

/// Bytes of a list: its entries and their texts.
pub(crate) fn size(acl: &[AclEntry]) -> usize {
    let texts: usize = acl.iter().map(|entry| entry.identity.scheme.len() + entry.identity.id.len()).sum();
    size_of_val(acl) + texts
}

fn anyone(permissions: i32) -> Acl {
    let identity = Identity { scheme: "world".to_owned(), id: "anyone".to_owned() };
    Arc::from([AclEntry { permissions, identity }])
}

/// All permissions for all clients: the built-in nodes.
pub(crate) fn open() -> Acl {
    anyone(ALL)
}

/// Read permission only, for all clients: the ensemble's configuration.
pub(crate) fn read_only() -> Acl {
    anyone(READ)
}

/// The identity that a connection has from its address.
pub(crate) fn from_address(address: IpAddr) -> Identity {
    Identity { scheme: "ip".to_owned(), id: address.to_canonical().to_string() }
}

/// The identity that an auth request proves; `None` for an unsupported scheme.
pub(crate) fn authenticate(scheme: &str, secret: &[u8], address: &Identity) -> Option<Identity> {
    match scheme {
        "digest" => {
            let user = String::from_utf8_lossy(secret.split(|byte| *byte == b':').next().unwrap_or_default());
            let hash = STANDARD.encode(Sha1::digest(secret));
            Some(Identity { scheme: scheme.to_owned(), id: format!("{user}:{hash}") })
        }
        "ip" => Some(address.clone()),
        _ => None,
    }
}

/// The identity without secrets: a digest's user without the hash.
pub(crate) fn display_name(identity: &Identity) -> Identity {
    let id = match identity.scheme.as_str() {
        "digest" => identity.id.split(':').next().unwrap_or_default().to_owned(),
        _ => identity.id.clone(),
    };
    Identity { scheme: identity.scheme.clone(), id }
}

/// The stored form of a requested list: `auth` is replaced by the caller's identities, duplicates are removed.
///
/// An empty list, an unknown scheme, an invalid id, and `auth` from an unauthenticated caller are refused.
pub(crate) fn resolve(requested: &[AclEntry], caller: &[Identity]) -> Result<Acl, ErrorCode> {
    let mut kept: Vec<AclEntry> = Vec::with_capacity(requested.len());
    let mut keep = |entry: AclEntry| {
        if !kept.contains(&entry) {
            kept.push(entry);
        }
    };
    for entry in requested {
        let Identity { scheme, id } = &entry.identity;
        match scheme.as_str() {
            "auth" => {
                let mut is_anonymous = true;
                for identity in caller.iter().filter(|identity| identity.scheme != "ip") {
                    is_anonymous = false;
                    keep(AclEntry { permissions: entry.permissions, identity: identity.clone() });
                }
                if is_anonymous {
                    return Err(ErrorCode::InvalidAcl);
                }
            }
            "world" if id == "anyone" => keep(entry.clone()),
            "digest" if is_digest(id) => keep(entry.clone()),
            "ip" if network(id).is_some() => keep(entry.clone()),
            _ => return Err(ErrorCode::InvalidAcl),
        }
    }
    if kept.is_empty() { Err(ErrorCode::InvalidAcl) } else { Ok(kept.into()) }
}

/// Passes if one entry gives at least one of the permission bits to one of the caller's identities.
pub(crate) fn check(acl: &[AclEntry], permissions: i32, caller: &[Identity]) -> Result<(), ErrorCode> {
    let granted = acl.iter().filter(|entry| entry.permissions & permissions != 0).any(|entry| {
        let Identity { scheme, id } = &entry.identity;
        (scheme == "world" && id == "anyone")
            || caller.iter().filter(|own| own.scheme == *scheme).any(|own| match scheme.as_str() {
                "ip" => in_network(&own.id, id),
                _ => own.id == *id,
            })
    });
    if granted { Ok(()) } else { Err(ErrorCode::NoAuth) }
}

/// The list as shown to a caller without ADMIN: hashes of digests are hidden.
pub(crate) fn masked(acl: &[AclEntry]) -> Vec<AclEntry> {
    let mask = |entry: &AclEntry| {
        let mut entry = entry.clone();
        if entry.identity.scheme == "digest" {
            entry.identity.id = format!("{}:x", entry.identity.id.split(':').next().unwrap_or_default());
        }
        entry
    };
    acl.iter().map(mask).collect()
}

fn is_digest(id: &str) -> bool {
    matches!(id.split_once(':'), Some((_, hash)) if !hash.is_empty() && !hash.contains(':'))
}

/// An address and the length of its network prefix.
fn network(id: &str) -> Option<(IpAddr, u32)> {
    let (address, bits) = id.split_once('/').map_or((id, None), |(address, bits)| (address, Some(bits)));
    let address: IpAddr = address.parse().ok()?;
    let width = if address.is_ipv4() { 32 } else { 128 };
    let bits = bits.map_or(Ok(width), str::parse).ok()?;
    (bits <= width).then_some((address, bits))
}

fn in_network(own: &str, wanted: &str) -> bool {
    let (Ok(own), Some((wanted, bits))) = (own.parse::<IpAddr>(), network(wanted)) else { return false };
    match (own, wanted) {
        (IpAddr::V4(own), IpAddr::V4(wanted)) => {
            let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
            own.to_bits() & mask == wanted.to_bits() & mask
        }
        (IpAddr::V6(own), IpAddr::V6(wanted)) => {
            let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
            own.to_bits() & mask == wanted.to_bits() & mask
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]

    use super::*;

    fn entry(permissions: i32, scheme: &str, id: &str) -> AclEntry {
        AclEntry { permissions, identity: Identity { scheme: scheme.to_owned(), id: id.to_owned() } }
    }

    fn local() -> Identity {
        from_address("127.0.0.1".parse().unwrap())
    }

    #[test]
    fn a_digest_identity_is_the_user_and_the_hash_of_user_and_password() {
        let identity = authenticate("digest", b"super:test", &local()).unwrap();
        assert_eq!(identity.id, "super:D/InIHSb7yEEbrWz8b9l71RjZJU=");
        assert_eq!(display_name(&identity).id, "super");
        assert_eq!(authenticate("kerberos", b"x", &local()), None);
    }

    #[test]
    fn acls_that_name_no_identity_are_refused() {
        let table: &[(&str, &str, bool)] = &[
            ("world", "anyone", true),
            ("world", "someone", false),
            ("digest", "user:hash", true),
            ("digest", "user", false),
            ("digest", "a:b:c", false),
            ("ip", "10.0.0.0/8", true),
            ("ip", "::1", true),
            ("ip", "10.0.0.0/33", false),
            ("ip", "home", false),
            ("auth", "", false),
            ("sasl", "me", false),
        ];
        for (scheme, id, valid) in table {
            let resolved = resolve(&[entry(ALL, scheme, id)], &[local()]);
            assert_eq!(resolved.is_ok(), *valid, "{scheme}:{id}");
        }
        assert_eq!(resolve(&[], &[local()]).unwrap_err(), ErrorCode::InvalidAcl);
    }

    #[test]
    fn auth_means_every_proven_identity_except_the_address() {
        let me = authenticate("digest", b"me:secret", &local()).unwrap();
        let acl = resolve(&[entry(READ, "auth", ""), entry(READ, "auth", "")], &[local(), me.clone()]).unwrap();
        assert_eq!(acl.to_vec(), [AclEntry { permissions: READ, identity: me.clone() }]);
        assert!(check(&acl, READ, std::slice::from_ref(&me)).is_ok());
        assert_eq!(check(&acl, WRITE, &[me]), Err(ErrorCode::NoAuth));
        assert_eq!(check(&acl, READ, &[local()]), Err(ErrorCode::NoAuth));
        assert!(masked(&acl)[0].identity.id.ends_with(":x"));
    }

    #[test]
    fn an_address_is_matched_by_its_leading_bits() {
        let table: &[(&str, &str, bool)] = &[
            ("127.0.0.1", "127.0.0.1", true),
            ("127.0.0.1", "127.0.0.0/8", true),
            ("127.0.0.1", "0.0.0.0/0", true),
            ("127.0.0.1", "128.0.0.0/8", false),
            ("127.0.0.1", "::1", false),
            ("fe80::1", "fe80::/16", true),
            ("fe80::1", "::/0", true),
        ];
        for (own, wanted, matches) in table {
            let caller = [from_address(own.parse().unwrap())];
            assert_eq!(check(&[entry(READ, "ip", wanted)], READ, &caller).is_ok(), *matches, "{own} in {wanted}");
        }
    }
}
