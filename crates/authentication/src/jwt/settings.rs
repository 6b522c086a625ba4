//! The settings of the method `jwt`: who issues tokens, for whom, and where the issuer's keys are.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use hs2::ClientTls;
use jsonwebtoken::Algorithm;
use url::{Host, Url};

/// A signature algorithm with a public key (RFC 7518, RFC 8037). There is none with a shared secret: a server that could verify with
/// one could sign, and an issuer's public key could be used as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JwtAlgorithm(pub(super) Algorithm);

impl JwtAlgorithm {
    /// All of them, by their words.
    pub const ALL: [(&'static str, Self); 9] = [
        ("RS256", Self(Algorithm::RS256)),
        ("RS384", Self(Algorithm::RS384)),
        ("RS512", Self(Algorithm::RS512)),
        ("PS256", Self(Algorithm::PS256)),
        ("PS384", Self(Algorithm::PS384)),
        ("PS512", Self(Algorithm::PS512)),
        ("ES256", Self(Algorithm::ES256)),
        ("ES384", Self(Algorithm::ES384)),
        ("EdDSA", Self(Algorithm::EdDSA)),
    ];

    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(known, _)| *known == word).map(|(_, algorithm)| algorithm)
    }
}

/// Where the issuer's keys are.
#[derive(Debug, Clone)]
pub enum KeyLocation {
    File(PathBuf),
    /// An `https` URL, or an `http` one of this machine.
    Url {
        url: Url,
        tls: ClientTls,
    },
}

/// A URL of keys cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyLocationError {
    #[error("\"{0}\" is no URL such as https://issuer.example/jwks")]
    NoUrl(String),
    #[error("\"{0}\" has a user name or a password")]
    Credentials(String),
    #[error("keys are read from {0} over a connection that is not protected: an attacker could replace them")]
    NotProtected(String),
}

impl KeyLocation {
    /// The URL, if keys may be read from it.
    pub fn parse_url(text: &str) -> Result<Url, KeyLocationError> {
        let no_url = || KeyLocationError::NoUrl(text.to_owned());
        let url = Url::parse(text).map_err(|_| no_url())?;
        let host = url.host().ok_or_else(no_url)?;
        if !url.username().is_empty() || url.password().is_some() {
            // The password stays out of logs.
            return Err(KeyLocationError::Credentials(host.to_string()));
        }
        let is_loopback = match host {
            Host::Domain(name) => name == "localhost",
            Host::Ipv4(address) => IpAddr::from(address).is_loopback(),
            Host::Ipv6(address) => IpAddr::from(address).is_loopback(),
        };
        match url.scheme() {
            "https" => Ok(url),
            "http" if is_loopback => Ok(url),
            "http" => Err(KeyLocationError::NotProtected(text.to_owned())),
            _ => Err(no_url()),
        }
    }
}

/// Which tokens are accepted.
#[derive(Debug, Clone)]
pub struct JwtSettings {
    /// The only issuer.
    pub issuer: String,
    /// A token must be for one of these. Not empty.
    pub audience: Vec<String>,
    pub algorithms: Vec<JwtAlgorithm>,
    pub keys: KeyLocation,
    /// The claim with the user's name.
    pub user_claim: String,
    /// The claim with the user's groups: a list of texts, or one text.
    pub groups_claim: String,
    /// By how much the clocks of issuer and proxy may differ.
    pub leeway: Duration,
    /// How often keys are read again.
    pub refresh: Duration,
    /// Whether a client may send a token as its password.
    pub as_password: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_from_this_machine_or_over_tls() {
        for text in ["https://issuer.example/jwks", "http://127.0.0.1:8080/jwks", "http://[::1]/", "http://localhost/"]
        {
            assert!(KeyLocation::parse_url(text).is_ok(), "{text}");
        }
        for text in ["http://issuer.example/jwks", "http://example.com/", "http://localhost.example/"] {
            assert_eq!(KeyLocation::parse_url(text), Err(KeyLocationError::NotProtected(text.to_owned())));
        }
        for text in ["", "issuer", "file:///etc/keys", "ftp://issuer/", "https:"] {
            assert_eq!(KeyLocation::parse_url(text), Err(KeyLocationError::NoUrl(text.to_owned())));
        }
        let error = KeyLocation::parse_url("https://ann:secret@issuer/").map_err(|error| error.to_string());
        assert_eq!(error, Err("\"issuer\" has a user name or a password".to_owned()));
    }

    #[test]
    fn no_algorithm_has_a_shared_secret() {
        for word in ["none", "HS256", "HS384", "HS512", "rs256", "ES512", ""] {
            assert_eq!(JwtAlgorithm::from_word(word), None, "{word}");
        }
        assert!(JwtAlgorithm::ALL.iter().all(|(word, algorithm)| JwtAlgorithm::from_word(word) == Some(*algorithm)));
    }
}
