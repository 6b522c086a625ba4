//! A running engine, as far as reclaim needs to know it.

use std::sync::Arc;

use model::name::TenantName;

use model::fit::NodeAmount;

/// An engine that runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningEngine {
    /// The id of its reservation.
    pub id: Arc<str>,
    /// Whether it has no session and serves no call, so that it may agree to retire.
    pub is_idle: bool,
    /// In milliseconds since 1970.
    pub started_at_ms: i64,
    /// Whether it is to end already.
    pub is_draining: bool,
    /// The tenant that it was reclaimed for, if it was.
    pub reclaimed_for: Option<TenantName>,
    /// What its pods request of each node, as far as that is known.
    pub nodes: Vec<(String, NodeAmount)>,
}
