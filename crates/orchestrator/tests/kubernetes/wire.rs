//! The client over a connection: what kube would do by itself must not happen, and a header must arrive.

use model::clock::ManualClock;
use model::labels::LabelMap;
use orchestrator::kubernetes::{Kubernetes, client_of};
use orchestrator::{Error, Orchestrator as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket};

use super::place::{config, secret};

/// Takes any number of connections, answers each request the same, and counts nothing.
async fn server(answer: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n") {
                    match connection.read_u8().await {
                        Ok(byte) => request.push(byte),
                        Err(_) => return,
                    }
                }
                drop(connection.write_all(answer.as_bytes()).await);
            });
        }
    });
    address
}

async fn listed_from(url: &str) -> Error {
    let client = client_of(kube::Config::new(url.parse().unwrap())).unwrap();
    let kubernetes = Kubernetes::open(client, config(), secret(), ManualClock::at(0)).unwrap();
    kubernetes.list(&LabelMap::new()).await.unwrap_err()
}

#[tokio::test]
async fn a_pause_that_stands_in_a_header_is_told() {
    let busy = "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 7\r\nContent-Length: 4\r\nConnection: close\r\n\r\nbusy";
    let error = listed_from(&server(busy).await).await;
    assert!(error.is_retryable() && error.to_string().contains("asks to wait 7 s"), "{error}");
}

#[tokio::test]
async fn a_server_that_fails_is_not_asked_again_by_the_client_itself() {
    // With its retries on, kube would wait for seconds before it told of this.
    let broken = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\nConnection: close\r\n\r\ndown";
    let error = listed_from(&server(broken).await).await;
    assert!(error.is_retryable() && error.to_string().contains("503"), "{error}");
}

#[tokio::test]
async fn a_server_that_is_away_is_transient_and_the_cause_is_named() {
    // Bound, so that nobody else takes the port, and not listening.
    let held = TcpSocket::new_v4().unwrap();
    held.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let error = listed_from(&format!("http://{}", held.local_addr().unwrap())).await;
    assert!(error.is_retryable() && error.to_string().contains("refused"), "{error}");
}

#[tokio::test]
async fn a_client_for_tls_can_be_made() {
    client_of(kube::Config::new("https://127.0.0.1:1".parse().unwrap())).unwrap();
}
