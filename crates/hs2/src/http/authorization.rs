//! Parsing of the `Authorization` header, and the challenges of a response without one that is accepted (RFC 7617, RFC 6750).
//!
//! A header that cannot be parsed counts as missing. Nothing that a client sent is repeated.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::WWW_AUTHENTICATE;
use http::{HeaderValue, Response, StatusCode};

use crate::auth::{Authenticator, Credentials, HttpScheme, Mechanism};
use crate::limits::MAX_BEARER_BYTES;

/// What a client sends in the header.
#[derive(Debug)]
pub(super) enum Authorization {
    Basic(Credentials),
    Bearer(BearerToken),
}

/// A token, which no log shows.
pub(super) struct BearerToken(pub(super) String);

impl std::fmt::Debug for BearerToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BearerToken(******)")
    }
}

impl Authorization {
    /// Parses the value of the header; the name of its scheme may be in any case.
    pub(super) fn parse(value: &str) -> Option<Self> {
        let (scheme, token) = value.split_once(' ')?;
        let token = token.trim();
        if scheme.eq_ignore_ascii_case("basic") {
            return basic(token).map(Self::Basic);
        }
        (scheme.eq_ignore_ascii_case("bearer") && is_token68(token) && token.len() <= MAX_BEARER_BYTES)
            .then(|| Self::Bearer(BearerToken(token.to_owned())))
    }
}

/// Parses `base64(user:password)`.
fn basic(token: &str) -> Option<Credentials> {
    let pair = String::from_utf8(STANDARD.decode(token).ok()?).ok()?;
    let (user, password) = pair.split_once(':')?;
    if user.is_empty() {
        return None;
    }
    Some(Credentials {
        mechanism: Mechanism::Http,
        authzid: String::new(),
        user: user.to_owned(),
        password: password.to_owned(),
    })
}

fn is_token68(token: &str) -> bool {
    let characters = token.trim_end_matches('=');
    let is_one_of_them = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/".contains(&byte);
    !characters.is_empty() && characters.bytes().all(is_one_of_them)
}

/// Adds one challenge for each scheme to a response without authentication.
pub(super) fn challenge<B>(authenticator: &dyn Authenticator, response: &mut Response<B>) {
    if response.status() != StatusCode::UNAUTHORIZED {
        return;
    }
    for scheme in authenticator.http_schemes() {
        let challenge = match scheme {
            HttpScheme::Basic => "Basic realm=\"enginehouse\"",
            HttpScheme::Bearer => "Bearer realm=\"enginehouse\"",
        };
        response.headers_mut().append(WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
    }
}

/// What a request without a usable header lacks.
pub(super) fn missing(authenticator: &dyn Authenticator) -> &'static str {
    let schemes = authenticator.http_schemes();
    match (schemes.contains(&HttpScheme::Basic), schemes.contains(&HttpScheme::Bearer)) {
        (true, true) => "the request has neither Basic credentials nor a Bearer token",
        (false, true) => "the request has no Bearer token",
        (_, false) => "the request has no Basic credentials",
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn parsed(value: &str) -> Option<(String, String)> {
        match Authorization::parse(value)? {
            Authorization::Basic(Credentials { user, password, .. }) => Some((user, password)),
            Authorization::Bearer(token) => Some((String::new(), token.0)),
        }
    }

    #[test]
    fn a_scheme_may_be_in_any_case_and_has_one_value() {
        let bearer = Some((String::new(), "a.b-_~+/c==".to_owned()));
        for value in ["Bearer a.b-_~+/c==", "bearer a.b-_~+/c==", "BEARER   a.b-_~+/c== "] {
            assert_eq!(parsed(value), bearer, "{value}");
        }
        assert_eq!(parsed("basic YTpi"), Some(("a".to_owned(), "b".to_owned())));
        for value in [
            "",
            "Bearer",
            "Bearer ",
            "Bearer =",
            "Bearer a b",
            "Bearer a,b",
            "Bearer=a",
            "Bearer é",
            "Token a",
            "Basic ?",
        ] {
            assert_eq!(parsed(value), None, "{value}");
        }
    }

    #[test]
    fn a_long_token_counts_as_none_and_no_debug_text_has_one() {
        assert!(parsed(&format!("Bearer {}", "a".repeat(MAX_BEARER_BYTES))).is_some());
        assert_eq!(parsed(&format!("Bearer {}", "a".repeat(MAX_BEARER_BYTES + 1))), None);
        let shown = format!("{:?}", Authorization::parse("Bearer secret").unwrap());
        assert!(!shown.contains("secret"), "{shown}");
    }
}
