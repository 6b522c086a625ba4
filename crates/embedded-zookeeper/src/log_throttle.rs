//! A log throttle for conditions that last: one line when the condition begins, at most one a minute with its count,
//! and one when it ends. Clients retry many times a second and would fill the log. The caller passes the time of
//! [`Now::mono`](crate::clock::Now::mono).

use std::time::Duration;

/// The least time between two lines about one condition.
const LOG_INTERVAL: Duration = Duration::from_mins(1);

/// The state of one lasting condition.
#[derive(Debug, Default)]
pub(crate) struct LogThrottle {
    times: u64,
    logged_at: Option<Duration>,
}

impl LogThrottle {
    /// Counts one occurrence. Returns the count since the condition began if it is to be logged.
    pub(crate) fn hit(&mut self, now: Duration) -> Option<u64> {
        self.times += 1;
        if self.logged_at.is_some_and(|at| now.saturating_sub(at) < LOG_INTERVAL) {
            return None;
        }
        self.logged_at = Some(now);
        Some(self.times)
    }

    /// Ends the condition. Returns how often it occurred, if it had begun.
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
        let (mut throttle, begun) = (LogThrottle::default(), Duration::from_hours(1));
        assert_eq!(throttle.clear(), None);
        let logged: Vec<_> =
            (0..150).filter_map(|at| Some((at, throttle.hit(begun + Duration::from_secs(at))?))).collect();
        assert_eq!(logged, [(0, 1), (60, 61), (120, 121)]);
        assert_eq!((throttle.clear(), throttle.clear()), (Some(150), None));
    }
}
