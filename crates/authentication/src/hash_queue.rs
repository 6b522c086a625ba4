//! A queue of password hashes: it bounds the memory and the cores that logins take.
//!
//! Hashes are computed on blocking threads, twice as many at once as there are cores. A login that is cancelled leaves
//! the queue, unless its hash has begun; that one keeps its place until it is computed.

use std::sync::Arc;
use std::thread::available_parallelism;

use model::error::{ErrorKind, UserError};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::password::{HashMemory, PasswordHash};

/// The most hashes that wait.
const MAX_WAITING: usize = 256;

/// A queue of hashes.
#[derive(Debug)]
pub struct HashQueue {
    running: Arc<Semaphore>,
    /// Those that run and those that wait.
    admitted: Arc<Semaphore>,
    /// One for each hash that runs, while none does.
    memories: Arc<Mutex<Vec<HashMemory>>>,
}

impl Default for HashQueue {
    fn default() -> Self {
        Self::new(2 * available_parallelism().map_or(1, usize::from), MAX_WAITING)
    }
}

impl HashQueue {
    fn new(running: usize, waiting: usize) -> Self {
        Self {
            running: Arc::new(Semaphore::new(running)),
            admitted: Arc::new(Semaphore::new(running + waiting)),
            memories: Arc::default(),
        }
    }

    /// Whether the hash is one of that password. 57P03 if too many logins wait; XX000 if the task of the hash panicked or was
    /// cancelled with its runtime.
    pub async fn matches(&self, hash: PasswordHash, password: String) -> Result<bool, UserError> {
        let admitted = Arc::clone(&self.admitted).try_acquire_owned().map_err(|_| {
            UserError::new(ErrorKind::Unavailable, "too many logins at the same time").hint("Retry later.")
        })?;
        // Both semaphores are never closed.
        let running = Arc::clone(&self.running).acquire_owned().await.map_err(|error| internal(&error))?;
        let memories = Arc::clone(&self.memories);
        let computing = tokio::task::spawn_blocking(move || {
            let mut memory = memories.lock().pop().unwrap_or_default();
            let matches = hash.matches(&password, &mut memory);
            memories.lock().push(memory);
            drop((running, admitted));
            matches
        });
        computing.await.map_err(|error| internal(&error))
    }
}

fn internal(error: &dyn std::error::Error) -> UserError {
    UserError::internal(format!("the password could not be checked: {error}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

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
