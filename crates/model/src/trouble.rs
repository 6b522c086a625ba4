//! How often the log tells of a trouble that lasts: once when it begins, at most once a minute while it goes on, with
//! how often it was met by then, and once when it is over.
//!
//! What repeats every second for as long as a server is away hides everything else in a log, and fills disks. These
//! are values: whoever meets the trouble keeps one, brings the time, and writes the line. Invariant: the end is told of
//! exactly those troubles whose beginning was told. A stale one, of something that is gone, costs a place and no line.

use std::collections::BTreeMap;
use std::time::Duration;

/// How long nothing more is said of a trouble that goes on.
pub const SAID_EVERY: Duration = Duration::from_mins(1);
/// Troubles that are kept apart at most: with one more, the one that was told longest ago is forgotten.
pub const TROUBLES_MAX: usize = 1_000;

/// One trouble, and when it was told last.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trouble {
    times: u64,
    said_at: Option<Duration>,
}

impl Trouble {
    /// It was met, now. How often since it began, if that is to be told; `None` while enough was said.
    pub fn again(&mut self, now: Duration) -> Option<u64> {
        self.times = self.times.saturating_add(1);
        if self.said_at.is_some_and(|at| now.saturating_sub(at) < SAID_EVERY) {
            return None;
        }
        self.said_at = Some(now);
        Some(self.times)
    }

    /// It was not met any more. How often it was, if it had begun.
    pub fn over(&mut self) -> Option<u64> {
        let was = std::mem::take(self);
        (was.times > 0).then_some(was.times)
    }
}

/// Troubles of many things, each told for itself.
#[derive(Debug, Clone)]
pub struct Troubles<K>(BTreeMap<K, Trouble>);

impl<K> Default for Troubles<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord + Clone> Troubles<K> {
    /// As [`Trouble::again`], of this thing's trouble.
    pub fn again(&mut self, of: K, now: Duration) -> Option<u64> {
        if self.0.len() >= TROUBLES_MAX && !self.0.contains_key(&of) {
            let oldest = self.0.iter().min_by_key(|(_, trouble)| trouble.said_at).map(|(of, _)| of.clone());
            oldest.and_then(|of| self.0.remove(&of));
        }
        self.0.entry(of).or_default().again(now)
    }

    /// As [`Trouble::over`], of this thing's trouble.
    pub fn over(&mut self, of: &K) -> Option<u64> {
        self.0.remove(of).and_then(|mut trouble| trouble.over())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_trouble_is_told_at_its_beginning_once_a_minute_and_at_its_end() {
        let (mut trouble, begun) = (Trouble::default(), Duration::from_hours(1));
        assert_eq!(trouble.over(), None, "nothing to end");
        let told: Vec<_> = (0..150).filter_map(|at| Some((at, trouble.again(begun + SECOND * at)?))).collect();
        assert_eq!(told, [(0, 1), (60, 61), (120, 121)]);
        assert_eq!(trouble.over(), Some(150));
        assert_eq!(trouble.over(), None, "it is over once");
        assert_eq!(trouble.again(begun + SECOND * 151), Some(1), "another one begins");
    }

    #[test]
    fn troubles_of_many_things_are_told_each_for_itself_and_are_limited() {
        let mut troubles = Troubles::default();
        assert_eq!(troubles.again("a", SECOND), Some(1));
        assert_eq!(troubles.again("a", SECOND * 2), None);
        assert_eq!(troubles.again("b", SECOND * 2), Some(1));
        assert_eq!((troubles.over(&"a"), troubles.over(&"a")), (Some(2), None));
        let mut many = Troubles::default();
        for of in 0..TROUBLES_MAX + 10 {
            assert_eq!(many.again(of, SECOND * u32::try_from(of).unwrap_or(u32::MAX)), Some(1));
        }
        assert_eq!(many.0.len(), TROUBLES_MAX);
        assert_eq!((many.over(&9), many.over(&10)), (None, Some(1)), "the oldest were forgotten");
    }
}
