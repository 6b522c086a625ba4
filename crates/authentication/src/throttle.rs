//! Delays and lock-outs after failed logins.
//!
//! The response to a failed login is delayed by 0.1 s, doubled with each failure of its address or its user up to 5 s; the
//! counts are halved each minute. After 40 failures of one user from one address in 10 minutes, that pair is locked out.
//! No user is locked out by name alone: an attacker could lock out any user from everywhere.
//!
//! Attempts that run count like failures until they end, so that parallel attempts are no way around the limit. An attempt
//! beyond it waits for the others: if they succeed, it may begin. One that is cancelled has failed.
//!
//! The three tables are bounded. A full one evicts the entry whose last failure is the oldest, a locked pair last.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use std::pin::pin;
use std::time::Duration;

use model::clock::SharedClock;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// The delay of the first failure.
const FIRST_DELAY: Duration = Duration::from_millis(100);
/// The longest delay.
const MAX_DELAY: Duration = Duration::from_secs(5);
/// The count from which the delay is the longest, and beyond which failures are not counted.
const MAX_COUNT: u32 = 64;
/// How often the counts are halved.
const HALVING_INTERVAL: Duration = Duration::from_mins(1);
/// The failures of one user from one address that lock that pair out.
const LOCKOUT_FAILURES: usize = 40;
/// How long a failure counts for a lock-out.
const LOCKOUT_WINDOW: Duration = Duration::from_mins(10);
/// How long an attempt waits for others of its pair.
const ADMISSION_DEADLINE: Duration = Duration::from_secs(10);
/// The most entries of each table.
const MAX_ENTRIES: usize = 10_000;

/// The failed logins that count.
#[derive(Debug)]
pub struct Throttle {
    lockout: Duration,
    /// How long an attempt waits for others of its pair.
    pub(crate) admission_deadline: Duration,
    clock: SharedClock,
    tables: Mutex<Tables>,
    /// Notified when an attempt ends.
    ended: Notify,
}

/// Whether a login may be attempted.
#[derive(Debug)]
pub(crate) enum Admission<'a> {
    Admitted(Attempt<'a>),
    /// The pair of user and address is locked out.
    LockedOut,
    /// Others of the pair did not end in time.
    Busy,
}

/// A login that runs. It has failed when it is dropped.
#[derive(Debug)]
pub(crate) struct Attempt<'a> {
    throttle: &'a Throttle,
    user: &'a str,
    address: IpAddr,
    has_ended: bool,
}

#[derive(Debug, Default)]
struct Tables {
    addresses: HashMap<IpAddr, Failures>,
    users: HashMap<String, Failures>,
    pairs: HashMap<(String, IpAddr), Pair>,
}

/// A count that is halved each minute.
#[derive(Debug, Default)]
struct Failures {
    count: u32,
    halved_at: Duration,
    last: Duration,
}

/// The failures of one user from one address.
#[derive(Debug, Default)]
struct Pair {
    recent: VecDeque<Duration>,
    /// The attempts that have not ended.
    running: usize,
    locked_until: Duration,
}

impl Throttle {
    /// `lockout` is how long a pair of user and address is locked out.
    pub fn new(lockout: Duration, clock: SharedClock) -> Self {
        let admission_deadline = ADMISSION_DEADLINE;
        Self { lockout, admission_deadline, clock, tables: Mutex::default(), ended: Notify::new() }
    }

    /// Admits a login, after those that run if they may be the last ones before a lock-out.
    pub(crate) async fn admit<'a>(&'a self, user: &'a str, address: IpAddr) -> Admission<'a> {
        let admitting = async {
            loop {
                let mut ended = pin!(self.ended.notified());
                // From here on no end is missed.
                ended.as_mut().enable();
                if let Some(admission) = self.try_admit(user, address) {
                    return admission;
                }
                ended.await;
            }
        };
        tokio::time::timeout(self.admission_deadline, admitting).await.unwrap_or(Admission::Busy)
    }

    /// `None`: not before another one of the pair has ended.
    fn try_admit<'a>(&'a self, user: &'a str, address: IpAddr) -> Option<Admission<'a>> {
        let (now, network) = (self.clock.boottime(), network(address));
        let mut tables = self.tables.lock();
        let pair = entry(&mut tables.pairs, (user.to_owned(), network), Pair::last);
        if pair.locked_until > now {
            return Some(Admission::LockedOut);
        }
        pair.expire(now);
        if pair.recent.len() + pair.running >= LOCKOUT_FAILURES {
            return None;
        }
        pair.running += 1;
        Some(Admission::Admitted(Attempt { throttle: self, user, address, has_ended: false }))
    }

    /// The attempt is over.
    fn end(&self, user: &str, address: IpAddr) {
        let key = (user.to_owned(), network(address));
        let mut tables = self.tables.lock();
        if let Some(pair) = tables.pairs.get_mut(&key) {
            pair.running = pair.running.saturating_sub(1);
            if pair.is_idle() {
                tables.pairs.remove(&key);
            }
        }
        drop(tables);
        self.ended.notify_waiters();
    }

    /// Counts a failed login without a user's name for its address alone: no user is locked out, and none waits longer, because of
    /// tokens that have expired. Returns the delay as [`Throttle::fail`] does.
    pub fn fail_without_user(&self, address: IpAddr) -> Duration {
        let (now, address) = (self.clock.boottime(), network(address));
        let mut tables = self.tables.lock();
        delay(entry(&mut tables.addresses, address, |failures| failures.last).increment(now))
    }

    /// Counts a failed login. Returns how long its response is delayed, without jitter.
    pub fn fail(&self, user: &str, address: IpAddr) -> Duration {
        let (now, address) = (self.clock.boottime(), network(address));
        let mut tables = self.tables.lock();
        let of_address = entry(&mut tables.addresses, address, |failures| failures.last).increment(now);
        let of_user = entry(&mut tables.users, user.to_owned(), |failures| failures.last).increment(now);
        entry(&mut tables.pairs, (user.to_owned(), address), Pair::last).increment(now, self.lockout);
        delay(of_address.max(of_user))
    }
}

/// The delay of a failure after that many others.
fn delay(failures: u32) -> Duration {
    FIRST_DELAY.saturating_mul(1 << failures.min(6)).min(MAX_DELAY)
}

impl Failures {
    /// Returns the count before this failure.
    fn increment(&mut self, now: Duration) -> u32 {
        let minutes = now.saturating_sub(self.halved_at).as_secs() / HALVING_INTERVAL.as_secs();
        if minutes > 0 {
            self.count = self.count.checked_shr(minutes.min(32) as u32).unwrap_or_default();
            self.halved_at = if self.count == 0 { now } else { self.halved_at + HALVING_INTERVAL * minutes as u32 };
        }
        let before = self.count;
        self.count = (before + 1).min(MAX_COUNT);
        self.last = now;
        before
    }
}

impl Attempt<'_> {
    /// The login succeeded.
    pub(crate) fn succeed(mut self) {
        self.has_ended = true;
        self.throttle.end(self.user, self.address);
    }

    /// The login could not be checked.
    pub(crate) fn withdraw(self) {
        self.succeed();
    }

    /// The login failed. Returns how long its response is delayed, without jitter.
    pub(crate) fn fail(mut self) -> Duration {
        self.has_ended = true;
        // The failure counts before the attempt no longer does.
        let delay = self.throttle.fail(self.user, self.address);
        self.throttle.end(self.user, self.address);
        delay
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.throttle.fail(self.user, self.address);
            self.throttle.end(self.user, self.address);
        }
    }
}

impl Pair {
    /// The time that decides which pair a full table evicts: one with a running attempt is the last.
    fn last(&self) -> Duration {
        let last = self.locked_until.max(self.recent.back().copied().unwrap_or_default());
        if self.running > 0 { Duration::MAX } else { last }
    }

    /// Whether the pair has nothing to remember.
    fn is_idle(&self) -> bool {
        self.running == 0 && self.recent.is_empty() && self.locked_until.is_zero()
    }

    /// Forgets failures that no longer count.
    fn expire(&mut self, now: Duration) {
        while self.recent.front().is_some_and(|at| now.saturating_sub(*at) >= LOCKOUT_WINDOW) {
            self.recent.pop_front();
        }
    }

    fn increment(&mut self, now: Duration, lockout: Duration) {
        if self.locked_until > now {
            return;
        }
        self.expire(now);
        self.recent.push_back(now);
        if self.recent.len() >= LOCKOUT_FAILURES {
            self.recent.clear();
            self.locked_until = now + lockout;
        }
    }
}

/// The entry of the key; makes space for it in a full table.
fn entry<K: Hash + Eq + Clone, V: Default>(table: &mut HashMap<K, V>, key: K, last: impl Fn(&V) -> Duration) -> &mut V {
    if table.len() >= MAX_ENTRIES && !table.contains_key(&key) {
        let oldest = table.iter().min_by_key(|(_, value)| last(value)).map(|(key, _)| key.clone());
        oldest.and_then(|key| table.remove(&key));
    }
    table.entry(key).or_default()
}

/// The address that is counted: an IPv6 host can have any address of its /64.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;
    use model::clock::ManualClock;
    use std::sync::Arc;

    const LOCKOUT: Duration = Duration::from_mins(5);

    fn throttle() -> (Throttle, Arc<ManualClock>) {
        let clock = ManualClock::at(0);
        (Throttle::new(LOCKOUT, clock.clone()), clock)
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// Whether a login of the pair would be refused unread.
    fn is_locked_out(throttle: &Throttle, user: &str, address: &str) -> bool {
        match throttle.try_admit(user, ip(address)) {
            Some(Admission::Admitted(attempt)) => {
                attempt.withdraw();
                false
            }
            Some(Admission::LockedOut) => true,
            Some(Admission::Busy) | None => panic!("an attempt runs"),
        }
    }

    fn millis(throttle: &Throttle, user: &str, address: &str) -> u128 {
        throttle.fail(user, ip(address)).as_millis()
    }

    #[test]
    fn delays_double_per_user_and_per_address_and_fall_each_minute() {
        let (throttle, clock) = throttle();
        let delays: Vec<u128> = (0..8).map(|_| millis(&throttle, "ann", "10.0.0.1")).collect();
        assert_eq!(delays, [100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000]);
        // The user from another address, and another user from the address.
        assert_eq!(millis(&throttle, "ann", "10.0.0.2"), 5_000);
        assert_eq!(millis(&throttle, "bob", "10.0.0.1"), 5_000);
        assert_eq!(millis(&throttle, "bob", "10.0.0.9"), 200);
        clock.advance(Duration::from_mins(2));
        // Nine failures of the user, halved twice.
        assert_eq!(millis(&throttle, "ann", "10.0.0.3"), 400);
        clock.advance(Duration::from_hours(24));
        assert_eq!(millis(&throttle, "ann", "10.0.0.1"), 100);
    }

    #[test]
    fn forty_failures_lock_the_user_out_from_that_address_only() {
        let (throttle, clock) = throttle();
        for _ in 0..LOCKOUT_FAILURES {
            assert!(!is_locked_out(&throttle, "ann", "10.0.0.1"));
            throttle.fail("ann", ip("10.0.0.1"));
        }
        assert!(is_locked_out(&throttle, "ann", "10.0.0.1"));
        assert!(!is_locked_out(&throttle, "ann", "10.0.0.2") && !is_locked_out(&throttle, "bob", "10.0.0.1"));
        // Failures during the lock-out do not extend it.
        clock.advance(LOCKOUT / 2);
        throttle.fail("ann", ip("10.0.0.1"));
        clock.advance(LOCKOUT / 2);
        assert!(!is_locked_out(&throttle, "ann", "10.0.0.1"));
    }

    #[test]
    fn slow_failures_never_lock_out() {
        let (throttle, clock) = throttle();
        for _ in 0..200 {
            clock.advance(LOCKOUT_WINDOW / 38);
            throttle.fail("ann", ip("10.0.0.1"));
            assert!(!is_locked_out(&throttle, "ann", "10.0.0.1"));
        }
    }

    #[test]
    fn ipv6_counts_by_network_and_mapped_ipv4_as_ipv4() {
        assert_eq!(network(ip("2001:db8:1:2:3:4:5:6")), ip("2001:db8:1:2::"));
        assert_ne!(network(ip("2001:db8:1:3::")), ip("2001:db8:1:2::"));
        assert_eq!(network(ip("::ffff:10.0.0.1")), ip("10.0.0.1"));
    }

    #[test]
    fn full_tables_keep_the_locked_pair() {
        let (throttle, clock) = throttle();
        for _ in 0..LOCKOUT_FAILURES {
            throttle.fail("ann", ip("10.0.0.1"));
        }
        clock.advance(Duration::from_secs(1));
        for user in 0..=MAX_ENTRIES {
            throttle.fail(&user.to_string(), ip("10.0.0.1"));
        }
        let tables = throttle.tables.lock();
        assert_eq!((tables.users.len(), tables.pairs.len()), (MAX_ENTRIES, MAX_ENTRIES));
        drop(tables);
        assert!(is_locked_out(&throttle, "ann", "10.0.0.1"));
    }

    #[test]
    fn a_running_attempt_counts_until_it_has_succeeded() {
        let (throttle, _) = throttle();
        let address = ip("10.0.0.1");
        for _ in 1..LOCKOUT_FAILURES {
            throttle.fail("ann", address);
        }
        let Some(Admission::Admitted(last)) = throttle.try_admit("ann", address) else { panic!("locked out") };
        assert!(throttle.try_admit("ann", address).is_none(), "it may be the last one before the lock-out");
        last.succeed();
        let Some(Admission::Admitted(cancelled)) = throttle.try_admit("ann", address) else { panic!("locked out") };
        drop(cancelled);
        assert!(is_locked_out(&throttle, "ann", "10.0.0.1"), "a cancelled attempt has failed");
    }

    #[test]
    fn logins_that_succeed_leave_no_entry() {
        let (throttle, _) = throttle();
        let Some(Admission::Admitted(attempt)) = throttle.try_admit("ann", ip("10.0.0.1")) else {
            panic!("locked out")
        };
        attempt.succeed();
        assert!(throttle.tables.lock().pairs.is_empty());
    }
}
