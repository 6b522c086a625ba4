//! The ledger of the database: the pure operations of `model::ledger` on the rows of the snapshot.

use std::cell::LazyCell;
use std::collections::HashSet;
use std::sync::Arc;

use foldhash::fast::RandomState;
use master::Failure;
use model::engine_name::EngineName;
use model::ledger::{
    Change, Decided, End, LedgerRecord, LedgerRecorded, Moment, Reservation, Role, ScopeKey, ScopedChange, State,
};
use model::number::Epoch;

use super::Database;
use crate::mutant::Mutant;

impl Database {
    /// Changes reservations in one transaction, in this order.
    pub fn change_ledger(&mut self, epoch: Epoch, changes: &[ScopedChange]) -> Result<Vec<Decided>, Failure> {
        self.check(epoch)?;
        Ok(changes.iter().map(|change| self.change(&change.change, epoch)).collect())
    }

    fn change(&mut self, change: &Change, epoch: Epoch) -> Decided {
        let leaks = self.mutant == Some(Mutant::ChargeLeaks) && matches!(change, Change::End(_));
        let snapshot = &mut self.simulation_mut().desired.snapshot;
        let before =
            leaks.then(|| snapshot.ledger.scopes().map(|(key, scope)| (key.clone(), *scope)).collect::<Vec<_>>());
        let decided = snapshot.ledger.apply(change, Moment { now_ms: snapshot.now_ms, epoch });
        if let Some(before) = before.filter(|_| decided.is_ok()) {
            for (key, scope) in before {
                snapshot.ledger.put_scope(key, scope);
            }
        }
        if matches!(change, Change::End(_) | Change::Transfer { .. }) {
            self.forget_ended();
        }
        decided
    }

    /// A snapshot has the ended reservations of its engines only.
    pub(super) fn forget_ended(&mut self) {
        let snapshot = &mut self.simulation_mut().desired.snapshot;
        let engines = &snapshot.engines;
        // Most ledgers have no ended reservation.
        let names =
            LazyCell::new(|| engines.iter().map(|record| record.name.as_str()).collect::<HashSet<_, RandomState>>());
        snapshot.ledger.forget_ended(|reservation| names.contains(&**reservation.id()));
    }

    /// Whether the engine's reservation is charged.
    pub fn is_charged(&self, engine: &EngineName) -> bool {
        self.state().ledger.reservation(engine.as_str()).is_some_and(|held| held.state.is_charged())
    }

    /// Ends the reservations of slots that are gone, which only a mutant does.
    pub(super) fn end_charges_of_missing_slots(&mut self) {
        if self.mutant != Some(Mutant::ChargeEndsWithSlot) {
            return;
        }
        let slots: HashSet<String> = self.state().slots.iter().map(|slot| slot.engine().to_string()).collect();
        let charged = self.state().ledger.reservations().filter(|held| held.state.is_charged());
        let gone: Vec<Arc<str>> =
            charged.map(|held| Arc::clone(held.id())).filter(|id| !slots.contains(&**id)).collect();
        let snapshot = &mut self.simulation_mut().desired.snapshot;
        let at = Moment { now_ms: snapshot.now_ms, epoch: snapshot.master.epoch };
        for id in gone {
            let _ = snapshot.ledger.end(&End { id, state: State::Released, reason: "its slot is gone".into() }, at);
        }
    }

    /// The reservations of other programs that have not ended and whose deadlines have passed.
    fn overdue(&self) -> Vec<Arc<str>> {
        let now_ms = self.state().now_ms;
        let is_overdue = |reservation: &&Arc<Reservation>| {
            let is_external = reservation.request.holder.is_external();
            is_external && !reservation.state.is_ended() && reservation.is_overdue(now_ms)
        };
        self.state().ledger.reservations().filter(is_overdue).map(|one| Arc::clone(one.id())).collect()
    }

    /// Records what a master has measured or counted.
    pub fn record_ledger(&mut self, epoch: Epoch, record: &LedgerRecord) -> Result<LedgerRecorded, Failure> {
        let overdue = if *record == LedgerRecord::Expiry { self.overdue() } else { Vec::new() };
        // Without an overdue reservation, there is no transaction.
        if *record == LedgerRecord::Expiry && overdue.is_empty() {
            return Ok(LedgerRecorded::Expired(Vec::new()));
        }
        self.check(epoch)?;
        Ok(match record {
            LedgerRecord::Admission(queued) => {
                let ledger = &mut self.simulation_mut().desired.snapshot.ledger;
                for (pool, queued) in queued {
                    let key = ScopeKey::pool(pool);
                    let Some(mut scope) = ledger.scope(&key).copied() else { continue };
                    if let Role::Pool(row) = &mut scope.role {
                        (row.queued, row.counted_epoch) = (*queued, epoch);
                    }
                    ledger.put_scope(key, scope);
                }
                LedgerRecorded::Done
            }
            LedgerRecord::Capacity(capacities) => {
                self.simulation_mut().measure(capacities.clone());
                LedgerRecorded::Done
            }
            LedgerRecord::Expiry => {
                let ended = overdue.into_iter().filter_map(|id| self.change(&Change::Expire { id }, epoch).ok());
                LedgerRecorded::Expired(ended.collect())
            }
            LedgerRecord::Audit => {
                let audited = self.simulation_mut().desired.snapshot.ledger.audit();
                LedgerRecorded::Audited(audited.map_err(|refusal| Failure::Refused(format!("{refusal:?}")))?)
            }
        })
    }
}
