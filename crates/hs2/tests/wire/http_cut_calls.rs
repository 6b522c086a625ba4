//! Calls over HTTP that end without a reply of their handler: the client gets an answer all the same, because JDBC
//! repeats a call whose connection ends without one.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::Arc;
use std::time::Duration;

use hs2::message::{decode_reply, encode_call};
use hs2::tcli::{TExecuteStatementReq, TExecuteStatementResp, TStringValue};
use hs2::{Connection, Limits, Server, TlsVersion, WireError};
use tests::certificate::Certificate;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::http::{post, response};
use crate::support::{Serving, connect_tls, connector, server_tls};

const DEADLINE: Duration = Duration::from_secs(10);

fn statement() -> Vec<u8> {
    let request = TExecuteStatementReq {
        session_handle: hs2::Handle::random().session(),
        statement: "INSERT INTO t VALUES (1)".to_owned(),
        conf_overlay: None,
        run_async: Some(false),
        query_timeout: None,
    };
    encode_call("ExecuteStatement", 7, &request).unwrap()
}

/// The answer to a statement that was cut, after which the connection ends.
async fn assert_cut(stream: &mut (impl AsyncReadExt + Unpin), case: &str) {
    let (head, body) = response(stream).await;
    assert!(head.starts_with("HTTP/1.1 200 OK\r\nContent-Type: application/x-thrift\r\n"), "{case}: {head}");
    assert!(head.contains("Connection: close\r\n"), "{case}: {head}");
    assert_eq!(hs2::Message::new(body.clone()).unwrap().seqid(), 7, "{case}");
    let reply: TExecuteStatementResp = decode_reply(&body).unwrap();
    let error = hs2::status::check(&reply.status).unwrap_err();
    assert_eq!(error.sqlstate(), "08S01", "{case}");
    assert_eq!(error.detail.as_deref(), Some("It may have taken effect."), "{case}");
    assert_eq!(timeout(DEADLINE, stream.read(&mut [0; 1])).await.unwrap().unwrap_or(0), 0, "{case}");
}

/// Runs one statement that its handler ends like this, in the middle of its connection.
async fn cut_by<S>(case: &str, end: impl Fn(Connection) -> S + Clone + Send + Sync + 'static)
where
    S: Future<Output = ()> + Send + 'static,
{
    let server = Server::bind("127.0.0.1:0", Limits::default()).await.unwrap();
    let address = server.local_addr().unwrap();
    let serve = move |mut connection: Connection, _: CancellationToken| {
        let end = end.clone();
        async move {
            let first = connection.next().await.unwrap().unwrap();
            connection.send(first.bytes()).await.unwrap();
            connection.next().await.unwrap().unwrap();
            end(connection).await;
        }
    };
    let stop = CancellationToken::new();
    let serving = tokio::spawn(server.serve_connections(Arc::new(Serving(serve)), stop.clone()));
    let mut stream = TcpStream::connect(address).await.unwrap();
    let first = statement();
    stream.write_all(&post(&first, "")).await.unwrap();
    assert_eq!(response(&mut stream).await.1, first);
    stream.write_all(&post(&statement(), "")).await.unwrap();
    assert_cut(&mut stream, case).await;
    stop.cancel();
    serving.await.unwrap();
}

#[tokio::test]
async fn a_call_whose_handler_ends_is_answered() {
    cut_by("dropped", async |connection| drop(connection)).await;
    cut_by("closed", Connection::close).await;
    cut_by("panicked", async |_connection| {
        panic!("a defect");
    })
    .await;
    cut_by("dropped while it was awaited", async |connection| {
        let _ = timeout(Duration::from_millis(50), connection.closed()).await;
    })
    .await;
}

#[tokio::test]
async fn a_call_that_outlives_the_grace_of_its_server_is_answered() {
    let limits = Limits { close_grace: Duration::from_millis(200), ..Limits::default() };
    let server = Server::bind("127.0.0.1:0", limits).await.unwrap();
    let address = server.local_addr().unwrap();
    let (sender, mut taken) = mpsc::channel(1);
    let serve = move |mut connection: Connection, _: CancellationToken| {
        let sender = sender.clone();
        async move {
            connection.next().await.unwrap().unwrap();
            sender.send(()).await.unwrap();
            std::future::pending::<()>().await;
        }
    };
    let stop = CancellationToken::new();
    let serving = tokio::spawn(server.serve_connections(Arc::new(Serving(serve)), stop.clone()));
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(&post(&statement(), "")).await.unwrap();
    taken.recv().await.unwrap();
    stop.cancel();
    assert_cut(&mut stream, "stopped").await;
    serving.await.unwrap();
}

#[tokio::test]
async fn a_call_inside_tls_is_answered_when_it_is_cut() {
    let folder = tempfile::tempdir().unwrap();
    let files = Certificate::create(folder.path(), "server").unwrap();
    let (tls, _) = server_tls(&files, TlsVersion::Tls12, true);
    let server = Server::bind("127.0.0.1:0", Limits::default()).await.unwrap().with_tls(tls);
    let address = server.local_addr().unwrap();
    let serve = |mut connection: Connection, _: CancellationToken| async move {
        connection.next().await.unwrap().unwrap();
    };
    let stop = CancellationToken::new();
    let serving = tokio::spawn(server.serve_connections(Arc::new(Serving(serve)), stop.clone()));
    let connector = connector(&files.certificate, rustls::DEFAULT_VERSIONS, &[]);
    let mut stream = connect_tls(&connector, address).await.unwrap();
    stream.write_all(&post(&statement(), "")).await.unwrap();
    assert_cut(&mut stream, "TLS").await;
    stop.cancel();
    serving.await.unwrap();
}

/// A reply that has begun is not followed by another one: the client sees that it ends early.
#[tokio::test]
async fn a_reply_that_has_begun_is_not_answered_again() {
    let server = Server::bind("127.0.0.1:0", Limits::default()).await.unwrap();
    let address = server.local_addr().unwrap();
    let serve = |mut connection: Connection, _: CancellationToken| async move {
        connection.next().await.unwrap().unwrap();
        let _ = timeout(Duration::from_millis(300), connection.send(&vec![b'x'; 64 << 20])).await;
    };
    let stop = CancellationToken::new();
    let serving = tokio::spawn(server.serve_connections(Arc::new(Serving(serve)), stop.clone()));
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(&post(&statement(), "")).await.unwrap();
    tokio::time::sleep(Duration::from_millis(600)).await;
    let mut received = Vec::new();
    let _ = timeout(DEADLINE, stream.read_to_end(&mut received)).await.unwrap();
    let body = received.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
    assert!(received.len() < 64 << 20 && received[body..].iter().all(|byte| *byte == b'x'));
    stop.cancel();
    serving.await.unwrap();
}

#[tokio::test]
async fn a_cut_call_of_an_unknown_method_gets_an_exception() {
    let server = Server::bind("127.0.0.1:0", Limits::default()).await.unwrap();
    let address = server.local_addr().unwrap();
    let serve = |mut connection: Connection, _: CancellationToken| async move {
        connection.next().await.unwrap().unwrap();
    };
    let stop = CancellationToken::new();
    let serving = tokio::spawn(server.serve_connections(Arc::new(Serving(serve)), stop.clone()));
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(&post(&encode_call("Explode", 3, &TStringValue { value: None }).unwrap(), "")).await.unwrap();
    let error = decode_reply::<TExecuteStatementResp>(&response(&mut stream).await.1).unwrap_err();
    let WireError::Application { text, .. } = &error else { panic!("{error}") };
    assert!(text.starts_with("the call was cut off before its reply\nDetail: "), "{text}");
    stop.cancel();
    serving.await.unwrap();
}
