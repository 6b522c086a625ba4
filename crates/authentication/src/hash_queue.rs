//! A queue of password hashes: it bounds the memory and the cores that logins take.
//!
//! Each hash is computed on a thread of its own, as many at once as there are cores, but at least two. Who guesses passwords takes
//! the time that queries leave: the thread runs while a core is idle (`SCHED_IDLE`), and is preempted as soon as another one of its
//! control group wakes, such as those of all roles in one container. Against other groups it has the share of its own group.
//! On a machine whose cores are all busy it would run too seldom, so after [`IDLE_TIME`] a second thread computes the same hash with a
//! share of a core that is small but certain, and the first result counts.
//!
//! A login that is cancelled leaves the queue, unless its hash has begun; that one keeps its place until its threads have ended.

use std::sync::Arc;
use std::thread::{self, available_parallelism};
use std::time::Duration;

use model::error::{ErrorKind, UserError};
use parking_lot::Mutex;
use rustix::process::{getpriority_process, setpriority_process};
use rustix::thread::gettid;
use thread_priority::{
    NormalThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy, set_thread_priority_and_policy, thread_native_id,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::sleep;

use crate::password::{HashMemory, PasswordHash};

/// The most hashes that wait.
const MAX_WAITING: usize = 256;
/// The fewest that are computed at once: with one, an expensive hash would delay all other logins.
const MIN_RUNNING: usize = 2;
/// How long a hash is computed in idle time only. Some ten times as long as it takes on an idle machine.
const IDLE_TIME: Duration = Duration::from_millis(300);
/// How much nicer the second thread is than the rest of the process. A thread with 10 more gets about a tenth of a core beside
/// one that is busy.
const NICER: i32 = 10;
/// The nicest that a thread can be.
const MAX_NICE: i32 = 19;

/// Which time of the cores a thread gets.
#[derive(Debug, Clone, Copy)]
enum Share {
    Idle,
    Small,
}

/// A queue of hashes.
#[derive(Debug)]
pub struct HashQueue {
    running: Arc<Semaphore>,
    /// Those that run and those that wait.
    admitted: Arc<Semaphore>,
    idle_time: Duration,
    /// One for each thread that runs, while none does.
    memories: Arc<Mutex<Vec<HashMemory>>>,
}

impl Default for HashQueue {
    fn default() -> Self {
        Self::new(available_parallelism().map_or(MIN_RUNNING, usize::from).max(MIN_RUNNING), MAX_WAITING)
    }
}

impl HashQueue {
    fn new(running: usize, waiting: usize) -> Self {
        Self {
            running: Arc::new(Semaphore::new(running)),
            admitted: Arc::new(Semaphore::new(running + waiting)),
            idle_time: IDLE_TIME,
            memories: Arc::default(),
        }
    }

    /// Whether the hash is one of that password. 57P03 if too many logins wait or no thread can be started; XX000 if a thread
    /// panicked.
    pub async fn matches(&self, hash: PasswordHash, password: String) -> Result<bool, UserError> {
        let admitted = Arc::clone(&self.admitted).try_acquire_owned().map_err(|_| {
            UserError::new(ErrorKind::Unavailable, "too many logins at the same time").hint("Retry later.")
        })?;
        // Both semaphores are never closed.
        let running = Arc::clone(&self.running).acquire_owned().await.map_err(|error| internal(&error))?;
        let hashing =
            Hashing { hash, password, memories: Arc::clone(&self.memories), _place: Arc::new((admitted, running)) };
        let mut first = hashing.clone().begin(Share::Idle)?;
        tokio::select! {
            computed = &mut first => return computed.map_err(|error| internal(&error)),
            () = sleep(self.idle_time) => {}
        }
        let second = hashing.begin(Share::Small)?;
        let computed = tokio::select! {
            computed = first => computed,
            computed = second => computed,
        };
        computed.map_err(|error| internal(&error))
    }
}

/// A comparison of a password with a hash.
#[derive(Clone)]
struct Hashing {
    hash: PasswordHash,
    password: String,
    memories: Arc<Mutex<Vec<HashMemory>>>,
    /// Its place in the queue, until its last thread has ended.
    _place: Arc<(OwnedSemaphorePermit, OwnedSemaphorePermit)>,
}

impl Hashing {
    /// Begins a thread that compares. The receiver fails if the thread panics.
    fn begin(self, share: Share) -> Result<oneshot::Receiver<bool>, UserError> {
        let (result, computed) = oneshot::channel();
        let compute = move || {
            share.take();
            let mut memory = self.memories.lock().pop().unwrap_or_default();
            let matches = self.hash.matches(&self.password, &mut memory);
            self.memories.lock().push(memory);
            drop(self);
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
            Self::Small => {
                let own = Some(gettid());
                if let Ok(nice) = getpriority_process(own) {
                    let _ = setpriority_process(own, nice.saturating_add(NICER).min(MAX_NICE));
                }
            }
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
    fn only_a_thread_that_computes_a_hash_gets_less_time() {
        const OTHER: i32 = 0;
        const IDLE: i32 = 5;
        let (policy, nice) = schedule();
        for (share, expected) in [(Share::Idle, (IDLE, nice)), (Share::Small, (OTHER, (nice + NICER).min(MAX_NICE)))] {
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
        // Once both threads of both hashes have ended.
        let _place = queue.running.acquire().await.unwrap();
        assert_eq!(queue.admitted.available_permits(), 2);
        assert!((1..=2).contains(&queue.memories.lock().len()));
    }

    #[tokio::test]
    async fn a_login_beyond_the_queue_is_refused_and_a_place_is_returned() {
        let hash = PasswordHash::of("x").unwrap();
        let queue = HashQueue::new(1, 1);
        let running = Arc::clone(&queue.running).acquire_owned().await.unwrap();
        let waiting = queue.admitted.clone().acquire_many_owned(2).await.unwrap();
        let refused = queue.matches(hash.clone(), "x".to_owned()).await.unwrap_err();
        assert_eq!(refused.sqlstate(), "57P03");
        drop((running, waiting));
        assert!(queue.matches(hash.clone(), "x".to_owned()).await.unwrap());
        assert!(!queue.matches(hash, "y".to_owned()).await.unwrap());
        assert_eq!((queue.running.available_permits(), queue.admitted.available_permits()), (1, 2));
    }
}
