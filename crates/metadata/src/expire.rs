//! The end of deadlines of external reservations and of waits. Safe to run concurrently: each is checked again under
//! its locks.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::ledger::{Change, Reservation, ScopeKey, ScopedChange};
use model::number::Epoch;

use crate::backend::Mode;
use crate::error::Error;
use crate::ledger::MAX_BATCH_SCOPES;
use crate::ledger_rows;
use crate::ledger_sql as sql;
use crate::store::Store;
use crate::transaction::{Transaction, args};

/// The maximum number of reservations that a transaction ends.
const MAX_EXPIRED: usize = 100;

impl Store {
    /// Ends overdue reservations, those with the earliest deadline first, in one transaction. Returns those that have
    /// ended; more may be due unless there is none.
    pub async fn expire(&self, epoch: Epoch) -> Result<Vec<Arc<Reservation>>, Error> {
        let mut tx = self.begin(Mode::Snapshot).await?;
        let overdue = overdue(&mut tx).await;
        let overdue = tx.leave(overdue).await?;
        let mut scopes: BTreeSet<ScopeKey> = BTreeSet::new();
        let mut changes = Vec::new();
        for reservation in overdue {
            let of_one = reservation.request.scopes.clone();
            scopes.extend(of_one.in_lock_order().cloned());
            if scopes.len() > MAX_BATCH_SCOPES {
                break;
            }
            changes.push(ScopedChange { scopes: of_one, change: Change::Expire { id: Arc::clone(reservation.id()) } });
        }
        if changes.is_empty() {
            return Ok(Vec::new());
        }
        let mut ended = Vec::new();
        for decided in self.ledger(epoch, &changes).await? {
            match decided {
                Ok(reservation) if reservation.state.is_ended() => ended.push(reservation),
                Ok(_) => {}
                Err(refusal) => tracing::warn!(?refusal, "overdue reservation cannot end"),
            }
        }
        Ok(ended)
    }
}

async fn overdue(tx: &mut Transaction) -> Result<Vec<Reservation>, Error> {
    let now_ms = tx.now_ms().await?;
    let rows = tx.rows(sql::RESERVATIONS_OVERDUE, args![now_ms, MAX_EXPIRED as i64]).await?;
    rows.iter().map(ledger_rows::reservation).collect()
}
