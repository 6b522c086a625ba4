//! The log throttle of failed logins: at most 10 lines per address and minute, then a count.
//!
//! A value: the caller passes the time and writes the lines. The table is bounded; a full one ends the oldest minute early.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use crate::throttle::network;

/// The most lines about one address in a minute.
const MAX_LINES: u64 = 10;
/// How long failures are counted together.
pub(crate) const WINDOW: Duration = Duration::from_mins(1);
/// The most addresses that are counted at once.
const MAX_ADDRESSES: usize = 10_000;

/// The failures of each address within its current minute.
#[derive(Debug, Default)]
pub(crate) struct FailureLog(HashMap<IpAddr, Window>);

#[derive(Debug)]
struct Window {
    began: Duration,
    failures: u64,
}

/// Failures of a minute that has ended, and that had no line of their own.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Suppressed {
    /// Of IPv6 the network.
    pub(crate) address: IpAddr,
    pub(crate) count: u64,
}

impl FailureLog {
    /// Counts a failure. Returns whether it has a line, and the minutes that this ends.
    pub(crate) fn hit(&mut self, address: IpAddr, now: Duration) -> (bool, Vec<Suppressed>) {
        let address = network(address);
        let ended = self.0.get(&address).is_some_and(|window| window.is_over(now));
        let evicted = if ended {
            Some(address)
        } else if self.0.len() >= MAX_ADDRESSES && !self.0.contains_key(&address) {
            self.0.iter().min_by_key(|(_, window)| window.began).map(|(oldest, _)| *oldest)
        } else {
            None
        };
        let suppressed = evicted.and_then(|evicted| Some((evicted, self.0.remove(&evicted)?)));
        let window = self.0.entry(address).or_insert(Window { began: now, failures: 0 });
        window.failures += 1;
        (window.failures <= MAX_LINES, suppressed.and_then(Suppressed::of).into_iter().collect())
    }

    /// Forgets the minutes that have ended; returns the suppressed failures of each.
    pub(crate) fn ended(&mut self, now: Duration) -> Vec<Suppressed> {
        self.0.extract_if(|_, window| window.is_over(now)).filter_map(Suppressed::of).collect()
    }
}

impl Window {
    fn is_over(&self, now: Duration) -> bool {
        now.saturating_sub(self.began) >= WINDOW
    }
}

impl Suppressed {
    fn of((address, window): (IpAddr, Window)) -> Option<Self> {
        let count = window.failures.saturating_sub(MAX_LINES);
        (count > 0).then_some(Self { address, count })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    #[test]
    fn a_minute_has_ten_lines_and_then_a_count() {
        let mut log = FailureLog::default();
        let lines = (0..25).filter(|_| log.hit(ADDRESS, Duration::ZERO).0).count();
        assert_eq!(lines, 10);
        assert_eq!(log.ended(WINDOW / 2), []);
        let suppressed = Suppressed { address: ADDRESS, count: 15 };
        assert_eq!(log.hit(ADDRESS, WINDOW), (true, vec![suppressed]));
        assert_eq!(log.ended(WINDOW * 2), [], "a minute with one line has no count");
        for _ in 0..11 {
            log.hit(ADDRESS, WINDOW * 2);
        }
        assert_eq!(log.ended(WINDOW * 3), [Suppressed { address: ADDRESS, count: 1 }]);
        assert!(log.0.is_empty());
    }

    #[test]
    fn the_number_of_addresses_is_bounded() {
        let mut log = FailureLog::default();
        for _ in 0..11 {
            log.hit(ADDRESS, Duration::ZERO);
        }
        let mut suppressed = Vec::new();
        for number in 0..MAX_ADDRESSES as u32 {
            let other = IpAddr::V4(std::net::Ipv4Addr::from_bits(0x0a00_0000 + number));
            suppressed.extend(log.hit(other, Duration::from_secs(1)).1);
        }
        assert_eq!(suppressed, [Suppressed { address: ADDRESS, count: 1 }]);
        assert_eq!(log.0.len(), MAX_ADDRESSES);
    }
}
