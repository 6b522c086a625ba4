//! The cookie of HTTP clients: a login that succeeded at most [`HTTP_COOKIE_LIFETIME`] ago, signed for every proxy.
//!
//! The key is derived from the cluster secret, so any proxy accepts a cookie of another one, and a restart keeps them. A
//! cookie is a proof, not a session: a user whose password was changed keeps it until it expires.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use hs2::Principal;
use hs2::limits::HTTP_COOKIE_LIFETIME;
use model::credential::{ClusterSecret, Purpose};
use model::error::{ErrorKind, UserError};
use sha2::Sha256;

/// The longest cookie that is issued or read, in bytes. A user with more groups has to send credentials.
pub const MAX_COOKIE_BYTES: usize = 3 * 1024;

/// The version of the fields.
const VERSION: &str = "1";

/// Between two fields, none of which contains control characters.
const SEPARATOR: char = '\0';

/// Issues and verifies cookies.
pub struct Cookies {
    key: String,
}

impl std::fmt::Debug for Cookies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Cookies(******)")
    }
}

impl Cookies {
    pub fn new(secret: &ClusterSecret) -> Self {
        Self { key: secret.derive(&Purpose::HttpCookie) }
    }

    /// The cookie of a user who has just been authenticated; `None` if it would be too long, or if the user is not the one
    /// who authenticated. `now` is in milliseconds since 1970.
    pub fn issue(&self, principal: &Principal, now: i64) -> Option<String> {
        if principal.service.is_some() || principal.via.is_some() {
            return None;
        }
        let expires = now.saturating_add(HTTP_COOKIE_LIFETIME.as_millis() as i64).to_string();
        let mut fields = vec![VERSION, &expires, principal.method, &principal.user];
        fields.extend(principal.groups.iter().map(String::as_str));
        let fields = URL_SAFE_NO_PAD.encode(fields.join(&SEPARATOR.to_string()));
        let cookie = format!("{fields}.{}", URL_SAFE_NO_PAD.encode(self.mac(&fields)?.finalize().into_bytes()));
        (cookie.len() <= MAX_COOKIE_BYTES).then_some(cookie)
    }

    /// The user of a valid cookie. 28000 if it is too long, forged or expired, or if none of these methods authenticated
    /// the user.
    pub fn verify(&self, cookie: &str, now: i64, methods: &[&'static str]) -> Result<Principal, UserError> {
        self.principal(cookie, now, methods)
            .ok_or_else(|| UserError::new(ErrorKind::InvalidAuthorization, "authentication failed"))
    }

    fn principal(&self, cookie: &str, now: i64, methods: &[&'static str]) -> Option<Principal> {
        if cookie.len() > MAX_COOKIE_BYTES {
            return None;
        }
        let (fields, signature) = cookie.split_once('.')?;
        // Compares in constant time.
        self.mac(fields)?.verify_slice(&URL_SAFE_NO_PAD.decode(signature).ok()?).ok()?;
        let fields = String::from_utf8(URL_SAFE_NO_PAD.decode(fields).ok()?).ok()?;
        let mut fields = fields.split(SEPARATOR);
        let (version, expires, method, user) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
        if version != VERSION || expires.parse::<i64>().ok()? <= now {
            return None;
        }
        let method = methods.iter().find(|known| **known == method)?;
        Some(Principal::authenticated(user, fields.map(str::to_owned).collect(), method))
    }

    /// HMAC takes a key of any length, so this is never `None`.
    fn mac(&self, fields: &str) -> Option<Hmac<Sha256>> {
        let mut mac = Hmac::<Sha256>::new_from_slice(self.key.as_bytes()).ok()?;
        mac.update(fields.as_bytes());
        Some(mac)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const NOW: i64 = 1_800_000_000_000;
    const METHODS: [&str; 2] = ["file", "ldap"];

    fn cookies(secret: &[u8; 16]) -> Cookies {
        Cookies::new(&ClusterSecret::new(*secret).unwrap())
    }

    fn ann() -> Principal {
        Principal::authenticated("ann", vec!["analysts".to_owned(), "etl".to_owned()], "file")
    }

    #[test]
    fn every_proxy_accepts_a_cookie_until_it_expires() {
        let cookie = cookies(b"0123456789abcdef").issue(&ann(), NOW).unwrap();
        let other = cookies(b"0123456789abcdef");
        let lifetime = HTTP_COOKIE_LIFETIME.as_millis() as i64;
        assert_eq!(other.verify(&cookie, NOW + lifetime - 1, &METHODS).unwrap(), ann());
        let error = other.verify(&cookie, NOW + lifetime, &METHODS).unwrap_err();
        assert_eq!((error.sqlstate(), error.message.as_str()), ("28000", "authentication failed"));
        assert!(other.verify(&cookie, NOW, &METHODS[1..]).is_err(), "the method is no longer enabled");
    }

    #[test]
    fn a_forged_or_truncated_cookie_is_refused() {
        let (ours, other) = (cookies(b"0123456789abcdef"), cookies(b"fedcba9876543210"));
        let cookie = ours.issue(&ann(), NOW).unwrap();
        let (fields, signature) = cookie.split_once('.').unwrap();
        let admin = other.issue(&Principal::authenticated("admin", Vec::new(), "file"), NOW).unwrap();
        let mixed = format!("{}.{signature}", admin.split_once('.').unwrap().0);
        let long = "x".repeat(MAX_COOKIE_BYTES + 1);
        for forged in [&admin, &mixed, fields, signature, "", ".", &cookie[..cookie.len() - 1], &long] {
            assert!(ours.verify(forged, NOW, &METHODS).is_err(), "{forged}");
        }
        let groups = (0..400).map(|number| format!("group-{number}")).collect();
        assert_eq!(ours.issue(&Principal::authenticated("ann", groups, "file"), NOW), None, "it is too long");
    }
}
