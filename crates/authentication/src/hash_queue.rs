//! A queue of password hashes: it bounds the memory and the cores that logins take.
//!
//! Who guesses passwords takes the time that queries leave. Each hash is computed on a thread of its own that runs while a core is
//! idle (`SCHED_IDLE`), and is preempted as soon as another one of its control group wakes, such as those of all roles in one
//! container. Against other groups it has the share of its own group. On a machine whose cores are all busy it would run too seldom,
//! so [`IDLE_TIME`] after the login came a second thread computes the same hash like any other work, and the first result counts.
//!
//! There are as many places for threads of each kind as there are cores, but at least two and at most eight. A thread keeps its place
//! until it ends, also when its result does not count or its login was cancelled: no computation can be stopped. Since the two kinds
//! have places of their own, a thread that gets no time delays no other login by more than [`IDLE_TIME`].

use std::sync::Arc;
use std::thread::{self, available_parallelism};
use std::time::Duration;

use futures::future::OptionFuture;
use hs2::{Limit, LimitHits};
use model::error::{ErrorKind, UserError};
use parking_lot::Mutex;
use thread_priority::{
    NormalThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy, set_thread_priority_and_policy, thread_native_id,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{Instant, timeout_at};

use crate::password::{HashMemory, PasswordHash};

/// The most hashes that wait.
const MAX_WAITING: usize = 256;
/// The fewest places of each kind: with one, an expensive hash would delay all other logins.
const MIN_PLACES: usize = 2;
/// The most: a machine with many cores would otherwise spend its memory on guesses.
const MAX_PLACES: usize = 8;
/// How long a login waits for idle time. Some thirty times as long as a hash takes on an idle machine, so that guesses seldom get more
/// than that, and a tenth of the time for authentication.
const IDLE_TIME: Duration = Duration::from_secs(1);

/// Which time of the cores a thread gets.
#[derive(Debug, Clone, Copy)]
enum Share {
    /// What others leave.
    Idle,
    /// That of any other thread.
    Fair,
}

/// A queue of hashes.
#[derive(Debug)]
pub struct HashQueue {
    /// The places of each kind.
    idle: Arc<Semaphore>,
    fair: Arc<Semaphore>,
    /// The logins in the queue, those whose hash is computed included.
    admitted: Semaphore,
    idle_time: Duration,
    hits: Arc<LimitHits>,
    /// One for each thread that runs, while none does.
    memories: Arc<Mutex<Vec<HashMemory>>>,
}

impl Default for HashQueue {
    fn default() -> Self {
        Self::new(available_parallelism().map_or(MIN_PLACES, usize::from).clamp(MIN_PLACES, MAX_PLACES), MAX_WAITING)
    }
}

impl HashQueue {
    fn new(places: usize, waiting: usize) -> Self {
        Self {
            idle: Arc::new(Semaphore::new(places)),
            fair: Arc::new(Semaphore::new(places)),
            admitted: Semaphore::new(places + waiting),
            idle_time: IDLE_TIME,
            hits: Arc::default(),
            memories: Arc::default(),
        }
    }

    /// Counts there what is refused because the queue is full.
    #[must_use]
    pub fn with_limit_hits(self, hits: Arc<LimitHits>) -> Self {
        Self { hits, ..self }
    }

    /// Whether the hash is one of that password. 57P03 if too many logins wait or no thread can be started; XX000 if a thread
    /// panicked.
    pub async fn matches(&self, hash: PasswordHash, password: String) -> Result<bool, UserError> {
        let _admitted = self.admitted.try_acquire().map_err(|_| {
            self.hits.hit(Limit::PasswordHashes);
            UserError::new(ErrorKind::Unavailable, "too many logins at the same time").hint("Retry later.")
        })?;
        let idle_until = Instant::now() + self.idle_time;
        let hashing = Hashing { hash, password, memories: Arc::clone(&self.memories) };
        let mut first = None;
        if let Ok(place) = timeout_at(idle_until, Arc::clone(&self.idle).acquire_owned()).await {
            let computed = first.insert(hashing.clone().begin(Share::Idle, place.map_err(|error| internal(&error))?)?);
            if let Ok(computed) = timeout_at(idle_until, computed).await {
                return computed.map_err(|error| internal(&error));
            }
        }
        let second = async {
            // No semaphore is ever closed.
            let place = Arc::clone(&self.fair).acquire_owned().await.map_err(|error| internal(&error))?;
            hashing.begin(Share::Fair, place)?.await.map_err(|error| internal(&error))
        };
        tokio::select! {
            Some(computed) = OptionFuture::from(first) => computed.map_err(|error| internal(&error)),
            computed = second => computed,
        }
    }
}

/// A comparison of a password with a hash.
#[derive(Clone)]
struct Hashing {
    hash: PasswordHash,
    password: String,
    memories: Arc<Mutex<Vec<HashMemory>>>,
}

impl Hashing {
    /// Begins a thread that compares. The receiver fails if the thread panics.
    fn begin(self, share: Share, place: OwnedSemaphorePermit) -> Result<oneshot::Receiver<bool>, UserError> {
        let (result, computed) = oneshot::channel();
        let compute = move || {
            share.take();
            let mut memory = self.memories.lock().pop().unwrap_or_default();
            let matches = self.hash.matches(&self.password, &mut memory);
            self.memories.lock().push(memory);
            drop(place);
            // An error if the login was cancelled, or the other thread was first.
            let _ = result.send(matches);
        };
        thread::Builder::new().name("password-hash".to_owned()).spawn(compute).map_err(|error| {
            UserError::new(ErrorKind::Unavailable, "the password could not be checked: no thread could be started")
                .detail(error.to_string())
                .hint("Retry later.")
        })?;
        Ok(computed)
    }
}

impl Share {
    /// Gives it to this thread. Where that is refused the thread computes as the others do: the number at once still bounds them.
    fn take(self) {
        match self {
            Self::Idle => {
                let policy = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Idle);
                let _ = set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, policy);
            }
            Self::Fair => {}
        }
    }
}

fn internal(error: &dyn std::error::Error) -> UserError {
    UserError::internal(format!("the password could not be checked: {error}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs;

    use super::*;

    /// Policy and niceness of this thread, as Linux numbers them: `proc_pid_stat(5)`.
    fn schedule() -> (i32, i32) {
        let stat = fs::read_to_string("/proc/thread-self/stat").unwrap();
        let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
        // The third field is the first one behind the name.
        (fields[41 - 3].parse().unwrap(), fields[19 - 3].parse().unwrap())
    }

    #[test]
    fn only_a_thread_that_computes_a_hash_at_first_gets_less_time() {
        const OTHER: i32 = 0;
        const IDLE: i32 = 5;
        let (policy, nice) = schedule();
        for (share, expected) in [(Share::Idle, (IDLE, nice)), (Share::Fair, (OTHER, nice))] {
            let taken = move || {
                share.take();
                schedule()
            };
            assert_eq!(thread::spawn(taken).join().unwrap(), expected, "{share:?}");
        }
        assert_eq!(schedule(), (policy, nice));
    }

    #[tokio::test]
    async fn a_hash_that_gets_no_idle_time_is_computed_all_the_same() {
        let hash = PasswordHash::of("x").unwrap();
        let queue = HashQueue { idle_time: Duration::ZERO, ..HashQueue::new(1, 1) };
        for (password, expected) in [("x", true), ("y", false)] {
            assert_eq!(queue.matches(hash.clone(), password.to_owned()).await.unwrap(), expected);
        }
        // Once all threads of both hashes have ended.
        let _places = tokio::try_join!(queue.idle.acquire(), queue.fair.acquire()).unwrap();
        assert!((1..=2).contains(&queue.memories.lock().len()));
    }

    #[tokio::test]
    async fn a_thread_that_gets_no_time_keeps_no_other_login_waiting() {
        let hash = PasswordHash::of("x").unwrap();
        let queue = HashQueue::new(1, 1);
        let _starved = queue.idle.acquire().await.unwrap();
        let login = queue.matches(hash, "x".to_owned());
        assert!(timeout_at(Instant::now() + 20 * IDLE_TIME, login).await.unwrap().unwrap());
    }

    #[tokio::test]
    async fn a_login_beyond_the_queue_is_refused_and_a_place_is_returned() {
        let hash = PasswordHash::of("x").unwrap();
        let hits = Arc::new(LimitHits::default());
        let queue = HashQueue::new(1, 1).with_limit_hits(Arc::clone(&hits));
        let waiting = queue.admitted.acquire_many(2).await.unwrap();
        for refusals in 1..=3 {
            let refused = queue.matches(hash.clone(), "x".to_owned()).await.unwrap_err();
            assert_eq!((refused.sqlstate(), hits.count(Limit::PasswordHashes)), ("57P03", refusals));
        }
        drop(waiting);
        assert!(queue.matches(hash.clone(), "x".to_owned()).await.unwrap());
        assert!(!queue.matches(hash, "y".to_owned()).await.unwrap());
        assert_eq!((queue.admitted.available_permits(), hits.count(Limit::PasswordHashes)), (2, 3));
    }
}
