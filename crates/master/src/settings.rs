//! The settings of masters.

use std::time::Duration;

use model::configuration::Defaults;
use planner::Limits;

/// The settings of a master. All candidates of an installation must have the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Whether this process stands for election.
    pub candidate: bool,
    /// The installation's name: label `enginehouse.io/cluster`.
    pub cluster: String,
    /// Values for what the catalog does not set.
    pub defaults: Defaults,
    pub limits: Limits,
    /// The interval of ticks without a wake-up.
    pub tick: Duration,
    /// How long an alteration may be in doubt while its agent is registered.
    pub alter_grace: Duration,
    /// How often the ledger is audited: what its scopes hold is computed again.
    pub audit: Duration,
    /// How often engine agents are polled for their load.
    pub status_poll: Duration,
    /// How long an engine agent may take to answer.
    pub status_deadline: Duration,
    /// How long one effect or one read may take.
    pub effect_deadline: Duration,
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
            tick: Duration::from_secs(2),
            alter_grace: Duration::from_secs(30),
            audit: Duration::from_mins(1),
            status_poll: Duration::from_secs(5),
            status_deadline: Duration::from_secs(1),
            effect_deadline: Duration::from_secs(10),
            parallelism: 8,
            report_rows: 1_000,
        }
    }
}
