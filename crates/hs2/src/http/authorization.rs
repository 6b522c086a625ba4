//! Parsing of the `Authorization` header, and the challenges of a response without one that is accepted (RFC 7617, RFC 6750,
//! RFC 4559).
//!
//! A header that cannot be parsed counts as missing. Nothing that a client sent is repeated.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::WWW_AUTHENTICATE;
use http::{HeaderValue, Response, StatusCode};
use model::error::{ErrorKind, UserError};

use crate::auth::{Authenticator, Credentials, HttpScheme, Mechanism};
use crate::limits::{MAX_BEARER_BYTES, MAX_TICKET_BYTES};

/// What a client sends in the header.
#[derive(Debug)]
pub(super) enum Authorization {
    Basic(Credentials),
    Bearer(BearerToken),
    Negotiate(Ticket),
}

/// The first token of a context of GSSAPI, which no log shows.
pub(super) struct Ticket(pub(super) Vec<u8>);

impl std::fmt::Debug for Ticket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Ticket(******)")
    }
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
        if scheme.eq_ignore_ascii_case("negotiate") {
            return ticket(token).map(Self::Negotiate);
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

/// Parses the base64 of a token. Hive's drivers until 3.1 send a colon before it.
fn ticket(token: &str) -> Option<Ticket> {
    let token = token.strip_prefix(':').unwrap_or(token).trim();
    if token.is_empty() || token.len() > MAX_TICKET_BYTES {
        return None;
    }
    STANDARD.decode(token).ok().map(Ticket)
}

/// The header with the server's token for a client whose ticket was accepted: it proves that the server has the key of its service.
/// `None` if there is none.
pub(super) fn proof_of_server(token: &[u8]) -> Option<HeaderValue> {
    let value = (!token.is_empty()).then(|| format!("Negotiate {}", STANDARD.encode(token)))?;
    HeaderValue::from_str(&value).ok()
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
            HttpScheme::Negotiate => "Negotiate",
        };
        response.headers_mut().append(WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
    }
}

/// What a request without a usable header lacks.
pub(super) fn missing(authenticator: &dyn Authenticator) -> String {
    let name = |scheme: &HttpScheme| match scheme {
        HttpScheme::Basic => "Basic credentials",
        HttpScheme::Bearer => "a Bearer token",
        HttpScheme::Negotiate => "a Negotiate ticket",
    };
    let schemes = authenticator.http_schemes();
    let names: Vec<&str> = schemes.iter().map(name).collect();
    match names.as_slice() {
        [name] => format!("the request has no {}", name.trim_start_matches("a ")),
        [first @ .., last] => format!("the request has neither {} nor {last}", first.join(", ")),
        [] => "the request has no credentials".to_owned(),
    }
}

/// The error of a login of a kind that no server of ours offers, with those that this one does.
pub(super) fn unsupported(text: &str, authenticator: &dyn Authenticator) -> UserError {
    let name = |scheme: &HttpScheme| match scheme {
        HttpScheme::Basic => "with a user name and a password",
        HttpScheme::Bearer => "with a token (auth=jwt;jwt=TOKEN)",
        HttpScheme::Negotiate => "with a Kerberos ticket (principal=hive/HOST@REALM)",
    };
    let schemes = authenticator.http_schemes();
    let names: Vec<&str> = schemes.iter().map(name).collect();
    let error = UserError::new(ErrorKind::InvalidAuthorization, text);
    match names.as_slice() {
        [name] => error.hint(format!("Log in {name}.")),
        [first @ .., last] => error.hint(format!("Log in {}, or {last}.", first.join(", "))),
        [] => error,
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
            Authorization::Negotiate(ticket) => Some((String::new(), String::from_utf8(ticket.0).unwrap())),
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
    fn a_ticket_is_base64_and_may_follow_a_colon() {
        for value in ["Negotiate YTpi", "negotiate YTpi", "Negotiate : YTpi", "Negotiate :YTpi", "NEGOTIATE   YTpi "] {
            assert_eq!(parsed(value), Some((String::new(), "a:b".to_owned())), "{value}");
        }
        let long = format!("Negotiate {}", "A".repeat(MAX_TICKET_BYTES + 4));
        for value in
            ["Negotiate", "Negotiate ", "Negotiate :", "Negotiate ::YTpi", "Negotiate Y", "Negotiate a b", &long]
        {
            assert_eq!(parsed(value), None, "{value}");
        }
        assert!(parsed(&long[..long.len() - 4]).is_some());
        assert_eq!(proof_of_server(b"a:b").unwrap(), "Negotiate YTpi");
        assert_eq!(proof_of_server(b""), None);
    }

    #[test]
    fn a_long_token_counts_as_none_and_no_debug_text_has_one() {
        assert!(parsed(&format!("Bearer {}", "a".repeat(MAX_BEARER_BYTES))).is_some());
        assert_eq!(parsed(&format!("Bearer {}", "a".repeat(MAX_BEARER_BYTES + 1))), None);
        for value in ["Bearer secret", "Negotiate c2VjcmV0"] {
            let shown = format!("{:?}", Authorization::parse(value).unwrap());
            assert!(shown.ends_with("(******))"), "{shown}");
        }
    }
}
