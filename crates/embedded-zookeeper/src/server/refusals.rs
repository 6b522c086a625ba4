//! How often the log tells of refusals that go on: once when they begin, at most once a minute with their number, and once
//! when they are over. Clients try again many times a second, and would fill the log.

use std::time::Duration;

use tokio::time::Instant;

/// How long nothing more is said of refusals that go on.
const SAID_EVERY: Duration = Duration::from_mins(1);

/// Refusals for one reason.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    times: u64,
    said_at: Option<Instant>,
}

impl Refusals {
    /// One more, now: how many there were since they began, if that is to be said.
    pub(crate) fn again(&mut self, now: Instant) -> Option<u64> {
        self.times += 1;
        if self.said_at.is_some_and(|at| now.saturating_duration_since(at) < SAID_EVERY) {
            return None;
        }
        self.said_at = Some(now);
        Some(self.times)
    }

    /// None this time: how many there were, if they had begun.
    pub(crate) fn over(&mut self) -> Option<u64> {
        let was = std::mem::take(self);
        (was.times > 0).then_some(was.times)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_told_when_they_begin_once_a_minute_and_when_they_are_over() {
        let (mut refusals, begun) = (Refusals::default(), Instant::now());
        assert_eq!(refusals.over(), None);
        let told: Vec<_> =
            (0..150).filter_map(|at| Some((at, refusals.again(begun + Duration::from_secs(at))?))).collect();
        assert_eq!(told, [(0, 1), (60, 61), (120, 121)]);
        assert_eq!((refusals.over(), refusals.over()), (Some(150), None));
    }
}
