//! Spark in another container of the pod: neither started nor ended by its agent, which knows of it what a client can know.
//!
//! That it is there is a port that accepts connections; that it is gone, a port that refuses them after it accepted one.
//! A connection of its own is held open for that, because the kernel closes it when Spark dies. A Spark that is silent is
//! not taken for gone: it may be collecting garbage. What became of its container is told by who runs the pod.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use async_trait::async_trait;
use engine_agent::engine::{Backend, EngineRuntime, RuntimeError};
use hs2::{Auth, Client, ClientOptions};
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tracing::{debug, info};

use crate::spark;

/// Whose connection it is that is held open.
const USER: &str = "enginehouse";
/// Between two tries to connect.
const PAUSE: Duration = Duration::from_millis(200);
/// One try.
const CONNECT_DEADLINE: Duration = Duration::from_secs(10);

/// Spark beside its agent.
pub struct Sidecar {
    address: SocketAddr,
    /// Why the last try to connect failed, while nobody listens yet.
    refused: Mutex<Option<String>>,
}

/// What a try to connect says.
enum Port {
    Accepts,
    /// Nobody listens.
    Refuses(String),
    /// Nothing that would tell.
    Silent(String),
}

impl Sidecar {
    pub fn new(address: SocketAddr) -> Self {
        Self { address, refused: Mutex::default() }
    }

    async fn look(&self) -> Port {
        match tokio::time::timeout(CONNECT_DEADLINE, TcpStream::connect(self.address)).await {
            Ok(Ok(_)) => Port::Accepts,
            Ok(Err(error)) if error.kind() == ErrorKind::ConnectionRefused => Port::Refuses(error.to_string()),
            Ok(Err(error)) => Port::Silent(error.to_string()),
            Err(_) => Port::Silent(format!("no answer within {} s", CONNECT_DEADLINE.as_secs())),
        }
    }

    /// Returns when a connection that was open has been closed, or could not be made.
    async fn hold_a_connection(&self) {
        let backend = spark::backend(self.address);
        let mut options = ClientOptions::new(backend.address, Auth::user(USER, backend.key.0));
        options.connect_deadline = CONNECT_DEADLINE;
        match Client::connect(&options).await {
            Ok(client) => client.closed().await,
            Err(error) => debug!(%error, "Spark does not take the connection that is to tell of its end"),
        }
    }
}

#[async_trait]
impl EngineRuntime for Sidecar {
    /// Waits until it listens. The caller has the deadline.
    async fn start(&self) -> Result<Backend, RuntimeError> {
        info!(address = %self.address, "waits for Spark's container to listen");
        loop {
            match self.look().await {
                Port::Accepts => return Ok(spark::backend(self.address)),
                Port::Refuses(why) | Port::Silent(why) => {
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

    async fn ended(&self) -> String {
        loop {
            self.hold_a_connection().await;
            match self.look().await {
                Port::Refuses(why) => return format!("Spark accepts no connections any longer: {why}"),
                Port::Silent(error) => debug!(error, "Spark does not answer"),
                Port::Accepts => {}
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Its container is ended with the pod.
    async fn stop(&self) {}
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use std::sync::Arc;

    use tokio::net::TcpListener;

    use super::super::port::Reserved;
    use super::*;

    const DEADLINE: Duration = Duration::from_mins(1);

    async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
        tokio::time::timeout(DEADLINE, future).await.unwrap_or_else(|_| panic!("not in time: {what}"))
    }

    #[tokio::test]
    async fn a_start_waits_until_somebody_listens_and_says_what_it_waits_for() {
        let port = Reserved::any().unwrap();
        let sidecar = Arc::new(Sidecar::new(port.address()));
        let starting = tokio::spawn({
            let sidecar = Arc::clone(&sidecar);
            async move { sidecar.start().await }
        });
        let told = async {
            loop {
                match sidecar.waits_for() {
                    Some(why) => return why,
                    None => tokio::task::yield_now().await,
                }
            }
        };
        let why = within("it says what it waits for", told).await;
        assert!(why.contains(&port.address().to_string()) && why.contains("does not listen"), "{why}");
        assert!(!starting.is_finished());
        let _listener = TcpListener::bind(sidecar.address).await.unwrap();
        let backend = within("it has started", starting).await.unwrap().unwrap();
        assert_eq!(backend.address, sidecar.address.to_string());
    }

    #[tokio::test]
    async fn a_port_that_refuses_after_it_accepted_is_the_end_and_a_connection_that_is_cut_is_not() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let sidecar = Arc::new(Sidecar::new(listener.local_addr().unwrap()));
        within("it has started", sidecar.start()).await.unwrap();
        let ended = tokio::spawn({
            let sidecar = Arc::clone(&sidecar);
            async move { sidecar.ended().await }
        });
        // Each connection is cut: those that look, and those that were to be held.
        for _ in 0..6 {
            drop(within("it connects again", listener.accept()).await.unwrap());
        }
        assert!(!ended.is_finished());
        drop(listener);
        let reason = within("the end is noticed", ended).await.unwrap();
        assert!(reason.contains("accepts no connections any longer"), "{reason}");
    }
}
