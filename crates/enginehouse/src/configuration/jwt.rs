//! Section `[jwt]`: the issuer of tokens of method `jwt`.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use authentication::{JwtAlgorithm, JwtSettings, KeyLocation};
use hs2::ClientTls;
use serde::{Deserialize, Serialize};

use super::{Authentication, Configuration, Span};

/// The most audiences, and the longest list of algorithms.
const MAX_ENTRIES: usize = 100;

/// An issuer, and which of its tokens are accepted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct JwtSection {
    /// The only issuer, as claim `iss` has it.
    pub issuer: String,
    /// The URL of the issuer's keys; this or `jwks_file`.
    pub jwks_url: String,
    /// A file with the issuer's keys.
    pub jwks_file: PathBuf,
    /// The certificates that sign the one of `jwks_url`, in PEM; those of the machine if it is empty.
    pub ca_file: PathBuf,
    /// Claim `aud` must have one of these.
    pub audience: Vec<String>,
    pub algorithms: Vec<String>,
    /// The claim with the user's name.
    pub user_claim: String,
    /// The claim with the user's groups.
    pub groups_claim: String,
    /// By how much the clocks of issuer and proxy may differ.
    pub leeway: Span,
    /// How often the keys are read again.
    pub refresh: Span,
    /// Whether a client may send a token as its password.
    pub as_password: bool,
}

impl Default for JwtSection {
    fn default() -> Self {
        Self {
            issuer: String::new(),
            jwks_url: String::new(),
            jwks_file: PathBuf::new(),
            ca_file: PathBuf::new(),
            audience: Vec::new(),
            algorithms: ["RS256", "ES256", "EdDSA"].map(str::to_owned).to_vec(),
            user_claim: "sub".to_owned(),
            groups_claim: "groups".to_owned(),
            leeway: Span::seconds(30),
            refresh: Span::seconds(600),
            as_password: false,
        }
    }
}

fn is_set(path: &Path) -> bool {
    !path.as_os_str().is_empty()
}

impl JwtSection {
    fn algorithms(&self) -> anyhow::Result<Vec<JwtAlgorithm>> {
        let known = || JwtAlgorithm::ALL.map(|(word, _)| word).join(", ");
        if self.algorithms.is_empty() {
            bail!("jwt.algorithms is empty\nHint: List some of {}.", known());
        }
        let of_word = |word: &String| match JwtAlgorithm::from_word(word) {
            Some(algorithm) => Ok(algorithm),
            None if word.starts_with("HS") => bail!(
                "jwt.algorithms has {word}, which needs a secret that the issuer shares: with it a proxy could issue tokens\nHint: List some of {}.",
                known()
            ),
            None if word.eq_ignore_ascii_case("none") => {
                bail!("jwt.algorithms has \"{word}\": tokens without a signature are not accepted")
            }
            None => bail!("jwt.algorithms has the unknown \"{word}\"\nHint: List some of {}.", known()),
        };
        self.algorithms.iter().map(of_word).collect()
    }

    /// Reads the certificates.
    fn keys(&self) -> anyhow::Result<KeyLocation> {
        match (self.jwks_url.is_empty(), is_set(&self.jwks_file)) {
            (true, true) => Ok(KeyLocation::File(self.jwks_file.clone())),
            (false, false) => {
                let url = KeyLocation::parse_url(&self.jwks_url).context("jwt.jwks_url")?;
                let tls = if is_set(&self.ca_file) {
                    ClientTls::from_ca_file(&self.ca_file)
                        .with_context(|| format!("jwt.ca_file, {}", self.ca_file.display()))?
                } else {
                    ClientTls::from_machine().context("the certificates of the machine; set jwt.ca_file")?
                };
                Ok(KeyLocation::Url { url, tls })
            }
            (true, false) | (false, true) => bail!("exactly one of jwt.jwks_url and jwt.jwks_file has to be set"),
        }
    }

    /// The settings of the method. Reads the certificates; the keys are read later.
    pub fn settings(&self) -> anyhow::Result<JwtSettings> {
        Ok(JwtSettings {
            issuer: self.issuer.clone(),
            audience: self.audience.clone(),
            algorithms: self.algorithms()?,
            keys: self.keys()?,
            user_claim: self.user_claim.clone(),
            groups_claim: self.groups_claim.clone(),
            leeway: self.leeway.0,
            refresh: self.refresh.0,
            as_password: self.as_password,
        })
    }

    /// Refuses keys in a file that cannot be used; an issuer may be away for a while.
    pub async fn check_file(&self) -> anyhow::Result<()> {
        let settings = self.settings()?;
        if let KeyLocation::File(_) = settings.keys {
            authentication::JwtMethod::probe(&settings).await.context("jwt.jwks_file")?;
        }
        Ok(())
    }
}

impl Configuration {
    /// Checks the keys, if method `jwt` is used; the files are read by the proxies and by `config check`.
    pub(super) fn check_jwt(&self) -> anyhow::Result<()> {
        let section = &self.jwt;
        if !self.access.uses(Authentication::Jwt) {
            return Ok(());
        }
        if section.issuer.is_empty() {
            bail!(
                "access.authentication has \"jwt\", but jwt.issuer is not set\nHint: Set it to the issuer as the claim iss of its tokens has it, such as \"https://issuer.example\"."
            );
        }
        if section.audience.is_empty() || section.audience.iter().any(String::is_empty) {
            bail!(
                "jwt.audience is empty or has an empty entry\nHint: Set it to what the issuer writes into the claim aud of tokens for this installation: others are meant for other services."
            );
        }
        for (key, length) in [("audience", section.audience.len()), ("algorithms", section.algorithms.len())] {
            if length > MAX_ENTRIES {
                bail!("jwt.{key} has {length} entries, and the limit is {MAX_ENTRIES}");
            }
        }
        section.algorithms()?;
        match (section.jwks_url.is_empty(), is_set(&section.jwks_file)) {
            (true, false) => bail!(
                "neither jwt.jwks_url nor jwt.jwks_file is set\nHint: Set jwt.jwks_url to the jwks_uri of the issuer's metadata, {}/.well-known/openid-configuration.",
                section.issuer.trim_end_matches('/')
            ),
            (false, true) => bail!("jwt.jwks_url and jwt.jwks_file are both set"),
            _ => {}
        }
        if section.jwks_url.is_empty() {
            if is_set(&section.ca_file) {
                bail!("jwt.ca_file is set, but only jwt.jwks_url needs it");
            }
        } else {
            KeyLocation::parse_url(&section.jwks_url)
                .context("jwt.jwks_url")
                .map_err(|error| anyhow::anyhow!("{error:#}\nHint: Use https://, or http:// on this machine."))?;
        }
        for (key, claim) in [("user_claim", &section.user_claim), ("groups_claim", &section.groups_claim)] {
            if claim.is_empty() {
                bail!("jwt.{key} is empty");
            }
        }
        if section.refresh.0.is_zero() {
            bail!("jwt.refresh must be greater than 0s");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::configuration::check::checked;

    const JWT: &str = "[access]\nauthentication = [\"file\", \"jwt\"]\n[jwt]\n";
    const OF_ISSUER: &str = "issuer = \"https://i.example/\"\naudience = [\"enginehouse\"]\n";
    const KEYS: &str = "jwks_url = \"https://i.example/jwks\"\n";

    #[test]
    fn tokens_need_an_issuer_an_audience_and_keys_from_one_place() {
        checked(&format!("{JWT}{OF_ISSUER}{KEYS}")).unwrap();
        checked(&format!("{JWT}{OF_ISSUER}jwks_url = \"http://127.0.0.1:1/jwks\"\n")).unwrap();
        checked(&format!("{JWT}{OF_ISSUER}jwks_file = \"keys.json\"\nalgorithms = [\"PS512\", \"ES384\"]\n")).unwrap();
        checked("[jwt]\njwks_url = \"nonsense\"\n").unwrap();
        let both = format!("{OF_ISSUER}{KEYS}");
        for (text, expected) in [
            (KEYS.to_owned(), "jwt.issuer is not set"),
            (format!("issuer = \"i\"\n{KEYS}"), "jwt.audience is empty"),
            (format!("issuer = \"i\"\naudience = [\"\"]\n{KEYS}"), "jwt.audience is empty"),
            (OF_ISSUER.to_owned(), "https://i.example/.well-known/openid-configuration"),
            (format!("{both}jwks_file = \"keys.json\""), "both set"),
            (format!("{OF_ISSUER}jwks_file = \"keys.json\"\nca_file = \"ca.crt\""), "jwt.ca_file"),
            (format!("{OF_ISSUER}jwks_url = \"http://i.example/jwks\""), "jwt.jwks_url: keys are read from http://i"),
            (format!("{OF_ISSUER}jwks_url = \"issuer\""), "jwt.jwks_url: \"issuer\" is no URL"),
            (format!("{both}algorithms = []"), "jwt.algorithms is empty"),
            (format!("{both}algorithms = [\"RS256\", \"HS256\"]"), "jwt.algorithms has HS256, which needs a secret"),
            (format!("{both}algorithms = [\"none\"]"), "tokens without a signature"),
            (format!("{both}algorithms = [\"ES512\"]"), "jwt.algorithms has the unknown \"ES512\""),
            (format!("{both}user_claim = \"\""), "jwt.user_claim is empty"),
            (format!("{both}refresh = \"0s\""), "jwt.refresh"),
        ] {
            let error = format!("{:#}", checked(&format!("{JWT}{text}\n")).unwrap_err());
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[tokio::test]
    async fn certificates_and_keys_are_read_before_a_proxy_starts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let of_url = JwtSection { jwks_url: "https://i/".to_owned(), ca_file: path.clone(), ..JwtSection::default() };
        let of_file = JwtSection { jwks_file: path.clone(), ..JwtSection::default() };
        for content in [None, Some("nonsense")] {
            if let Some(text) = content {
                std::fs::write(&path, text).unwrap();
            }
            let error = format!("{:#}", of_url.settings().unwrap_err());
            assert!(error.starts_with("jwt.ca_file, "), "{error}");
            let error = format!("{:#}", of_file.check_file().await.unwrap_err());
            assert!(error.starts_with("jwt.jwks_file: "), "{error}");
        }
        std::fs::write(&path, r#"{"keys": [{"kty": "RSA", "n": "AQAB", "e": "AQAB"}]}"#).unwrap();
        of_file.check_file().await.unwrap();
    }
}
