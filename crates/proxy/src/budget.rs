//! Byte budgets: how much memory sessions may make the proxy keep.
//!
//! Limits on counts bound nothing where the client chooses the size, so every byte that outlives its call is reserved here
//! first: settings and the replay log, statements that wait for an engine or run there, texts of control statements,
//! results of the proxy's own. [`Budget`] is the process's; limits of one session are checked by its owner. A reservation
//! that does not fit is refused with 54000 and has no effect.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use model::error::{ErrorKind, UserError};

/// The bytes that all sessions of a proxy may hold in total.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: usize,
    used: AtomicUsize,
}

impl Budget {
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, used: AtomicUsize::new(0) })
    }

    /// Reserves bytes until the returned value is dropped.
    pub(crate) fn hold(self: &Arc<Self>, bytes: usize) -> Result<Held, UserError> {
        let mut held = Held { budget: Arc::clone(self), bytes: 0 };
        held.resize(bytes)?;
        Ok(held)
    }

    fn take(&self, bytes: usize) -> Result<(), UserError> {
        let fits = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= self.limit);
        match self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits) {
            Ok(_) => Ok(()),
            Err(used) => Err(UserError::new(ErrorKind::ProgramLimit, "the proxy holds too much for its sessions")
                .detail(format!(
                    "Its sessions hold {used} bytes of at most {}, and {bytes} more do not fit.",
                    self.limit
                ))
                .hint("Retry the statement later, or connect to another proxy. The limit is proxy.max_held_bytes.")),
        }
    }
}

/// Reserved bytes of a [`Budget`]; dropping it returns them.
#[derive(Debug)]
pub(crate) struct Held {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Held {
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Changes the reservation. A smaller one always succeeds; a larger one that does not fit leaves it as it was.
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

impl Drop for Held {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    #[test]
    fn a_reservation_beyond_the_budget_is_refused_and_has_no_effect() {
        let budget = Budget::new(10);
        let mut one = budget.hold(6).unwrap();
        assert_eq!(budget.hold(5).unwrap_err().sqlstate(), "54000");
        assert!(one.resize(11).is_err() && one.resize(usize::MAX).is_err());
        let two = budget.hold(4).unwrap();
        drop(one);
        assert_eq!((two.bytes(), budget.used.load(Ordering::Relaxed)), (4, 4));
        drop(two);
        assert_eq!(budget.hold(10).unwrap().bytes(), 10);
    }
}
