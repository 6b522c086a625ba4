//! The memory for requests that are being received: a request that has waited too long for it is rejected in its own protocol.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::time::Duration;

use hs2::message::{decode_reply, encode_call};
use hs2::tcli::{TExecuteStatementReq, TExecuteStatementResp};
use hs2::{Auth, Client, ClientError, Handle, Limits, RequestMemory, Session};
use model::error::UserError;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::number_server::{Running, start};

const DEADLINE: Duration = Duration::from_secs(10);
const MIB: usize = 1 << 20;
const LONG: usize = 300 << 10;

async fn server() -> Running {
    let request_memory = RequestMemory::new(4 * MIB, MIB);
    start(Limits { request_memory, frame_bytes: MIB, stall: Duration::from_millis(300), ..Limits::default() }).await
}

/// The beginning of a request of alice that takes all of her share as long as the connection is open.
async fn slow(server: &Running) -> TcpStream {
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(b"\x01\0\0\0\x05PLAIN\x05\0\0\0\x08\0alice\0x").await.unwrap();
    stream.read_exact(&mut [0; 5]).await.unwrap();
    stream.write_all(&u32::try_from(MIB).unwrap().to_be_bytes()).await.unwrap();
    // Until the server has read so much, it has acquired the memory.
    stream.write_all(&vec![b'x'; 600 << 10]).await.unwrap();
    stream
}

/// Keeps the slow request arriving, so that it never stalls, until the other future ends.
async fn during<T>(slow: &mut TcpStream, other: impl Future<Output = T>) -> T {
    let trickle = async {
        loop {
            slow.write_all(b"x").await.unwrap();
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::select! {
        ended = tokio::time::timeout(DEADLINE, other) => ended.expect("it ends in time"),
        () = trickle => unreachable!(),
    }
}

fn refused<T>(result: Result<T, ClientError>) -> UserError {
    match result.map(drop) {
        Err(ClientError::Refused(error)) => error,
        other => panic!("{other:?}"),
    }
}

fn assert_is_about_memory(error: &UserError) {
    assert_eq!(error.sqlstate(), "54000", "{}", error.text());
    assert!(error.text().starts_with("too many bytes of requests are being received\nDetail: "), "{}", error.text());
    assert!(
        error.text().contains("has waited 1 s, because other requests of the user are arriving."),
        "{}",
        error.text()
    );
    assert!(error.text().ends_with("The limit of a proxy is proxy.request_memory_per_user."), "{}", error.text());
}

#[tokio::test]
async fn a_request_without_memory_is_rejected_and_its_session_goes_on() {
    let server = server().await;
    let mut of_alice = Session::open(server.client("alice").await, &[]).await.unwrap();
    let mut of_bob = Session::open(server.client("bob").await, &[]).await.unwrap();
    let client = Client::connect(&server.options(Auth::None)).await.unwrap();
    let mut plain = Session::open_as(client, Some(("alice", "")), &[]).await.unwrap();
    let mut slow = slow(&server).await;
    during(&mut slow, async {
        for _ in 0..2 {
            assert_is_about_memory(&refused(of_alice.execute(&"x".repeat(LONG)).await));
            // A short request does not wait.
            of_alice.execute("numbers 1").await.unwrap().close().await.unwrap();
        }
        of_bob.execute(&"x".repeat(LONG)).await.unwrap();
        // The end of a rejected message over plain Thrift is unknown, so its connection ends.
        assert_is_about_memory(&refused(plain.execute(&"x".repeat(LONG)).await));
        assert!(plain.execute("numbers 1").await.is_err());
    })
    .await;
    // With the end of the slow request there is memory again.
    drop(slow);
    of_alice.execute(&"x".repeat(LONG)).await.unwrap();
    server.stop().await;
}

#[tokio::test]
async fn over_http_the_reason_is_in_the_reply_and_the_connection_ends() {
    let server = server().await;
    let mut slow = slow(&server).await;
    let request = TExecuteStatementReq {
        session_handle: Handle::random().session(),
        statement: "x".repeat(LONG),
        conf_overlay: None,
        run_async: Some(true),
        query_timeout: None,
    };
    let message = encode_call("ExecuteStatement", 7, &request).unwrap();
    let head = "POST / HTTP/1.1\r\nAuthorization: Basic YWxpY2U6eA==\r\n";
    let by_length = [format!("{head}Content-Length: {}\r\n\r\n", message.len()).as_bytes(), &message].concat();
    let chunk = format!("{head}Transfer-Encoding: chunked\r\n\r\n{:x}\r\n", message.len());
    let by_chunks = [chunk.as_bytes(), &message, b"\r\n0\r\n\r\n"].concat();
    for request in [by_length, by_chunks] {
        let answer = during(&mut slow, async {
            let mut stream = TcpStream::connect(server.address).await.unwrap();
            stream.write_all(&request).await.unwrap();
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).await.unwrap();
            answer
        })
        .await;
        let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap() + 4;
        let head = String::from_utf8_lossy(&answer[..end]);
        assert!(head.starts_with("HTTP/1.1 200 ") && head.to_lowercase().contains("connection: close"), "{head}");
        let reply: TExecuteStatementResp = decode_reply(&answer[end..]).unwrap();
        assert_is_about_memory(&hs2::status::check(&reply.status).unwrap_err());
    }
    server.stop().await;
}
