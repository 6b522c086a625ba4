//! Byte budgets of the process for messages that are buffered until they are complete: one for replies of
//! backends, one for requests of clients.
//!
//! A message acquires the most that it may need before it is read, so two half-read messages never wait for each
//! other. Messages wait for budget in order, within the stall limit, and then fail. A request first acquires from its
//! user's share, so that slow requests of one user leave budget for all others.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use tokio::time::timeout;

use crate::error::WireError;
use crate::limits::{
    BUFFERED_REPLIES_BYTES, RECEIVED_REQUESTS_BYTES, RECEIVED_REQUESTS_BYTES_PER_USER, UNCOUNTED_REPLY_BYTES,
    UNCOUNTED_REQUEST_BYTES,
};

/// The bytes of one permit.
const PERMIT_BYTES: usize = 1024;

static REPLIES: Semaphore = Semaphore::const_new(BUFFERED_REPLIES_BYTES / PERMIT_BYTES);
static REQUESTS: Semaphore = Semaphore::const_new(RECEIVED_REQUESTS_BYTES / PERMIT_BYTES);

/// The shares of users with a connection.
static SHARES: Mutex<BTreeMap<String, Weak<Semaphore>>> = Mutex::new(BTreeMap::new());

/// A user's share of the request budget, common to all connections of the user.
#[derive(Debug, Clone)]
pub(crate) struct Share(Arc<Semaphore>);

impl Share {
    pub(crate) fn of(user: &str) -> Self {
        let mut shares = SHARES.lock();
        if let Some(share) = shares.get(user).and_then(Weak::upgrade) {
            return Self(share);
        }
        // Leaves at most one entry for each connection.
        shares.retain(|_, share| share.strong_count() > 0);
        let share = Arc::new(Semaphore::new(RECEIVED_REQUESTS_BYTES_PER_USER / PERMIT_BYTES));
        shares.insert(user.to_owned(), Arc::downgrade(&share));
        Self(share)
    }
}

/// The part of a budget that one message holds; released on drop.
#[derive(Default)]
pub(crate) struct BudgetGuard {
    permit: Option<SemaphorePermit<'static>>,
    of_share: Option<OwnedSemaphorePermit>,
}

impl BudgetGuard {
    /// Acquires the budget for a reply of `bytes` bytes, unless it was acquired already or the reply is too small to
    /// count.
    pub(crate) async fn acquire_for_reply(&mut self, bytes: usize, stall: Duration) -> Result<(), WireError> {
        if bytes <= UNCOUNTED_REPLY_BYTES || self.permit.is_some() {
            return Ok(());
        }
        let permit = acquire(&REPLIES, bytes.min(BUFFERED_REPLIES_BYTES), stall).await;
        self.permit =
            Some(permit.ok_or(WireError::Stalled("the limit for waiting until other replies are delivered"))?);
        Ok(())
    }

    /// The same for a request, from its user's share first if the user is known.
    pub(crate) async fn acquire_for_request(
        &mut self,
        bytes: usize,
        share: Option<&Share>,
        stall: Duration,
    ) -> Result<(), WireError> {
        if bytes <= UNCOUNTED_REQUEST_BYTES || self.permit.is_some() {
            return Ok(());
        }
        if let (Some(Share(share)), None) = (share, &self.of_share) {
            let taken = Arc::clone(share).acquire_many_owned(permits(bytes.min(RECEIVED_REQUESTS_BYTES_PER_USER)));
            let taken = timeout(stall, taken).await.ok().and_then(Result::ok);
            self.of_share = Some(
                taken
                    .ok_or(WireError::Stalled("the limit for waiting until the user's other requests have arrived"))?,
            );
        }
        let permit = acquire(&REQUESTS, bytes.min(RECEIVED_REQUESTS_BYTES), stall).await;
        self.permit =
            Some(permit.ok_or(WireError::Stalled("the limit for waiting until other requests have arrived"))?);
        Ok(())
    }
}

async fn acquire(budget: &Semaphore, bytes: usize, stall: Duration) -> Option<SemaphorePermit<'_>> {
    timeout(stall, budget.acquire_many(permits(bytes))).await.ok().and_then(Result::ok)
}

fn permits(bytes: usize) -> u32 {
    u32::try_from(bytes / PERMIT_BYTES).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn messages_wait_for_the_budget_and_no_longer_than_the_stall_limit() {
        let budget = Semaphore::new(100);
        let (short, long) = (Duration::from_millis(20), Duration::from_secs(10));
        let first = acquire(&budget, 60 * PERMIT_BYTES, long).await.unwrap();
        assert!(acquire(&budget, 60 * PERMIT_BYTES, short).await.is_none());
        let (second, ()) = tokio::join!(acquire(&budget, 60 * PERMIT_BYTES, long), async { drop(first) });
        assert!(second.is_some());
    }

    #[tokio::test]
    async fn one_user_takes_a_share_and_leaves_budget_for_the_others() {
        let (short, long) = (Duration::from_millis(20), Duration::from_secs(10));
        let (alice, again, bob) = (Share::of("alice"), Share::of("alice"), Share::of("bob"));
        let (mut first, mut second, mut third) =
            (BudgetGuard::default(), BudgetGuard::default(), BudgetGuard::default());
        first.acquire_for_request(RECEIVED_REQUESTS_BYTES_PER_USER, Some(&alice), long).await.unwrap();
        let refused = second.acquire_for_request(UNCOUNTED_REQUEST_BYTES + 1, Some(&again), short).await;
        assert!(matches!(refused, Err(WireError::Stalled(_))), "{refused:?}");
        third.acquire_for_request(RECEIVED_REQUESTS_BYTES_PER_USER, Some(&bob), long).await.unwrap();
        drop(first);
        second.acquire_for_request(UNCOUNTED_REQUEST_BYTES + 1, Some(&again), long).await.unwrap();
    }
}
