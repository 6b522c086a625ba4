//! HTTP in detail: requests that follow each other, replies in pieces, clients that leave or do not read.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::time::{Duration, Instant};

use hs2::Limits;
use hs2::message::{decode_reply, encode_call};
use hs2::tcli::{TGetInfoReq, TGetInfoResp, TGetInfoType, TOpenSessionReq, TOpenSessionResp, TProtocolVersion};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::number_server::{Running, start};

const DEADLINE: Duration = Duration::from_secs(10);

/// A server and a connection to it.
async fn connected(limits: Limits) -> (Running, TcpStream) {
    let server = start(limits).await;
    let stream = TcpStream::connect(server.address).await.unwrap();
    (server, stream)
}

pub(crate) fn open_session(seqid: i32) -> Vec<u8> {
    let request = TOpenSessionReq {
        client_protocol: TProtocolVersion::HIVE_CLI_SERVICE_PROTOCOL_V10,
        username: None,
        password: None,
        configuration: None,
    };
    encode_call("OpenSession", seqid, &request).unwrap()
}

/// A POST of alice.
pub fn post(message: &[u8], headers: &str) -> Vec<u8> {
    let head = format!(
        "POST /cliservice HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic YWxpY2U6eA==\r\n{headers}Content-Length: {}\r\n\r\n",
        message.len()
    );
    [head.as_bytes(), message].concat()
}

/// The next response: its head and its body.
pub async fn response(stream: &mut (impl AsyncReadExt + Unpin)) -> (String, Vec<u8>) {
    let received = async {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        let head = String::from_utf8(head).unwrap();
        let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
        let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
        stream.read_exact(&mut body).await.unwrap();
        (head, body)
    };
    timeout(DEADLINE, received).await.expect("a response in time")
}

#[tokio::test]
async fn requests_sent_before_a_response_are_answered_in_order() {
    let (server, mut stream) = connected(Limits::default()).await;
    // More than hyper buffers: the rest waits in the operating system.
    let requests: Vec<u8> = (0..500).flat_map(|seqid| post(&open_session(seqid), "")).collect();
    assert!(requests.len() > 2 * hs2::limits::HTTP_BUFFER_BYTES);
    let (mut read, mut write) = stream.split();
    let reading = async {
        for seqid in 0..500 {
            let (head, body) = response(&mut read).await;
            assert!(head.starts_with("HTTP/1.1 200 OK\r\nContent-Type: application/x-thrift\r\n"), "{head}");
            decode_reply::<TOpenSessionResp>(&body).unwrap();
            assert_eq!(hs2::Message::new(body).unwrap().seqid(), seqid);
        }
    };
    let (written, ()) = tokio::join!(write.write_all(&requests), reading);
    written.unwrap();
    server.stop().await;
}

#[tokio::test]
async fn a_client_that_waits_for_100_continue_gets_it_once_it_is_known() {
    let (server, mut stream) = connected(Limits::default()).await;
    let request = post(&open_session(7), "Expect: 100-continue\r\n");
    let (head, body) = request.split_at(request.len() - open_session(7).len());
    stream.write_all(head).await.unwrap();
    let (interim, _) = response(&mut stream).await;
    assert_eq!(interim, "HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(body).await.unwrap();
    let (_, reply) = response(&mut stream).await;
    decode_reply::<TOpenSessionResp>(&reply).unwrap();
    server.stop().await;
}

#[tokio::test]
async fn a_head_must_be_complete_in_time_and_an_idle_connection_need_not() {
    let stall = Duration::from_millis(300);
    let (server, mut stream) = connected(Limits { stall, ..Limits::default() }).await;
    stream.write_all(&post(&open_session(1), "")).await.unwrap();
    response(&mut stream).await;
    tokio::time::sleep(stall * 3).await;
    stream.write_all(&post(&open_session(2), "")).await.unwrap();
    assert_eq!(hs2::Message::new(response(&mut stream).await.1).unwrap().seqid(), 2);
    let began = Instant::now();
    stream.write_all(b"POST / HTTP/1.1\r\nHo").await.unwrap();
    assert_eq!(timeout(DEADLINE, stream.read(&mut [0; 1])).await.unwrap().unwrap(), 0);
    assert!(began.elapsed() >= stall);
    server.stop().await;
}

#[tokio::test]
async fn a_probe_authenticates_no_client() {
    let auth_deadline = Duration::from_millis(500);
    let (server, mut stream) = connected(Limits { auth_deadline, ..Limits::default() }).await;
    let began = Instant::now();
    let closed = async {
        loop {
            if stream.write_all(b"GET /livez HTTP/1.1\r\n\r\n").await.is_err() {
                return;
            }
            let mut answer = [0; 256];
            if stream.read(&mut answer).await.map_or(true, |length| length == 0) {
                return;
            }
            tokio::time::sleep(auth_deadline / 10).await;
        }
    };
    timeout(DEADLINE, closed).await.expect("it is closed in time");
    assert!(began.elapsed() >= auth_deadline);
    server.stop().await;
}

#[tokio::test]
async fn a_body_that_ends_early_is_refused() {
    let (server, mut stream) = connected(Limits::default()).await;
    let request = post(&open_session(1), "");
    stream.write_all(&request[..request.len() - 1]).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut answer = Vec::new();
    let _ = timeout(DEADLINE, stream.read_to_end(&mut answer)).await.unwrap();
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 400 "), "{answer:?}");
    server.stop().await;
}

/// `GetInfo` of a session that does not exist: a call with an error in its reply.
#[tokio::test]
async fn the_connection_goes_on_after_an_error_in_a_reply() {
    let (server, mut stream) = connected(Limits::default()).await;
    let request =
        TGetInfoReq { session_handle: hs2::Handle::random().session(), info_type: TGetInfoType::CLI_DBMS_NAME };
    for seqid in 1..3 {
        stream.write_all(&post(&encode_call("GetInfo", seqid, &request).unwrap(), "")).await.unwrap();
        let (head, reply) = response(&mut stream).await;
        assert!(head.starts_with("HTTP/1.1 200 ") && !head.contains("Connection: close"), "{head}");
        let reply: TGetInfoResp = decode_reply(&reply).unwrap();
        assert!(hs2::status::check(&reply.status).is_err());
    }
    server.stop().await;
}

#[tokio::test]
async fn a_client_that_does_not_read_the_responses_to_its_probes_is_given_up() {
    let (server, mut stream) = connected(Limits { stall: Duration::from_millis(300), ..Limits::default() }).await;
    stream.write_all(&post(&open_session(1), "")).await.unwrap();
    response(&mut stream).await;
    // Until neither end can send any more.
    let probes = b"GET /livez HTTP/1.1\r\n\r\n".repeat(10_000);
    let closed = async { while stream.write_all(&probes).await.is_ok() {} };
    timeout(DEADLINE, closed).await.expect("it is closed in time");
    server.stop().await;
}
