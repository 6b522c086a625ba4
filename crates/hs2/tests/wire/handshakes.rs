//! The first bytes of a connection, as clients of all kinds send them.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::time::Duration;

use crate::number_server::{Running, start};
use hs2::answer::Answer;
use hs2::message::{decode_reply, encode_call};
use hs2::tcli::{TOpenSessionReq, TOpenSessionResp, TProtocolVersion, TStatusCode};
use hs2::{Auth, Client, ClientError, Limits, Session};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::corpus;

async fn raw(server: &Running) -> TcpStream {
    TcpStream::connect(server.address).await.unwrap()
}

async fn read_to_end(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    tokio::time::timeout(Duration::from_secs(10), stream.read_to_end(&mut bytes)).await.unwrap().unwrap();
    bytes
}

fn sasl(status: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![status];
    bytes.extend_from_slice(&(payload.len() as u32).to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

fn open_session(user: Option<&str>) -> Vec<u8> {
    let request = TOpenSessionReq {
        client_protocol: TProtocolVersion::HIVE_CLI_SERVICE_PROTOCOL_V10,
        username: user.map(str::to_owned),
        password: None,
        configuration: None,
    };
    encode_call("OpenSession", 3, &request).unwrap()
}

async fn exchange_framed(stream: &mut TcpStream, message: &[u8]) -> Vec<u8> {
    stream.write_u32(message.len() as u32).await.unwrap();
    stream.write_all(message).await.unwrap();
    let length = stream.read_u32().await.unwrap();
    let mut reply = vec![0; length as usize];
    stream.read_exact(&mut reply).await.unwrap();
    reply
}

#[tokio::test]
async fn the_recorded_negotiations_of_java_and_python_are_answered_as_recorded() {
    let server = start(Limits::default()).await;
    let recorded = corpus::all();
    for client in ["beeline", "sts4", "meta", "pyhive", "impyla"] {
        let mut of_client = recorded.iter().filter(|recorded| recorded.name.starts_with(client));
        let mut next = |method: &str| of_client.find(|recorded| recorded.method == method).unwrap().bytes.clone();
        let python = matches!(client, "pyhive" | "impyla");
        let mut stream = raw(&server).await;
        stream.write_all(&next("sasl1")).await.unwrap();
        stream.write_all(&next(if python { "sasl2" } else { "sasl5" })).await.unwrap();
        let mut answer = [9; 5];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(answer.as_slice(), next("sasl5"), "{client}");
        let reply = exchange_framed(&mut stream, &next("OpenSession")).await;
        let reply: TOpenSessionResp = decode_reply(&reply).unwrap();
        assert_eq!(reply.status.status_code, TStatusCode::SUCCESS_STATUS);
        assert!(reply.configuration.is_some());
    }
    server.stop().await;
}

#[tokio::test]
async fn a_second_start_and_an_unknown_status_are_refused() {
    let server = start(Limits::default()).await;
    let login = b"\0ann\0x";
    for second in [sasl(1, b"PLAIN"), sasl(0, login), sasl(255, login)] {
        let mut stream = raw(&server).await;
        // A call behind a login that is refused is not answered.
        stream.write_all(&[sasl(1, b"PLAIN"), second, open_session(None)].concat()).await.unwrap();
        let answer = read_to_end(&mut stream).await;
        assert_eq!(answer, sasl(3, b"the SASL response has an unknown status"));
    }
    server.stop().await;
}

#[tokio::test]
async fn a_refusal_is_status_3_with_a_text() {
    let server = start(Limits::default()).await;
    let refused = Client::connect(&server.options(Auth::user("mallory", "x"))).await;
    let Err(ClientError::Unauthenticated(text)) = refused.map(drop) else { panic!("mallory got in") };
    assert_eq!(text, "user \"mallory\" may not connect\nHint: ask an admin");

    let mut stream = raw(&server).await;
    stream.write_all(&[sasl(1, b"PLAIN"), sasl(5, b"\0mallory\0x")].concat()).await.unwrap();
    let answer = read_to_end(&mut stream).await;
    assert_eq!(answer, sasl(3, text.as_bytes()));

    for (mechanism, response) in [
        (&b"GSSAPI"[..], &b"\0a\0b"[..]),
        (b"PLAIN", b"no separators"),
        (b"PLAIN", b"\0\0empty"),
        (b"PLAIN", b"\0a\0b\0c"),
        (b"PLAIN", b"\0\xff\0b"),
    ] {
        let mut stream = raw(&server).await;
        stream.write_all(&[sasl(1, mechanism), sasl(2, response)].concat()).await.unwrap();
        let answer = read_to_end(&mut stream).await;
        assert_eq!(answer[0], 3, "{response:?}");
        assert!(answer.len() > 10);
    }
    server.stop().await;
}

#[tokio::test]
async fn a_client_that_does_not_authenticate_in_time_is_closed() {
    let limits = Limits { auth_deadline: Duration::from_millis(100), ..Limits::default() };
    let server = start(limits).await;
    for first in [&b""[..], b"P", b"\x80"] {
        let mut stream = raw(&server).await;
        stream.write_all(first).await.unwrap();
        assert_eq!(read_to_end(&mut stream).await, b"");
    }
    // A client that has begun SASL gets the reason in SASL.
    let late = sasl(3, b"the SASL negotiation did not end in time");
    for first in [&b"\x01"[..], b"\x01\0\0\0\x05PLA", &[sasl(1, b"PLAIN"), sasl(5, b"\0sleepy\0x")].concat()] {
        let mut stream = raw(&server).await;
        stream.write_all(first).await.unwrap();
        assert_eq!(read_to_end(&mut stream).await, late);
    }
    // A driver would repeat a login over HTTP whose connection closes without a response.
    let mut stream = raw(&server).await;
    let login = b"POST / HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic c2xlZXB5Ong=\r\nContent-Length: 1\r\n\r\n";
    stream.write_all(login).await.unwrap();
    let answer = String::from_utf8(read_to_end(&mut stream).await).unwrap();
    assert!(answer.starts_with("HTTP/1.1 503 Service Unavailable\r\n"), "{answer}");
    assert!(answer.contains("\r\nRetry-After: 5\r\n") && answer.contains("\r\nConnection: close\r\n"), "{answer}");
    assert!(answer.ends_with("\r\n\r\nthe login did not end in time\nHint: Retry the login.\n"), "{answer}");
    // Plain Thrift that says other things than who it is gets answers, and no more time.
    let mut stream = raw(&server).await;
    let early = encode_call("GetInfo", 1, &TOpenSessionResp::with_status(hs2::status::success())).unwrap();
    stream.write_all(&early).await.unwrap();
    assert!(read_to_end(&mut stream).await.starts_with(b"\x80\x01\0\x02"));
    server.stop().await;
}

#[tokio::test]
async fn a_message_that_stops_half_way_is_given_up() {
    let server = start(Limits { stall: Duration::from_millis(100), ..Limits::default() }).await;
    for first in [&b"\x80\x01\0\x01"[..], b"POST / HTTP/1.1\r\n"] {
        let mut stream = raw(&server).await;
        stream.write_all(first).await.unwrap();
        assert_eq!(read_to_end(&mut stream).await, b"");
    }
    server.stop().await;
}

#[tokio::test]
async fn one_connection_too_many_is_rejected_in_its_own_protocol() {
    let server = start(Limits { connections: 1, ..Limits::default() }).await;
    let first = server.client("alice").await;
    let refused = Client::connect(&server.options(Auth::user("bob", "x"))).await;
    let Err(ClientError::Unauthenticated(text)) = refused.map(drop) else { panic!("the server is full") };
    assert!(text.starts_with("too many connections"), "{text}");
    let client = Client::connect(&server.options(Auth::None)).await.unwrap();
    let Err(ClientError::Refused(error)) = Session::open_as(client, Some(("bob", "")), &[]).await.map(drop) else {
        panic!("the server is full");
    };
    assert_eq!(error.sqlstate(), "54000");
    let mut stream = raw(&server).await;
    stream.write_all(b"POST / HTTP/1.1\r\nAuthorization: Basic Ym9iOng=\r\nContent-Length: 0\r\n\r\n").await.unwrap();
    let mut answer = vec![0; 12];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(answer, b"HTTP/1.1 503");
    drop(stream);
    // The place is free again when the first has gone.
    drop(first);
    tokio::time::timeout(Duration::from_secs(10), async {
        while Client::connect(&server.options(Auth::user("bob", "x"))).await.is_err() {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
    server.stop().await;
}

#[tokio::test]
async fn tls_is_refused_with_an_alert_and_anything_else_with_a_line_of_text() {
    let server = start(Limits::default()).await;
    let mut stream = raw(&server).await;
    stream.write_all(&[0x16, 0x03, 0x01, 0x00, 0x05, 1, 2, 3, 4, 5]).await.unwrap();
    assert_eq!(read_to_end(&mut stream).await, [0x15, 3, 1, 0, 2, 2, 70]);
    for first in [0x00, 0x05, 0xff, b'{'] {
        let mut stream = raw(&server).await;
        stream.write_all(&[first]).await.unwrap();
        let answer = read_to_end(&mut stream).await;
        assert_eq!(answer, b"this port speaks HiveServer2: SASL PLAIN, plain Thrift, or HTTP\n");
    }
    server.stop().await;
}

#[tokio::test]
async fn plain_thrift_is_read_however_its_bytes_arrive() {
    let server = start(Limits::default()).await;
    let message = open_session(Some("alice"));
    let mut stream = raw(&server).await;
    for byte in &message {
        stream.write_all(&[*byte]).await.unwrap();
    }
    // Two more in one packet.
    stream.write_all(&[message.clone(), message].concat()).await.unwrap();
    stream.shutdown().await.unwrap();
    let answers = read_to_end(&mut stream).await;
    let mut rest = answers.as_slice();
    for _ in 0..3 {
        let Ok(hs2::scan::WalkProgress::End(end)) = hs2::scan::Walker::new().advance(rest) else { panic!("{rest:?}") };
        let reply: TOpenSessionResp = decode_reply(&rest[..end]).unwrap();
        assert_eq!(reply.status.status_code, TStatusCode::SUCCESS_STATUS);
        rest = &rest[end..];
    }
    assert!(rest.is_empty());
    server.stop().await;
}

async fn post(stream: &mut TcpStream, headers: &str, body: &[u8]) -> (String, Vec<u8>) {
    stream
        .write_all(format!("POST /cliservice HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n").as_bytes())
        .await
        .unwrap();
    stream.write_all(body).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    let head = String::from_utf8(head).unwrap();
    let length: usize = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).unwrap().parse().unwrap();
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.unwrap();
    (head.lines().next().unwrap().to_owned(), body)
}

#[tokio::test]
async fn http_takes_one_message_per_post_and_credentials_with_each() {
    let server = start(Limits::default()).await;
    let message = open_session(None);
    let length = format!("Content-Length: {}\r\n", message.len());
    let mut stream = raw(&server).await;
    let (status, body) = post(&mut stream, &length, &message).await;
    assert_eq!(status, "HTTP/1.1 401 Unauthorized");
    assert_eq!(body, b"the request has no Basic credentials\n");
    let (status, body) = post(&mut stream, &format!("{length}X-Hive-Delegation-Token: x\r\n"), &message).await;
    assert_eq!(status, "HTTP/1.1 401 Unauthorized");
    assert_eq!(body, b"delegation tokens are not supported\nHint: Log in with a user name and a password.\n");
    // The connection stays: alice, then bob, over the same one.
    for token in ["YWxpY2U6eA==", "Ym9iOng="] {
        let headers = format!("{length}Authorization: Basic {token}\r\n");
        let (status, body) = post(&mut stream, &headers, &message).await;
        assert_eq!(status, "HTTP/1.1 200 OK");
        let reply: TOpenSessionResp = decode_reply(&body).unwrap();
        assert_eq!(reply.status.status_code, TStatusCode::SUCCESS_STATUS);
    }
    let (status, body) = post(&mut stream, &format!("{length}Authorization: Basic bWFsbG9yeTp4\r\n"), &message).await;
    assert_eq!(
        (status.as_str(), body.as_slice()),
        ("HTTP/1.1 401 Unauthorized", &b"user \"mallory\" may not connect\nHint: ask an admin\n"[..])
    );
    // In chunks.
    let (one, two) = message.split_at(10);
    let mut chunks = format!("{:x}\r\n", one.len()).into_bytes();
    chunks.extend_from_slice(one);
    chunks.extend_from_slice(format!("\r\n{:X};x=y\r\n", two.len()).as_bytes());
    chunks.extend_from_slice(two);
    chunks.extend_from_slice(b"\r\n0\r\n\r\n");
    let headers = "Transfer-Encoding: chunked\r\nAuthorization: Basic YWxpY2U6eA==\r\nConnection: close\r\n";
    let (status, body) = post(&mut stream, headers, &chunks).await;
    assert_eq!(status, "HTTP/1.1 200 OK");
    decode_reply::<TOpenSessionResp>(&body).unwrap();
    assert_eq!(read_to_end(&mut stream).await, b"");
    server.stop().await;
}

#[tokio::test]
async fn http_requests_that_are_none_of_ours_are_refused_in_words() {
    let server = start(Limits { frame_bytes: 1000, ..Limits::default() }).await;
    let long_header = format!("POST / HTTP/1.1\r\nX: {}", "x".repeat(20_000));
    let many_headers = format!("POST / HTTP/1.1\r\n{}\r\n", "X: y\r\n".repeat(65));
    let basic = "POST / HTTP/1.1\r\nAuthorization: Basic YTo=\r\n";
    let long_chunk = format!("{basic}Transfer-Encoding: chunked\r\n\r\n3e9\r\n{}", "x".repeat(1001));
    let bad_chunk = format!("{basic}Transfer-Encoding: chunked\r\n\r\nzz\r\n");
    let signed_chunk = format!("{basic}Transfer-Encoding: chunked\r\n\r\n+5\r\nhello\r\n0\r\n\r\n");
    let compressed = format!("{basic}Content-Encoding: gzip\r\nContent-Length: 1\r\n\r\n");
    for (request, status) in [
        ("GET / HTTP/1.1\r\n\r\n", "405"),
        ("POST / HTTP/2.0\r\n\r\n", "400"),
        ("POST / HTTP/1.1\r\n\r\n", "411"),
        ("POST / HTTP/1.1\r\nContent-Length: 1001\r\n\r\n", "401"),
        ("POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", "400"),
        ("POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", "400"),
        ("POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", "400"),
        ("POST / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n", "400"),
        (&long_chunk, "413"),
        (&bad_chunk, "400"),
        (&signed_chunk, "400"),
        (&compressed, "415"),
        ("POST http://localhost/ HTTP/1.1\r\nContent-Length: 0\r\n\r\n", "400"),
        ("CONNECT localhost:1 HTTP/1.1\r\n\r\n", "405"),
        ("TRACE / HTTP/1.1\r\n\r\n", "405"),
        ("POST / HTTP/1.1\r\nno colon\r\n\r\n", "400"),
        (&many_headers, "431"),
        (&long_header, "431"),
    ] {
        let mut stream = raw(&server).await;
        stream.write_all(request.as_bytes()).await.unwrap();
        let answer = String::from_utf8(read_to_end(&mut stream).await).unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request:.60}: {answer}");
    }
    server.stop().await;
}

/// What `GET path` is answered with, as a kubelet asks: status and text.
async fn probe(server: &Running, path: &str) -> (String, String) {
    let mut stream = raw(server).await;
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nUser-Agent: kube-probe/1.35\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let answer = String::from_utf8(read_to_end(&mut stream).await).unwrap();
    let (head, text) = answer.split_once("\r\n\r\n").unwrap();
    (head.lines().next().unwrap().to_owned(), text.to_owned())
}

fn words(status: &str, text: &str) -> (String, String) {
    (format!("HTTP/1.1 {status}"), format!("{text}\n"))
}

#[tokio::test]
async fn probes_report_liveness_and_readiness() {
    let server = start(Limits::default()).await;
    assert_eq!(probe(&server, "/livez").await, words("200 OK", "ok"));
    assert_eq!(probe(&server, "/readyz").await, words("200 OK", "ok"));
    *server.service.unready.lock() = Some("it has no numbers yet".to_owned());
    assert_eq!(probe(&server, "/livez").await, words("200 OK", "ok"));
    assert_eq!(probe(&server, "/readyz").await, words("503 Service Unavailable", "it has no numbers yet"));
    assert!(probe(&server, "/livez/more").await.0.contains("405"));
    // One after another on one connection, and then a client's call; none of it needs what the other does.
    let mut stream = raw(&server).await;
    for _ in 0..2 {
        stream.write_all(b"GET /livez HTTP/1.1\r\n\r\n").await.unwrap();
        let expected = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 3\r\n\r\nok\n";
        let mut answer = vec![0; expected.len()];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(String::from_utf8_lossy(&answer), String::from_utf8_lossy(expected));
    }
    let message = open_session(None);
    let headers = format!("Content-Length: {}\r\nAuthorization: Basic YWxpY2U6eA==\r\n", message.len());
    assert_eq!(post(&mut stream, &headers, &message).await.0, "HTTP/1.1 200 OK");
    // A call to such a path is a call.
    stream.write_all(b"POST /readyz HTTP/1.1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").await.unwrap();
    assert!(read_to_end(&mut stream).await.starts_with(b"HTTP/1.1 401 "));
    server.stop().await;
}

#[tokio::test]
async fn a_full_server_is_alive_and_not_ready() {
    let server = start(Limits { connections: 1, ..Limits::default() }).await;
    let session = Session::open(server.client("alice").await, &[]).await.unwrap();
    assert_eq!(probe(&server, "/livez").await, words("200 OK", "ok"));
    assert_eq!(probe(&server, "/readyz").await, words("503 Service Unavailable", "too many connections"));
    session.close().await.unwrap();
    server.stop().await;
}
