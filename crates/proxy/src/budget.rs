//! Byte budgets: how much memory sessions may make the proxy keep.
//!
//! Limits on counts bound nothing where the client chooses the size, so every byte that outlives its call is acquired here
//! first: settings and the replay log, statements that wait for an engine or run there, texts of control statements,
//! results of the proxy's own. [`Budget`] is the process's; limits of one session are checked by its owner. What
//! does not fit is refused with 54000 and has no effect.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hs2::{Limit, LimitHits};
use model::error::{ErrorKind, UserError};

/// The bytes that all sessions of a proxy may hold in total.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: usize,
    hits: Arc<LimitHits>,
    used: AtomicUsize,
}

impl Budget {
    pub(crate) fn new(limit: usize, hits: Arc<LimitHits>) -> Arc<Self> {
        Arc::new(Self { limit, hits, used: AtomicUsize::new(0) })
    }

    /// Counts what is refused because of a limit of one session.
    pub(crate) fn limit_reached(&self, limit: Limit) {
        self.hits.hit(limit);
    }

    /// Acquires bytes until the guard is dropped.
    pub(crate) fn acquire(self: &Arc<Self>, bytes: usize) -> Result<BudgetGuard, UserError> {
        let mut guard = BudgetGuard { budget: Arc::clone(self), bytes: 0 };
        guard.resize(bytes)?;
        Ok(guard)
    }

    fn take(&self, bytes: usize) -> Result<(), UserError> {
        let fits = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= self.limit);
        match self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits) {
            Ok(_) => Ok(()),
            Err(used) => {
                self.hits.hit(Limit::HeldBytes);
                Err(UserError::new(ErrorKind::ProgramLimit, "sessions of the proxy hold too much memory")
                    .detail(format!(
                        "Its sessions hold {used} bytes of at most {}, and {bytes} more do not fit.",
                        self.limit
                    ))
                    .hint("Retry the statement later, or connect to another proxy. The limit is proxy.max_held_bytes."))
            }
        }
    }
}

/// Acquired bytes of a [`Budget`]; dropping the guard releases them.
#[derive(Debug)]
pub(crate) struct BudgetGuard {
    budget: Arc<Budget>,
    bytes: usize,
}

impl BudgetGuard {
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Acquires or releases the difference. Fewer bytes always succeed; more that do not fit leave the guard as it was.
    pub(crate) fn resize(&mut self, bytes: usize) -> Result<(), UserError> {
        if bytes > self.bytes {
            self.budget.take(bytes - self.bytes)?;
        } else {
            self.budget.used.fetch_sub(self.bytes - bytes, Ordering::Relaxed);
        }
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for BudgetGuard {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    #[test]
    fn bytes_beyond_the_budget_are_refused_without_effect() {
        let budget = Budget::new(10, Arc::default());
        let mut one = budget.acquire(6).unwrap();
        assert_eq!(budget.acquire(5).unwrap_err().sqlstate(), "54000");
        assert!(one.resize(11).is_err() && one.resize(usize::MAX).is_err());
        let two = budget.acquire(4).unwrap();
        drop(one);
        assert_eq!(budget.hits.count(Limit::HeldBytes), 3);
        assert_eq!((two.bytes(), budget.used.load(Ordering::Relaxed)), (4, 4));
        drop(two);
        assert_eq!(budget.acquire(10).unwrap().bytes(), 10);
    }
}
