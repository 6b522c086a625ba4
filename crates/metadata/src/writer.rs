//! The writer lock of an `SQLite` file, which has one writer at a time.
//!
//! Statements queue in front of the lock, and only the first of them waits for the lock itself. So a master waits for the
//! transaction that runs and for at most one statement, not for a queue of them: each of its ticks writes several times,
//! one transaction after the other.

use std::sync::Arc;

use tokio::sync::{Mutex, OwnedMutexGuard};

/// Whose transactions they are. Those of statements leave connections, and turns, for those of masters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    Statements,
    Masters,
}

/// The lock with the queue of statements.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    lock: Arc<Mutex<()>>,
    statements: Arc<Mutex<()>>,
}

/// The right to write. The next statement takes its turn once it is dropped.
#[derive(Debug)]
pub(crate) struct Writing {
    _lock: OwnedMutexGuard<()>,
    _turn: Option<OwnedMutexGuard<()>>,
}

impl Writer {
    pub(crate) async fn acquire(&self, lane: Lane) -> Writing {
        let turn = match lane {
            Lane::Statements => Some(Arc::clone(&self.statements).lock_owned().await),
            Lane::Masters => None,
        };
        Writing { _lock: Arc::clone(&self.lock).lock_owned().await, _turn: turn }
    }
}
