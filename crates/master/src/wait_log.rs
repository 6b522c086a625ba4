//! The log of a master's waits: throttled lines about what keeps the whole master from acting.

use std::time::Duration;

use model::log_throttle::WaitThrottle;

/// The log of one wait, which may not have begun.
#[derive(Debug, Default)]
pub(crate) struct WaitLog(WaitThrottle);

impl WaitLog {
    /// A tick is over: it waited for this, or for nothing.
    pub fn update(&mut self, now: Duration, waits_for: Option<&str>) {
        match waits_for {
            Some(waits_for) => self.hit(now, waits_for),
            None => self.clear(now),
        }
    }

    /// The master waits for this.
    pub fn hit(&mut self, now: Duration, waits_for: &str) {
        let Some(line) = self.0.hit(now, waits_for) else { return };
        let (seconds, times) = (line.waited.as_secs(), line.times);
        if line.is_warning {
            tracing::warn!(waits_for, seconds, times, "still waiting");
        } else {
            tracing::info!(waits_for, seconds, "waiting");
        }
    }

    /// The master acts again.
    pub fn clear(&mut self, now: Duration) {
        if let Some(line) = self.0.clear(now) {
            tracing::info!(seconds = line.waited.as_secs(), times = line.times, "no longer waiting");
        }
    }
}
