//! The memory of idle sessions inside TLS. A binary of its own: the resident set belongs to the process.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

mod support;

use std::sync::Arc;

use hs2::{Limits, Server, TlsVersion};
use tests::certificate::Certificate;
use tests::resident_set::bytes_of_each;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_util::sync::CancellationToken;

use support::{Serving, connect_tls, connector, echo, log_in, server_tls};

const SESSIONS: usize = 500;
const BYTES_PER_SESSION: usize = 24 * 1024;
/// The longest message that each session has received, which must leave nothing behind.
const MESSAGE_BYTES: usize = 40_000;

#[tokio::test]
async fn an_idle_session_inside_tls_owns_at_most_24_kib() {
    let folder = tempfile::tempdir().unwrap();
    let files = Certificate::create(folder.path(), "server").unwrap();
    let (tls, _) = server_tls(&files, TlsVersion::Tls12, true);
    let server = Server::bind("127.0.0.1:0", Limits::default()).await.unwrap().with_tls(tls);
    let address = server.local_addr().unwrap();
    let stop = CancellationToken::new();
    let serving = tokio::spawn(server.serve_connections(Arc::new(Serving(echo)), stop.clone()));

    let connector = connector(&files.certificate, rustls::DEFAULT_VERSIONS, &[]);
    let message =
        hs2::message::encode_call("GetInfo", 1, &hs2::tcli::TStringValue { value: Some("x".repeat(MESSAGE_BYTES)) })
            .unwrap();
    let idle = async || {
        let mut stream = connect_tls(&connector, address).await.unwrap();
        log_in(&mut stream).await;
        stream.write_u32(message.len() as u32).await.unwrap();
        stream.write_all(&message).await.unwrap();
        stream.read_exact(&mut vec![0; 4 + message.len()]).await.unwrap();
        // The socket stays open; only the server's half of the session counts.
        stream.into_inner().0
    };
    let each = bytes_of_each(SESSIONS, idle).await.unwrap();
    println!("an idle session inside TLS: {each} bytes");
    assert!(each <= BYTES_PER_SESSION, "{each} bytes for each idle session");
    stop.cancel();
    serving.await.unwrap();
}
