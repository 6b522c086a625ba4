//! Trust in a database server: whether its connections are encrypted, and why a server is not trusted.

use std::fmt;
use std::fs::File;
use std::path::Path;

use rustls::CertificateError;

/// The driver's text if the server refuses TLS.
const NO_TLS: &str = "server does not support TLS";

/// Whether connections to a server are encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ServerTls {
    /// To another machine: the server must prove its host name by a certificate. To this machine: only with a CA file, or if the
    /// URL says so.
    #[default]
    Verify,
    /// Never: passwords and data are sent in clear.
    Off,
}

/// The server did not prove that it is the server of the URL. It received no login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Distrust {
    host: String,
    port: u16,
    reason: DistrustReason,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum DistrustReason {
    NoTls,
    UnknownCa,
    OtherName(String),
    CaFile(String),
    Other(String),
}

impl Distrust {
    /// The reason of an error of a connection that had to be verified, if it is one of trust.
    pub(crate) fn of(host: &str, port: u16, ca_file: Option<&Path>, error: &sqlx::Error) -> Option<Self> {
        let reason = match error {
            sqlx::Error::Tls(reason) if reason.to_string() == NO_TLS => DistrustReason::NoTls,
            sqlx::Error::Tls(reason) => DistrustReason::Other(reason.to_string()),
            sqlx::Error::Io(error) => match error.get_ref().and_then(|source| source.downcast_ref()) {
                Some(rustls::Error::InvalidCertificate(reason)) => of_certificate(reason),
                Some(reason) => DistrustReason::Other(reason.to_string()),
                // The driver reads the file after it has connected, and its error names none.
                None => DistrustReason::CaFile(unreadable(ca_file?)?),
            },
            _ => return None,
        };
        Some(Self { host: host.to_owned(), port, reason })
    }

    /// What an operator can do.
    pub fn hint(&self) -> &'static str {
        match self.reason {
            DistrustReason::NoTls => {
                "Enable TLS in the server; database.tls = \"off\" needs access.insecure = true and sends passwords in clear."
            }
            DistrustReason::UnknownCa => {
                "Set database.ca_file to the certificate of the CA that signed the server's; if it is set, that is another CA."
            }
            DistrustReason::OtherName(_) => {
                "Use a host name of the certificate in database.url, or give the server a certificate for this one."
            }
            DistrustReason::CaFile(_) => "Put the file back; it is read for each new connection.",
            DistrustReason::Other(_) => "Check the certificate of the server and database.ca_file.",
        }
    }
}

impl fmt::Display for Distrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port, reason } = self;
        match reason {
            DistrustReason::NoTls => write!(f, "the database server {host}:{port} does not offer TLS"),
            DistrustReason::UnknownCa => {
                write!(f, "the certificate of the database server {host}:{port} was signed by an unknown CA")
            }
            DistrustReason::OtherName(reason) => {
                write!(f, "the certificate of the database server {host}:{port} is for another host: {reason}")
            }
            DistrustReason::CaFile(reason) => write!(f, "cannot read database.ca_file {reason}"),
            DistrustReason::Other(reason) => write!(f, "TLS to the database server {host}:{port} failed: {reason}"),
        }
    }
}

impl std::error::Error for Distrust {}

fn unreadable(path: &Path) -> Option<String> {
    File::open(path).err().map(|error| format!("{}: {error}", path.display()))
}

fn of_certificate(reason: &CertificateError) -> DistrustReason {
    match reason {
        CertificateError::UnknownIssuer => DistrustReason::UnknownCa,
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            DistrustReason::OtherName(reason.to_string())
        }
        reason => DistrustReason::Other(reason.to_string()),
    }
}
