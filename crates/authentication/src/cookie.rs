//! The cookie of HTTP clients: a login that succeeded at most [`HTTP_COOKIE_LIFETIME`] ago, signed for every proxy.
//!
//! All proxies have the key, so any of them accepts a cookie of another one, and a restart keeps them. A cookie is a proof, not
//! a session: a user whose password was changed keeps it until it expires. It names the generation of its key: keys are
//! rotated without logins as long as proxies accept both generations.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use hs2::Principal;
use hs2::limits::HTTP_COOKIE_LIFETIME;
use model::error::{ErrorKind, UserError};
use sha2::Sha256;

/// The longest cookie that is issued or read, in bytes. A user with more groups has to send credentials.
pub const MAX_COOKIE_BYTES: usize = 3 * 1024;

/// The version of the fields.
const VERSION: &str = "2";

/// Between two fields, none of which contains control characters.
const SEPARATOR: char = '\0';

/// A key of cookies.
#[derive(Clone)]
pub struct CookieKey {
    pub generation: u32,
    pub key: String,
}

/// The keys that are current; new cookies have the first one.
pub type CookieKeys = Box<dyn Fn() -> Vec<CookieKey> + Send + Sync>;

/// Issues and verifies cookies.
pub struct Cookies {
    keys: CookieKeys,
}

impl std::fmt::Debug for Cookies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Cookies(******)")
    }
}

impl Cookies {
    pub fn new(keys: CookieKeys) -> Self {
        Self { keys }
    }

    /// The cookie of a user who has just been authenticated; `None` if it would be too long, if the user is not the one
    /// who authenticated, or if the proof has an end of its own, which the cookie could outlive. `now` is in milliseconds since 1970.
    pub fn issue(&self, principal: &Principal, now: i64) -> Option<String> {
        if principal.service.is_some() || principal.via.is_some() || principal.expires_ms.is_some() {
            return None;
        }
        let expires = now.saturating_add(HTTP_COOKIE_LIFETIME.as_millis() as i64).to_string();
        let key = (self.keys)().into_iter().next()?;
        let generation = key.generation.to_string();
        let mut fields = vec![VERSION, &generation, &expires, principal.method, &principal.user];
        fields.extend(principal.groups.iter().map(String::as_str));
        let fields = URL_SAFE_NO_PAD.encode(fields.join(&SEPARATOR.to_string()));
        let cookie = format!("{fields}.{}", URL_SAFE_NO_PAD.encode(mac(&key, &fields)?.finalize().into_bytes()));
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
        let (encoded, signature) = cookie.split_once('.')?;
        let fields = String::from_utf8(URL_SAFE_NO_PAD.decode(encoded).ok()?).ok()?;
        let mut fields = fields.split(SEPARATOR);
        // Nothing else of it is used before its signature was verified.
        let (version, generation) = (fields.next()?, fields.next()?.parse::<u32>().ok()?);
        let key = (self.keys)().into_iter().find(|key| key.generation == generation)?;
        // Compares in constant time.
        mac(&key, encoded)?.verify_slice(&URL_SAFE_NO_PAD.decode(signature).ok()?).ok()?;
        let (expires, method, user) = (fields.next()?, fields.next()?, fields.next()?);
        if version != VERSION || expires.parse::<i64>().ok()? <= now {
            return None;
        }
        let method = methods.iter().find(|known| **known == method)?;
        Some(Principal::authenticated(user, fields.map(str::to_owned).collect(), method))
    }
}

/// HMAC takes a key of any length, so this is never `None`.
fn mac(key: &CookieKey, fields: &str) -> Option<Hmac<Sha256>> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key.key.as_bytes()).ok()?;
    mac.update(fields.as_bytes());
    Some(mac)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const NOW: i64 = 1_800_000_000_000;
    const METHODS: [&str; 2] = ["file", "ldap"];

    /// Cookies with keys of these generations, of which the first is in use.
    fn cookies(keys: &[(u32, &str)]) -> Cookies {
        let keys: Vec<CookieKey> = keys
            .iter()
            .map(|(generation, key)| CookieKey { generation: *generation, key: (*key).to_owned() })
            .collect();
        Cookies::new(Box::new(move || keys.clone()))
    }

    fn ann() -> Principal {
        Principal::authenticated("ann", vec!["analysts".to_owned(), "etl".to_owned()], "file")
    }

    #[test]
    fn every_proxy_accepts_a_cookie_until_it_expires() {
        let cookie = cookies(&[(1, "one")]).issue(&ann(), NOW).unwrap();
        let other = cookies(&[(1, "one")]);
        let lifetime = HTTP_COOKIE_LIFETIME.as_millis() as i64;
        assert_eq!(other.verify(&cookie, NOW + lifetime - 1, &METHODS).unwrap(), ann());
        let error = other.verify(&cookie, NOW + lifetime, &METHODS).unwrap_err();
        assert_eq!((error.sqlstate(), error.message.as_str()), ("28000", "authentication failed"));
        assert!(other.verify(&cookie, NOW, &METHODS[1..]).is_err(), "the method is no longer enabled");
    }

    #[test]
    fn a_forged_or_truncated_cookie_is_refused() {
        let (ours, other) = (cookies(&[(1, "one")]), cookies(&[(1, "another")]));
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
        assert_eq!(ours.issue(&ann().until(Some(NOW + 1)), NOW), None, "it could outlive the proof");
    }

    #[test]
    fn a_cookie_is_accepted_as_long_as_the_generation_of_its_key_is() {
        let old = cookies(&[(1, "one")]).issue(&ann(), NOW).unwrap();
        let new = cookies(&[(2, "two"), (1, "one")]).issue(&ann(), NOW).unwrap();
        for (keys, accepts_old, accepts_new) in [
            (&[(1, "one")][..], true, false),
            (&[(1, "one"), (2, "two")], true, true),
            (&[(2, "two"), (1, "one")], true, true),
            (&[(2, "two")], false, true),
            (&[(1, "two"), (2, "one")], false, false),
            (&[], false, false),
        ] {
            let cookies = cookies(keys);
            assert_eq!(cookies.verify(&old, NOW, &METHODS).is_ok(), accepts_old, "{keys:?}");
            assert_eq!(cookies.verify(&new, NOW, &METHODS).is_ok(), accepts_new, "{keys:?}");
        }
    }
}
