//! Certificates for tests, made with openssl when the test runs: a committed one would expire.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

/// A self-signed certificate of `localhost` and `127.0.0.1`, with its key.
#[derive(Debug, Clone)]
pub struct Certificate {
    /// PEM. Clients that trust it verify the server.
    pub certificate: PathBuf,
    /// PEM, with mode 0600.
    pub key: PathBuf,
}

/// The options of a new key.
const NEW_KEY: [&str; 6] = ["req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];

impl Certificate {
    /// Writes `<name>.crt` and `<name>.key` into the folder.
    pub fn create(folder: &Path, name: &str) -> Result<Self> {
        let files = Self::named(folder, name);
        let subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"];
        let rest = ["-addext", "basicConstraints=critical,CA:FALSE", "-days", "2", "-x509"];
        openssl(Command::new("openssl").args(NEW_KEY).args(subject).args(rest).args(files.outputs()))?;
        Ok(files)
    }

    fn named(folder: &Path, name: &str) -> Self {
        Self { certificate: folder.join(format!("{name}.crt")), key: folder.join(format!("{name}.key")) }
    }

    fn outputs(&self) -> [&OsStr; 4] {
        ["-out".as_ref(), self.certificate.as_ref(), "-keyout".as_ref(), self.key.as_ref()]
    }
}

/// A CA. Clients that trust its certificate verify the servers that it has signed.
#[derive(Debug, Clone)]
pub struct Authority(pub Certificate);

impl Authority {
    /// Writes `<name>.crt` and `<name>.key` into the folder.
    pub fn create(folder: &Path, name: &str) -> Result<Self> {
        let files = Certificate::named(folder, name);
        let subject = format!("/CN={name}");
        let rest = ["-addext", "basicConstraints=critical,CA:TRUE", "-days", "2", "-x509", "-subj", subject.as_str()];
        openssl(Command::new("openssl").args(NEW_KEY).args(rest).args(files.outputs()))?;
        Ok(Self(files))
    }

    /// A server's certificate for names such as `DNS:localhost,IP:127.0.0.1`, in the CA's folder.
    pub fn sign(&self, name: &str, names: &str) -> Result<Certificate> {
        let Self(authority) = self;
        let folder = authority.certificate.parent().context("the CA has no folder")?;
        let files = Certificate::named(folder, name);
        let subject = format!("/CN={name}");
        let alternatives = format!("subjectAltName={names}");
        let rest = ["-subj", subject.as_str(), "-addext", alternatives.as_str(), "-days", "2"];
        let by: [&OsStr; 5] = [
            "-x509".as_ref(),
            "-CA".as_ref(),
            authority.certificate.as_ref(),
            "-CAkey".as_ref(),
            authority.key.as_ref(),
        ];
        let leaf = ["-addext", "basicConstraints=critical,CA:FALSE"];
        openssl(Command::new("openssl").args(NEW_KEY).args(rest).args(leaf).args(by).args(files.outputs()))?;
        Ok(files)
    }
}

fn openssl(command: &mut Command) -> Result<()> {
    let made = command.output().context("openssl")?;
    ensure!(made.status.success(), "openssl: {}", String::from_utf8_lossy(&made.stderr));
    Ok(())
}
