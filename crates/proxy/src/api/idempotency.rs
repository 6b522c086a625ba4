//! Idempotency keys: the request id of a REST call, from the client's `Idempotency-Key`.
//!
//! The id is a digest of user and key, so two users can never share one: a user who knows or guesses the key of another
//! repeats nothing of it and reads nothing of it. Metadata agents remember the id of a change as long as they keep its
//! outcome, 8 days; a repeat within that time returns the first outcome, whichever proxy and agent receive it.

use http::{HeaderMap, HeaderName};
use model::alteration::RequestId;
use model::error::{ErrorKind, UserError};
use sha2::{Digest as _, Sha256};

use super::hex;
use crate::control;

/// The header with the key.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// The longest key, in bytes.
const MAX_KEY_BYTES: usize = 255;
/// Keeps the ids apart from other digests.
const PURPOSE: &[u8] = b"enginehouse idempotency key 1\0";

/// Whether the request has a key.
pub(super) fn is_keyed(headers: &HeaderMap) -> bool {
    headers.contains_key(IDEMPOTENCY_KEY)
}

/// The id of a request with these headers: the same for the same user and key, and a new one without a key.
pub(super) fn request_id(user: &str, headers: &HeaderMap) -> Result<RequestId, UserError> {
    let mut keys = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(key) = keys.next() else { return control::new_id() };
    let key = key.as_bytes();
    let is_valid = (1..=MAX_KEY_BYTES).contains(&key.len()) && key.iter().all(u8::is_ascii_graphic);
    if !is_valid || keys.next().is_some() {
        return Err(UserError::new(ErrorKind::Syntax, "invalid Idempotency-Key")
            .detail(format!("A key has 1 to {MAX_KEY_BYTES} visible ASCII characters, and a request has one key.")));
    }
    let mut digest = Sha256::new();
    digest.update(PURPOSE);
    // The length separates user and key.
    digest.update((user.len() as u64).to_be_bytes());
    digest.update(user.as_bytes());
    digest.update(key);
    RequestId::new(hex::encode(&digest.finalize()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use http::HeaderValue;

    use super::*;

    fn id(user: &str, key: &str) -> Result<RequestId, UserError> {
        let headers = HeaderMap::from_iter([(IDEMPOTENCY_KEY, HeaderValue::from_bytes(key.as_bytes()).unwrap())]);
        request_id(user, &headers)
    }

    #[test]
    fn the_same_user_and_key_give_the_same_id_and_others_do_not() {
        assert_eq!(id("ann", "k-1").unwrap(), id("ann", "k-1").unwrap());
        for (user, key) in [("bob", "k-1"), ("ann", "k-2"), ("annk", "-1"), ("an", "nk-1")] {
            assert_ne!(id("ann", "k-1").unwrap(), id(user, key).unwrap(), "{user} {key}");
        }
        let none = HeaderMap::new();
        assert_ne!(request_id("ann", &none).unwrap(), request_id("ann", &none).unwrap());
    }

    #[test]
    fn a_key_that_is_not_visible_ascii_is_refused() {
        assert!(id("ann", &"k".repeat(MAX_KEY_BYTES)).is_ok());
        for key in ["", "a b", "\u{e4}", &"k".repeat(MAX_KEY_BYTES + 1)] {
            assert_eq!(id("ann", key).unwrap_err().sqlstate(), "42601", "{key}");
        }
        let mut twice = HeaderMap::new();
        twice.append(IDEMPOTENCY_KEY, "a".parse().unwrap());
        twice.append(IDEMPOTENCY_KEY, "a".parse().unwrap());
        assert!(request_id("ann", &twice).is_err());
    }
}
