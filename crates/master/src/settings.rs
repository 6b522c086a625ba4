//! The settings of masters.

use std::time::Duration;

use model::configuration::Defaults;
use planner::Limits;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use crate::ctx::Failure;

/// The settings of a master. All candidates of an installation must have the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Whether this process stands for election.
    pub candidate: bool,
    /// The installation's name: label `enginehouse.io/cluster`.
    pub cluster: String,
    /// Values for what the catalog does not set.
    pub defaults: Defaults,
    pub limits: Limits,
    /// The interval of ticks without a wake-up, in milliseconds.
    pub tick_ms: u64,
    /// How long an alteration may be in doubt while its agent is registered, in milliseconds.
    pub alter_grace_ms: u64,
    /// How often engine agents are polled for their load, in milliseconds.
    pub status_poll_ms: u64,
    /// How long an engine agent may take to answer, in milliseconds.
    pub status_deadline_ms: u64,
    /// How long one effect or one read may take, in milliseconds.
    pub effect_deadline_ms: u64,
    /// The concurrent calls of one stage to the orchestrator. Other effects are short, and more run at once.
    pub parallelism: usize,
    /// The most rows of one publication; more are published in parts.
    pub report_rows: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            candidate: true,
            cluster: "enginehouse".to_owned(),
            defaults: Defaults::default(),
            limits: Limits::default(),
            tick_ms: 2_000,
            alter_grace_ms: 30_000,
            status_poll_ms: 5_000,
            status_deadline_ms: 1_000,
            effect_deadline_ms: 10_000,
            parallelism: 8,
            report_rows: 1_000,
        }
    }
}

impl Settings {
    pub(crate) fn tick(&self) -> Duration {
        Duration::from_millis(self.tick_ms.max(1))
    }

    pub(crate) fn alter_grace(&self) -> Duration {
        Duration::from_millis(self.alter_grace_ms)
    }

    pub(crate) fn effect_deadline(&self) -> Duration {
        Duration::from_millis(self.effect_deadline_ms.max(1))
    }

    pub(crate) fn session_timeout(&self) -> Duration {
        Duration::from_millis(self.limits.session_timeout_ms)
    }
}

/// Ends a call at its deadline: its outcome is unknown.
pub(crate) async fn bounded<T>(limit: Duration, call: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let late = |_| Err(Failure::Unknown(format!("no answer within {} s", limit.as_secs_f32())));
    timeout(limit, call).await.unwrap_or_else(late)
}
