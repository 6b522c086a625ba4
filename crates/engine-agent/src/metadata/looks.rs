//! The readings that statements which WAIT share: however many wait at this agent, the database is read once each
//! [`WAIT_POLL`] for all of them, and no more than [`MAX_WAITERS`] wait, [`MAX_WAITERS_PER_USER`] of one user.
//!
//! Who waits asks for a reading that began after it asked, so that it sees what it did before; who asks while one is
//! being made, or between two, takes the next one. A waiter that is cancelled leaves the reading to the others.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use metadata::{Overview, Store};
use model::clock::SharedClock;
use model::error::{ErrorKind, UserError};
use tokio::sync::Mutex;

use super::settings::{MAX_WAITERS, MAX_WAITERS_PER_USER, WAIT_POLL};

/// What a reading saw, or why it saw nothing.
type Seen<T> = Result<Arc<T>, String>;

/// Readings of everything that SHOW ENGINES needs.
pub(super) struct Looks {
    store: Store,
    turns: Turns<Overview>,
    waiters: Arc<Waiters>,
}

/// How many statements wait, by user.
#[derive(Default)]
struct Waiters(parking_lot::Mutex<HashMap<String, usize>>);

/// One statement that waits, until it is dropped.
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
                .hint("The statement stands and is carried on without the wait; SHOW ENGINES reports its progress."));
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

impl Looks {
    pub(super) fn new(store: Store, clock: SharedClock) -> Self {
        Self { store, turns: Turns::new(clock, WAIT_POLL), waiters: Arc::default() }
    }

    /// Counts a statement of the user as one that waits, until the result is dropped. The statement itself stands
    /// whether it may wait or not.
    pub(super) fn waiter(&self, user: &str) -> Result<Waiter, UserError> {
        self.waiters.add(user)
    }

    /// The next reading that begins now or later.
    pub(super) async fn next(&self) -> Seen<Overview> {
        self.turns
            .next(|| {
                let store = self.store.clone();
                async move { store.overview(None).await.map_err(|error| error.to_string()) }
            })
            .await
    }
}

/// One reading at a time, and so long between the beginnings of two.
struct Turns<T> {
    clock: SharedClock,
    interval: Duration,
    last: Mutex<Option<Reading<T>>>,
}

struct Reading<T> {
    /// By the clock that counts suspension.
    began: Duration,
    seen: Seen<T>,
}

impl<T: Send + Sync + 'static> Turns<T> {
    fn new(clock: SharedClock, interval: Duration) -> Self {
        Self { clock, interval, last: Mutex::default() }
    }

    async fn next<F>(&self, read: impl FnOnce() -> F) -> Seen<T>
    where
        F: Future<Output = Result<T, String>> + Send + 'static,
    {
        let asked = self.clock.boottime();
        let mut last = self.last.lock().await;
        if let Some(reading) = &*last {
            if reading.began > asked {
                return reading.seen.clone();
            }
            let passed = self.clock.boottime().saturating_sub(reading.began);
            tokio::time::sleep(self.interval.saturating_sub(passed)).await;
        }
        let began = self.clock.boottime();
        // On a task of its own, so that whoever is cancelled leaves no transaction half way.
        let seen = match tokio::spawn(read()).await {
            Ok(read) => read.map(Arc::new),
            Err(error) => Err(format!("the reading failed: {error}")),
        };
        *last = Some(Reading { began, seen: seen.clone() });
        seen
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
    async fn however_many_wait_one_reading_each_interval_serves_all_and_is_never_older_than_the_question() {
        let clock = SystemClock::shared();
        let turns = Arc::new(Turns::new(Arc::clone(&clock), INTERVAL));
        let readings = Arc::new(AtomicU32::new(0));
        let begun = clock.boottime();
        let waiters = (0..50).map(|_| {
            let (turns, readings, clock) = (Arc::clone(&turns), Arc::clone(&readings), Arc::clone(&clock));
            tokio::spawn(async move {
                for _ in 0..10 {
                    let (asked, now, counted) = (clock.boottime(), Arc::clone(&clock), Arc::clone(&readings));
                    let seen = turns.next(|| async move {
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
        assert!(error.text().contains("The statement stands"), "{}", error.text());
        drop(waiters.add("bob").unwrap());
        of_ann.pop();
        drop(waiters.add("ann").unwrap());
        drop(of_ann);
        assert!(waiters.counts().is_empty());
    }

    #[test]
    fn all_waits_together_are_limited() {
        let waiters = Arc::new(Waiters::default());
        let all: Vec<Waiter> = (0..MAX_WAITERS).map(|at| waiters.add(&format!("user-{}", at / 10)).unwrap()).collect();
        assert_eq!(waiters.add("one more").map(drop).unwrap_err().sqlstate(), "54000");
        drop(all);
    }

    #[tokio::test]
    async fn a_waiter_that_is_cancelled_is_nobodys_delay_and_an_error_is_everybodys() {
        let turns = Turns::<u32>::new(SystemClock::shared(), INTERVAL);
        let never = turns.next(std::future::pending);
        assert!(tokio::time::timeout(INTERVAL, never).await.is_err());
        assert_eq!(turns.next(|| async { Ok(1) }).await, Ok(Arc::new(1)));
        let failed = || async { Err("away".to_owned()) };
        let (one, two) = tokio::join!(turns.next(failed), turns.next(failed));
        assert_eq!((one, two), (Err("away".to_owned()), Err("away".to_owned())));
    }
}
