//! Where requests over HTTP end: requests that two readers may divide differently, and the limits of a head.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::time::Duration;

use hs2::Limits;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::time::timeout;

use crate::http::{open_session, post, response};
use crate::number_server::{Running, start};

const DEADLINE: Duration = Duration::from_secs(10);
const BASIC: &str = "Authorization: Basic YWxpY2U6eA==\r\n";

/// The same call in chunks of these lengths, with an extension and a trailer that looks like a header.
fn in_chunks(message: &[u8], length: usize, trailer: &str) -> Vec<u8> {
    let mut request = format!("POST / HTTP/1.1\r\n{BASIC}Transfer-Encoding: chunked\r\n\r\n").into_bytes();
    for chunk in message.chunks(length) {
        request.extend_from_slice(format!("{:X};a=b\r\n", chunk.len()).as_bytes());
        request.extend_from_slice(chunk);
        request.extend_from_slice(b"\r\n");
    }
    request.extend_from_slice(format!("0\r\n{trailer}\r\n").as_bytes());
    request
}

/// Sends the bytes in parts of this length, from a task of its own. The server may close first.
async fn send(server: &Running, bytes: Vec<u8>, part: usize) -> tokio::net::tcp::OwnedReadHalf {
    let stream = TcpStream::connect(server.address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let (read, write) = stream.into_split();
    tokio::spawn(send_parts(write, bytes, part));
    read
}

async fn send_parts(mut write: OwnedWriteHalf, bytes: Vec<u8>, part: usize) {
    for part in bytes.chunks(part) {
        if write.write_all(part).await.is_err() {
            return;
        }
        tokio::task::yield_now().await;
    }
    // Open until the server closes: the end of the connection is its decision.
    let _ = timeout(DEADLINE, std::future::pending::<()>()).await;
}

#[tokio::test]
async fn a_request_with_two_lengths_is_rejected_and_ends_its_connection() {
    let server = start(Limits::default()).await;
    let message = open_session(2);
    let length = message.len();
    let (hidden, chunks) = (post(&open_session(3), ""), in_chunks(&message, 1000, ""));
    let chunks = &chunks[chunks.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4..];
    for (headers, body) in [
        (format!("Content-Length: {length}\r\nContent-Length: {length}\r\n"), &message[..]),
        (format!("Content-Length: {length}\r\ncontent-length: {length}\r\n"), &message),
        (format!("Content-Length: {length}\r\nContent-Length: 0\r\n"), &message),
        (format!("Content-Length: 0\r\nX: y\r\nContent-Length: {length}\r\n"), &message),
        (format!("Content-Length: {length}, {length}\r\n"), &message),
        (format!("Content-Length: {}\r\nTransfer-Encoding: chunked\r\n", chunks.len()), chunks),
        ("Transfer-Encoding: chunked\r\nContent-Length: 4\r\n".to_owned(), chunks),
        ("TRANSFER-ENCODING:chunked\r\nX: y\r\ncontent-LENGTH:0\r\n".to_owned(), chunks),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n".to_owned(), chunks),
        ("Transfer-Encoding: gzip, chunked\r\n".to_owned(), chunks),
        ("Transfer-Encoding: chunked, identity\r\n".to_owned(), chunks),
        ("Transfer-Encoding : chunked\r\n".to_owned(), chunks),
        (format!("Content-Length: +{length}\r\n"), &message),
        (format!("Content-Length: {length}\r\n Content-Length: 0\r\n"), &message),
    ] {
        let ambiguous = [format!("POST / HTTP/1.1\r\n{BASIC}{headers}\r\n").as_bytes(), body, &hidden].concat();
        for before in [&[][..], &post(&open_session(1), ""), &in_chunks(&open_session(1), 7, "X: y\r\n")] {
            for part in [1, 13, usize::MAX] {
                let mut read = send(&server, [before, &ambiguous].concat(), part).await;
                if !before.is_empty() {
                    let (_, reply) = response(&mut read).await;
                    assert_eq!(hs2::Message::new(reply).unwrap().seqid(), 1, "{headers:?}");
                }
                let mut rest = Vec::new();
                let _ = timeout(DEADLINE, read.read_to_end(&mut rest)).await.expect("it is closed in time");
                let rest = String::from_utf8_lossy(&rest);
                assert!(rest.starts_with("HTTP/1.1 400 ") && rest.contains("Connection: close"), "{headers:?}: {rest}");
                assert_eq!(rest.matches("HTTP/1.1").count(), 1, "{headers:?}: {rest}");
            }
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn malformed_chunks_are_rejected_and_end_their_connection() {
    let server = start(Limits::default()).await;
    let hidden = post(&open_session(3), "");
    for chunks in [
        "+5\r\nabcde\r\n0\r\n\r\n",
        "0x5\r\nabcde\r\n0\r\n\r\n",
        "-1\r\nabcde\r\n0\r\n\r\n",
        " 5\r\nabcde\r\n0\r\n\r\n",
        "5\nabcde\n0\n\n",
        "5\r\nabcde0\r\n\r\n",
        "5\r\nabcdefg\r\n0\r\n\r\n",
        "10000000000000005\r\nabcde\r\n0\r\n\r\n",
        "5;a\nb\r\nabcde\r\n0\r\n\r\n",
        "\r\n0\r\n\r\n",
    ] {
        let head = format!("POST / HTTP/1.1\r\n{BASIC}Transfer-Encoding: chunked\r\n\r\n{chunks}");
        for part in [1, usize::MAX] {
            let mut read = send(&server, [head.as_bytes(), &hidden].concat(), part).await;
            let mut answer = Vec::new();
            let _ = timeout(DEADLINE, read.read_to_end(&mut answer)).await.expect("it is closed in time");
            let answer = String::from_utf8_lossy(&answer);
            assert!(answer.starts_with("HTTP/1.1 400 "), "{chunks:?}: {answer}");
            assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{chunks:?}: {answer}");
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn requests_by_length_and_in_chunks_follow_each_other() {
    let server = start(Limits::default()).await;
    for part in [1, 7, 1000, usize::MAX] {
        let requests = (0..20).flat_map(|seqid| match seqid % 4 {
            0 => post(&open_session(seqid), ""),
            1 => in_chunks(&open_session(seqid), 1, ""),
            2 => in_chunks(&open_session(seqid), 16, "Content-Length: 3\r\nX: y\r\n"),
            // Empty lines before a request are skipped.
            _ => [b"\r\n\r\n", &post(&open_session(seqid), "")[..]].concat(),
        });
        let mut read = send(&server, requests.collect(), part).await;
        for seqid in 0..20 {
            let (head, reply) = response(&mut read).await;
            assert!(head.starts_with("HTTP/1.1 200 ") && !head.contains("Connection: close"), "{head}");
            assert_eq!(hs2::Message::new(reply).unwrap().seqid(), seqid);
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn a_head_has_at_most_16_kib_and_64_headers() {
    let server = start(Limits::default()).await;
    let probe = |headers: String| format!("GET /livez HTTP/1.1\r\n{headers}\r\n");
    let of_bytes = |bytes: usize| probe(format!("X: {}\r\n", "x".repeat(bytes - probe("X: \r\n".to_owned()).len())));
    let of_headers = |count: usize| probe("X: y\r\n".repeat(count));
    let without_end = |bytes: usize| of_bytes(bytes).trim_end().to_owned() + "xxxx";
    assert_eq!(of_bytes(1000).len(), 1000);
    for part in [1000, usize::MAX] {
        for (request, expected) in [
            (of_bytes(16 * 1024), "200"),
            (of_bytes(16 * 1024 + 1), "431"),
            (of_bytes(1 << 20), "431"),
            (without_end(16 * 1024), "431"),
            (of_headers(64), "200"),
            (of_headers(65), "431"),
            (of_headers(200), "431"),
        ] {
            let bytes = request.len();
            let mut read = send(&server, request.into_bytes(), part).await;
            let (head, _) = response(&mut read).await;
            assert_eq!(head.split(' ').nth(1).unwrap(), expected, "{bytes} bytes in parts of {part}");
        }
    }
    server.stop().await;
}
