//! The connector: the options with which connections to the database are opened.
//!
//! The driver's `Any` takes a URL alone, so that mode, roots and password are its parameters. A password of a file is read again
//! before each connection that the pool may open. A file that cannot be read later leaves the last password in use: the open
//! connections need none, and a new one that the server refuses is reported as any other.

use std::fmt;

use model::clock::SharedClock;
use model::log_throttle::LogThrottle;
use parking_lot::Mutex;
use sqlx::any::AnyConnectOptions;
use sqlx::{Any, ConnectOptions as _, Pool};

use crate::backend::{Backend, StoreSettings};
use crate::error::Error;
use crate::password::PasswordSource;
use crate::percent;
use crate::server::Server;
use crate::transaction::failed;
use crate::trust::Distrust;

impl StoreSettings {
    /// Checks the settings with the files that they name.
    pub fn check_files(&self) -> Result<(), Error> {
        Connector::new(self).map(drop)
    }
}

/// Opens connections of one store.
pub(crate) struct Connector {
    backend: Backend,
    /// Without the password of a file.
    options: AnyConnectOptions,
    server: Option<Server>,
    password: Option<RotatedPassword>,
}

struct RotatedPassword {
    source: PasswordSource,
    /// What the pool has, and the throttle of failed reads.
    last: Mutex<(String, LogThrottle)>,
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The options may hold a password.
        f.debug_struct("Connector").field("server", &self.server).finish_non_exhaustive()
    }
}

impl Connector {
    /// Reads the files of the settings: later they may be missing for a while, now they must be there.
    pub(crate) fn new(settings: &StoreSettings) -> Result<Self, Error> {
        let backend = settings.backend()?;
        let server = settings.server()?;
        let url = match backend {
            // The file was created with its lock. If it has gone since, a new, empty file would hide that.
            Backend::Sqlite => format!("{}?mode=rw", settings.url.split('?').next().unwrap_or_default()),
            Backend::Postgres | Backend::Mariadb => settings.url.clone(),
        };
        let options: AnyConnectOptions =
            url.parse().map_err(|_| Error::Settings("database.url is not a valid URL".into()))?;
        let mut options = options.disable_statement_logging();
        if let Some(server) = &server {
            let ca_file = server.checked_ca_file()?;
            // The last parameter of a name counts, and takes precedence over the driver's environment variables.
            let mut parameters = options.database_url.query_pairs_mut();
            parameters.append_pair("ssl-mode", mode(backend, server.verified));
            if let Some(ca_file) = ca_file {
                parameters.append_pair("ssl-ca", ca_file);
            }
        }
        let password = match &settings.password {
            Some(source) => {
                let first = source.read().map_err(Error::Settings)?;
                Some(RotatedPassword { source: source.clone(), last: Mutex::new((first, LogThrottle::default())) })
            }
            None => None,
        };
        Ok(Self { backend, options, server, password })
    }

    /// With the password that was read last.
    pub(crate) fn options(&self) -> AnyConnectOptions {
        let Some(password) = &self.password else { return self.options.clone() };
        self.with_password(&password.last.lock().0)
    }

    fn with_password(&self, password: &str) -> AnyConnectOptions {
        let mut options = self.options.clone();
        // The URL's own encoding leaves a percent sign as it is.
        let encoded = percent::encode(password.as_bytes());
        if self.backend == Backend::Postgres {
            // Its URL may have no host to log in at.
            options.database_url.query_pairs_mut().append_pair("password", password);
        } else if options.database_url.set_password(Some(&encoded)).is_err() {
            tracing::error!("the URL of the database cannot have a password");
        }
        options
    }

    /// Reads the password again, and gives the pool another one.
    pub(crate) fn refresh(&self, pool: &Pool<Any>, clock: &SharedClock) {
        let Some(RotatedPassword { source, last }) = &self.password else { return };
        let read = source.read();
        let mut last = last.lock();
        match read {
            Ok(password) => {
                if last.1.clear().is_some() {
                    tracing::info!("password of the metadata database can be read again");
                }
                if password != last.0 {
                    pool.set_connect_options(self.with_password(&password));
                    last.0 = password;
                    tracing::info!("password of the metadata database replaced; new connections use it");
                }
            }
            Err(error) => {
                if let Some(times) = last.1.hit(clock.boottime()) {
                    tracing::warn!(%error, times, "could not read the password of the metadata database; the last one stays in use");
                }
            }
        }
    }

    /// Classifies the error of a connection that could not be opened.
    pub(crate) fn failed(&self, error: sqlx::Error) -> Error {
        match self.distrust(&error) {
            Some(distrust) => Error::Untrusted(distrust),
            None => failed(error),
        }
    }

    /// Why the server is not trusted, if that is the reason of the error.
    pub(crate) fn distrust(&self, error: &sqlx::Error) -> Option<Distrust> {
        self.server.as_ref()?.distrust(error)
    }
}

const fn mode(backend: Backend, verified: bool) -> &'static str {
    match (backend, verified) {
        (Backend::Mariadb, true) => "VERIFY_IDENTITY",
        (Backend::Mariadb, false) => "DISABLED",
        (_, true) => "verify-full",
        (_, false) => "disable",
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use sqlx::mysql::{MySqlConnectOptions, MySqlSslMode};
    use sqlx::postgres::{PgConnectOptions, PgSslMode};

    use super::*;

    fn connector(url: &str) -> Connector {
        Connector::new(&StoreSettings::new(url)).unwrap()
    }

    #[test]
    fn the_driver_receives_the_mode_that_verifies_or_the_one_without_tls() {
        for (url, mode) in [
            ("postgres://u@db.example/d", PgSslMode::VerifyFull),
            ("postgres://u@db.example/d?sslmode=verify-full", PgSslMode::VerifyFull),
            ("postgres://u@127.0.0.1/d", PgSslMode::Disable),
        ] {
            let options = PgConnectOptions::try_from(&connector(url).options()).unwrap();
            assert!(format!("{:?}", options.get_ssl_mode()) == format!("{mode:?}"), "{url}");
        }
        for (url, mode) in [
            ("mysql://u@db.example/d", MySqlSslMode::VerifyIdentity),
            ("mariadb://u@127.0.0.1/d", MySqlSslMode::Disabled),
        ] {
            let options = MySqlConnectOptions::try_from(&connector(url).options()).unwrap();
            assert!(format!("{:?}", options.get_ssl_mode()) == format!("{mode:?}"), "{url}");
        }
    }

    #[test]
    fn a_password_of_a_file_reaches_the_driver_as_it_is() {
        const PASSWORD: &str = "a%41/?#@:&=+ ü\"'\\";
        for url in ["postgres://u@db.example/d?a=b", "mysql://u@db.example/d"] {
            let password = Some(PasswordSource::new(|| Ok(PASSWORD.to_owned())));
            let connector = Connector::new(&StoreSettings { password, ..StoreSettings::new(url) }).unwrap();
            let options = connector.options();
            let shown = if url.starts_with("postgres") {
                format!("{:?}", PgConnectOptions::try_from(&options).unwrap())
            } else {
                format!("{:?}", MySqlConnectOptions::try_from(&options).unwrap())
            };
            assert!(shown.contains(&format!("{PASSWORD:?}")), "{shown}");
            assert!(!format!("{connector:?}").contains("41/"), "{connector:?}");
        }
    }

    #[test]
    fn a_bad_ca_file_is_refused_at_start() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ca.crt");
        let error = || {
            let settings = StoreSettings { ca_file: Some(path.clone()), ..StoreSettings::new("postgres://u@h/d") };
            Connector::new(&settings).unwrap_err().to_string()
        };
        assert!(error().starts_with("cannot use database.ca_file"), "{}", error());
        std::fs::write(&path, "no certificate\n").unwrap();
        assert!(error().contains("it has no certificate in PEM"), "{}", error());
        std::fs::write(&path, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").unwrap();
        assert!(error().starts_with("cannot use database.ca_file"), "{}", error());
    }
}
