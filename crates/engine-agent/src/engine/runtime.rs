//! The engine beside the agent: how it is started and what is known of its end.
//!
//! One implementation per place where an engine runs, handed in by the program, because an engine in the agent's own
//! process, one that is a child process and one in another container have nothing else in common.

use async_trait::async_trait;

use super::settings::Key;

/// Where an engine answers `HiveServer2`, and what it wants to see.
#[derive(Debug, Clone)]
pub struct Backend {
    /// `host:port` on loopback.
    pub address: String,
    /// The password of every connection; the user is the one of the session.
    pub key: Key,
}

/// Why an engine did not start.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct RuntimeError(pub String);

/// One engine.
#[async_trait]
pub trait EngineRuntime: Send + Sync {
    /// Starts it, once, or waits until somebody else has. It need not answer yet.
    async fn start(&self) -> Result<Backend, RuntimeError>;
    /// What its start waits for, if that is known; for the error of a start that took too long.
    fn waits_for(&self) -> Option<String> {
        None
    }
    /// Why it can't answer now although it runs, if that is known: its process is stopped. Asked twice a second.
    fn stopped(&self) -> Option<String> {
        None
    }
    /// Waits until it ended by itself, and says why. Pends while it runs or was stopped. Cancel safe.
    async fn ended(&self) -> String;
    /// Ends it. Harmless when it runs no longer, or when its start failed. Who waits for it has a deadline.
    async fn stop(&self);
}
