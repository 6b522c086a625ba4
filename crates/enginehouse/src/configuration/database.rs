//! Section `[database]`: the metadata database, and how connections to it are protected.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use metadata::{PasswordSource, ServerTls, StoreSettings};
use model::cause::Cause;
use serde::{Deserialize, Serialize};

use super::Configuration;
use crate::key_files::read_secret_file;
use crate::output::with_causes;

/// Whether connections to a database server are encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DatabaseTls {
    /// To another machine, and with a CA file also to this one; the server must prove its host name.
    Verify,
    Off,
}

/// The metadata database.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DatabaseSection {
    /// `postgres://…`, `mysql://…`, or `sqlite://file` for a single process.
    pub url: String,
    pub tls: DatabaseTls,
    /// The certificates of CAs in PEM, added to the public ones.
    pub ca_file: PathBuf,
    /// The file with the password, mode 0600; the URL's if it is empty.
    pub password_file: PathBuf,
}

impl Default for DatabaseSection {
    fn default() -> Self {
        Self {
            url: "postgres://enginehouse@127.0.0.1:5432/enginehouse".to_owned(),
            tls: DatabaseTls::Verify,
            ca_file: PathBuf::new(),
            password_file: PathBuf::new(),
        }
    }
}

impl DatabaseSection {
    /// The settings of the store. It reads the files.
    pub fn settings(&self) -> StoreSettings {
        let set = |path: &PathBuf| (!path.as_os_str().is_empty()).then(|| path.clone());
        let source = |path: PathBuf| PasswordSource::new(move || password(&path));
        StoreSettings {
            tls: match self.tls {
                DatabaseTls::Verify => ServerTls::Verify,
                DatabaseTls::Off => ServerTls::Off,
            },
            ca_file: set(&self.ca_file),
            password: set(&self.password_file).map(source),
            ..StoreSettings::new(&self.url)
        }
    }
}

/// The password that the file has now.
fn password(path: &Path) -> Result<String, Cause> {
    let read = || -> anyhow::Result<String> {
        let text = read_secret_file("password file", path)?;
        let password = text.trim_end_matches(['\r', '\n']);
        if password.is_empty() {
            bail!("the password file {} is empty", path.display());
        }
        Ok(password.to_owned())
    };
    read().context("database.password_file").map_err(|error| with_causes(&error).into())
}

impl Configuration {
    /// Checks the keys; the files are read by metadata agents, `migrate` and `config check`.
    pub(super) fn check_database(&self) -> anyhow::Result<()> {
        let settings = self.database.settings();
        if let Err(error) = settings.backend() {
            bail!("database.url: {}", error.user_error());
        }
        if settings.is_sent_in_clear().map_err(|error| error.user_error())? && !self.access.insecure {
            bail!(
                "database.tls is \"off\", but the server is on another machine, so passwords and data would be sent to it unencrypted\nHint: Remove the key, and set database.ca_file if the certificate of the server is not signed by a public CA; or set access.insecure = true if this network is trusted."
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::configuration::check::checked;

    const ELSEWHERE: &str = "[database]\nurl = \"postgres://u@db.example/d\"\n";

    #[test]
    fn a_database_elsewhere_without_tls_needs_insecure() {
        checked(ELSEWHERE).unwrap();
        checked("[database]\ntls = \"off\"\n").unwrap();
        let off = format!("{ELSEWHERE}tls = \"off\"\n");
        let error = checked(&off).unwrap_err().to_string();
        assert!(error.starts_with("database.tls is \"off\"") && error.contains("access.insecure = true"), "{error}");
        checked(&format!("{off}[access]\ninsecure = true\n")).unwrap();
    }

    #[test]
    fn keys_that_do_not_fit_are_refused_by_name() {
        for (text, expected) in [
            ("tls = \"prefer\"", "unknown value `prefer`, expected `verify` or `off`"),
            ("url = \"postgres://u@h/d?sslmode=require\"", "database.url has sslmode=require, which does not verify"),
            ("url = \"mysql://u@h/d?ssl-ca=/ca.crt\"", "set database.ca_file"),
            ("url = \"postgres://u:p@h/d\"\npassword_file = \"p\"", "database.url has a password although"),
            ("tls = \"off\"\nca_file = \"ca.crt\"", "would have no effect"),
            ("url = \"sqlite:///tmp/a\"\nca_file = \"ca.crt\"", "SQLite"),
            ("url = \"postgres://u@h:port/d\"", "database.url is not a valid URL"),
        ] {
            let error = format!("{:#}", checked(&format!("[database]\n{text}\n")).unwrap_err());
            assert!(error.contains(expected) && !error.contains("u:p"), "{text}: {error}");
        }
    }

    #[test]
    fn a_password_file_is_private_and_not_empty() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("password");
        let write = |text: &str, mode: u32| {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        let error = || password(&path).unwrap_err().to_string();
        assert!(error().starts_with("database.password_file: cannot read the password file"), "{}", error());
        write("secret\n", 0o644);
        assert!(error().contains("can be read by others"), "{}", error());
        write("\n", 0o600);
        assert!(error().contains("is empty"), "{}", error());
        write("secret \n", 0o600);
        assert_eq!(password(&path).unwrap(), "secret ");
        let url = "postgres://u@db.example/d".to_owned();
        let section = DatabaseSection { url, password_file: path.clone(), ..DatabaseSection::default() };
        section.settings().check_files().unwrap();
        write("secret\n", 0o640);
        assert!(section.settings().check_files().unwrap_err().to_string().contains("Run chmod 600"));
    }
}
