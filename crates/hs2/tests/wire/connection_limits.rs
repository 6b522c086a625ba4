//! Limits of connections: places before login, of a user and an address, and the rate of new ones.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hs2::limit_hits::Hits;
use hs2::message::decode_reply;
use hs2::tcli::TOpenSessionResp;
use hs2::{Auth, Client, ClientError, Limit, Limits, Server, Session};
use model::clock::ManualClock;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;

use crate::admission::{DEADLINE, open_session, raw, read_to_end, status_of};
use crate::number_server::{Running, start, start_on};

/// A whole log-in over SASL.
const LOGIN: &[u8] = b"\x01\0\0\0\x05PLAIN\x05\0\0\0\x08\0alice\0x";

/// A connection from an address of the loopback network.
async fn raw_from(server: &Running, last: u8) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from(([127, 0, 0, last], 0))).unwrap();
    socket.connect(server.address).await.unwrap()
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
