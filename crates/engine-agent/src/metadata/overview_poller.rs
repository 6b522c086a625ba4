//! The overview poller: reads the database once each [`WAIT_POLL`] for all statements that WAIT at this agent. At most
//! [`MAX_WAITERS`] statements wait, [`MAX_WAITERS_PER_USER`] of one user.
//!
//! A waiter gets a reading that began after its request, so that it sees its own effects; requests during or between
//! readings share the next one. A cancelled waiter does not disturb the others.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use metadata::{Overview, Store};
use model::clock::SharedClock;
use model::error::{ErrorKind, UserError};
use tokio::sync::Mutex;

use super::settings::{MAX_WAITERS, MAX_WAITERS_PER_USER, WAIT_POLL};

pub(super) type SharedReading<T> = Result<Arc<T>, String>;

/// Polls everything that SHOW ENGINES needs.
pub(super) struct OverviewPoller {
    store: Store,
    reads: SharedReads<Overview>,
    waiters: Arc<Waiters>,
}

/// The number of waiting statements by user.
#[derive(Default)]
struct Waiters(parking_lot::Mutex<HashMap<String, usize>>);

/// A waiting statement; counted until this is dropped.
pub(super) struct Waiter {
    user: String,
    of: Arc<Waiters>,
}

impl Waiters {
    fn counts(&self) -> parking_lot::MutexGuard<'_, HashMap<String, usize>> {
        self.0.lock()
    }

    fn add(self: &Arc<Self>, user: &str) -> Result<Waiter, UserError> {
        let mut counts = self.counts();
        let of_user = counts.get(user).copied().unwrap_or(0);
        let full = if of_user >= MAX_WAITERS_PER_USER {
            Some(format!("{of_user} statements of user \"{user}\" wait at this metadata agent."))
        } else if counts.values().sum::<usize>() >= MAX_WAITERS {
            Some(format!("{MAX_WAITERS} statements wait at this metadata agent."))
        } else {
            None
        };
        if let Some(detail) = full {
            return Err(UserError::new(ErrorKind::ProgramLimit, "too many statements wait already")
                .detail(detail)
                .hint("The statement remains in effect without the wait. SHOW ENGINES reports its progress."));
        }
        counts.insert(user.to_owned(), of_user + 1);
        Ok(Waiter { user: user.to_owned(), of: Arc::clone(self) })
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut counts = self.of.counts();
        match counts.get_mut(&self.user) {
            Some(count) if *count > 1 => *count -= 1,
            Some(_) | None => drop(counts.remove(&self.user)),
        }
    }
}

impl OverviewPoller {
    pub(super) fn new(store: Store, clock: SharedClock) -> Self {
        Self { store, reads: SharedReads::new(clock, WAIT_POLL), waiters: Arc::default() }
    }

    /// Counts a waiting statement of the user. The statement itself stands even if its wait is refused.
    pub(super) fn waiter(&self, user: &str) -> Result<Waiter, UserError> {
        self.waiters.add(user)
    }

    /// The next reading that begins now or later.
    pub(super) async fn next(&self) -> SharedReading<Overview> {
        self.reads
            .next(|| {
                let store = self.store.clone();
                async move { store.overview(None).await.map_err(|error| error.to_string()) }
            })
            .await
    }
}

/// Coalesces reads: one at a time, with a minimum interval between their beginnings.
pub(super) struct SharedReads<T> {
    clock: SharedClock,
    interval: Duration,
    last: Mutex<Option<Reading<T>>>,
}

struct Reading<T> {
    /// By the clock that counts suspension.
    began: Duration,
    result: SharedReading<T>,
}

impl<T: Send + Sync + 'static> SharedReads<T> {
    pub(super) fn new(clock: SharedClock, interval: Duration) -> Self {
        Self { clock, interval, last: Mutex::default() }
    }

    /// The result of a read that begins now or later.
    pub(super) async fn next<F>(&self, read: impl FnOnce() -> F) -> SharedReading<T>
    where
        F: Future<Output = Result<T, String>> + Send + 'static,
    {
        let requested = self.clock.boottime();
        let mut last = self.last.lock().await;
        if let Some(reading) = &*last {
            if reading.began > requested {
                return reading.result.clone();
            }
            let passed = self.clock.boottime().saturating_sub(reading.began);
            tokio::time::sleep(self.interval.saturating_sub(passed)).await;
        }
        let began = self.clock.boottime();
        // On a task of its own, so that a cancelled caller leaves no transaction unfinished.
        let result = match tokio::spawn(read()).await {
            Ok(read) => read.map(Arc::new),
            Err(error) => Err(format!("the read failed: {error}")),
        };
        *last = Some(Reading { began, result: result.clone() });
        result
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use std::sync::atomic::{AtomicU32, Ordering};

    use model::clock::SystemClock;

    use super::*;

    const INTERVAL: Duration = Duration::from_millis(20);

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn one_reading_per_interval_serves_all_and_is_newer_than_each_request() {
        let clock = SystemClock::shared();
        let reads = Arc::new(SharedReads::new(Arc::clone(&clock), INTERVAL));
        let readings = Arc::new(AtomicU32::new(0));
        let begun = clock.boottime();
        let waiters = (0..50).map(|_| {
            let (reads, readings, clock) = (Arc::clone(&reads), Arc::clone(&readings), Arc::clone(&clock));
            tokio::spawn(async move {
                for _ in 0..10 {
                    let (asked, now, counted) = (clock.boottime(), Arc::clone(&clock), Arc::clone(&readings));
                    let seen = reads.next(|| async move {
                        counted.fetch_add(1, Ordering::SeqCst);
                        Ok(now.boottime())
                    });
                    assert!(*seen.await.unwrap() >= asked);
                }
            })
        });
        for waiter in waiters.collect::<Vec<_>>() {
            waiter.await.unwrap();
        }
        let intervals = clock.boottime().saturating_sub(begun).as_millis() / INTERVAL.as_millis();
        let readings = u128::from(readings.load(Ordering::SeqCst));
        assert!((10..=intervals + 1).contains(&readings), "{readings} readings in {intervals} intervals");
    }

    #[test]
    fn a_user_at_the_limit_of_waits_takes_none_from_others() {
        let waiters = Arc::new(Waiters::default());
        let mut of_ann: Vec<Waiter> = (0..MAX_WAITERS_PER_USER).map(|_| waiters.add("ann").unwrap()).collect();
        let error = waiters.add("ann").map(drop).unwrap_err();
        assert_eq!(error.sqlstate(), "54000");
        assert!(error.text().contains("The statement remains in effect"), "{}", error.text());
        drop(waiters.add("bob").unwrap());
        of_ann.pop();
        drop(waiters.add("ann").unwrap());
        drop(of_ann);
        assert!(waiters.counts().is_empty());
    }

    #[test]
    fn the_number_of_all_waits_is_limited() {
        let waiters = Arc::new(Waiters::default());
        let all: Vec<Waiter> = (0..MAX_WAITERS).map(|at| waiters.add(&format!("user-{}", at / 10)).unwrap()).collect();
        assert_eq!(waiters.add("one more").map(drop).unwrap_err().sqlstate(), "54000");
        drop(all);
    }

    #[tokio::test]
    async fn a_cancelled_waiter_delays_no_other_and_an_error_is_shared() {
        let reads = SharedReads::<u32>::new(SystemClock::shared(), INTERVAL);
        let never = reads.next(std::future::pending);
        assert!(tokio::time::timeout(INTERVAL, never).await.is_err());
        assert_eq!(reads.next(|| async { Ok(1) }).await, Ok(Arc::new(1)));
        let failed = || async { Err("away".to_owned()) };
        let (one, two) = tokio::join!(reads.next(failed), reads.next(failed));
        assert_eq!((one, two), (Err("away".to_owned()), Err("away".to_owned())));
    }
}
