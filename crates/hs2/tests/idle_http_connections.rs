//! The memory of idle connections over HTTP. A binary of its own: the resident set belongs to the process.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

mod support;

use std::sync::Arc;

use hs2::{Limits, Server};
use tests::resident_set::bytes_of_each;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use support::{Serving, echo};

const CONNECTIONS: usize = 500;
const BYTES_PER_CONNECTION: usize = 8 * 1024;
/// The longest message that each connection has carried, which must leave nothing behind.
const MESSAGE_BYTES: usize = 40_000;

#[tokio::test]
async fn an_idle_connection_over_http_owns_at_most_8_kib() {
    let server = Server::bind("127.0.0.1:0", Limits::default()).await.unwrap();
    let address = server.local_addr().unwrap();
    let stop = CancellationToken::new();
    let serving = tokio::spawn(server.serve_connections(Arc::new(Serving(echo)), stop.clone()));
    let message =
        hs2::message::encode_call("GetInfo", 1, &hs2::tcli::TStringValue { value: Some("x".repeat(MESSAGE_BYTES)) })
            .unwrap();
    let head =
        format!("POST / HTTP/1.1\r\nAuthorization: Basic YWxpY2U6eA==\r\nContent-Length: {}\r\n\r\n", message.len());
    let request = [head.as_bytes(), &message].concat();
    let idle = async || {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(&request).await.unwrap();
        let mut end = Vec::new();
        while !end.ends_with(b"\r\n\r\n") {
            end.push(stream.read_u8().await.unwrap());
        }
        stream.read_exact(&mut vec![0; message.len()]).await.unwrap();
        stream
    };
    let each = bytes_of_each(CONNECTIONS, idle).await.unwrap();
    println!("an idle connection over HTTP: {each} bytes");
    assert!(each <= BYTES_PER_CONNECTION, "{each} bytes for each idle connection");
    stop.cancel();
    serving.await.unwrap();
}
