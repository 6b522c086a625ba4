//! The memory for requests that are being received, in total and of each user.
//!
//! [`byte_budget`](crate::byte_budget) acquires it. A user without a connection has no entry here.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::Semaphore;

/// The bytes of one permit of a semaphore.
pub(crate) const PERMIT_BYTES: usize = 1024;

/// The memory for requests that are being received, in total and of each user. Those of up to
/// [`UNCOUNTED_REQUEST_BYTES`](crate::limits::UNCOUNTED_REQUEST_BYTES) are not counted.
#[derive(Debug)]
pub struct RequestMemory {
    pub(crate) bytes: usize,
    pub(crate) bytes_per_user: usize,
    pub(crate) all: Arc<Semaphore>,
    /// The shares of users with a connection.
    shares: Mutex<BTreeMap<String, Weak<Semaphore>>>,
}

impl RequestMemory {
    /// A request of more than these bytes needs all of them.
    pub fn new(bytes: usize, bytes_per_user: usize) -> Arc<Self> {
        let all = Arc::new(Semaphore::new(permits(bytes) as usize));
        Arc::new(Self { bytes, bytes_per_user, all, shares: Mutex::default() })
    }

    /// The share of a user, common to all of its connections.
    pub(crate) fn share_of(self: &Arc<Self>, user: &str) -> Share {
        let mut shares = self.shares.lock();
        let known = shares.get(user).and_then(Weak::upgrade);
        let of_user = known.unwrap_or_else(|| {
            // Leaves at most one entry for each connection.
            shares.retain(|_, share| share.strong_count() > 0);
            let share = Arc::new(Semaphore::new(permits(self.bytes_per_user) as usize));
            shares.insert(user.to_owned(), Arc::downgrade(&share));
            share
        });
        Share { memory: Arc::clone(self), of_user }
    }
}

/// A user's share of the memory for requests.
#[derive(Debug, Clone)]
pub(crate) struct Share {
    pub(crate) memory: Arc<RequestMemory>,
    pub(crate) of_user: Arc<Semaphore>,
}

pub(crate) fn permits(bytes: usize) -> u32 {
    u32::try_from(bytes / PERMIT_BYTES).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_users_without_a_connection_are_forgotten() {
        let memory = RequestMemory::new(1 << 20, 1 << 20);
        for user in 0..100 {
            memory.share_of(&format!("user {user}"));
        }
        assert_eq!(memory.shares.lock().len(), 1);
    }
}
