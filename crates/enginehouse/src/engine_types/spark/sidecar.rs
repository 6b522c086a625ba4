//! Spark as a sidecar: another container of the pod, which the agent neither starts nor stops.
//!
//! Spark is up when its port accepts connections, and gone when the port refuses them after having accepted one. The agent
//! holds one connection open, since the kernel closes it when Spark dies. A silent Spark is not considered gone: it may be
//! collecting garbage. The kubelet reports the state of the container.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use async_trait::async_trait;
use engine_agent::engine::{Backend, EngineRuntime};
use hs2::{Auth, Client, ClientOptions};
use model::cause::Cause;
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tracing::{debug, info};

use super::server;

/// The user of the connection that is held open.
const USER: &str = "enginehouse";
/// The pause between two connection attempts.
const PAUSE: Duration = Duration::from_millis(200);
/// The deadline of one attempt.
const CONNECT_DEADLINE: Duration = Duration::from_secs(10);

/// Spark in the second container of the pod.
pub struct Sidecar {
    address: SocketAddr,
    /// The error of the last attempt, until Spark listens.
    refused: Mutex<Option<String>>,
}

/// The result of a connection attempt.
enum PortState {
    Accepts,
    /// No process listens.
    Refuses(String),
    /// Inconclusive.
    Silent(String),
}

impl Sidecar {
    pub fn new(address: SocketAddr) -> Self {
        Self { address, refused: Mutex::default() }
    }

    async fn probe(&self) -> PortState {
        match tokio::time::timeout(CONNECT_DEADLINE, TcpStream::connect(self.address)).await {
            Ok(Ok(_)) => PortState::Accepts,
            Ok(Err(error)) if error.kind() == ErrorKind::ConnectionRefused => PortState::Refuses(error.to_string()),
            Ok(Err(error)) => PortState::Silent(error.to_string()),
            Err(_) => PortState::Silent(format!("no answer within {} s", CONNECT_DEADLINE.as_secs())),
        }
    }

    /// Returns when a connection that was open has been closed, or could not be made.
    async fn hold_a_connection(&self) {
        let backend = server::backend(self.address);
        let mut options = ClientOptions::new(backend.address, Auth::user(USER, backend.key.0));
        options.connect_deadline = CONNECT_DEADLINE;
        match Client::connect(&options).await {
            Ok(client) => client.closed().await,
            Err(error) => debug!(%error, "Spark rejected the connection that detects its end"),
        }
    }
}

#[async_trait]
impl EngineRuntime for Sidecar {
    /// Waits until Spark listens. The caller has the deadline.
    async fn start(&self) -> Result<Backend, Cause> {
        info!(address = %self.address, "waiting for Spark's container to listen");
        loop {
            match self.probe().await {
                PortState::Accepts => return Ok(server::backend(self.address)),
                PortState::Refuses(why) | PortState::Silent(why) => {
                    *self.refused.lock() = Some(why);
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    fn waits_for(&self) -> Option<String> {
        let refused = self.refused.lock().clone()?;
        Some(format!("Spark's container does not listen on {}: {refused}", self.address))
    }

    async fn ended(&self) -> Cause {
        loop {
            self.hold_a_connection().await;
            match self.probe().await {
                PortState::Refuses(why) => return format!("Spark no longer accepts connections: {why}").into(),
                PortState::Silent(error) => debug!(error, "Spark does not respond"),
                PortState::Accepts => {}
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// The container ends with the pod.
    async fn stop(&self) {}
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use std::sync::Arc;

    use tokio::net::TcpListener;

    use super::super::super::port::Reserved;
    use super::super::super::tests::within;
    use super::*;

    #[tokio::test]
    async fn a_start_waits_for_a_listener_and_reports_that() {
        let port = Reserved::any().unwrap();
        let sidecar = Arc::new(Sidecar::new(port.address()));
        let starting = tokio::spawn({
            let sidecar = Arc::clone(&sidecar);
            async move { sidecar.start().await }
        });
        let reported = async {
            loop {
                match sidecar.waits_for() {
                    Some(why) => return why,
                    None => tokio::task::yield_now().await,
                }
            }
        };
        let why = within("it reports what it waits for", reported).await;
        assert!(why.contains(&port.address().to_string()) && why.contains("does not listen"), "{why}");
        assert!(!starting.is_finished());
        let _listener = TcpListener::bind(sidecar.address).await.unwrap();
        let backend = within("it has started", starting).await.unwrap().unwrap();
        assert_eq!(backend.address, sidecar.address.to_string());
    }

    #[tokio::test]
    async fn a_refusing_port_is_the_end_and_a_closed_connection_is_not() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let sidecar = Arc::new(Sidecar::new(listener.local_addr().unwrap()));
        within("it has started", sidecar.start()).await.unwrap();
        let ended = tokio::spawn({
            let sidecar = Arc::clone(&sidecar);
            async move { sidecar.ended().await }
        });
        // Each connection is closed, probes and held ones.
        for _ in 0..6 {
            drop(within("it connects again", listener.accept()).await.unwrap());
        }
        assert!(!ended.is_finished());
        drop(listener);
        let reason = within("the end is noticed", ended).await.unwrap();
        assert!(reason.to_string().contains("no longer accepts connections"), "{reason}");
    }
}
