//! The engine runtime: starts, observes and stops the engine of an agent.
//!
//! The program supplies the implementation: an engine can run in the agent's own process, as a child process, or in
//! another container.

use async_trait::async_trait;
use model::cause::Cause;

use super::settings::Key;

/// The `HiveServer2` endpoint of an engine, with its credentials.
#[derive(Debug, Clone)]
pub struct Backend {
    /// `host:port` on loopback.
    pub address: String,
    /// The password of every connection; the user name is that of the session.
    pub key: Key,
}

#[async_trait]
pub trait EngineRuntime: Send + Sync {
    /// Starts the engine once, or waits until it was started elsewhere. It need not respond yet. The error is why it did
    /// not start.
    async fn start(&self) -> Result<Backend, Cause>;
    /// What the start waits for, if known; for the error of a start that timed out.
    fn waits_for(&self) -> Option<String> {
        None
    }
    /// Why the engine cannot respond although it runs, if known: its process is stopped. Called twice a second.
    fn stopped(&self) -> Option<String> {
        None
    }
    /// Waits until the engine ends by itself; returns the reason, a fragment of a sentence. Pending while it runs or was stopped.
    /// Cancel safe.
    async fn ended(&self) -> Cause;
    /// Stops the engine. Has no effect when it does not run or its start failed. The caller has a deadline.
    async fn stop(&self);
}
