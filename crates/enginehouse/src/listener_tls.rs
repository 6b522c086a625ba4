//! The TLS of a proxy's listener: the files of its certificate and key, and reading them again.
//!
//! At start a file that cannot be used is an error. Later the files are read at an interval and on SIGHUP; if they cannot be
//! used then, the certificate that was read last stays, and the reason is logged. They are read, not watched: a mounted
//! Secret is replaced through a symbolic link.

use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use anyhow::{Context as _, bail};
use authentication::is_open_to_others;
use hs2::{CertificateError, Certified, ServerCertificate, ServerTls};
use model::clock::{SharedClock, utc};
use model::log_throttle::LogThrottle;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::configuration::{Configuration, TlsSection, UnreadableFile};
use crate::output::with_causes;

/// The largest file of a certificate chain or of a key, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// Two files are not replaced at one instant: how long after a pair that does not match both are read once more.
const SECOND_READ_AFTER: Duration = Duration::from_secs(1);

/// The TLS of the listener, if it is on and clients are served. The files are read here, and again by a task of the runtime.
pub fn start(configuration: &Configuration, clock: &SharedClock) -> anyhow::Result<Option<Arc<ServerTls>>> {
    let section = &configuration.tls;
    if !section.is_on() || !configuration.proxy.serves_clients {
        return Ok(None);
    }
    let files = CertificateFiles::new(section);
    let certificate = Arc::new(ServerCertificate::new(files.read(clock.wall_ms())?));
    let required = configuration.logins_require_tls();
    let tls = ServerTls::new(Arc::clone(&certificate) as _, section.minimum_version.into(), required)
        .context("cannot use TLS")?
        .with_plain_tickets(configuration.accepts_plain_tickets());
    let hang_up = signal(SignalKind::hangup()).context("cannot catch SIGHUP")?;
    let reloader = Reloader { files, clock: clock.clone(), failures: LogThrottle::default() };
    tokio::spawn(reloader.run(Arc::downgrade(&certificate), section.reload.0, hang_up));
    Ok(Some(Arc::new(tls)))
}

/// The files of a certificate chain and of its key, both in PEM.
#[derive(Debug, Clone)]
pub struct CertificateFiles {
    certificate: PathBuf,
    key: PathBuf,
}

impl CertificateFiles {
    pub fn new(section: &TlsSection) -> Self {
        Self { certificate: section.certificate_file.clone(), key: section.key_file.clone() }
    }

    /// Reads both; they must match, be valid at `now_ms`, and the key must be private. The error names the key of the
    /// configuration.
    pub fn read(&self, now_ms: i64) -> anyhow::Result<Certified> {
        let (certificate, key) = (self.certificate.display(), self.key.display());
        let certified = self.read_at_any_time()?;
        let validity = certified.validity();
        if now_ms > validity.not_after_ms {
            bail!(
                "tls.certificate_file: the certificate {certificate} expired at {}\nHint: Renew it, with its key in {key}.",
                utc(validity.not_after_ms)
            );
        }
        if now_ms < validity.not_before_ms {
            bail!(
                "tls.certificate_file: the certificate {certificate} is not valid before {}\nHint: Check the clock of this machine, which reads {}.",
                utc(validity.not_before_ms),
                utc(now_ms)
            );
        }
        Ok(certified)
    }

    /// The same without the comparison with the time.
    pub fn read_at_any_time(&self) -> anyhow::Result<Certified> {
        let (certificate, key) = (self.certificate.display(), self.key.display());
        let chain = read(&self.certificate, Content::Certificate).context("tls.certificate_file")?;
        let private = read(&self.key, Content::Key).context("tls.key_file")?;
        Certified::from_pem(&chain, &private).map_err(|error| match error {
            CertificateError::Certificate(_) | CertificateError::NoCertificate => anyhow::anyhow!(
                "tls.certificate_file: {certificate}: {error}\nHint: The file must hold the certificate chain in PEM, the certificate of this server first."
            ),
            CertificateError::Key(_) => anyhow::anyhow!(
                "tls.key_file: {key}: {error}\nHint: The file must hold an unencrypted private key in PEM."
            ),
            CertificateError::Mismatch => Mismatch { certificate: self.certificate.clone(), key: self.key.clone() }.into(),
            CertificateError::Unusable(_) => anyhow::anyhow!("tls.certificate_file: {certificate}: {error}"),
        })
    }
}

/// A certificate and a key that do not belong together.
#[derive(Debug)]
struct Mismatch {
    certificate: PathBuf,
    key: PathBuf,
}

impl std::error::Error for Mismatch {}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (certificate, key) = (self.certificate.display(), self.key.display());
        write!(
            f,
            "tls.key_file: the private key {key} does not belong to the certificate {certificate}\nHint: Replace both files; the certificate of this server is the first of its chain."
        )
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Content {
    Certificate,
    Key,
}

fn read(path: &Path, content: Content) -> anyhow::Result<Vec<u8>> {
    let what = if content == Content::Key { "private key" } else { "certificate" };
    let failed = |error| UnreadableFile::new(what, path, error);
    let file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if content == Content::Key && is_open_to_others(metadata.permissions().mode(), metadata.uid()) {
        bail!("the private key {path} can be read by others\nHint: Run chmod 600 {path}.", path = path.display());
    }
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        bail!("the {what} {} has more than {MAX_FILE_BYTES} bytes", path.display());
    }
    Ok(bytes)
}

/// Reads the files again, until the certificate is dropped.
struct Reloader {
    files: CertificateFiles,
    clock: SharedClock,
    failures: LogThrottle,
}

impl Reloader {
    async fn run(mut self, certificate: Weak<ServerCertificate>, interval: Duration, mut hang_up: Signal) {
        loop {
            let requested = tokio::select! {
                () = tokio::time::sleep(interval) => false,
                received = hang_up.recv() => received.is_some(),
            };
            let read = self.read_twice().await;
            let Some(certificate) = certificate.upgrade() else { return };
            self.apply(&certificate, read, requested);
        }
    }

    /// Reads the files, and once more if they do not match.
    async fn read_twice(&self) -> anyhow::Result<Certified> {
        let read = self.read().await;
        if !read.as_ref().is_err_and(anyhow::Error::is::<Mismatch>) {
            return read;
        }
        tokio::time::sleep(SECOND_READ_AFTER).await;
        self.read().await
    }

    async fn read(&self) -> anyhow::Result<Certified> {
        let (files, now_ms) = (self.files.clone(), self.clock.wall_ms());
        // The file system may block.
        tokio::task::spawn_blocking(move || files.read(now_ms)).await.context("the thread that reads panicked")?
    }

    /// Presents a certificate that was read; logs what changed. An operator who requested it gets a line in any case.
    fn apply(&mut self, certificate: &ServerCertificate, read: anyhow::Result<Certified>, requested: bool) {
        let file = self.files.certificate.display();
        match read {
            Ok(certified) => {
                let not_after = utc(certified.validity().not_after_ms);
                let failed = self.failures.clear();
                if certificate.replace(certified) {
                    tracing::info!(%file, not_after, "replaced the TLS certificate");
                } else if failed.is_some() || requested {
                    tracing::info!(%file, not_after, "read the TLS certificate again; it is unchanged");
                }
            }
            Err(error) => {
                let due = self.failures.hit(self.clock.boottime());
                if due.is_some() || requested {
                    let error = with_causes(&error);
                    // The hint is for the command line.
                    let error = error.lines().next().unwrap_or_default();
                    tracing::warn!(
                        error,
                        count = due.unwrap_or(1),
                        "could not reload the TLS certificate; the one that was read before stays in use"
                    );
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use ::tests::certificate::Certificate;
    use std::fs::{Permissions, set_permissions};

    const DAY_MS: i64 = 86_400_000;

    fn of(certificate: &Path, key: &Path) -> CertificateFiles {
        CertificateFiles { certificate: certificate.to_owned(), key: key.to_owned() }
    }

    #[test]
    fn files_that_cannot_be_used_are_named_with_reason_and_hint() {
        let folder = tempfile::tempdir().unwrap();
        let [good, other] = ["good", "other"].map(|name| Certificate::create(folder.path(), name).unwrap());
        let files = of(&good.certificate, &good.key);
        let validity = files.read_at_any_time().unwrap().validity();
        files.read(validity.not_before_ms).unwrap();
        files.read(validity.not_after_ms).unwrap();
        let absent = folder.path().join("absent");
        let open = folder.path().join("open.key");
        std::fs::copy(&good.key, &open).unwrap();
        set_permissions(&open, Permissions::from_mode(0o644)).unwrap();
        let empty = folder.path().join("empty");
        std::fs::write(&empty, "").unwrap();
        set_permissions(&empty, Permissions::from_mode(0o600)).unwrap();
        let long = folder.path().join("long");
        std::fs::write(&long, vec![b'x'; MAX_FILE_BYTES as usize + 1]).unwrap();
        let now = validity.not_before_ms;
        for (files, now_ms, expected) in [
            (of(&absent, &good.key), now, &["tls.certificate_file: cannot read the certificate", "absent"][..]),
            (of(&good.certificate, &absent), now, &["tls.key_file: cannot read the private key", "absent"]),
            (of(&good.certificate, &open), now, &["tls.key_file: the private key", "by others", "Hint: Run chmod 600"]),
            (of(&empty, &good.key), now, &["tls.certificate_file", "there is no certificate", "Hint: "]),
            (of(&good.certificate, &empty), now, &["tls.key_file", "the private key cannot be read", "Hint: "]),
            (of(&long, &good.key), now, &["tls.certificate_file", "has more than 1048576 bytes"]),
            (of(&good.certificate, &other.key), now, &["tls.key_file", "does not belong to the certificate", "Hint: "]),
            (files.clone(), now + 3 * DAY_MS, &["tls.certificate_file", "good.crt expired at 2", "Hint: Renew it"]),
            (files.clone(), now - 1, &["tls.certificate_file", "is not valid before 2", "Hint: Check the clock"]),
        ] {
            let error = format!("{:#}", files.read(now_ms).unwrap_err());
            for part in expected {
                assert!(error.contains(part), "without {part}: {error}");
            }
        }
    }
}
