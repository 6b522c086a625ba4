//! A machine that engines run on, and how it fails. Plain values; what happens to machines is in `machines`.

use std::time::Duration;

/// How many machines there are.
pub const MACHINES: usize = 5;
/// A machine.
#[derive(Debug)]
pub struct Machine {
    pub name: String,
    /// As the orchestrator reports it.
    pub is_ready: bool,
    /// Since when it is reported like this.
    pub since: Duration,
    /// Until then nothing on it is reached.
    pub down_until: Duration,
}

/// How a machine fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failing {
    /// When it is reported as not ready.
    pub reported_after: Duration,
    pub lasted: Duration,
    pub end: FailureEnd,
}

/// What is there when a machine returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureEnd {
    /// It started again, and its engines have ended.
    Restarted,
    /// It was suspended: its engines go on, without their sessions.
    Resumed,
    /// Only the masters' side was cut off: its engines have served their sessions all the time.
    Reconnected,
}

/// The machines of a run.
pub fn machines() -> Vec<Machine> {
    let machine = |number| Machine {
        name: format!("n-{number}"),
        is_ready: true,
        since: Duration::ZERO,
        down_until: Duration::ZERO,
    };
    (1..=MACHINES).map(machine).collect()
}
