//! The database server of a URL: where it is, and whether connections to it are encrypted.
//!
//! A connection is either verified, host and CA, or plain. It is never plain because the server offers nothing better, as with
//! the driver's default, and never encrypted without verification, as with the driver's `require`. A URL that asks for a weaker
//! mode is refused, so [`StoreSettings::tls`](crate::StoreSettings) alone decides.

use std::borrow::Cow;
use std::net::IpAddr;
use std::path::PathBuf;

use model::cause::Cause;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use sqlx::any::AnyConnectOptions;
use sqlx::mysql::MySqlConnectOptions;
use sqlx::postgres::PgConnectOptions;

use crate::backend::{Backend, StoreSettings};
use crate::error::Error;
use crate::trust::{Distrust, ServerTls};

/// Parameters of a URL that choose a mode, by any name that a driver reads.
const MODE_PARAMETERS: [&str; 2] = ["sslmode", "ssl-mode"];
/// Parameters that choose the roots.
const ROOT_PARAMETERS: [&str; 4] = ["sslrootcert", "ssl-root-cert", "ssl-ca", "sslca"];
/// The modes that verify host and CA, of `PostgreSQL` and `MariaDB`.
const STRICT_MODES: [&str; 2] = ["verify-full", "verify_identity"];
/// A server, as the driver of its URL finds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Server {
    host: String,
    port: u16,
    /// A Unix socket, which leads to this machine and has no TLS.
    is_socket: bool,
    /// Whether connections are verified.
    pub verified: bool,
    ca_file: Option<PathBuf>,
}

impl StoreSettings {
    /// Checks the URL and the keys that must fit to it, without any file.
    pub fn check(&self) -> Result<(), Error> {
        self.server().map(drop)
    }

    /// Whether connections are encrypted.
    pub fn is_encrypted(&self) -> Result<bool, Error> {
        Ok(self.server()?.is_some_and(|server| server.verified))
    }

    /// Whether passwords and data leave this machine in clear.
    pub fn is_sent_in_clear(&self) -> Result<bool, Error> {
        Ok(self.server()?.is_some_and(|server| !server.verified && !server.is_local()))
    }

    /// `None` for a file.
    pub(crate) fn server(&self) -> Result<Option<Server>, Error> {
        let (host, port, is_socket) = match self.backend()? {
            Backend::Sqlite if self.password.is_some() => {
                return Err(refused(
                    "database.password_file is set, but database.url is SQLite, which has no password",
                ));
            }
            Backend::Sqlite if self.ca_file.is_some() => {
                return Err(refused("database.ca_file is set, but database.url is SQLite, which has no server"));
            }
            Backend::Sqlite => return Ok(None),
            Backend::Postgres => {
                let options: PgConnectOptions = self.url.parse().map_err(|_| invalid_url())?;
                let host = options.get_host();
                (host.to_owned(), options.get_port(), options.get_socket().is_some() || host.starts_with('/'))
            }
            Backend::Mariadb => {
                let options: MySqlConnectOptions = self.url.parse().map_err(|_| invalid_url())?;
                (options.get_host().to_owned(), options.get_port(), options.get_socket().is_some())
            }
        };
        let is_strict = self.check_parameters()?;
        let mut server = Server { host, port, is_socket, verified: false, ca_file: self.ca_file.clone() };
        server.verified = match self.tls {
            ServerTls::Off => false,
            ServerTls::Verify => !is_socket && (is_strict || self.ca_file.is_some() || !server.is_local()),
        };
        if !server.verified
            && let Some(path) = &self.ca_file
        {
            let why = if is_socket { "the server is a Unix socket" } else { "database.tls is \"off\"" };
            return Err(refused(format!(
                "database.ca_file is {}, but {why}: the file would have no effect",
                path.display()
            )));
        }
        Ok(Some(server))
    }

    /// Whether the URL itself asks for verified connections. A URL with a weaker mode, other roots or a second password is refused.
    fn check_parameters(&self) -> Result<bool, Error> {
        let options: AnyConnectOptions = self.url.parse().map_err(|_| invalid_url())?;
        let url = &options.database_url;
        let mut is_strict = false;
        let is_one_of = |key: &str, names: &[&str]| names.iter().any(|name| key.eq_ignore_ascii_case(name));
        for (key, value) in url.query_pairs() {
            if is_one_of(&key, &MODE_PARAMETERS) {
                if !is_one_of(&value, &STRICT_MODES) {
                    return Err(refused(format!(
                        "database.url has {key}={value}, which does not verify the server\nHint: Remove it: database.tls \
                         decides, and its default verifies host and CA."
                    )));
                }
                is_strict = true;
            }
            if is_one_of(&key, &ROOT_PARAMETERS) {
                return Err(refused(format!(
                    "database.url has {key}\nHint: Remove it, and set database.ca_file to that file; database.tls decides \
                     whether the server is verified."
                )));
            }
        }
        if is_strict && self.tls == ServerTls::Off {
            return Err(refused("database.url asks for a verified server, but database.tls is \"off\""));
        }
        let has_password = url.password().is_some() || url.query_pairs().any(|(key, _)| key == "password");
        if has_password && self.password.is_some() {
            return Err(refused(
                "database.url has a password although database.password_file is set\nHint: Remove the password from the URL.",
            ));
        }
        Ok(is_strict)
    }
}

fn invalid_url() -> Error {
    refused("database.url is not a valid URL")
}

fn refused(text: impl Into<Cow<'static, str>>) -> Error {
    Error::Settings(text.into().into_owned().into())
}

impl Server {
    /// Whether nothing between here and the server can read along.
    fn is_local(&self) -> bool {
        let host = self.host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(&self.host);
        self.is_socket
            || host.eq_ignore_ascii_case("localhost")
            || host.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
    }

    /// The CA file as the driver takes it, which reads it for each connection. Here it is only checked.
    pub(crate) fn checked_ca_file(&self) -> Result<Option<&str>, Error> {
        let Some(path) = &self.ca_file else { return Ok(None) };
        let cannot = |reason: Cause| refused(format!("cannot use database.ca_file {}: {reason}", path.display()));
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_file_iter(path).map_err(|error| cannot(error.into()))? {
            let certificate = certificate.map_err(|error| cannot(error.into()))?;
            roots.add(certificate).map_err(|error| cannot(error.into()))?;
        }
        if roots.is_empty() {
            return Err(cannot("it has no certificate in PEM".into()));
        }
        path.to_str().map(Some).ok_or_else(|| cannot("its path is not valid UTF-8".into()))
    }

    /// Why no connection to the server is trusted, if that is the reason of the error. A plain connection needs no trust.
    pub(crate) fn distrust(&self, error: &sqlx::Error) -> Option<Distrust> {
        if self.verified { Distrust::of(&self.host, self.port, self.ca_file.as_deref(), error) } else { None }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;
    use crate::password::PasswordSource;

    const ELSEWHERE: &str = "postgres://u@db.example/d";

    fn server(settings: &StoreSettings) -> Server {
        settings.server().unwrap().unwrap()
    }

    #[test]
    fn only_connections_to_another_machine_are_verified_by_default() {
        for (url, verified) in [
            ("postgres://u@db.example/d", true),
            ("postgres://u@10.0.0.7:5433/d", true),
            ("postgres://u@127.0.0.1/d?hostaddr=10.0.0.7", true),
            ("postgres://u@localhost.example/d", true),
            ("mysql://u@db.example/d", true),
            ("mariadb://u@[2001:db8::1]/d", true),
            ("postgres://u@127.0.0.1:5432/d", false),
            ("postgres://u@LOCALHOST/d", false),
            ("postgres://u@[::1]/d", false),
            ("postgres://u@%2Fvar%2Frun%2Fpostgresql/d", false),
            ("postgres://u@db.example/d?host=/var/run/postgresql", false),
            ("mysql://u@127.8.8.8/d", false),
            ("mysql://u@db.example/d?socket=/run/mysqld.sock", false),
            ("postgres://u@127.0.0.1/d?sslmode=verify-full", true),
            ("mysql://u@localhost/d?ssl-mode=VERIFY_IDENTITY", true),
        ] {
            let settings = StoreSettings::new(url);
            assert_eq!(settings.is_encrypted().unwrap(), verified, "{url}");
            assert!(!settings.is_sent_in_clear().unwrap(), "{url}");
        }
        assert_eq!(StoreSettings::new("sqlite:///tmp/a").server().unwrap(), None);
    }

    #[test]
    fn a_ca_file_verifies_this_machine_too() {
        let ca_file = Some(PathBuf::from("ca.crt"));
        let local = StoreSettings { ca_file: ca_file.clone(), ..StoreSettings::new("postgres://u@127.0.0.1/d") };
        assert!(server(&local).verified);
        for (url, tls) in [("postgres://u@h/d?host=/run/p", ServerTls::Verify), (ELSEWHERE, ServerTls::Off)] {
            let without_effect = StoreSettings { ca_file: ca_file.clone(), tls, ..StoreSettings::new(url) };
            let error = without_effect.check().unwrap_err().to_string();
            assert!(error.contains("would have no effect"), "{url}: {error}");
        }
    }

    #[test]
    fn off_is_in_clear_only_to_another_machine() {
        for (url, in_clear) in [
            (ELSEWHERE, true),
            ("mysql://u@10.0.0.7/d", true),
            ("postgres://u@127.0.0.1/d", false),
            ("mysql://u@h/d?socket=/run/m", false),
            ("sqlite:///tmp/a", false),
        ] {
            let settings = StoreSettings { tls: ServerTls::Off, ..StoreSettings::new(url) };
            assert_eq!(settings.is_sent_in_clear().unwrap(), in_clear, "{url}");
            assert!(!settings.is_encrypted().unwrap(), "{url}");
        }
    }

    #[test]
    fn weaker_modes_and_other_roots_in_the_url_are_refused() {
        let modes = [
            "disable",
            "allow",
            "prefer",
            "require",
            "verify-ca",
            "PREFERRED",
            "REQUIRED",
            "DISABLED",
            "VERIFY_CA",
            "x",
        ];
        for scheme in ["postgres", "mysql"] {
            for mode in modes {
                for key in ["sslmode", "ssl-mode", "SslMode"] {
                    for host in ["db.example", "127.0.0.1"] {
                        let url = format!("{scheme}://u@{host}/d?a=b&{key}={mode}");
                        let error = StoreSettings::new(&url).check().unwrap_err().to_string();
                        assert!(error.contains("database.tls") || error.contains("not a valid URL"), "{url}: {error}");
                    }
                }
            }
            for key in ROOT_PARAMETERS {
                let error =
                    StoreSettings::new(format!("{scheme}://u@h/d?{key}=/ca.crt")).check().unwrap_err().to_string();
                assert!(error.contains(key) && error.contains("database.ca_file"), "{error}");
            }
        }
        let off =
            StoreSettings { tls: ServerTls::Off, ..StoreSettings::new(format!("{ELSEWHERE}?sslmode=verify-full")) };
        assert!(off.check().unwrap_err().to_string().contains("database.tls is \"off\""));
    }

    #[test]
    fn a_password_is_in_the_url_or_in_a_file() {
        let password = Some(PasswordSource::new(|| Ok("hidden".to_owned())));
        for url in ["postgres://u:p@h/d", "postgres://u@h/d?password=p", "mysql://u:p@h/d", "sqlite:///tmp/a"] {
            let settings = StoreSettings { password: password.clone(), ..StoreSettings::new(url) };
            let error = settings.check().unwrap_err().to_string();
            assert!(error.contains("database.password_file"), "{url}: {error}");
        }
        StoreSettings { password, ..StoreSettings::new(ELSEWHERE) }.check().unwrap();
    }
}
