//! The state that all connections of an engine agent share.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::drain::Drain;
use super::membership::RegisteredFlag;
use super::sessions::Sessions;
use super::settings::Settings;
use super::silence::Silence;

pub(super) struct AgentContext {
    pub(super) settings: Arc<Settings>,
    pub(super) sessions: Arc<Sessions>,
    pub(super) drain: Drain,
    pub(super) registered: RegisteredFlag,
    pub(super) silence: Silence,
    /// Cancelled when running calls are to be cut: the grace is over.
    pub(super) cut: CancellationToken,
}
