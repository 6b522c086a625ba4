//! Admission of clients: requests that are judged before they are read.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use hs2::message::{decode_reply, encode_call};
use hs2::tcli::{TOpenSessionReq, TOpenSessionResp, TProtocolVersion, TStatusCode};
use hs2::{Auth, Client, Limits, Session};
use rustix::time::{ClockId, clock_gettime};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::number_server::{Running, start};

pub(crate) const DEADLINE: Duration = Duration::from_secs(10);

pub(crate) fn open_session(configuration: Option<BTreeMap<String, String>>) -> Vec<u8> {
    let request = TOpenSessionReq {
        client_protocol: TProtocolVersion::HIVE_CLI_SERVICE_PROTOCOL_V10,
        username: Some("alice".to_owned()),
        password: None,
        configuration,
    };
    encode_call("OpenSession", 3, &request).unwrap()
}

pub(crate) async fn raw(server: &Running) -> TcpStream {
    TcpStream::connect(server.address).await.unwrap()
}

pub(crate) async fn read_to_end(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = tokio::time::timeout(DEADLINE, stream.read_to_end(&mut bytes)).await.expect("it is closed in time");
    bytes
}

/// Sends a head and returns the answer's status.
pub(crate) async fn status_of(stream: &mut TcpStream, request: &str, body: &[u8]) -> String {
    stream.write_all(request.as_bytes()).await.unwrap();
    stream.write_all(body).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(tokio::time::timeout(DEADLINE, stream.read_u8()).await.expect("an answer in time").unwrap());
    }
    let head = String::from_utf8(head).unwrap();
    let length: usize = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).unwrap().parse().unwrap();
    stream.read_exact(&mut vec![0; length]).await.unwrap();
    head.split(' ').nth(1).unwrap().to_owned()
}

#[tokio::test]
async fn a_web_page_whose_name_leads_here_is_not_served() {
    let server = start(Limits::default()).await;
    let message = open_session(None);
    let own = rustix::system::uname().nodename().to_str().unwrap().to_owned();
    for (headers, expected) in [
        ("Host: evil.example\r\n", "421"),
        ("Host: evil.example:10009\r\n", "421"),
        ("Host: localhost.evil.example\r\n", "421"),
        ("Host: 127.0.0.1.evil.example\r\n", "421"),
        ("Host: [::1].evil.example\r\n", "421"),
        ("Host: [::1]\r\n", "200"),
        ("Host: \r\n", "421"),
        ("Host: localhost\r\nHost: evil.example\r\n", "400"),
        ("Host: localhost\r\nOrigin: http://localhost\r\n", "403"),
        ("Host: 127.0.0.1\r\norigin: null\r\n", "403"),
        ("Host: 127.0.0.1:10009\r\n", "200"),
        ("Host: [::1]:10009\r\n", "200"),
        ("Host: LocalHost:10009\r\n", "200"),
        (&format!("Host: {own}\r\n"), "200"),
        ("Host: numbers.example:10009\r\n", "200"),
        ("", "200"),
    ] {
        let mut stream = raw(&server).await;
        let head = format!(
            "POST / HTTP/1.1\r\n{headers}Authorization: Basic YWxpY2U6eA==\r\nContent-Length: {}\r\n\r\n",
            message.len()
        );
        assert_eq!(status_of(&mut stream, &head, &message).await, expected, "{headers:?}");
    }
    // A probe of a load balancer has any name.
    let mut stream = raw(&server).await;
    assert_eq!(status_of(&mut stream, "GET /livez HTTP/1.1\r\nHost: balancer.example\r\n\r\n", b"").await, "200");
    server.stop().await;
}

#[tokio::test]
async fn bad_credentials_are_refused_before_the_body_is_sent() {
    let server = start(Limits::default()).await;
    for (headers, expected) in [
        ("Authorization: Basic bWFsbG9yeTp4\r\nContent-Length: 16777216\r\n", "401"),
        ("Content-Length: 16777216\r\n", "401"),
        ("Content-Length: 10\r\n", "401"),
        ("Transfer-Encoding: chunked\r\n", "401"),
        ("Expect: 100-continue\r\nContent-Length: 10\r\n", "401"),
        ("Host: evil.example\r\nAuthorization: Basic YWxpY2U6eA==\r\nContent-Length: 16777216\r\n", "421"),
    ] {
        let mut stream = raw(&server).await;
        let head = format!("POST / HTTP/1.1\r\n{headers}\r\n");
        assert_eq!(status_of(&mut stream, &head, b"").await, expected, "{headers}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_refused_request_with_a_short_body_leaves_the_connection_usable() {
    let server = start(Limits::default()).await;
    let message = open_session(None);
    let mut stream = raw(&server).await;
    stream.set_nodelay(true).unwrap();
    for length in [1, 1_000, 60_000] {
        let refused = format!("POST / HTTP/1.1\r\nContent-Length: {length}\r\n\r\n");
        assert_eq!(status_of(&mut stream, &refused, b"").await, "401");
        // The body comes after the answer, in pieces.
        for piece in vec![b'x'; length].chunks(7_000) {
            stream.write_all(piece).await.unwrap();
        }
        let head = format!(
            "POST / HTTP/1.1\r\nAuthorization: Basic YWxpY2U6eA==\r\nContent-Length: {}\r\n\r\n",
            message.len()
        );
        assert_eq!(status_of(&mut stream, &head, &message).await, "200");
    }
    server.stop().await;
}

#[tokio::test]
async fn chunks_of_one_byte_cost_no_more_moves_than_others() {
    let server = start(Limits::default()).await;
    let short = in_chunks_of_one(&server, 1 << 17).await;
    let long = in_chunks_of_one(&server, 1 << 20).await;
    println!("in chunks of one byte: 128 KiB {short:?}, 1 MiB {long:?}");
    // Eight times as many bytes take eight times as long. They take more than thirty times as long if each chunk moves what
    // is pending.
    assert!(long < 20 * short, "{short:?} and {long:?} of CPU time");
    server.stop().await;
}

/// The CPU time of a call with a value of this many bytes, of which each byte is a chunk. The server runs on the test's thread.
async fn in_chunks_of_one(server: &Running, bytes: usize) -> Duration {
    let message = open_session(Some(BTreeMap::from([("set:hiveconf:k".to_owned(), "x".repeat(bytes))])));
    let mut chunks = Vec::with_capacity(6 * message.len());
    for byte in &message {
        chunks.extend_from_slice(b"1\r\n");
        chunks.extend_from_slice(&[*byte, b'\r', b'\n']);
    }
    chunks.extend_from_slice(b"0\r\n\r\n");
    let mut stream = raw(server).await;
    let begun = thread_cpu_time();
    let head = "POST / HTTP/1.1\r\nAuthorization: Basic YWxpY2U6eA==\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(status_of(&mut stream, head, &chunks).await, "200");
    thread_cpu_time().saturating_sub(begun)
}

fn thread_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap(), time.tv_nsec.try_into().unwrap())
}

#[tokio::test]
async fn the_first_message_over_plain_thrift_is_short() {
    let server = start(Limits::default()).await;
    for (bytes, expected) in [(60_000, TStatusCode::SUCCESS_STATUS), (70_000, TStatusCode::ERROR_STATUS)] {
        let keys = BTreeMap::from([("set:hiveconf:k".to_owned(), "x".repeat(bytes))]);
        let mut stream = raw(&server).await;
        stream.write_all(&open_session(Some(keys))).await.unwrap();
        stream.shutdown().await.unwrap();
        let answer = read_to_end(&mut stream).await;
        let reply: TOpenSessionResp = decode_reply(&answer).unwrap();
        assert_eq!(reply.status.status_code, expected, "{bytes}: {:?}", reply.status);
    }
    // Once it is known who the client is, statements may be as long as over the other transports.
    let client = Client::connect(&server.options(Auth::None)).await.unwrap();
    let mut session = Session::open_as(client, Some(("alice", "")), &[]).await.unwrap();
    session.execute(&"x".repeat(1 << 20)).await.unwrap();
    server.stop().await;
}

#[tokio::test]
async fn a_one_way_call_ends_the_connection_without_an_answer() {
    let server = start(Limits::default()).await;
    let mut message = open_session(None);
    message[3] = 4;
    let mut stream = raw(&server).await;
    stream.write_all(&message).await.unwrap();
    assert_eq!(read_to_end(&mut stream).await, b"");
    server.stop().await;
}

/// A user's name may be that of a role of ours.
#[tokio::test]
async fn a_role_speaks_for_a_user_of_its_own_name() {
    let server = start(Limits::default()).await;
    let mut events = server.service.events();
    let client = Client::connect(&server.options(Auth::service("proxy", "derived", "proxy"))).await.unwrap();
    Session::open(client, &[]).await.unwrap();
    assert_eq!(events.recv().await.unwrap(), "open proxy");
    server.stop().await;
}

#[tokio::test]
async fn a_slow_long_request_is_abandoned_and_short_ones_are_not_counted() {
    let deadline = Duration::from_millis(500);
    let server = start(Limits { request_deadline: deadline, ..Limits::default() }).await;
    let began = Instant::now();
    let post = format!("POST / HTTP/1.1\r\nAuthorization: Basic YWxpY2U6eA==\r\nContent-Length: {}\r\n\r\n", 1 << 20);
    let chunked = "POST / HTTP/1.1\r\nAuthorization: Basic YWxpY2U6eA==\r\nTransfer-Encoding: chunked\r\n\r\n";
    let many = "1000\r\n".to_owned() + &"x".repeat(0x1000) + "\r\n";
    for beginning in [post.clone(), chunked.to_owned() + &many.repeat(20)] {
        let mut stream = raw(&server).await;
        stream.write_all(beginning.as_bytes()).await.unwrap();
        // Never silent for as long as a peer may be.
        let (mut read, mut write) = stream.split();
        let trickle = async {
            while write.write_all(b"1").await.is_ok() {
                tokio::time::sleep(deadline / 10).await;
            }
        };
        let mut end = [0; 1];
        tokio::select! {
            closed = tokio::time::timeout(DEADLINE, read.read(&mut end)) => drop(closed.expect("it is closed in time")),
            () = trickle => {}
        }
    }
    assert!(began.elapsed() >= deadline);
    // A short one may take its time.
    let mut stream = raw(&server).await;
    let message = open_session(None);
    let head =
        format!("POST / HTTP/1.1\r\nAuthorization: Basic YWxpY2U6eA==\r\nContent-Length: {}\r\n\r\n", message.len());
    stream.write_all(head.as_bytes()).await.unwrap();
    tokio::time::sleep(deadline * 2).await;
    assert_eq!(status_of(&mut stream, "", &message).await, "200");
    server.stop().await;
}
