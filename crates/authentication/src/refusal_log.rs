//! The log of refusals of target `audit`: at most 10 lines per address and minute, then a count.
//!
//! An anonymous client can cause any number of them. The table is bounded; a full one ends the oldest minute early.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use model::clock::SharedClock;
use parking_lot::Mutex;

use crate::throttle::network;

/// The most lines about one address in a minute.
const MAX_LINES: u64 = 10;
/// How long refusals are counted as one minute.
const WINDOW: Duration = Duration::from_mins(1);
/// The most addresses that are counted at once.
const MAX_ADDRESSES: usize = 10_000;

/// What was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalEvent {
    Login,
    Impersonation,
}

/// The log of the refusals of one kind.
#[derive(Debug)]
pub struct RefusalLog {
    event: RefusalEvent,
    clock: SharedClock,
    minutes: Mutex<Minutes>,
}

impl RefusalLog {
    pub fn new(event: RefusalEvent, clock: SharedClock) -> Self {
        Self { event, clock, minutes: Mutex::default() }
    }

    /// Counts a refusal; `true` if it is to have a line of its own, which the caller writes.
    pub fn has_line(&self, address: IpAddr) -> bool {
        let (has_line, ended) = self.minutes.lock().hit(address, self.clock.boottime());
        self.report(ended);
        has_line
    }

    /// Starts a task that logs the refusals without a line of their own, until the log is dropped.
    pub fn start_reporting(self: &Arc<Self>) {
        let log = Arc::downgrade(self);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(WINDOW).await;
                let Some(log) = log.upgrade() else { return };
                let ended = log.minutes.lock().ended(log.clock.boottime());
                log.report(ended);
            }
        });
    }

    fn report(&self, ended: Vec<Suppressed>) {
        for Suppressed { address, count } in ended {
            match self.event {
                RefusalEvent::Login => {
                    tracing::info!(target: "audit", event = "login_failed", %address, count, "further logins failed");
                }
                RefusalEvent::Impersonation => tracing::info!(
                    target: "audit",
                    event = "impersonation_refused",
                    %address,
                    count,
                    "further impersonations refused"
                ),
            }
        }
    }
}

/// The refusals of each address within its current minute.
#[derive(Debug, Default)]
struct Minutes(HashMap<IpAddr, Window>);

#[derive(Debug)]
struct Window {
    began: Duration,
    refusals: u64,
}

/// Refusals of a minute that has ended, and that had no line of their own.
#[derive(Debug, PartialEq, Eq)]
struct Suppressed {
    /// Of IPv6 the network.
    address: IpAddr,
    count: u64,
}

impl Minutes {
    /// Counts a refusal. Returns whether it has a line, and the minutes that this ends.
    fn hit(&mut self, address: IpAddr, now: Duration) -> (bool, Vec<Suppressed>) {
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
        let window = self.0.entry(address).or_insert(Window { began: now, refusals: 0 });
        window.refusals += 1;
        (window.refusals <= MAX_LINES, suppressed.and_then(Suppressed::of).into_iter().collect())
    }

    /// Forgets the minutes that have ended; returns the suppressed refusals of each.
    fn ended(&mut self, now: Duration) -> Vec<Suppressed> {
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
        let count = window.refusals.saturating_sub(MAX_LINES);
        (count > 0).then_some(Self { address, count })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    #[test]
    fn a_minute_has_ten_lines_and_then_a_count() {
        let mut minutes = Minutes::default();
        let lines = (0..25).filter(|_| minutes.hit(ADDRESS, Duration::ZERO).0).count();
        assert_eq!(lines, 10);
        assert_eq!(minutes.ended(WINDOW / 2), []);
        let suppressed = Suppressed { address: ADDRESS, count: 15 };
        assert_eq!(minutes.hit(ADDRESS, WINDOW), (true, vec![suppressed]));
        assert_eq!(minutes.ended(WINDOW * 2), [], "a minute with one line has no count");
        for _ in 0..11 {
            minutes.hit(ADDRESS, WINDOW * 2);
        }
        assert_eq!(minutes.ended(WINDOW * 3), [Suppressed { address: ADDRESS, count: 1 }]);
        assert!(minutes.0.is_empty());
    }

    #[test]
    fn the_number_of_addresses_is_bounded() {
        let mut minutes = Minutes::default();
        for _ in 0..11 {
            minutes.hit(ADDRESS, Duration::ZERO);
        }
        let mut suppressed = Vec::new();
        for number in 0..MAX_ADDRESSES as u32 {
            let other = IpAddr::V4(std::net::Ipv4Addr::from_bits(0x0a00_0000 + number));
            suppressed.extend(minutes.hit(other, Duration::from_secs(1)).1);
        }
        assert_eq!(suppressed, [Suppressed { address: ADDRESS, count: 1 }]);
        assert_eq!(minutes.0.len(), MAX_ADDRESSES);
    }
}
