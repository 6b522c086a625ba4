//! Certificates for tests, made with openssl when the test runs: a committed one would expire.

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

impl Certificate {
    /// Writes `<name>.crt` and `<name>.key` into the folder.
    pub fn create(folder: &Path, name: &str) -> Result<Self> {
        let certificate = folder.join(format!("{name}.crt"));
        let key = folder.join(format!("{name}.key"));
        let made = Command::new("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"])
            .args(["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"])
            .args(["-addext", "basicConstraints=critical,CA:FALSE", "-days", "2"])
            .arg("-out")
            .arg(&certificate)
            .arg("-keyout")
            .arg(&key)
            .output()
            .context("openssl")?;
        ensure!(made.status.success(), "openssl: {}", String::from_utf8_lossy(&made.stderr));
        Ok(Self { certificate, key })
    }
}
