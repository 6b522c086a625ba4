//! Peers inside TLS that are slow, stop reading, or are cut off.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hs2::limits::HANDSHAKES_PER_ADDRESS;
use hs2::message::encode_reply;
use hs2::relay::{self, Decision, RelayError};
use hs2::tcli::TFetchResultsResp;
use hs2::{
    Auth, Client, ClientError, ClientOptions, ClientTls, Connection, Limits, Server, TlsVersion, WireError, rowset,
    status,
};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tempfile::TempDir;
use tests::certificate::Certificate;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;

use crate::number_server::start_on;
use crate::relays::{fetch_request, framed, handing_over};
use crate::support::{connect_tls, connector, log_in, server_tls};

const DEADLINE: Duration = Duration::from_secs(30);
/// How long a peer that stops reading is waited for.
const STALL: Duration = Duration::from_millis(500);
/// How long a handshake may take. A client that does its own has enough of it.
const HANDSHAKE: Duration = Duration::from_secs(3);
/// A reply that no buffer of the system holds.
const LONG_BYTES: usize = 64 << 20;
/// What all buffers between a backend and a client hold at most: those of the kernel, on four sockets.
const BUFFERED_BYTES: usize = 48 << 20;

fn certificate() -> (TempDir, Certificate) {
    let folder = tempfile::tempdir().unwrap();
    let files = Certificate::create(folder.path(), "server").unwrap();
    (folder, files)
}

/// A connection inside TLS, accepted by a server of ours, and the client's end.
async fn connection(files: &Certificate, limits: Limits) -> (Connection, TlsStream<TcpStream>) {
    let (tls, _) = server_tls(files, TlsVersion::Tls12, true);
    let (sender, mut connections) = mpsc::unbounded_channel();
    let server = Server::bind("127.0.0.1:0", limits).await.unwrap().with_tls(tls);
    let address = server.local_addr().unwrap();
    tokio::spawn(server.serve_connections(Arc::new(handing_over(sender)), CancellationToken::new()));
    let connector = connector(&files.certificate, rustls::DEFAULT_VERSIONS, &[]);
    let mut stream = connect_tls(&connector, address).await.unwrap();
    log_in(&mut stream).await;
    (connections.recv().await.unwrap(), stream)
}

#[tokio::test]
async fn handshakes_that_do_not_end_give_their_turns_up_at_the_deadline() {
    let (_folder, files) = certificate();
    let limits = Limits { handshake_deadline: HANDSHAKE, auth_deadline: DEADLINE, ..Limits::default() };
    let (tls, _) = server_tls(&files, TlsVersion::Tls12, true);
    let server = start_on(Server::bind("127.0.0.1:0", limits).await.unwrap().with_tls(tls));
    let mut slow = Vec::new();
    for _ in 0..HANDSHAKES_PER_ADDRESS {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(&[0x16, 3, 1]).await.unwrap();
        slow.push(stream);
    }
    // It waits for the turn of one of them, longer than a handshake may take.
    let tls = Some(ClientTls::from_ca_file(&files.certificate).unwrap());
    let options = ClientOptions { tls, connect_deadline: DEADLINE, ..server.options(Auth::user("alice", "x")) };
    Client::connect(&options).await.unwrap();
    for mut stream in slow {
        let ended = timeout(DEADLINE, stream.read(&mut [0; 1])).await.unwrap();
        assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_tls_peer_that_stops_reading_is_given_up_in_time() {
    let (_folder, files) = certificate();
    let (mut connection, _stream) = connection(&files, Limits { stall: STALL, ..Limits::default() }).await;
    let sent = timeout(DEADLINE, connection.send(&vec![0; LONG_BYTES])).await.unwrap();
    assert!(matches!(sent, Err(WireError::Stalled(_))), "{sent:?}");
}

#[tokio::test]
async fn a_tls_client_that_stops_reading_stops_its_backend() {
    let (_folder, files) = certificate();
    let (mut connection, stream) = connection(&files, Limits { stall: STALL, ..Limits::default() }).await;
    let lines = (0..1_024).map(|_| "x".repeat(LONG_BYTES / 1_024));
    let results = Some(rowset::lines(0, lines));
    let reply =
        encode_reply("FetchResults", 5, &TFetchResultsResp { status: status::success(), has_more_rows: None, results });
    let written = Arc::new(AtomicUsize::new(0));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let options = ClientOptions::new(listener.local_addr().unwrap().to_string(), Auth::user("a", "b"));
    let counted = Arc::clone(&written);
    let backend = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.read_exact(&mut [0; 10 + 5 + 4]).await.unwrap();
        stream.write_all(&[5, 0, 0, 0, 0]).await.unwrap();
        let length = stream.read_u32().await.unwrap();
        stream.read_exact(&mut vec![0; length as usize]).await.unwrap();
        for piece in framed(reply.len(), &reply).chunks(1 << 16) {
            if stream.write_all(piece).await.is_err() {
                return;
            }
            counted.fetch_add(piece.len(), Ordering::Relaxed);
        }
    });
    let mut to = Client::connect(&options).await.unwrap();
    let request = fetch_request();
    let forward = |_: &hs2::scan::Reply, _: &[u8]| Decision::Forward;
    let outcome = timeout(DEADLINE, relay::exchange(&mut connection, &request, &mut to, DEADLINE, forward)).await;
    assert!(matches!(outcome, Ok(Err(RelayError::Client(WireError::Stalled(_))))), "{outcome:?}");
    let written = written.load(Ordering::Relaxed);
    assert!(written < BUFFERED_BYTES, "{written} bytes were taken from the backend");
    drop((to, stream));
    backend.await.unwrap();
}

/// A TLS backend that reads one request, sends these bytes, and ends: with `close_notify`, or cut off.
async fn backend_that_sends(files: &Certificate, is_framed: bool, bytes: Vec<u8>, notifies: bool) -> ClientOptions {
    let chain = vec![CertificateDer::from_pem_file(&files.certificate).unwrap()];
    let key = PrivateKeyDer::from_pem_file(&files.key).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut stream = TlsAcceptor::from(Arc::new(config)).accept(stream).await.unwrap();
        if is_framed {
            stream.read_exact(&mut [0; 10 + 5 + 4]).await.unwrap();
            stream.write_all(&[5, 0, 0, 0, 0]).await.unwrap();
        }
        let mut request = [0; 4];
        stream.read_exact(&mut request).await.unwrap();
        stream.write_all(&bytes).await.unwrap();
        stream.flush().await.unwrap();
        if notifies {
            stream.shutdown().await.unwrap();
        } else {
            stream.into_inner().0.shutdown().await.unwrap();
        }
    });
    let auth = if is_framed { Auth::user("a", "b") } else { Auth::None };
    let tls = Some(ClientTls::from_ca_file(&files.certificate).unwrap());
    ClientOptions { tls, ..ClientOptions::new(address.to_string(), auth) }
}

#[tokio::test]
async fn a_reply_that_is_cut_inside_tls_is_truncated_and_never_whole() {
    let (_folder, files) = certificate();
    let results = Some(rowset::lines(0, (0..100).map(|line| format!("line {line}"))));
    let reply =
        encode_reply("FetchResults", 5, &TFetchResultsResp { status: status::success(), has_more_rows: None, results });
    for is_framed in [true, false] {
        for notifies in [true, false] {
            for length in [0, 1, 3, reply.len() / 2, reply.len() - 1] {
                let sent = if is_framed { framed(reply.len(), &reply) } else { reply.clone() };
                let options = backend_that_sends(&files, is_framed, sent[..length].to_vec(), notifies).await;
                let mut client = Client::connect(&options).await.unwrap();
                client.send(fetch_request().bytes()).await.unwrap();
                let received = client.receive(DEADLINE).await.map(|message| message.bytes().len());
                let case = format!("framed: {is_framed}, close_notify: {notifies}, {length} bytes: {received:?}");
                assert!(matches!(received, Err(ClientError::Wire(WireError::ClosedInside))), "{case}");
                assert!(client.is_broken(), "{case}");
            }
        }
    }
}

#[tokio::test]
async fn a_request_that_is_cut_inside_tls_is_never_served() {
    let (_folder, files) = certificate();
    let request = framed(fetch_request().bytes().len(), fetch_request().bytes());
    for length in [1, 4, request.len() / 2, request.len() - 1] {
        let (mut connection, mut stream) = connection(&files, Limits::default()).await;
        stream.write_all(&request[..length]).await.unwrap();
        stream.flush().await.unwrap();
        // Without close_notify.
        drop(stream.into_inner());
        let next = timeout(DEADLINE, connection.next()).await.unwrap();
        let cut = matches!(next, Err(WireError::ClosedInside | WireError::Io(_)));
        assert!(cut, "{length} bytes: {:?}", next.map(|message| message.is_some()));
    }
    // Between two requests it is an ordinary end.
    let (mut connection, mut stream) = connection(&files, Limits::default()).await;
    stream.write_all(&request).await.unwrap();
    stream.flush().await.unwrap();
    stream.into_inner().0.shutdown().await.unwrap();
    assert!(timeout(DEADLINE, connection.next()).await.unwrap().unwrap().is_some());
    assert!(timeout(DEADLINE, connection.next()).await.unwrap().unwrap().is_none());
}
