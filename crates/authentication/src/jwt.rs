//! The method `jwt`: tokens that an issuer has signed (RFC 7519), such as an access token of `OpenID` Connect.
//!
//! | file | content |
//! | --- | --- |
//! | `settings` | who issues tokens, for whom, and where the issuer's keys are |
//! | `token` | the checks of a token, in their order |
//! | `key_set` | the issuer's keys (RFC 7517), and which of them a token may use |
//! | `key_source` | when the keys are read again, and how long they are used while they cannot be read |
//! | `fetch` | one reading of the keys, from a file or over HTTP |
//! | `verifier` | the signature algorithms, on *ring* |
//!
//! Invariants: a token is verified with a key of the issuer and of the kind that its algorithm needs; nothing in a token but its
//! `kid` chooses a key. `jku`, `jwk`, `x5u` and `x5c` are not used, and no token counts after its `exp`, not even from the cache.
//!
//! A token is a complete proof: its bearer is the user that it names, with the groups that it names, until it expires. A stale caller
//! has the groups of its own token. A key that the issuer withdraws is used until the next reading, and tokens that were verified with
//! it until they expire.

mod fetch;
mod key_set;
mod key_source;
mod settings;
mod token;
mod verifier;

use std::collections::HashMap;

use async_trait::async_trait;
use hs2::HttpScheme;
use model::clock::SharedClock;
use model::error::{ErrorKind, UserError};
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};

pub use self::fetch::KeysError;
pub use self::key_set::KeySetError;
use self::key_source::KeySource;
pub use self::settings::{JwtAlgorithm, JwtSettings, KeyLocation, KeyLocationError};
use self::token::{Claims, Rejection};
use crate::chain::{Method, Verdict};

/// The name of the method, as in `access.authentication`.
const NAME: &str = "jwt";
/// The most verified tokens that are cached. None is longer than [`token::MAX_BYTES`].
const MAX_TOKENS: usize = 10_000;

type TokenDigest = [u8; 32];

/// Users with a token of an issuer.
pub struct JwtMethod {
    settings: JwtSettings,
    keys: KeySource,
    clock: SharedClock,
    /// The claims of verified tokens.
    verified: Mutex<HashMap<TokenDigest, Claims>>,
}

impl JwtMethod {
    /// Starts a task that reads the keys now and again, until the method is dropped.
    pub fn new(settings: JwtSettings, clock: SharedClock) -> Self {
        verifier::install();
        let keys = KeySource::new(settings.keys.clone(), settings.refresh, clock.clone());
        Self { settings, keys, clock, verified: Mutex::default() }
    }

    /// How many keys of the issuer can verify tokens, read once.
    pub async fn probe(settings: &JwtSettings) -> Result<usize, KeysError> {
        Ok(fetch::read(&settings.keys).await?.len())
    }

    async fn claims(&self, token: &str) -> Result<Claims, Rejection> {
        if token.len() > token::MAX_BYTES {
            return Err(Rejection::TooLong);
        }
        let digest: TokenDigest = Sha256::digest(token.as_bytes()).into();
        let now_ms = self.clock.wall_ms();
        if let Some(claims) = self.verified.lock().get(&digest).filter(|claims| claims.expires_ms > now_ms) {
            return Ok(claims.clone());
        }
        let header = token::header(token, &self.settings)?;
        let key = self.keys.key(&header).await?;
        let claims = token::verify(token, &header, &key, &self.settings, self.clock.wall_ms())?;
        cache(&mut self.verified.lock(), digest, claims.clone(), now_ms);
        Ok(claims)
    }
}

/// Adds a verified token. A full cache drops those that have expired, or the one that expires first.
fn cache(verified: &mut HashMap<TokenDigest, Claims>, digest: TokenDigest, claims: Claims, now_ms: i64) {
    if verified.len() >= MAX_TOKENS && !verified.contains_key(&digest) {
        verified.retain(|_, claims| claims.expires_ms > now_ms);
    }
    if verified.len() >= MAX_TOKENS && !verified.contains_key(&digest) {
        let first = verified.iter().min_by_key(|(_, claims)| claims.expires_ms).map(|(digest, _)| *digest);
        first.and_then(|digest| verified.remove(&digest));
    }
    verified.insert(digest, claims);
}

#[async_trait]
impl Method for JwtMethod {
    fn name(&self) -> &'static str {
        NAME
    }

    fn http_schemes(&self) -> &'static [HttpScheme] {
        if self.settings.as_password { &[HttpScheme::Basic, HttpScheme::Bearer] } else { &[HttpScheme::Bearer] }
    }

    fn accepts_no_user_name(&self) -> bool {
        self.settings.as_password
    }

    fn takes_as_token(&self, password: &str) -> bool {
        self.settings.as_password && token::has_form_of_token(password)
    }

    fn may_have(&self, _: &str) -> bool {
        true
    }

    /// The password is a token, and the user is the token's.
    async fn login(&self, user: &str, password: &str) -> Verdict {
        if !self.takes_as_token(password) {
            return Verdict::Unknown;
        }
        match self.token(password).await {
            Verdict::Accepted { user: Some(of_token), .. } if user != of_token => {
                Verdict::Rejected("another user's token")
            }
            verdict => verdict,
        }
    }

    async fn token(&self, token: &str) -> Verdict {
        match self.claims(token).await {
            Ok(Claims { user, groups, expires_ms }) => {
                Verdict::Accepted { user: Some(user), groups, expires_ms: Some(expires_ms) }
            }
            Err(Rejection::NoKeys) => {
                let text = "authentication is unavailable: the keys of the token's issuer cannot be read";
                Verdict::Unavailable(UserError::new(ErrorKind::Unavailable, text).hint("Retry the login later."))
            }
            Err(rejection) => Verdict::Rejected(rejection.reason()),
        }
    }

    /// Only a token knows them.
    async fn groups(&self, _: &str) -> Option<Vec<String>> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims(user: &str, expires_ms: i64) -> Claims {
        Claims { user: user.to_owned(), groups: Vec::new(), expires_ms }
    }

    #[test]
    fn a_full_cache_drops_expired_tokens_and_then_the_one_that_expires_first() {
        let mut verified = HashMap::new();
        let digest = |number: usize| {
            let mut digest = [0; 32];
            digest[..8].copy_from_slice(&number.to_be_bytes());
            digest
        };
        for number in 0..MAX_TOKENS {
            cache(&mut verified, digest(number), claims("ann", 1_000 + number as i64), 0);
        }
        cache(&mut verified, digest(MAX_TOKENS), claims("bob", 99_999), 0);
        assert_eq!(verified.len(), MAX_TOKENS);
        assert!(!verified.contains_key(&digest(0)) && verified.contains_key(&digest(1)));
        cache(&mut verified, digest(MAX_TOKENS + 1), claims("eve", 99_999), 6_000);
        assert_eq!(verified.len(), MAX_TOKENS - 5_000 + 1, "those that expired until 6 s are gone");
    }
}
