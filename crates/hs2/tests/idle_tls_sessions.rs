//! The memory of idle sessions inside TLS. A binary of its own: the resident set belongs to the process.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use hs2::{
    Authenticator, Certified, Connection, Credentials, Handler, Limits, Principal, Server, ServerCertificate,
    ServerTls, TlsVersion,
};
use model::error::UserError;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tests::certificate::Certificate;
use tests::resident_set::resident_bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_util::sync::CancellationToken;

const SESSIONS: usize = 500;
const BYTES_PER_SESSION: usize = 24 * 1024;
/// The longest message that each session has received, which must leave nothing behind.
const MESSAGE_BYTES: usize = 40_000;

struct Discards;

#[async_trait]
impl Authenticator for Discards {
    async fn authenticate(&self, _: SocketAddr, credentials: &Credentials) -> Result<Principal, UserError> {
        Ok(Principal::user(credentials.user.clone()))
    }
}

#[async_trait]
impl Handler for Discards {
    async fn connection(self: Arc<Self>, mut connection: Connection, _: CancellationToken) {
        while let Ok(Some(message)) = connection.next().await {
            connection.send(message.bytes()).await.unwrap();
        }
    }
}

#[tokio::test]
async fn an_idle_session_inside_tls_owns_at_most_24_kib() {
    let folder = tempfile::tempdir().unwrap();
    let files = Certificate::create(folder.path(), "server").unwrap();
    let read = |path| std::fs::read(path).unwrap();
    let certified = Certified::from_pem(&read(&files.certificate), &read(&files.key)).unwrap();
    let tls = ServerTls::new(Arc::new(ServerCertificate::new(certified)), TlsVersion::Tls12, true).unwrap();
    let server = Server::bind("127.0.0.1:0", Limits::default()).await.unwrap().with_tls(tls);
    let address = server.local_addr().unwrap();
    let stop = CancellationToken::new();
    let serving = tokio::spawn(server.serve_connections(Arc::new(Discards), stop.clone()));

    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(&files.certificate).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = TlsConnector::from(Arc::new(config));
    let message =
        hs2::message::encode_call("GetInfo", 1, &hs2::tcli::TStringValue { value: Some("x".repeat(MESSAGE_BYTES)) })
            .unwrap();
    let idle = async || {
        let stream = TcpStream::connect(address).await.unwrap();
        let mut stream = connector.connect(ServerName::try_from("localhost").unwrap(), stream).await.unwrap();
        stream.write_all(b"\x01\0\0\0\x05PLAIN\x05\0\0\0\x04\0a\0b").await.unwrap();
        stream.read_exact(&mut [0; 5]).await.unwrap();
        stream.write_u32(message.len() as u32).await.unwrap();
        stream.write_all(&message).await.unwrap();
        stream.read_exact(&mut vec![0; 4 + message.len()]).await.unwrap();
        // The socket stays open; only the server's half of the session counts.
        stream.into_inner().0
    };
    // The first sessions pay for what all share.
    let mut sockets = Vec::with_capacity(SESSIONS + 20);
    for _ in 0..20 {
        sockets.push(idle().await);
    }
    let before = resident_bytes(std::process::id()).unwrap();
    for _ in 0..SESSIONS {
        sockets.push(idle().await);
    }
    let each = resident_bytes(std::process::id()).unwrap().saturating_sub(before) / SESSIONS;
    println!("an idle session inside TLS: {each} bytes");
    assert!(each <= BYTES_PER_SESSION, "{each} bytes for each idle session");
    drop(sockets);
    stop.cancel();
    serving.await.unwrap();
}
