//! The end of deadlines of external reservations and of waits. Safe to run concurrently: each is checked again under
//! its locks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::ledger::{Change, Reservation, ScopeKey, ScopedChange};
use model::number::Epoch;

use crate::backend::Mode;
use crate::error::Error;
use crate::ledger_limits::MAX_BATCH_SCOPES;
use crate::ledger_rows;
use crate::ledger_sql as sql;
use crate::store::Store;
use crate::transaction::{Transaction, args};

/// The maximum number of reservations that a transaction ends.
const MAX_EXPIRED: usize = 100;
/// The maximum number of overdue reservations of which a transaction takes those that share scopes.
const MAX_OVERDUE: usize = 4 * MAX_EXPIRED;

impl Store {
    /// Ends overdue reservations in one transaction: the one with the earliest deadline, others of its pool, and those of
    /// further pools. Returns those that have ended; more may be due unless there is none.
    pub async fn expire(&self, epoch: Epoch) -> Result<Vec<Arc<Reservation>>, Error> {
        let mut tx = self.begin(Mode::Snapshot).await?;
        let overdue = overdue(&mut tx).await;
        let overdue = by_pool(tx.leave(overdue).await?);
        let mut scopes: BTreeSet<ScopeKey> = BTreeSet::new();
        let mut changes = Vec::new();
        for reservation in overdue {
            let of_one = reservation.request.scopes.clone();
            let new = of_one.in_lock_order().filter(|key| !scopes.contains(*key)).count();
            if scopes.len() + new > MAX_BATCH_SCOPES {
                continue;
            }
            scopes.extend(of_one.in_lock_order().cloned());
            changes.push(ScopedChange { scopes: of_one, change: Change::Expire { id: Arc::clone(reservation.id()) } });
            if changes.len() == MAX_EXPIRED {
                break;
            }
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
    let rows = tx.rows(sql::RESERVATIONS_OVERDUE, args![now_ms, MAX_OVERDUE as i64]).await?;
    rows.iter().map(ledger_rows::reservation).collect()
}

/// Orders reservations by pool, a pool by its first one: a transaction then locks few scopes.
fn by_pool(mut reservations: Vec<Reservation>) -> Vec<Reservation> {
    let mut pools: BTreeMap<ScopeKey, usize> = BTreeMap::new();
    for reservation in &reservations {
        let next = pools.len();
        pools.entry(reservation.request.scopes.pool().clone()).or_insert(next);
    }
    reservations.sort_by_key(|reservation| pools.get(reservation.request.scopes.pool()).copied());
    reservations
}
