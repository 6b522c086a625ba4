//! Byte budgets for messages that are buffered until they are complete: one of the process for replies of backends, and one
//! of each server, or of the process, for requests of clients.
//!
//! A message acquires the most that it may need before it is read, so two half-read messages never wait for each
//! other. Messages wait for budget in order, within the stall limit, and then fail; a request is then rejected with 54000. A
//! request first acquires from its user's share, so that slow requests of one user leave budget for all others.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout, timeout_at};

use crate::error::WireError;
use crate::limit_hits::Limit;
use crate::limits::{BUFFERED_REPLIES_BYTES, UNCOUNTED_REPLY_BYTES, UNCOUNTED_REQUEST_BYTES};
use crate::request_memory::{PERMIT_BYTES, Share, permits};

static REPLIES: Semaphore = Semaphore::const_new(BUFFERED_REPLIES_BYTES / PERMIT_BYTES);

/// The part of a budget that one message holds; released on drop.
#[derive(Default)]
pub(crate) struct BudgetGuard {
    reply: Option<SemaphorePermit<'static>>,
    user_share: Option<OwnedSemaphorePermit>,
    request: Option<OwnedSemaphorePermit>,
}

impl BudgetGuard {
    /// Acquires the budget for a reply of `bytes` bytes, unless it was acquired already or the reply is too small to
    /// count.
    pub(crate) async fn acquire_for_reply(&mut self, bytes: usize, stall: Duration) -> Result<(), WireError> {
        if bytes <= UNCOUNTED_REPLY_BYTES || self.reply.is_some() {
            return Ok(());
        }
        let permit = acquire(&REPLIES, bytes.min(BUFFERED_REPLIES_BYTES), stall).await;
        self.reply = Some(permit.ok_or(WireError::Stalled("the limit for waiting until other replies are delivered"))?);
        Ok(())
    }

    /// The same for a request, from its user's share first.
    pub(crate) async fn acquire_for_request(
        &mut self,
        bytes: usize,
        share: &Share,
        stall: Duration,
    ) -> Result<(), WireError> {
        if bytes <= UNCOUNTED_REQUEST_BYTES || self.request.is_some() {
            return Ok(());
        }
        let (until, Share { memory, of_user }) = (Instant::now() + stall, share);
        let refused = |limit| WireError::NoRequestMemory { bytes, limit, waited: stall };
        if self.user_share.is_none() {
            let taken = acquire_owned(of_user, bytes.min(memory.bytes_per_user), until).await;
            self.user_share = Some(taken.ok_or_else(|| refused(Limit::RequestMemoryPerUser))?);
        }
        let taken = acquire_owned(&memory.all, bytes.min(memory.bytes), until).await;
        self.request = Some(taken.ok_or_else(|| refused(Limit::RequestMemory))?);
        Ok(())
    }
}

async fn acquire_owned(budget: &Arc<Semaphore>, bytes: usize, until: Instant) -> Option<OwnedSemaphorePermit> {
    timeout_at(until, Arc::clone(budget).acquire_many_owned(permits(bytes))).await.ok().and_then(Result::ok)
}

async fn acquire(budget: &Semaphore, bytes: usize, stall: Duration) -> Option<SemaphorePermit<'_>> {
    timeout(stall, budget.acquire_many(permits(bytes))).await.ok().and_then(Result::ok)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::request_memory::RequestMemory;

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
        const OF_USER: usize = 1 << 20;
        let (short, long) = (Duration::from_millis(20), Duration::from_secs(10));
        let memory = RequestMemory::new(3 * OF_USER, OF_USER);
        let (alice, again, bob) = (memory.share_of("alice"), memory.share_of("alice"), memory.share_of("bob"));
        let (mut first, mut second, mut third) =
            (BudgetGuard::default(), BudgetGuard::default(), BudgetGuard::default());
        // A request that is longer than a share takes all of it.
        first.acquire_for_request(2 * OF_USER, &alice, long).await.unwrap();
        let refused = second.acquire_for_request(UNCOUNTED_REQUEST_BYTES + 1, &again, short).await;
        assert!(
            matches!(refused, Err(WireError::NoRequestMemory { limit: Limit::RequestMemoryPerUser, .. })),
            "{refused:?}"
        );
        third.acquire_for_request(OF_USER, &bob, long).await.unwrap();
        drop(first);
        second.acquire_for_request(UNCOUNTED_REQUEST_BYTES + 1, &again, long).await.unwrap();
        // What is left is too little for another user.
        let mut fourth = BudgetGuard::default();
        fourth.acquire_for_request(OF_USER, &memory.share_of("carol"), long).await.unwrap();
        let refused = BudgetGuard::default().acquire_for_request(OF_USER, &memory.share_of("dora"), short).await;
        assert!(matches!(refused, Err(WireError::NoRequestMemory { limit: Limit::RequestMemory, .. })), "{refused:?}");
        BudgetGuard::default().acquire_for_request(UNCOUNTED_REQUEST_BYTES, &again, short).await.unwrap();
    }
}
