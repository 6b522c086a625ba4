//! What the installation's configuration says about masters.

use std::time::Duration;

use model::configuration::Defaults;
use planner::Limits;
use serde::{Deserialize, Serialize};

/// The settings of a master. All candidates of an installation must have the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Whether this process stands for election at all.
    pub candidate: bool,
    /// The installation's name: label `enginehouse.io/cluster`.
    pub cluster: String,
    /// What holds where the catalog says nothing.
    pub defaults: Defaults,
    /// The limits of plans.
    pub limits: Limits,
    /// How often it ticks when nothing wakes it, in milliseconds.
    pub tick_ms: u64,
    /// How long an alteration may be undecided while its agent lives, in milliseconds.
    pub alter_grace_ms: u64,
    /// How often engine agents are asked for their load, in milliseconds.
    pub status_poll_ms: u64,
    /// How long an engine agent may take to answer, in milliseconds.
    pub status_deadline_ms: u64,
    /// How long one effect or one reading may take, in milliseconds.
    pub effect_deadline_ms: u64,
    /// How many calls of one stage are at the orchestrator at once. Other effects, which are short, are more at once.
    pub parallelism: usize,
    /// How many engines one transaction of a report may tell of; where there are more, it is written in parts.
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
