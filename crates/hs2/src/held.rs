//! The process-wide budget of bytes for replies that are held in memory until they are whole.
//!
//! A reply takes all that it may need at once, before it is read: two half-read replies never wait for each other.
//! Replies that find no budget wait for it within the stall limit, and then fail.

use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use crate::error::WireError;
use crate::limits::{HELD_REPLIES_BYTES, UNCOUNTED_REPLY_BYTES};

/// What one permit stands for.
const PERMIT_BYTES: usize = 1024;

static BUDGET: Semaphore = Semaphore::const_new(HELD_REPLIES_BYTES / PERMIT_BYTES);

/// The part of the budget that one reply has taken; given back when it is dropped.
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
        self.permit = Some(take_of(&BUDGET, bytes, stall).await?);
        Ok(())
    }
}

async fn take_of(budget: &Semaphore, bytes: usize, stall: Duration) -> Result<SemaphorePermit<'_>, WireError> {
    let permits = bytes.div_ceil(PERMIT_BYTES).min(HELD_REPLIES_BYTES / PERMIT_BYTES);
    let taken = timeout(stall, budget.acquire_many(u32::try_from(permits).unwrap_or(u32::MAX))).await;
    taken.ok().and_then(Result::ok).ok_or(WireError::Stalled("the limit for waiting until other replies are delivered"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn replies_wait_for_the_budget_and_no_longer_than_the_stall_limit() {
        let budget = Semaphore::new(100);
        let (short, long) = (Duration::from_millis(20), Duration::from_secs(10));
        let first = take_of(&budget, 60 * PERMIT_BYTES, long).await.unwrap();
        let refused = take_of(&budget, 60 * PERMIT_BYTES, short).await.map(drop);
        assert!(matches!(refused, Err(WireError::Stalled(_))), "{refused:?}");
        let (second, ()) = tokio::join!(take_of(&budget, 60 * PERMIT_BYTES, long), async { drop(first) });
        assert!(second.is_ok());
    }
}
