//! TLS on the port of plain clients: what clients see of it, and of its absence.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::Arc;
use std::time::Duration;

use hs2::{
    Auth, Client, ClientError, ClientOptions, ClientTls, Limits, Server, ServerCertificate, Session, TlsVersion,
};
use rustls::{SupportedProtocolVersion, version};
use tempfile::TempDir;
use tests::certificate::Certificate;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tokio_rustls::client::TlsStream;

use crate::number_server::{Running, row, start, start_on, wait};
use crate::support::{certified, connect_tls, connector, server_tls};

const DEADLINE: Duration = Duration::from_secs(20);
const BASIC: &str = "Authorization: Basic YWxpY2U6eA==\r\n";

struct Listener {
    server: Running,
    certificate: Arc<ServerCertificate>,
    files: Certificate,
    folder: TempDir,
}

async fn listen(limits: Limits, minimum: TlsVersion, required: bool) -> Listener {
    let folder = tempfile::tempdir().unwrap();
    let files = Certificate::create(folder.path(), "first").unwrap();
    let (tls, certificate) = server_tls(&files, minimum, required);
    let server = start_on(Server::bind("127.0.0.1:0", limits).await.unwrap().with_tls(tls));
    Listener { server, certificate, files, folder }
}

async fn optional() -> Listener {
    listen(Limits::default(), TlsVersion::Tls12, false).await
}

impl Listener {
    fn options(&self, auth: Auth) -> ClientOptions {
        let tls = Some(ClientTls::from_ca_file(&self.files.certificate).unwrap());
        ClientOptions { tls, ..self.server.options(auth) }
    }

    /// A client that shows what a driver would see.
    async fn raw(&self, versions: &[&'static SupportedProtocolVersion], alpn: &[&[u8]]) -> std::io::Result<Raw> {
        connect_tls(&connector(&self.files.certificate, versions, alpn), self.server.address).await
    }
}

type Raw = TlsStream<TcpStream>;

async fn refusal(options: &ClientOptions) -> String {
    Client::connect(options).await.map(drop).unwrap_err().to_string()
}

async fn read_to_end(stream: &mut (impl AsyncReadExt + Unpin)) -> String {
    let mut bytes = Vec::new();
    let _ = timeout(DEADLINE, stream.read_to_end(&mut bytes)).await.unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

async fn request(stream: &mut (impl AsyncReadExt + AsyncWriteExt + Unpin), head: &str) -> String {
    stream
        .write_all(format!("{head} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{BASIC}\r\n").as_bytes())
        .await
        .unwrap();
    read_to_end(stream).await
}

#[tokio::test]
async fn statements_run_inside_tls_and_outside_on_one_port() {
    let listener = optional().await;
    let tls = |auth| listener.options(auth);
    for options in [tls(Auth::user("alice", "x")), listener.server.options(Auth::user("alice", "x"))] {
        let client = Client::connect(&options).await.unwrap();
        let mut session = Session::open(client, &[]).await.unwrap();
        let table = session.run("numbers 2500", DEADLINE).await.unwrap();
        assert_eq!(table.rows, (0..2500).map(row).collect::<Vec<_>>());
        session.close().await.unwrap();
    }
    let client = Client::connect(&tls(Auth::None)).await.unwrap();
    let mut session = Session::open_as(client, Some(("bob", "x")), &[]).await.unwrap();
    assert_eq!(session.run("numbers 1500", DEADLINE).await.unwrap().rows.len(), 1500);
    listener.server.stop().await;
}

#[tokio::test]
async fn http_inside_tls_works_by_both_versions_with_and_without_alpn() {
    let listener = optional().await;
    for version in [&version::TLS12, &version::TLS13] {
        for alpn in [&[][..], &[&b"http/1.1"[..]], &[&b"h2"[..], b"http/1.1"]] {
            let mut stream = listener.raw(&[version], alpn).await.unwrap();
            assert!(request(&mut stream, "GET /readyz").await.starts_with("HTTP/1.1 200"));
        }
    }
    assert!(listener.raw(&[&version::TLS13], &[b"h2"]).await.is_err());
    listener.server.stop().await;
}

#[tokio::test]
async fn versions_below_the_minimum_get_an_alert() {
    let listener = listen(Limits::default(), TlsVersion::Tls13, false).await;
    let refused = listener.raw(&[&version::TLS12], &[]).await.unwrap_err();
    assert!(refused.to_string().contains("ProtocolVersion"), "{refused}");
    listener.raw(&[&version::TLS13], &[]).await.unwrap();
    listener.server.stop().await;
}

#[tokio::test]
async fn where_tls_is_required_plain_clients_are_refused_in_their_own_protocol() {
    let listener = listen(Limits::default(), TlsVersion::Tls12, true).await;
    let text = "this login requires TLS: add ssl=true";
    assert_eq!(refusal(&listener.server.options(Auth::user("alice", "x"))).await, text);
    let client = Client::connect(&listener.server.options(Auth::None)).await.unwrap();
    let Err(ClientError::Refused(error)) = Session::open_as(client, Some(("bob", "")), &[]).await.map(drop) else {
        panic!("plain Thrift was served");
    };
    assert_eq!((error.sqlstate(), error.message.as_str()), ("28000", text));
    let plain = || TcpStream::connect(listener.server.address);
    let mut stream = plain().await.unwrap();
    stream.write_all(format!("POST / HTTP/1.1\r\n{BASIC}Content-Length: 0\r\n\r\n").as_bytes()).await.unwrap();
    let refused = read_to_end(&mut stream).await;
    assert!(refused.starts_with("HTTP/1.1 426 Upgrade Required\r\n") && refused.contains(text), "{refused}");
    for probe in ["GET /livez", "GET /readyz"] {
        assert!(request(&mut plain().await.unwrap(), probe).await.starts_with("HTTP/1.1 200"));
    }
    Client::connect(&listener.options(Auth::user("alice", "x"))).await.unwrap();
    listener.server.stop().await;
}

#[tokio::test]
async fn a_tls_client_at_a_plain_port_learns_why() {
    let folder = tempfile::tempdir().unwrap();
    let files = Certificate::create(folder.path(), "any").unwrap();
    let server = start(Limits::default()).await;
    let tls = Some(ClientTls::from_ca_file(&files.certificate).unwrap());
    let text = refusal(&ClientOptions { tls, ..server.options(Auth::user("alice", "x")) }).await;
    assert!(text.contains("the server does not speak TLS on this port"), "{text}");
    server.stop().await;
}

#[tokio::test]
async fn a_certificate_of_another_authority_or_host_is_refused_by_the_client() {
    let listener = optional().await;
    let other = Certificate::create(listener.folder.path(), "other").unwrap();
    let options = listener.options(Auth::user("alice", "x"));
    let text =
        refusal(&ClientOptions { tls: Some(ClientTls::from_ca_file(&other.certificate).unwrap()), ..options.clone() })
            .await;
    assert!(text.contains("TLS handshake failed: invalid peer certificate"), "{text}");
    let address = format!("127.0.0.2:{}", listener.server.address.port());
    // Nothing listens there; the name in the certificate is what matters once something does.
    assert!(matches!(
        Client::connect(&ClientOptions { address, ..options }).await.map(drop),
        Err(ClientError::Connect { .. })
    ));
    listener.server.stop().await;
}

#[tokio::test]
async fn a_handshake_that_does_not_end_is_closed_at_the_deadline() {
    let limits = Limits { auth_deadline: Duration::from_millis(300), ..Limits::default() };
    let listener = listen(limits, TlsVersion::Tls12, false).await;
    for first in [&[0x16][..], &[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3]] {
        let mut stream = TcpStream::connect(listener.server.address).await.unwrap();
        let began = Instant::now();
        for byte in first {
            stream.write_all(&[*byte]).await.unwrap();
        }
        assert_eq!(read_to_end(&mut stream).await, "");
        assert!(began.elapsed() < Duration::from_secs(5));
    }
    listener.server.stop().await;
}

#[tokio::test]
async fn tls_inside_tls_and_bytes_before_tls_are_refused() {
    let listener = optional().await;
    let mut stream = listener.raw(&[&version::TLS13], &[]).await.unwrap();
    stream.write_all(&[0x16, 3, 1, 0, 5, 1, 2, 3, 4, 5]).await.unwrap();
    assert!(read_to_end(&mut stream).await.starts_with("this port speaks HiveServer2"));
    let mut stream = TcpStream::connect(listener.server.address).await.unwrap();
    stream.write_all(&[0, 0x16, 3, 1, 0, 5, 1, 2, 3, 4, 5]).await.unwrap();
    assert!(read_to_end(&mut stream).await.starts_with("this port speaks HiveServer2"));
    listener.server.stop().await;
}

#[tokio::test]
async fn a_replaced_certificate_is_presented_to_new_connections_only() {
    let listener = optional().await;
    let options = listener.options(Auth::user("alice", "x"));
    let mut session = Session::open(Client::connect(&options).await.unwrap(), &[]).await.unwrap();
    let second = Certificate::create(listener.folder.path(), "second").unwrap();
    listener.certificate.replace(certified(&second));
    assert_eq!(session.run("numbers 3", DEADLINE).await.unwrap().rows.len(), 3);
    let fresh = ClientOptions { tls: Some(ClientTls::from_ca_file(&second.certificate).unwrap()), ..options };
    Client::connect(&fresh).await.unwrap();
    let text = refusal(&listener.options(Auth::user("alice", "x"))).await;
    assert!(text.contains("invalid peer certificate"), "{text}");
    listener.server.stop().await;
}

#[tokio::test]
async fn a_client_that_leaves_during_a_call_is_noticed() {
    let listener = optional().await;
    let mut events = listener.server.service.events();
    let client = Client::connect(&listener.options(Auth::user("alice", "x"))).await.unwrap();
    let mut session = Session::open(client, &[]).await.unwrap();
    let request = wait(&session);
    let call = tokio::spawn(async move { session.client().execute_statement(&request).await.map(drop) });
    listener.server.service.waiting.notified().await;
    call.abort();
    for event in ["open alice", "hung up", "closed alice"] {
        assert_eq!(timeout(DEADLINE, events.recv()).await.unwrap().unwrap(), event);
    }
    listener.server.stop().await;
}

#[tokio::test]
async fn a_client_learns_that_its_server_has_closed() {
    let listener = optional().await;
    let client = Client::connect(&listener.options(Auth::user("alice", "x"))).await.unwrap();
    assert!(timeout(Duration::from_millis(200), client.has_unread()).await.is_err(), "a ticket is no message");
    assert!(timeout(Duration::from_millis(200), client.closed()).await.is_err());
    listener.server.stop().await;
    timeout(DEADLINE, client.closed()).await.unwrap();
    assert!(!client.has_unread().await);
}
