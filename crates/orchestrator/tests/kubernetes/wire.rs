//! The client over a connection: it must not retry by itself, and `Retry-After` must take effect.

use model::cause::chain;
use model::clock::ManualClock;
use model::labels::LabelMap;
use orchestrator::kubernetes::{Kubernetes, client_of};
use orchestrator::{Error, Orchestrator as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket};

use super::support::{config, pod_key};

/// Accepts any number of connections and sends the same reply to each request.
async fn server(reply: &'static str) -> String {
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
                drop(connection.write_all(reply.as_bytes()).await);
            });
        }
    });
    address
}

async fn listed_from(url: &str) -> Error {
    let client = client_of(kube::Config::new(url.parse().unwrap())).unwrap();
    let kubernetes = Kubernetes::open(client, config(), pod_key("eh"), ManualClock::at(0)).unwrap();
    kubernetes.list(&LabelMap::new()).await.unwrap_err()
}

#[tokio::test]
async fn the_header_retry_after_is_obeyed() {
    let overloaded =
        "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 7\r\nContent-Length: 4\r\nConnection: close\r\n\r\nbusy";
    let error = listed_from(&server(overloaded).await).await;
    assert!(error.is_retryable() && error.to_string().contains("asks to retry after 7 s"), "{error}");
}

#[tokio::test]
async fn the_client_does_not_retry_by_itself() {
    // With its own retries, kube would return this error only after seconds.
    let broken = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\nConnection: close\r\n\r\ndown";
    let error = listed_from(&server(broken).await).await;
    assert!(error.is_retryable() && error.to_string().contains("503"), "{error}");
}

#[tokio::test]
async fn an_unreachable_server_is_transient_and_the_cause_is_named() {
    // Bound, so that no other process takes the port, but not listening.
    let held = TcpSocket::new_v4().unwrap();
    held.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let error = listed_from(&format!("http://{}", held.local_addr().unwrap())).await;
    assert!(error.is_retryable() && chain(&error).to_string().contains("refused"), "{error:?}");
}

#[tokio::test]
async fn a_client_for_tls_can_be_built() {
    client_of(kube::Config::new("https://127.0.0.1:1".parse().unwrap())).unwrap();
}
