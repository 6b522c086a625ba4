//! Admission of clients: connection limits, and requests that are judged before they are read.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hs2::limit_hits::Hits;
use hs2::message::{decode_reply, encode_call};
use hs2::tcli::{TOpenSessionReq, TOpenSessionResp, TProtocolVersion, TStatusCode};
use hs2::{Auth, Client, ClientError, Limit, Limits, Server, Session};
use model::clock::ManualClock;
use rustix::time::{ClockId, clock_gettime};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;

use crate::number_server::{Running, start, start_on};

const DEADLINE: Duration = Duration::from_secs(10);
/// A whole log-in over SASL.
const LOGIN: &[u8] = b"\x01\0\0\0\x05PLAIN\x05\0\0\0\x08\0alice\0x";

fn open_session(configuration: Option<BTreeMap<String, String>>) -> Vec<u8> {
    let request = TOpenSessionReq {
        client_protocol: TProtocolVersion::HIVE_CLI_SERVICE_PROTOCOL_V10,
        username: Some("alice".to_owned()),
        password: None,
        configuration,
    };
    encode_call("OpenSession", 3, &request).unwrap()
}

async fn raw(server: &Running) -> TcpStream {
    TcpStream::connect(server.address).await.unwrap()
}

/// A connection from an address of the loopback network.
async fn raw_from(server: &Running, last: u8) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from(([127, 0, 0, last], 0))).unwrap();
    socket.connect(server.address).await.unwrap()
}

async fn read_to_end(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = tokio::time::timeout(DEADLINE, stream.read_to_end(&mut bytes)).await.expect("it is closed in time");
    bytes
}

/// Sends a head and returns the answer's status.
async fn status_of(stream: &mut TcpStream, request: &str, body: &[u8]) -> String {
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

#[tokio::test]
async fn clients_that_never_authenticate_do_not_exclude_others() {
    let limits = Limits {
        connections: 2,
        unauthenticated_connections: 4,
        unauthenticated_per_address: 2,
        waiting_connections: 0,
        ..Limits::default()
    };
    let server = start(limits).await;
    let _silent = [raw_from(&server, 2).await, raw_from(&server, 2).await];
    let mut third = raw_from(&server, 2).await;
    third.write_all(LOGIN).await.unwrap();
    let answer = String::from_utf8_lossy(&read_to_end(&mut third).await).into_owned();
    assert!(answer.contains("too many unauthenticated connections from one address\nDetail: 2 connections of 127.0.0.2 have not authenticated yet, and others wait for a place already.\nHint: "), "{answer:?}");
    // Another address is served, up to the limit of those that are known.
    let one = server.client("alice").await;
    let _two = server.client("bob").await;
    let refused = Client::connect(&server.options(Auth::user("carol", "x"))).await.map(drop);
    assert!(matches!(refused, Err(ClientError::Unauthenticated(text)) if text.starts_with("too many connections")));
    drop(one);
    let served = async {
        while Client::connect(&server.options(Auth::user("carol", "x"))).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(DEADLINE, served).await.unwrap();
    server.stop().await;
}

/// Connections from an address that send this and nothing more.
async fn open_many(server: &Running, last: u8, count: usize, first: &[u8]) -> Vec<TcpStream> {
    let mut opened = Vec::new();
    for _ in 0..count {
        let mut stream = raw_from(server, last).await;
        stream.write_all(first).await.unwrap();
        opened.push(stream);
    }
    opened
}

/// With places for each address, and connections that wait apart from those, no two addresses have all places.
#[tokio::test]
async fn two_addresses_cannot_take_all_places_before_authentication() {
    let limits = Limits {
        unauthenticated_connections: 20,
        unauthenticated_per_address: 4,
        waiting_connections: 20,
        ..Limits::default()
    };
    let server = start(limits).await;
    let mut flood = Vec::new();
    for last in [2, 3] {
        for first in [&b""[..], b"\x16", b"\x01\0\0\0\x05PLAIN"] {
            flood.extend(open_many(&server, last, 30, first).await);
        }
    }
    for last in [4, 5] {
        let message = open_session(None);
        let head = format!(
            "POST / HTTP/1.1\r\nAuthorization: Basic YWxpY2U6eA==\r\nContent-Length: {}\r\n\r\n",
            message.len()
        );
        let mut stream = raw_from(&server, last).await;
        assert_eq!(status_of(&mut stream, &head, &message).await, "200", "{last}");
    }
    server.client("alice").await;
    server.stop().await;
}

/// Clients behind one address that log in at the same time are served one after the other, in the order of their arrival.
#[tokio::test]
async fn logins_beyond_the_places_of_their_address_wait_for_one() {
    let limits = Limits { unauthenticated_per_address: 2, ..Limits::default() };
    let server = start(limits).await;
    let mut silent = open_many(&server, 2, 2, b"\x01").await;
    let mut waiting = Vec::new();
    for _ in 0..10 {
        let mut stream = raw_from(&server, 2).await;
        stream.write_all(LOGIN).await.unwrap();
        waiting.push(stream);
    }
    // A probe of the same address does not wait.
    for probe in ["GET /livez HTTP/1.1\r\n\r\n", "GET /readyz HTTP/1.1\r\n\r\n"] {
        assert_eq!(status_of(&mut raw_from(&server, 2).await, probe, b"").await, "200", "{probe}");
    }
    assert!(tokio::time::timeout(Duration::from_millis(50), waiting[0].read_u8()).await.is_err(), "it has no place");
    // With one place more all of them are served: each leaves its place with its login.
    drop(silent.pop());
    for stream in &mut waiting {
        // OK, or COMPLETE of SASL.
        let status = tokio::time::timeout(DEADLINE, stream.read_u8()).await.expect("a place in time").unwrap();
        assert!([0x02, 0x05].contains(&status), "{status:#x}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_login_without_a_place_learns_the_reason_and_a_silent_one_is_closed() {
    const REASON: &str = "too many unauthenticated connections from one address\nDetail: 1 connections of 127.0.0.2 have not authenticated yet, and none became free within 1 s.\nHint: Retry later. The limit of a proxy is proxy.max_unauthenticated_per_address.";
    let waiting_deadline = Duration::from_millis(300);
    let limits = Limits { unauthenticated_per_address: 1, waiting_deadline, ..Limits::default() };
    let hits = Arc::clone(&limits.hits);
    let server = start(limits).await;
    let _first = open_many(&server, 2, 1, b"").await;
    let silent = open_many(&server, 2, 4, b"").await;
    let mut login = raw_from(&server, 2).await;
    login.write_all(LOGIN).await.unwrap();
    let mut thrift = raw_from(&server, 2).await;
    thrift.write_all(&open_session(None)).await.unwrap();
    let mut http = raw_from(&server, 2).await;
    let post = "POST / HTTP/1.1\r\nConnection: close\r\nAuthorization: Basic YWxpY2U6eA==\r\nContent-Length: 0\r\n\r\n";
    http.write_all(post.as_bytes()).await.unwrap();
    let answer = String::from_utf8_lossy(&read_to_end(&mut login).await).into_owned();
    assert!(answer.contains(REASON), "{answer:?}");
    let reply: TOpenSessionResp = decode_reply(&read_to_end(&mut thrift).await).unwrap();
    assert_eq!(reply.status.error_message.as_deref(), Some(REASON));
    assert_eq!(reply.status.sql_state.as_deref(), Some("54000"));
    let answer = String::from_utf8(read_to_end(&mut http).await).unwrap();
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains(REASON), "{answer}");
    for mut stream in silent {
        assert_eq!(read_to_end(&mut stream).await, b"");
    }
    assert_eq!(hits.take(), [Hits { limit: Limit::UnauthenticatedPerAddress, new: 7, all: 7 }]);
    server.client("alice").await;
    server.stop().await;
}

#[tokio::test]
async fn connections_of_one_user_and_of_one_address_are_limited() {
    let limits = Limits { connections_per_user: 2, connections_per_peer: 3, ..Limits::default() };
    let server = start(limits).await;
    let _alice = (server.client("alice").await, server.client("alice").await);
    let refused = |refused: Result<Client, ClientError>, text: &str| match refused.map(drop) {
        Err(ClientError::Unauthenticated(error)) => assert!(error.starts_with(text), "{error}"),
        other => panic!("{other:?}"),
    };
    let third = Client::connect(&server.options(Auth::user("alice", "x"))).await;
    refused(third, "too many connections of user \"alice\"");
    let _bob = server.client("bob").await;
    let fourth = Client::connect(&server.options(Auth::user("carol", "x"))).await;
    refused(fourth, "too many connections from one address");
    // Over HTTP the user of the last request counts.
    let mut stream = raw_from(&server, 2).await;
    let message = open_session(None);
    for (token, expected) in [("Ym9iOng=", "200"), ("YWxpY2U6eA==", "503"), ("Y2Fyb2w6eA==", "200")] {
        let head =
            format!("POST / HTTP/1.1\r\nAuthorization: Basic {token}\r\nContent-Length: {}\r\n\r\n", message.len());
        assert_eq!(status_of(&mut stream, &head, &message).await, expected, "{token}");
    }
    server.stop().await;
}

/// The refusals of an address that is above its rate, in the protocol of the client.
#[tokio::test]
async fn the_rate_of_new_connections_from_one_address_is_limited() {
    const REFUSED: &str = "too many new connections from one address\nDetail: The limit for 127.0.0.1 is 2 new connections per second, with bursts of 4.\nHint: Retry later, or reuse connections.";
    let clock = ManualClock::at(0);
    let limits = Limits { connect_rate: 2, ..Limits::default() };
    let server = start_on(Server::bind("127.0.0.1:0", limits).await.unwrap().with_clock(clock.clone()));
    let message = open_session(None);
    let post = |token: &str| {
        format!("POST / HTTP/1.1\r\nAuthorization: Basic {token}\r\nContent-Length: {}\r\n\r\n", message.len())
    };
    let sasl = || async {
        let Err(ClientError::Unauthenticated(text)) =
            Client::connect(&server.options(Auth::user("alice", "x"))).await.map(drop)
        else {
            panic!("it is above the rate")
        };
        assert_eq!(text, REFUSED);
    };
    let mut served = Vec::new();
    for _ in 0..4 {
        served.push(server.client("alice").await);
    }
    sasl().await;
    let client = Client::connect(&server.options(Auth::None)).await.unwrap();
    let Err(ClientError::Refused(error)) = Session::open_as(client, Some(("alice", "")), &[]).await.map(drop) else {
        panic!("it is above the rate");
    };
    assert_eq!((error.sqlstate(), error.text().as_str()), ("54000", REFUSED));
    let mut stream = raw(&server).await;
    let last = "POST / HTTP/1.1\r\nConnection: close\r\nAuthorization: Basic YWxpY2U6eA==\r\nContent-Length: 0\r\n\r\n";
    stream.write_all(last.as_bytes()).await.unwrap();
    let answer = String::from_utf8(read_to_end(&mut stream).await).unwrap();
    assert!(answer.starts_with("HTTP/1.1 503 Service Unavailable\r\n"), "{answer:?}");
    assert!(answer.contains(REFUSED), "{answer}");
    // A load balancer's probe has the address of all its clients: it learns whether the server serves.
    for probe in ["GET /livez HTTP/1.1\r\n\r\n", "GET /readyz HTTP/1.1\r\n\r\n"] {
        assert_eq!(status_of(&mut raw(&server).await, probe, b"").await, "200", "{probe}");
    }
    // Another address has a burst of its own; connections that are open do not count.
    drop(served);
    for last in [2, 3] {
        for _ in 0..4 {
            let mut stream = raw_from(&server, last).await;
            assert_eq!(status_of(&mut stream, &post("YWxpY2U6eA=="), &message).await, "200", "{last}");
        }
        let mut stream = raw_from(&server, last).await;
        assert_eq!(status_of(&mut stream, &post("YWxpY2U6eA=="), &message).await, "503", "{last}");
    }
    // One more for each half of a second.
    sasl().await;
    for _ in 0..3 {
        clock.advance(Duration::from_millis(500));
        server.client("alice").await;
        sasl().await;
    }
    server.stop().await;
}

/// A flood of silent clients is closed at once but for a few, to which a reason would be sent.
#[tokio::test]
async fn connections_far_above_the_rate_are_closed_at_once() {
    let limits = Limits { connect_rate: 5, ..Limits::default() };
    let server = start_on(Server::bind("127.0.0.1:0", limits).await.unwrap().with_clock(ManualClock::at(0)));
    let mut ends = JoinSet::new();
    for _ in 0..100 {
        let mut stream = raw(&server).await;
        ends.spawn(async move { stream.read_u8().await.is_err() });
    }
    // Open are the burst, and as many refusals as run at once.
    let open = 10 + 32;
    while ends.len() > open {
        let closed = tokio::time::timeout(DEADLINE, ends.join_next()).await.expect("it is closed in time");
        assert!(closed.unwrap().unwrap(), "closed without a response");
    }
    let mut other = raw_from(&server, 2).await;
    assert_eq!(status_of(&mut other, "GET /readyz HTTP/1.1\r\n\r\n", b"").await, "200");
    assert!(tokio::time::timeout(Duration::from_millis(100), ends.join_next()).await.is_err(), "{open} are open");
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
