//! Section `[tls]`: TLS on the port for clients.

use std::path::PathBuf;

use anyhow::bail;
use serde::{Deserialize, Serialize};

use super::{Authentication, Configuration, Span, TlsMode};

/// The oldest version that is accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TlsVersion {
    #[serde(rename = "1.2")]
    Tls12,
    #[serde(rename = "1.3")]
    Tls13,
}

/// TLS of a proxy's listener.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TlsSection {
    pub mode: TlsMode,
    pub minimum_version: TlsVersion,
    /// The certificate chain in PEM, the server's own certificate first.
    pub certificate_file: PathBuf,
    /// Its private key in PEM, mode 0600.
    pub key_file: PathBuf,
    /// The interval at which both files are read again.
    pub reload: Span,
}

impl Default for TlsSection {
    fn default() -> Self {
        Self {
            mode: TlsMode::Off,
            minimum_version: TlsVersion::Tls12,
            certificate_file: PathBuf::new(),
            key_file: PathBuf::new(),
            reload: Span::seconds(30),
        }
    }
}

impl TlsSection {
    pub fn is_on(&self) -> bool {
        self.mode != TlsMode::Off
    }
}

impl From<TlsVersion> for hs2::TlsVersion {
    fn from(version: TlsVersion) -> Self {
        match version {
            TlsVersion::Tls12 => Self::Tls12,
            TlsVersion::Tls13 => Self::Tls13,
        }
    }
}

impl Configuration {
    /// Whether a client outside TLS cannot log in, because a login has a password or a token.
    pub fn logins_require_tls(&self) -> bool {
        match self.tls.mode {
            TlsMode::Off => false,
            TlsMode::Optional => self.access.receives_secrets(),
            TlsMode::Required => true,
        }
    }

    /// Whether tickets are accepted outside TLS although passwords are not.
    pub fn accepts_plain_tickets(&self) -> bool {
        self.tls.mode == TlsMode::Optional && self.access.uses(Authentication::Kerberos)
    }

    /// Checks the keys; the files are read by the proxies and by `config check`.
    pub(super) fn check_tls(&self) -> anyhow::Result<()> {
        let section = &self.tls;
        if section.reload.0.is_zero() {
            bail!("tls.reload must be greater than 0s");
        }
        if !section.is_on() {
            return Ok(());
        }
        for (key, file) in [("tls.certificate_file", &section.certificate_file), ("tls.key_file", &section.key_file)] {
            if file.as_os_str().is_empty() {
                bail!(
                    "tls.mode is \"{}\", but {key} is not set\nHint: Set tls.certificate_file and tls.key_file to files in PEM.",
                    if section.mode == TlsMode::Required { "required" } else { "optional" }
                );
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;
    use crate::configuration::check::checked;

    const FILES: &str = "certificate_file = \"server.crt\"\nkey_file = \"server.key\"\n";

    #[test]
    fn keys_that_do_not_fit_are_refused_by_name() {
        for (text, expected) in [
            ("mode = \"required\"", "tls.mode is \"required\", but tls.certificate_file is not set"),
            ("mode = \"optional\"\ncertificate_file = \"c\"", "tls.mode is \"optional\", but tls.key_file is not set"),
            ("mode = \"on\"", "unknown value `on`, expected one of `off`, `optional`, `required`"),
            ("minimum_version = \"1.1\"", "unknown value `1.1`, expected `1.2` or `1.3`"),
            ("reload = \"0s\"", "tls.reload must be greater than 0s"),
        ] {
            let error = format!("{:#}", checked(&format!("[tls]\n{text}\n")).unwrap_err());
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn a_version_in_a_variable_is_text() {
        let variable = ("ENGINEHOUSE_TLS_MINIMUM_VERSION".to_owned(), "1.3".to_owned());
        let read = Configuration::parse("", &[variable]).unwrap();
        assert_eq!(read.tls.minimum_version, TlsVersion::Tls13);
    }

    #[test]
    fn passwords_need_tls_wherever_it_is_on() {
        for (mode, method, expected) in [
            ("off", "file", false),
            ("optional", "none", false),
            ("optional", "file", true),
            ("required", "none", true),
        ] {
            let text = format!("[access]\nauthentication = \"{method}\"\n[tls]\nmode = \"{mode}\"\n{FILES}");
            assert_eq!(checked(&text).unwrap().logins_require_tls(), expected, "{mode} {method}");
        }
    }

    #[test]
    fn passwords_inside_tls_are_accepted_off_loopback_and_names_without_passwords_are_not() {
        for mode in ["optional", "required"] {
            let listen = format!("[proxy]\nlisten = \"0.0.0.0:10009\"\n[tls]\nmode = \"{mode}\"\n{FILES}");
            checked(&format!("{listen}[access]\nauthentication = \"file\"\n")).unwrap();
            let error = format!("{:#}", checked(&listen).unwrap_err());
            assert!(error.contains("trusts every user name"), "{error}");
        }
    }
}
