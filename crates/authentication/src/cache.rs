//! A cache of successful logins, so that HTTP Basic on every request does not hash on every request.
//!
//! An entry is an HMAC under a random key of the process; it reveals no password and is valid here only. What the method
//! compared with, such as the hash of the password, is a part of it: a changed password counts at once.

use std::collections::HashMap;
use std::time::Duration;

use hmac::{Hmac, KeyInit as _, Mac as _};
use model::clock::SharedClock;
use parking_lot::Mutex;
use sha2::Sha256;

/// The most logins that are cached.
const MAX_ENTRIES: usize = 10_000;

type Digest = [u8; 32];

/// The logins that succeeded within the lifetime. Failures are never cached.
#[derive(Debug)]
pub struct LoginCache {
    key: Digest,
    lifetime: Duration,
    clock: SharedClock,
    /// When each entry expires, as time since boot.
    entries: Mutex<HashMap<Digest, Duration>>,
}

impl LoginCache {
    /// A cache without entries; with a lifetime of zero it stays so.
    pub fn new(lifetime: Duration, clock: SharedClock) -> Self {
        Self { key: rand::random(), lifetime, clock, entries: Mutex::default() }
    }

    /// Whether the login succeeded within the lifetime. `parts` are the method, the user, the password, and what the
    /// method compared with.
    pub fn contains(&self, parts: [&str; 4]) -> bool {
        let Some(digest) = self.digest(parts) else { return false };
        let now = self.clock.boottime();
        self.entries.lock().get(&digest).is_some_and(|expiry| *expiry > now)
    }

    /// Remembers a login that succeeded.
    pub fn insert(&self, parts: [&str; 4]) {
        let Some(digest) = self.digest(parts).filter(|_| !self.lifetime.is_zero()) else { return };
        let now = self.clock.boottime();
        let mut entries = self.entries.lock();
        if entries.len() >= MAX_ENTRIES && !entries.contains_key(&digest) {
            entries.retain(|_, expiry| *expiry > now);
        }
        if entries.len() >= MAX_ENTRIES {
            let oldest = entries.iter().min_by_key(|(_, expiry)| **expiry).map(|(digest, _)| *digest);
            oldest.and_then(|digest| entries.remove(&digest));
        }
        entries.insert(digest, now + self.lifetime);
    }

    fn digest(&self, parts: [&str; 4]) -> Option<Digest> {
        // HMAC takes a key of any length, so this cannot fail.
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key).ok()?;
        for part in parts {
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part.as_bytes());
        }
        Some(mac.finalize().into_bytes().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::clock::ManualClock;

    #[test]
    fn a_login_is_cached_until_its_lifetime_ends() {
        let clock = ManualClock::at(0);
        let cache = LoginCache::new(Duration::from_mins(1), clock.clone());
        let login = ["file", "ann", "secret", "hash"];
        assert!(!cache.contains(login));
        cache.insert(login);
        assert!(cache.contains(login));
        for other in
            [["ldap", "ann", "secret", "hash"], ["file", "ann", "secre", "thash"], ["file", "ann", "secret", "new"]]
        {
            assert!(!cache.contains(other), "{other:?}");
        }
        clock.advance(Duration::from_mins(1));
        assert!(!cache.contains(login));
    }

    #[test]
    fn a_full_cache_forgets_the_oldest_login_and_no_lifetime_caches_none() {
        let clock = ManualClock::at(0);
        let cache = LoginCache::new(Duration::from_mins(1), clock.clone());
        cache.insert(["file", "first", "", ""]);
        clock.advance(Duration::from_secs(1));
        for user in 0..MAX_ENTRIES {
            cache.insert(["file", &user.to_string(), "", ""]);
        }
        assert_eq!(cache.entries.lock().len(), MAX_ENTRIES);
        assert!(!cache.contains(["file", "first", "", ""]) && cache.contains(["file", "9999", "", ""]));

        let none = LoginCache::new(Duration::ZERO, clock);
        none.insert(["file", "ann", "", ""]);
        assert!(none.entries.lock().is_empty());
    }
}
