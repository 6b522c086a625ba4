//! How often the log tells of throttle that go on: once when they begin, at most once a minute with their number, and once
//! when they are over. Clients try again many times a second, and would fill the log.

use std::time::Duration;

use tokio::time::Instant;

/// How long nothing more is said of throttle that go on.
const LOG_INTERVAL: Duration = Duration::from_mins(1);

/// The state of one lasting condition.
#[derive(Debug, Default)]
pub(crate) struct LogThrottle {
    times: u64,
    logged_at: Option<Instant>,
}

impl LogThrottle {
    /// One more, now: how many there were since they began, if that is to be said.
    pub(crate) fn hit(&mut self, now: Instant) -> Option<u64> {
        self.times += 1;
        if self.logged_at.is_some_and(|at| now.saturating_duration_since(at) < LOG_INTERVAL) {
            return None;
        }
        self.logged_at = Some(now);
        Some(self.times)
    }

    /// None this time: how many there were, if they had begun.
    pub(crate) fn clear(&mut self) -> Option<u64> {
        let was = std::mem::take(self);
        (was.times > 0).then_some(was.times)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_throttle_logs_the_first_hit_one_per_minute_and_the_end() {
        let (mut throttle, begun) = (LogThrottle::default(), Instant::now());
        assert_eq!(throttle.clear(), None);
        let logged: Vec<_> =
            (0..150).filter_map(|at| Some((at, throttle.hit(begun + Duration::from_secs(at))?))).collect();
        assert_eq!(logged, [(0, 1), (60, 61), (120, 121)]);
        assert_eq!((throttle.clear(), throttle.clear()), (Some(150), None));
    }
}
