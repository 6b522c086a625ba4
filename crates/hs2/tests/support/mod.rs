//! Fixtures that several test programs and a benchmark share: a handler that trusts every name, a client's login, TLS,
//! and an echo.
#![allow(dead_code, reason = "each program uses a part")]
#![allow(clippy::unwrap_used, missing_docs)]

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use hs2::{
    Authenticator, Certified, Connection, Credentials, Handler, Principal, ServerCertificate, ServerTls, TlsVersion,
};
use model::error::UserError;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};
use tests::certificate::Certificate;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;

/// What a client of SASL PLAIN sends first, as user `a`.
pub const LOGIN: &[u8] = b"\x01\0\0\0\x05PLAIN\x05\0\0\0\x04\0a\0b";
/// The response to it.
pub const WELCOME: [u8; 5] = [5, 0, 0, 0, 0];

/// Trusts every user name, and serves each connection by the closure.
pub struct Serving<F>(pub F);

#[async_trait]
impl<F: Send + Sync> Authenticator for Serving<F> {
    async fn authenticate(&self, _: SocketAddr, credentials: &Credentials) -> Result<Principal, UserError> {
        Ok(Principal::user(credentials.user.as_str()))
    }
}

#[async_trait]
impl<F, S> Handler for Serving<F>
where
    F: Fn(Connection, CancellationToken) -> S + Send + Sync + 'static,
    S: Future<Output = ()> + Send + 'static,
{
    async fn connection(self: Arc<Self>, connection: Connection, stop: CancellationToken) {
        (self.0)(connection, stop).await;
    }
}

/// Returns each message to its sender.
pub async fn echo(mut connection: Connection, _: CancellationToken) {
    while let Ok(Some(message)) = connection.next().await {
        connection.send(message.bytes()).await.unwrap();
    }
}

/// Logs in over a stream that is connected.
pub async fn log_in(stream: &mut (impl AsyncReadExt + AsyncWriteExt + Unpin)) {
    stream.write_all(LOGIN).await.unwrap();
    let mut answer = [0; 5];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(answer, WELCOME);
}

pub fn certified(files: &Certificate) -> Certified {
    let read = |path| std::fs::read(path).unwrap();
    Certified::from_pem(&read(&files.certificate), &read(&files.key)).unwrap()
}

/// The TLS of a listener with that certificate, which can be replaced.
pub fn server_tls(files: &Certificate, minimum: TlsVersion, required: bool) -> (ServerTls, Arc<ServerCertificate>) {
    let certificate = Arc::new(ServerCertificate::new(certified(files)));
    (ServerTls::new(Arc::clone(&certificate) as _, minimum, required).unwrap(), certificate)
}

pub fn connector(certificate: &Path, versions: &[&'static SupportedProtocolVersion], alpn: &[&[u8]]) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(certificate).unwrap()).unwrap();
    let mut config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    TlsConnector::from(Arc::new(config))
}

/// A TLS client that shows what a driver would see.
pub async fn connect_tls(connector: &TlsConnector, address: SocketAddr) -> std::io::Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(address).await?;
    connector.connect(ServerName::try_from("localhost").unwrap(), stream).await
}
