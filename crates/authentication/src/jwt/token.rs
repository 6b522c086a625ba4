//! The checks of a token, in their order: length, header, key, signature, and then the claims.

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, Validation, decode, decode_header};
use model::millis;
use model::user_name::{MAX_GROUPS, is_group_name, is_user_name};
use serde_json::{Map, Value};

use super::key_set::Key;
use super::settings::JwtSettings;

/// The longest token, in bytes.
pub(super) const MAX_BYTES: usize = 16 << 10;

/// Why a token proves nothing. Clients receive the same error for each but [`Rejection::NoKeys`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rejection {
    TooLong,
    /// It is not a signed token, or its header cannot be parsed.
    Malformed,
    /// It is encrypted or compressed.
    Encrypted,
    /// Its header has `crit`: extensions that must be understood.
    Critical,
    Algorithm,
    UnknownKey,
    /// The keys of the issuer cannot be read.
    NoKeys,
    Signature,
    Issuer,
    Audience,
    /// `exp` or `nbf` is missing or no number.
    Time,
    Expired,
    TooEarly,
    User,
    Groups,
}

impl Rejection {
    /// For the log.
    pub fn reason(self) -> &'static str {
        match self {
            Self::TooLong => "token longer than 16 KiB",
            Self::Malformed => "no signed token",
            Self::Encrypted => "encrypted or compressed token",
            Self::Critical => "token with critical extensions",
            Self::Algorithm => "token with an algorithm that is not in jwt.algorithms",
            Self::UnknownKey => "token with an unknown key",
            Self::NoKeys => "keys of the issuer unavailable",
            Self::Signature => "token with a wrong signature",
            Self::Issuer => "token of another issuer",
            Self::Audience => "token for another audience",
            Self::Time => "token without a valid exp or nbf",
            Self::Expired => "token expired",
            Self::TooEarly => "token not valid yet",
            Self::User => "token without a valid user name in jwt.user_claim",
            Self::Groups => "token without a list of texts in jwt.groups_claim",
        }
    }
}

/// What a token needs to be verified.
#[derive(Debug)]
pub(super) struct Header {
    pub key_id: Option<String>,
    pub algorithm: Algorithm,
}

/// What a verified token proves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Claims {
    pub user: String,
    pub groups: Vec<String>,
    /// In milliseconds since 1970, leeway included.
    pub expires_ms: i64,
}

/// Whether a password may be a token: three parts in base64url, of which the first is the beginning of an object in JSON.
pub(super) fn has_form_of_token(password: &str) -> bool {
    let is_part = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    password.starts_with("ey") && password.split('.').count() == 3 && password.split('.').all(is_part)
}

/// Reads the header, of which nothing is verified.
pub(super) fn header(token: &str, settings: &JwtSettings) -> Result<Header, Rejection> {
    let header = decode_header(token).map_err(|_| Rejection::Malformed)?;
    if header.enc.is_some() || header.zip.is_some() {
        return Err(Rejection::Encrypted);
    }
    if header.crit.is_some() || header.extras.inner().contains_key("b64") {
        return Err(Rejection::Critical);
    }
    if !settings.algorithms.iter().any(|algorithm| algorithm.0 == header.alg) {
        return Err(Rejection::Algorithm);
    }
    Ok(Header { key_id: header.kid, algorithm: header.alg })
}

/// Verifies the signature with a key of the issuer, and then the claims.
pub(super) fn verify(
    token: &str,
    header: &Header,
    key: &Key,
    settings: &JwtSettings,
    now_ms: i64,
) -> Result<Claims, Rejection> {
    let mut validation = Validation::new(header.algorithm);
    validation.set_audience(&settings.audience);
    validation.set_issuer(&[&settings.issuer]);
    validation.set_required_spec_claims(&["iss", "aud"]);
    // The library has a clock of its own: times are compared below.
    (validation.validate_exp, validation.validate_nbf) = (false, false);
    let decoded = decode::<Map<String, Value>>(token, &key.decoding, &validation);
    let claims = decoded.map_err(|error| rejection(error.kind()))?.claims;
    let leeway_ms = millis::from_duration(settings.leeway);
    let expires_ms = milliseconds(&claims, "exp")?.ok_or(Rejection::Time)?.saturating_add(leeway_ms);
    if expires_ms <= now_ms {
        return Err(Rejection::Expired);
    }
    if milliseconds(&claims, "nbf")?.is_some_and(|from_ms| from_ms > now_ms.saturating_add(leeway_ms)) {
        return Err(Rejection::TooEarly);
    }
    let user = claims.get(&settings.user_claim).and_then(Value::as_str).filter(|user| is_user_name(user));
    let user = user.ok_or(Rejection::User)?.to_owned();
    Ok(Claims { user, groups: groups(claims.get(&settings.groups_claim))?, expires_ms })
}

fn rejection(error: &ErrorKind) -> Rejection {
    match error {
        ErrorKind::InvalidIssuer => Rejection::Issuer,
        ErrorKind::MissingRequiredClaim(claim) if claim == "iss" => Rejection::Issuer,
        ErrorKind::InvalidAudience | ErrorKind::MissingRequiredClaim(_) => Rejection::Audience,
        ErrorKind::Json(_) | ErrorKind::Utf8(_) | ErrorKind::Base64(_) | ErrorKind::InvalidToken => {
            Rejection::Malformed
        }
        _ => Rejection::Signature,
    }
}

/// A time in seconds since 1970, which may have a fraction (RFC 7519), in milliseconds. A text is none.
fn milliseconds(claims: &Map<String, Value>, name: &str) -> Result<Option<i64>, Rejection> {
    let Some(value) = claims.get(name) else { return Ok(None) };
    let whole = value.as_i64().map(|seconds| seconds.saturating_mul(1_000));
    // A conversion to an integer is clamped to its range.
    let time = whole.or_else(|| value.as_f64().map(|seconds| (seconds * 1_000.0) as i64));
    time.ok_or(Rejection::Time).map(Some)
}

/// Names that no group can have are left out.
fn groups(claim: Option<&Value>) -> Result<Vec<String>, Rejection> {
    let texts: Vec<&str> = match claim {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::String(group)) => vec![group],
        Some(Value::Array(groups)) => groups.iter().filter_map(Value::as_str).collect(),
        Some(_) => return Err(Rejection::Groups),
    };
    let mut groups: Vec<String> = texts.into_iter().filter(|group| is_group_name(group)).map(str::to_owned).collect();
    groups.sort_unstable();
    groups.dedup();
    groups.truncate(MAX_GROUPS);
    Ok(groups)
}
