//! Replies that are delivered over HTTP in pieces, to clients that read them and to clients that do not.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::Arc;
use std::time::Duration;

use hs2::message::{decode_reply, encode_call};
use hs2::tcli::{
    TExecuteStatementReq, TExecuteStatementResp, TFetchOrientation, TFetchResultsReq, TFetchResultsResp,
    TOpenSessionReq, TOpenSessionResp,
};
use hs2::{Auth, Connection, Limits, Server};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::http::{post, response};
use crate::number_server::{row, start};
use crate::relays::front;
use crate::support::Serving;

const DEADLINE: Duration = Duration::from_secs(10);

/// Over HTTP a reply is delivered in pieces, too, and what follows it is the reply to the next request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_reply_arrives_whole_over_http() {
    let backend = start(Limits::default()).await;
    let relaying = front(backend.options(Auth::user("alice", "x")), DEADLINE).await;
    let mut stream = TcpStream::connect(relaying.address).await.unwrap();
    let mut call = async |message: Vec<u8>| {
        stream.write_all(&post(&message, "")).await.unwrap();
        response(&mut stream).await.1
    };
    let opening =
        TOpenSessionReq { client_protocol: hs2::protocol::NEWEST, username: None, password: None, configuration: None };
    let opened: TOpenSessionResp = decode_reply(&call(encode_call("OpenSession", 1, &opening).unwrap()).await).unwrap();
    let statement = TExecuteStatementReq {
        session_handle: opened.session_handle.unwrap(),
        statement: "numbers 400000".to_owned(),
        conf_overlay: None,
        run_async: Some(true),
        query_timeout: None,
    };
    for seqid in 2..4 {
        let executed = encode_call("ExecuteStatement", seqid, &statement).unwrap();
        let executed: TExecuteStatementResp = decode_reply(&call(executed).await).unwrap();
        let fetch = TFetchResultsReq {
            operation_handle: executed.operation_handle.unwrap(),
            orientation: TFetchOrientation::FETCH_NEXT,
            max_rows: 200_000,
            fetch_type: None,
        };
        for half in 0..2 {
            let reply = call(encode_call("FetchResults", 77, &fetch).unwrap()).await;
            assert!(reply.len() > 3 << 20, "{}", reply.len());
            let fetched: TFetchResultsResp = decode_reply(&reply).unwrap();
            let rows = hs2::rowset::rows(&fetched.results.unwrap()).unwrap();
            assert_eq!(rows, (half * 200_000..(half + 1) * 200_000).map(row).collect::<Vec<_>>());
        }
    }
    relaying.stop().await;
    backend.stop().await;
}

/// A client that does not read its reply is given up within the stall limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_over_http_that_stops_reading_is_given_up() {
    let (sender, mut sent) = mpsc::channel(1);
    let serve = move |mut connection: Connection, _: CancellationToken| {
        let sender = sender.clone();
        async move {
            connection.next().await.unwrap();
            sender.try_send(connection.send(&vec![0; 64 << 20]).await).unwrap();
        }
    };
    let stall = Duration::from_secs(3);
    let limits = Limits { stall, ..Limits::default() };
    let server = Server::bind("127.0.0.1:0", limits).await.unwrap();
    let address = server.local_addr().unwrap();
    let stop = CancellationToken::new();
    let serving = tokio::spawn(server.serve_connections(Arc::new(Serving(serve)), stop.clone()));
    let mut stream = TcpStream::connect(address).await.unwrap();
    let message = encode_call("GetInfo", 1, &hs2::tcli::TStringValue { value: None }).unwrap();
    stream.write_all(&post(&message, "")).await.unwrap();
    // It reads slowly, which is progress, for longer than the limit, and then not at all.
    let pause = Duration::from_millis(100);
    for _ in 0..=stall.div_duration_f32(pause) as u32 {
        tokio::time::sleep(pause).await;
        stream.read_exact(&mut vec![0; 1 << 19]).await.unwrap();
    }
    assert!(sent.try_recv().is_err(), "it was given up while it read");
    let error = tokio::time::timeout(DEADLINE, sent.recv()).await.unwrap().unwrap().unwrap_err();
    assert!(error.to_string().contains("the limit for writing a message"), "{error}");
    let mut rest = Vec::new();
    let _ = tokio::time::timeout(DEADLINE, stream.read_to_end(&mut rest)).await.unwrap();
    assert!(rest.len() < 50 << 20, "it was closed before the end: {}", rest.len());
    stop.cancel();
    serving.await.unwrap();
}
