//! The faults that are in effect.

use std::time::Duration;

use crate::alteration::AgentFault;
use crate::event::{Racing, Scripted};

/// The faults in effect.
#[derive(Debug, Default)]
pub struct Faults {
    pub slow_until: Duration,
    pub silent: u32,
    pub stubborn: u32,
    pub early_exits: u32,
    pub failing_creates: u32,
    pub lost_creates: u32,
    pub late_reports: u32,
    pub slow_reports_until: Duration,
    pub lost_reports_until: Duration,
    pub depose: Option<(u64, Option<Duration>)>,
    pub reply_lost: Option<(u64, Option<Duration>)>,
    pub away_until: Duration,
    pub wakes_lost_until: Duration,
    pub before_scaling: Option<Box<Scripted>>,
    pub before_drain: Option<Racing>,
    pub agent: Option<AgentFault>,
    pub is_frozen: bool,
    /// Until then the recorded demand may differ from the sessions that wait.
    pub stale_until: Duration,
}

impl Faults {
    pub fn take_silent(&mut self) -> bool {
        take(&mut self.silent)
    }

    pub fn take_stubborn(&mut self) -> bool {
        take(&mut self.stubborn)
    }
}

/// Takes one of them, if there is one.
pub fn take(count: &mut u32) -> bool {
    let is_left = *count > 0;
    *count = count.saturating_sub(1);
    is_left
}
