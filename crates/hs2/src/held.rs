//! The process-wide budgets of bytes for messages that are held in memory until they are whole: one for replies of backends,
//! one for requests of clients.
//!
//! A message takes all that it may need at once, before it is read: two half-read messages never wait for each other.
//! Messages that find no budget wait for it, in their order, within the stall limit, and then fail.

use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use crate::error::WireError;
use crate::limits::{HELD_REPLIES_BYTES, RECEIVED_REQUESTS_BYTES, UNCOUNTED_REPLY_BYTES, UNCOUNTED_REQUEST_BYTES};

/// What one permit stands for.
const PERMIT_BYTES: usize = 1024;

static REPLIES: Semaphore = Semaphore::const_new(HELD_REPLIES_BYTES / PERMIT_BYTES);
static REQUESTS: Semaphore = Semaphore::const_new(RECEIVED_REQUESTS_BYTES / PERMIT_BYTES);

/// The part of a budget that one message has taken; given back when it is dropped.
#[derive(Default)]
pub(crate) struct Held {
    permit: Option<SemaphorePermit<'static>>,
}

impl Held {
    /// Takes as much as a reply of `bytes` bytes needs, unless that was taken already or is too little to count.
    pub(crate) async fn take(&mut self, bytes: usize, stall: Duration) -> Result<(), WireError> {
        if bytes <= UNCOUNTED_REPLY_BYTES || self.permit.is_some() {
            return Ok(());
        }
        let permit = take_of(&REPLIES, bytes.min(HELD_REPLIES_BYTES), stall).await;
        self.permit =
            Some(permit.ok_or(WireError::Stalled("the limit for waiting until other replies are delivered"))?);
        Ok(())
    }

    /// The same for a request.
    pub(crate) async fn take_for_request(&mut self, bytes: usize, stall: Duration) -> Result<(), WireError> {
        if bytes <= UNCOUNTED_REQUEST_BYTES || self.permit.is_some() {
            return Ok(());
        }
        let permit = take_of(&REQUESTS, bytes.min(RECEIVED_REQUESTS_BYTES), stall).await;
        self.permit =
            Some(permit.ok_or(WireError::Stalled("the limit for waiting until other requests have arrived"))?);
        Ok(())
    }
}

async fn take_of(budget: &Semaphore, bytes: usize, stall: Duration) -> Option<SemaphorePermit<'_>> {
    let permits = u32::try_from(bytes / PERMIT_BYTES).unwrap_or(u32::MAX);
    timeout(stall, budget.acquire_many(permits)).await.ok().and_then(Result::ok)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn messages_wait_for_the_budget_and_no_longer_than_the_stall_limit() {
        let budget = Semaphore::new(100);
        let (short, long) = (Duration::from_millis(20), Duration::from_secs(10));
        let first = take_of(&budget, 60 * PERMIT_BYTES, long).await.unwrap();
        assert!(take_of(&budget, 60 * PERMIT_BYTES, short).await.is_none());
        let (second, ()) = tokio::join!(take_of(&budget, 60 * PERMIT_BYTES, long), async { drop(first) });
        assert!(second.is_some());
    }
}
