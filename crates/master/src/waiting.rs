//! What a master waits for as a whole: said at once, loudly when it lasts, again once a minute with a count, and when it
//! is over.

use std::time::Duration;

use model::trouble::SAID_EVERY;

/// A wait of a master, if it waits. Only what is told depends on it.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    since: Option<Duration>,
    said: Duration,
    reasons: Vec<String>,
    warned: bool,
    times: u64,
}

/// How long a master may wait before that is worth a warning: longer than an installation takes to start.
const WARN_AFTER: Duration = Duration::from_secs(15);
/// Reasons that are told as soon as they are new; they may take turns.
const MAX_REASONS: usize = 8;

impl Waiting {
    /// It waits, now. Answers whether that was said.
    pub fn waits(&mut self, now: Duration, what: &str) -> bool {
        let lasts = now.saturating_sub(*self.since.get_or_insert(now));
        let (seconds, loud) = (lasts.as_secs(), lasts >= WARN_AFTER);
        self.times += 1;
        let times = self.times;
        let new = self.reasons.len() < MAX_REASONS && self.reasons.iter().all(|it| it != what);
        let again = self.warned && now.saturating_sub(self.said) >= SAID_EVERY;
        if new {
            self.reasons.push(what.to_owned());
        }
        if loud && (again || !self.warned) {
            self.warned = true;
            tracing::warn!(waits_for = what, seconds, times, "the master waits for long");
        } else if new {
            tracing::info!(waits_for = what, seconds, "the master waits");
        } else {
            return false;
        }
        self.said = now;
        true
    }

    /// It waits no longer.
    pub fn over(&mut self, now: Duration) {
        if let Some(since) = self.since {
            let seconds = now.saturating_sub(since).as_secs();
            tracing::info!(seconds, times = self.times, "the master waits no longer");
        }
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_secs(2);

    #[test]
    fn a_master_that_waits_says_so_at_once_loudly_after_a_while_and_then_once_a_minute() {
        let mut waiting = Waiting::default();
        // Two reasons that take turns.
        let reason = |tick: u32| if tick.is_multiple_of(2) { "no agent" } else { "no database" };
        let said: Vec<u32> = (0..80).filter(|tick| waiting.waits(TICK * *tick, reason(*tick))).collect();
        assert_eq!(said, [0, 1, 8, 38, 68]);
        waiting.over(TICK * 80);
        assert!(waiting.waits(TICK * 81, "no agent"));
        // And reasons that are never the same.
        let mut waiting = Waiting::default();
        let said = (0..1_000).filter(|at| waiting.waits(Duration::from_millis(*at), &format!("port {at}"))).count();
        assert_eq!(said, MAX_REASONS);
    }
}
