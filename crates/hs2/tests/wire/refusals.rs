//! Rejected messages, too long or malformed: the response, and the messages that follow.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::time::{Duration, Instant};

use crate::number_server::{Running, start};
use hs2::message::{decode_reply, encode_call};
use hs2::scan::{WalkProgress, Walker};
use hs2::tcli::{
    TExecuteStatementReq, TExecuteStatementResp, TOpenSessionReq, TOpenSessionResp, TProtocolVersion, TSessionHandle,
    TStatus, TStatusCode,
};
use hs2::{Auth, Client, ClientError, ClientOptions, Limits, Session, WireError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const DEADLINE: Duration = Duration::from_secs(20);

fn small() -> Limits {
    Limits { frame_bytes: 4096, ..Limits::default() }
}

fn open_session() -> TOpenSessionReq {
    TOpenSessionReq {
        client_protocol: TProtocolVersion::HIVE_CLI_SERVICE_PROTOCOL_V10,
        username: Some("alice".to_owned()),
        password: None,
        configuration: None,
    }
}

fn statement(session_handle: &TSessionHandle, bytes: usize) -> TExecuteStatementReq {
    TExecuteStatementReq {
        session_handle: session_handle.clone(),
        statement: " ".repeat(bytes),
        conf_overlay: None,
        run_async: Some(true),
        query_timeout: None,
    }
}

/// A framed connection of alice.
async fn framed(server: &Running) -> TcpStream {
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(b"\x01\0\0\0\x05PLAIN\x05\0\0\0\x08\0alice\0x").await.unwrap();
    let mut answer = [9; 5];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(answer, [5, 0, 0, 0, 0]);
    stream
}

async fn frame(stream: &mut TcpStream) -> Vec<u8> {
    let length = stream.read_u32().await.unwrap();
    let mut reply = vec![0; length as usize];
    stream.read_exact(&mut reply).await.unwrap();
    reply
}

async fn read_to_end(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    tokio::time::timeout(DEADLINE, stream.read_to_end(&mut bytes)).await.expect("it is closed in time").unwrap();
    bytes
}

fn assert_too_long(status: &TStatus, method: &str, bytes: usize, limit: usize) {
    assert_eq!(status.status_code, TStatusCode::ERROR_STATUS);
    assert_eq!(status.sql_state.as_deref(), Some("54000"));
    let message = status.error_message.as_deref().unwrap();
    let facts =
        format!("request {method} too long\nDetail: It has at least {bytes} bytes; the limit is {limit}.\nHint: ");
    assert!(message.starts_with(&facts), "{message}");
}

#[tokio::test]
async fn a_request_that_is_too_long_is_answered_and_its_session_goes_on() {
    let server = start(Limits::default()).await;
    let limit = Limits::default().frame_bytes;
    let mut session = Session::open(server.client("alice").await, &[]).await.unwrap();
    for more in [1, 1 << 20, 40 << 20] {
        let request = statement(session.handle(), limit + more);
        let answer: TExecuteStatementResp =
            session.client().call("ExecuteStatement", &request, DEADLINE).await.unwrap();
        let bytes = encode_call("ExecuteStatement", 1, &request).unwrap().len();
        assert_too_long(&answer.status, "ExecuteStatement", bytes, limit);
        assert_eq!(session.run("numbers 3", DEADLINE).await.unwrap().rows.len(), 3);
    }
    server.stop().await;
}

#[tokio::test]
async fn a_frame_at_the_limit_is_taken_and_one_byte_more_is_not() {
    let server = start(small()).await;
    let mut session = Session::open(server.client("alice").await, &[]).await.unwrap();
    let around = encode_call("ExecuteStatement", 1, &statement(session.handle(), 0)).unwrap().len();
    let fitting = statement(session.handle(), 4096 - around);
    let taken: TExecuteStatementResp = session.client().call("ExecuteStatement", &fitting, DEADLINE).await.unwrap();
    assert_eq!(taken.status.status_code, TStatusCode::SUCCESS_STATUS);
    let longer = statement(session.handle(), 4097 - around);
    let refused: TExecuteStatementResp = session.client().call("ExecuteStatement", &longer, DEADLINE).await.unwrap();
    assert_too_long(&refused.status, "ExecuteStatement", 4097, 4096);
    server.stop().await;
}

#[tokio::test]
async fn what_comes_behind_a_refused_frame_is_read_however_the_bytes_arrive() {
    let server = start(small()).await;
    let long = encode_call("GetInfo", 7, &statement(&hs2::Handle::random().session(), 5000)).unwrap();
    let next = encode_call("OpenSession", 8, &open_session()).unwrap();
    let mut bytes = Vec::new();
    for message in [&long, &next] {
        bytes.extend_from_slice(&(message.len() as u32).to_be_bytes());
        bytes.extend_from_slice(message);
    }
    for piece in [1, 7, 4100, bytes.len()] {
        let mut stream = framed(&server).await;
        stream.set_nodelay(true).unwrap();
        for part in bytes.chunks(piece) {
            stream.write_all(part).await.unwrap();
            tokio::task::yield_now().await;
        }
        let refused: hs2::tcli::TGetInfoResp = decode_reply(&frame(&mut stream).await).unwrap();
        assert_too_long(&refused.status, "GetInfo", long.len(), 4096);
        let opened: TOpenSessionResp = decode_reply(&frame(&mut stream).await).unwrap();
        assert_eq!(opened.status.status_code, TStatusCode::SUCCESS_STATUS);
    }
    server.stop().await;
}

#[tokio::test]
async fn an_unknown_method_is_refused_with_an_exception() {
    let server = start(small()).await;
    let mut client = server.client("alice").await;
    let long = statement(&hs2::Handle::random().session(), 5000);
    let error = client.call::<_, TExecuteStatementResp>("Explode", &long, DEADLINE).await.unwrap_err();
    let ClientError::Wire(WireError::Application { kind: 7, text }) = error else { panic!("{error}") };
    assert!(text.starts_with("request Explode too long\nDetail: "), "{text}");
    // The connection is good.
    let mut session = Session::open(client, &[]).await.unwrap();
    assert_eq!(session.run("numbers 1", DEADLINE).await.unwrap().rows.len(), 1);
    server.stop().await;
}

#[tokio::test]
async fn more_than_is_thrown_away_ends_the_connection_after_the_answer() {
    let server = start(Limits { refused_bytes: 8192, ..small() }).await;
    let mut stream = framed(&server).await;
    let mut message = encode_call("ExecuteStatement", 7, &statement(&hs2::Handle::random().session(), 4096)).unwrap();
    message.truncate(1000);
    stream.write_u32(1 << 30).await.unwrap();
    stream.write_all(&message).await.unwrap();
    let refused: TExecuteStatementResp = decode_reply(&frame(&mut stream).await).unwrap();
    assert_too_long(&refused.status, "ExecuteStatement", 1 << 30, 4096);
    assert_eq!(read_to_end(&mut stream).await, b"");
    server.stop().await;
}

#[tokio::test]
async fn a_refused_request_that_never_ends_is_given_up() {
    let limits = Limits { refused_deadline: Duration::from_millis(300), ..small() };
    let server = start(limits).await;
    let mut stream = framed(&server).await;
    let mut message = encode_call("ExecuteStatement", 7, &statement(&hs2::Handle::random().session(), 8000)).unwrap();
    stream.write_u32(message.len() as u32).await.unwrap();
    message.truncate(6000);
    stream.write_all(&message).await.unwrap();
    decode_reply::<TExecuteStatementResp>(&frame(&mut stream).await).unwrap();
    assert_eq!(read_to_end(&mut stream).await, b"");
    server.stop().await;
}

#[tokio::test]
async fn an_impossible_length_or_one_without_a_message_ends_the_connection() {
    let server = start(small()).await;
    for length in [0x8001_0001_u32, u32::MAX] {
        let mut stream = framed(&server).await;
        stream.write_u32(length).await.unwrap();
        assert_eq!(read_to_end(&mut stream).await, b"");
    }
    // The following bytes are not a message: the response says so.
    let mut stream = framed(&server).await;
    stream.write_u32(1 << 20).await.unwrap();
    stream.write_all(&[0x55; 300]).await.unwrap();
    let error = decode_reply::<TExecuteStatementResp>(&frame(&mut stream).await).unwrap_err();
    assert!(error.to_string().contains("request too long"), "{error}");
    assert_eq!(read_to_end(&mut stream).await, b"");
    // Nothing follows.
    let mut stream = framed(&server).await;
    let begun = Instant::now();
    stream.write_u32(0x7fff_ffff).await.unwrap();
    assert_eq!(read_to_end(&mut stream).await, b"");
    assert!(begun.elapsed() > Duration::from_secs(4));
    server.stop().await;
}

#[tokio::test]
async fn too_long_a_name_in_the_negotiation_is_refused_in_sasl() {
    let server = start(Limits::default()).await;
    for first in [&b"\x01\x7f\xff\xff\xff"[..], b"\x01\0\0\0\x05PLAIN\x05\xff\xff\xff\xff"] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(first).await.unwrap();
        let answer = read_to_end(&mut stream).await;
        assert_eq!(answer[0], 3);
        let text = String::from_utf8(answer[5..].to_vec()).unwrap();
        assert!(text.ends_with("is longer than the limit of 65536"), "{text}");
    }
    server.stop().await;
}

#[tokio::test]
async fn plain_thrift_that_is_too_long_is_answered_and_then_left() {
    let server = start(Limits::default()).await;
    let limit = Limits::default().frame_bytes;
    let options = ClientOptions::new(server.address.to_string(), Auth::None);
    let client = Client::connect(&options).await.unwrap();
    let mut session = Session::open_as(client, Some(("alice", "")), &[]).await.unwrap();
    let request = statement(session.handle(), limit + (20 << 20));
    let answer: TExecuteStatementResp = session.client().call("ExecuteStatement", &request, DEADLINE).await.unwrap();
    let message = answer.status.error_message.unwrap();
    assert!(message.starts_with("request ExecuteStatement too long"), "{message}");
    assert_eq!(answer.status.sql_state.as_deref(), Some("54000"));
    tokio::time::timeout(DEADLINE, session.client().closed()).await.unwrap();
    server.stop().await;
}

#[tokio::test]
async fn a_post_that_is_too_long_is_answered_in_thrift() {
    let server = start(Limits::default()).await;
    let limit = Limits::default().frame_bytes;
    let message = encode_call("OpenSession", 3, &statement(&hs2::Handle::random().session(), limit)).unwrap();
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let head = format!(
        "POST /cliservice HTTP/1.1\r\nContent-Length: {}\r\nAuthorization: Basic YWxpY2U6eA==\r\n\r\n",
        message.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&message).await.unwrap();
    let answer = read_to_end(&mut stream).await;
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
    let head = String::from_utf8_lossy(&answer[..end]);
    assert!(head.starts_with("HTTP/1.1 200 ") && head.contains("Connection: close"), "{head}");
    let refused: TOpenSessionResp = decode_reply(&answer[end..]).unwrap();
    assert_too_long(&refused.status, "OpenSession", message.len(), limit);
    server.stop().await;
}

#[tokio::test]
async fn a_malformed_message_gets_an_exception_before_the_connection_ends() {
    let server = start(Limits::default()).await;
    let mut bodies = vec![b"\0\0\0\x01".to_vec(), b"GET / HTTP/1.1".to_vec(), Vec::new()];
    bodies.push(b"\x80\x01\0\x01\x7f\xff\xff\xff".to_vec());
    for body in bodies {
        let mut stream = framed(&server).await;
        stream.write_u32(body.len() as u32).await.unwrap();
        stream.write_all(&body).await.unwrap();
        let error = decode_reply::<TOpenSessionResp>(&frame(&mut stream).await).unwrap_err();
        let WireError::Application { kind: 7, text } = &error else { panic!("{error}") };
        assert!(text.starts_with("invalid request\nDetail: "), "{text}");
        assert_eq!(read_to_end(&mut stream).await, b"");
    }
    // Plain Thrift, whose head is good: the answer is one to that call. The rest is still on its way.
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let mut deep = encode_call("OpenSession", 3, &open_session()).unwrap();
    deep.truncate(4 + 4 + "OpenSession".len() + 4);
    deep.extend_from_slice(&b"\x0c\0\x01".repeat(200_000));
    stream.write_all(&deep).await.unwrap();
    let answer = read_to_end(&mut stream).await;
    let Ok(WalkProgress::End(end)) = Walker::new().advance(&answer) else { panic!("{answer:?}") };
    assert_eq!(end, answer.len());
    let error = decode_reply::<TOpenSessionResp>(&answer).unwrap_err().to_string();
    assert!(error.contains("invalid request OpenSession") && error.contains("nested deeper"), "{error}");
    server.stop().await;
}
