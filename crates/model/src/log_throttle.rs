//! Log throttles: how often a condition that lasts is logged.
//!
//! One line a second while a server is unavailable would hide everything else in a log and fill disks. A throttle is a
//! value: the caller keeps it, passes the time and writes the line. Invariant: a recovery is logged if and only if the
//! failure was. A stale entry costs one slot in the map and no log line.

use std::collections::BTreeMap;
use std::time::Duration;

/// The minimum time between two lines about a condition that lasts.
pub const LOG_INTERVAL: Duration = Duration::from_mins(1);
/// The most keys of a [`KeyedLogThrottle`]: one more evicts the key that was logged longest ago.
pub const MAX_KEYS: usize = 1_000;
/// How long a wait may last before it is logged as a warning: longer than an installation takes to start.
const WARN_AFTER: Duration = Duration::from_secs(15);
/// The most reasons of one wait that are logged as soon as they are new; reasons may alternate.
const MAX_REASONS: usize = 8;

/// A throttle of one condition: a line when it begins, at most one each [`LOG_INTERVAL`] while it lasts, and one when
/// it is over.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogThrottle {
    hits: u64,
    logged_at: Option<Duration>,
}

impl LogThrottle {
    /// The condition occurred at `now`. Returns how often since it began, if a line is due.
    pub fn hit(&mut self, now: Duration) -> Option<u64> {
        self.hits = self.hits.saturating_add(1);
        if self.logged_at.is_some_and(|at| now.saturating_sub(at) < LOG_INTERVAL) {
            return None;
        }
        self.logged_at = Some(now);
        Some(self.hits)
    }

    /// The condition is over. Returns how often it occurred, if it had begun.
    pub fn clear(&mut self) -> Option<u64> {
        let ended = std::mem::take(self);
        (ended.hits > 0).then_some(ended.hits)
    }
}

/// A [`LogThrottle`] for each key.
#[derive(Debug, Clone)]
pub struct KeyedLogThrottle<K>(BTreeMap<K, LogThrottle>);

impl<K> Default for KeyedLogThrottle<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord + Clone> KeyedLogThrottle<K> {
    /// As [`LogThrottle::hit`], for this key.
    pub fn hit(&mut self, key: K, now: Duration) -> Option<u64> {
        if self.0.len() >= MAX_KEYS && !self.0.contains_key(&key) {
            let oldest = self.0.iter().min_by_key(|(_, throttle)| throttle.logged_at).map(|(key, _)| key.clone());
            oldest.and_then(|key| self.0.remove(&key));
        }
        self.0.entry(key).or_default().hit(now)
    }

    /// As [`LogThrottle::clear`], for this key.
    pub fn clear(&mut self, key: &K) -> Option<u64> {
        self.0.remove(key).and_then(|mut throttle| throttle.clear())
    }
}

/// A throttle of one wait: each new reason is due at once, a warning after 15 s, and another one each [`LOG_INTERVAL`].
#[derive(Debug, Default)]
pub struct WaitThrottle {
    since: Option<Duration>,
    logged_at: Duration,
    reasons: Vec<String>,
    warned: bool,
    hits: u64,
}

/// A line about a wait that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitLine {
    /// Whether the wait lasts long enough for a warning.
    pub is_warning: bool,
    /// How long the wait has lasted.
    pub waited: Duration,
    /// How often [`WaitThrottle::hit`] was called since the wait began.
    pub times: u64,
}

impl WaitThrottle {
    /// The wait goes on at `now` for this reason. Returns the line that is due, if any.
    pub fn hit(&mut self, now: Duration, reason: &str) -> Option<WaitLine> {
        let waited = now.saturating_sub(*self.since.get_or_insert(now));
        self.hits += 1;
        let is_new = self.reasons.len() < MAX_REASONS && self.reasons.iter().all(|known| known != reason);
        if is_new {
            self.reasons.push(reason.to_owned());
        }
        let is_repeat_due = !self.warned || now.saturating_sub(self.logged_at) >= LOG_INTERVAL;
        let is_warning = waited >= WARN_AFTER && is_repeat_due;
        if !is_warning && !is_new {
            return None;
        }
        self.warned |= is_warning;
        self.logged_at = now;
        Some(WaitLine { is_warning, waited, times: self.hits })
    }

    /// The wait is over. Returns how long it lasted, if it had begun.
    pub fn clear(&mut self, now: Duration) -> Option<WaitLine> {
        let ended = std::mem::take(self);
        let waited = now.saturating_sub(ended.since?);
        Some(WaitLine { is_warning: false, waited, times: ended.hits })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_condition_is_logged_at_its_start_each_minute_and_at_its_end() {
        let (mut throttle, begun) = (LogThrottle::default(), Duration::from_hours(1));
        assert_eq!(throttle.clear(), None, "nothing to end");
        let lines: Vec<_> = (0..150).filter_map(|at| Some((at, throttle.hit(begun + SECOND * at)?))).collect();
        assert_eq!(lines, [(0, 1), (60, 61), (120, 121)]);
        assert_eq!(throttle.clear(), Some(150));
        assert_eq!(throttle.clear(), None, "it is over once");
        assert_eq!(throttle.hit(begun + SECOND * 151), Some(1), "another one begins");
    }

    #[test]
    fn keys_are_throttled_separately_and_are_limited() {
        let mut throttle = KeyedLogThrottle::default();
        assert_eq!(throttle.hit("a", SECOND), Some(1));
        assert_eq!(throttle.hit("a", SECOND * 2), None);
        assert_eq!(throttle.hit("b", SECOND * 2), Some(1));
        assert_eq!((throttle.clear(&"a"), throttle.clear(&"a")), (Some(2), None));
        let mut many = KeyedLogThrottle::default();
        for key in 0..MAX_KEYS + 10 {
            assert_eq!(many.hit(key, SECOND * u32::try_from(key).unwrap_or(u32::MAX)), Some(1));
        }
        assert_eq!(many.0.len(), MAX_KEYS);
        assert_eq!((many.clear(&9), many.clear(&10)), (None, Some(1)), "the oldest were evicted");
    }

    #[test]
    fn a_wait_is_logged_at_once_then_warned_about_each_minute() {
        const TICK: Duration = Duration::from_secs(2);
        let mut wait = WaitThrottle::default();
        assert_eq!(wait.clear(SECOND), None, "nothing to end");
        // Two reasons that alternate.
        let reason = |tick: u32| if tick.is_multiple_of(2) { "no agent" } else { "no database" };
        let lines: Vec<(u32, bool)> =
            (0..80).filter_map(|tick| Some((tick, wait.hit(TICK * tick, reason(tick))?.is_warning))).collect();
        assert_eq!(lines, [(0, false), (1, false), (8, true), (38, true), (68, true)]);
        let end = wait.clear(TICK * 80);
        assert_eq!(end, Some(WaitLine { is_warning: false, waited: TICK * 80, times: 80 }));
        assert!(wait.hit(TICK * 81, "no agent").is_some());
        // Reasons that are always new.
        let mut wait = WaitThrottle::default();
        let lines = (0..1_000).filter_map(|at| wait.hit(Duration::from_millis(at), &format!("port {at}"))).count();
        assert_eq!(lines, MAX_REASONS);
    }
}
