//! TLS to ZooKeeper: whose certificates are trusted, and why a server is not. In programs with the cargo feature `zookeeper-tls`
//! only; in others no value of [`ZookeeperTls`] exists.
//!
//! The client library retries without a reason when a handshake fails. So a handshake of our own, which sends no login, finds the
//! reason afterwards.

use std::fmt;

use model::cause::Cause;

/// The trust in the servers of an ensemble: every connection is encrypted, and a server must prove its host name. Cheap to clone.
#[derive(Clone)]
pub struct ZookeeperTls(imp::Trust);

impl fmt::Debug for ZookeeperTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZookeeperTls").finish_non_exhaustive()
    }
}

/// TLS to ZooKeeper cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ZookeeperTlsError {
    #[error("this program was built without the cargo feature zookeeper-tls")]
    NotBuilt,
    #[error("{0}")]
    Roots(#[source] Cause),
    #[error("there are no certificates")]
    NoRoots,
}

impl ZookeeperTls {
    /// Whether this program can use it.
    pub const fn is_built() -> bool {
        cfg!(feature = "zookeeper-tls")
    }

    /// Trusts the certificates of a text in PEM.
    pub fn from_pem(pem: &str) -> Result<Self, ZookeeperTlsError> {
        imp::Trust::from_pem(pem).map(Self)
    }

    /// Trusts the certificates of the machine.
    pub fn from_machine() -> Result<Self, ZookeeperTlsError> {
        imp::Trust::from_machine().map(Self)
    }

    /// Whether the host of `host:port` is a name that a certificate can have.
    pub fn can_prove(server: &str) -> bool {
        imp::can_prove(server)
    }

    pub(crate) const fn trust(&self) -> &imp::Trust {
        &self.0
    }
}

#[cfg(feature = "zookeeper-tls")]
mod imp {
    use std::io::{Error, ErrorKind};
    use std::sync::Arc;
    use std::time::Duration;

    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use model::cause::Cause;
    use rustls::crypto::ring;
    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{CertificateDer, ServerName};
    use rustls::{CertificateError, ClientConfig, RootCertStore};
    use tokio::net::TcpStream;
    use tokio::time::timeout;
    use tokio_rustls::TlsConnector;
    use tokio_rustls::client::TlsStream;
    use zookeeper_client::{Client, Connector, TlsOptions};

    use super::ZookeeperTlsError;

    /// The deadline for finding out why no session was established.
    const REASON_DEADLINE: Duration = Duration::from_secs(2);

    #[derive(Clone)]
    pub(crate) struct Trust {
        /// Of the client library, which takes the roots as PEM.
        options: TlsOptions,
        config: Arc<ClientConfig>,
    }

    impl Trust {
        pub(crate) fn from_pem(pem: &str) -> Result<Self, ZookeeperTlsError> {
            let certificates = CertificateDer::pem_slice_iter(pem.as_bytes());
            let certificates: Vec<_> = certificates.collect::<Result<_, _>>().map_err(failed)?;
            let mut roots = RootCertStore::empty();
            for certificate in &certificates {
                // The client library would skip it.
                roots.add(certificate.clone()).map_err(failed)?;
            }
            Self::new(roots, &certificates)
        }

        pub(crate) fn from_machine() -> Result<Self, ZookeeperTlsError> {
            let certificates = rustls_native_certs::load_native_certs().certs;
            let mut roots = RootCertStore::empty();
            // A machine may hold certificates that cannot be parsed; the others count.
            roots.add_parsable_certificates(certificates.iter().cloned());
            Self::new(roots, &certificates)
        }

        fn new(roots: RootCertStore, certificates: &[CertificateDer<'_>]) -> Result<Self, ZookeeperTlsError> {
            if roots.is_empty() {
                return Err(ZookeeperTlsError::NoRoots);
            }
            // The client library takes the provider of the process. The feature compiles a second one, and with two the library
            // panics if none is installed. An error means that one is.
            let _ = ring::default_provider().install_default();
            let options = TlsOptions::new().with_pem_ca(&pem(certificates)).map_err(failed)?;
            let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
                .with_safe_default_protocol_versions()
                .map_err(failed)?
                .with_root_certificates(roots)
                .with_no_client_auth();
            Ok(Self { options, config: Arc::new(config) })
        }

        /// A session of the client library.
        pub(crate) async fn connect(
            &self,
            connector: Connector,
            servers: &str,
        ) -> Result<Client, zookeeper_client::Error> {
            // The library would panic.
            if !servers.split(',').all(can_prove) {
                return Err(zookeeper_client::Error::BadArguments(&"a host is no name that a certificate can have"));
            }
            connector.with_tls(self.options.clone()).secure_connect(servers).await
        }

        /// A connection to one server, `host:port`.
        pub(crate) async fn handshake(&self, server: &str, stream: TcpStream) -> Result<TlsStream<TcpStream>, String> {
            let name = name(server).ok_or_else(|| "its host is no name that a certificate can have".to_owned())?;
            TlsConnector::from(Arc::clone(&self.config)).connect(name, stream).await.map_err(|error| reason(&error))
        }

        /// Why the first server that can be reached is not trusted; `None` if it is, or if none can be reached.
        pub(crate) async fn distrust(&self, servers: &str) -> Option<String> {
            for server in servers.split(',') {
                let Ok(Ok(stream)) = timeout(REASON_DEADLINE, TcpStream::connect(server)).await else { continue };
                let shaken = timeout(REASON_DEADLINE, self.handshake(server, stream)).await;
                return shaken.ok()?.err().map(|reason| format!("{server}: {reason}"));
            }
            None
        }
    }

    fn failed(error: impl Into<Cause>) -> ZookeeperTlsError {
        ZookeeperTlsError::Roots(error.into())
    }

    pub(crate) fn can_prove(server: &str) -> bool {
        name(server).is_some()
    }

    fn name(server: &str) -> Option<ServerName<'static>> {
        let host = server.rsplit_once(':').map_or(server, |(host, _)| host);
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        ServerName::try_from(host.to_owned()).ok()
    }

    fn pem(certificates: &[CertificateDer<'_>]) -> String {
        let blocks = certificates.iter().map(|certificate| {
            format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", STANDARD.encode(certificate))
        });
        blocks.collect()
    }

    fn reason(error: &Error) -> String {
        let certificate = match error.get_ref().and_then(|source| source.downcast_ref()) {
            Some(rustls::Error::InvalidCertificate(reason)) => Some(reason),
            _ => None,
        };
        match (certificate, error.kind()) {
            (Some(CertificateError::UnknownIssuer), _) => "its certificate was signed by an unknown CA".to_owned(),
            (
                Some(reason @ (CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. })),
                _,
            ) => {
                format!("its certificate is for another host: {reason}")
            }
            (None, ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => {
                "it does not offer TLS on this port".to_owned()
            }
            _ => format!("TLS failed: {error}"),
        }
    }
}

#[cfg(not(feature = "zookeeper-tls"))]
mod imp {
    use std::convert::Infallible;

    use tokio::net::TcpStream;
    use zookeeper_client::{Client, Connector};

    use super::ZookeeperTlsError;

    pub(crate) const fn can_prove(_: &str) -> bool {
        false
    }

    /// There is none.
    #[derive(Clone)]
    pub(crate) struct Trust(Infallible);

    #[expect(clippy::unused_async, reason = "the signatures are those of programs with the feature")]
    impl Trust {
        pub(crate) const fn from_pem(_: &str) -> Result<Self, ZookeeperTlsError> {
            Err(ZookeeperTlsError::NotBuilt)
        }

        pub(crate) const fn from_machine() -> Result<Self, ZookeeperTlsError> {
            Err(ZookeeperTlsError::NotBuilt)
        }

        pub(crate) async fn connect(&self, _: Connector, _: &str) -> Result<Client, zookeeper_client::Error> {
            match self.0 {}
        }

        pub(crate) async fn handshake(&self, _: &str, _: TcpStream) -> Result<TcpStream, String> {
            match self.0 {}
        }

        pub(crate) async fn distrust(&self, _: &str) -> Option<String> {
            match self.0 {}
        }
    }
}
