//! The ledger of the fake: that of the simulation's snapshot, which the pure operations change.

use std::sync::Arc;

use model::ledger::{
    Change, Decided, LedgerRecord, LedgerRecorded, Measured, Moment, Reservation, Role, ScopeKey, ScopeKind,
    ScopedChange, derive,
};
use model::number::Epoch;

use super::journal::Entry;
use super::{Fake, State};
use crate::ctx::{Applied, Failure};

impl Fake {
    /// One transaction.
    pub(super) async fn change_ledger(&self, epoch: Epoch, changes: &[ScopedChange]) -> Result<Applied, Failure> {
        let all: Vec<String> = changes.iter().map(|change| text(&change.change)).collect();
        let effect = format!("ledger: {}", all.join(", "));
        let call = format!("effect: {effect}");
        self.delay(&call).await;
        let mut state = self.state();
        assert!(state.lease.is_valid(), "an effect without a valid lease");
        state.journal.push(Entry::Effect(effect));
        state.begin(&call)?;
        state.guard(epoch)?;
        let decided = changes.iter().map(|change| state.change(&change.change, epoch)).collect();
        state.journal.push(Entry::Changes(changes.to_vec()));
        state.end(&call)?;
        Ok(Applied::Decided(decided))
    }

    pub(super) fn record_ledger(&self, epoch: Epoch, record: &LedgerRecord) -> Result<LedgerRecorded, Failure> {
        let mut state = self.state();
        state.guard(epoch)?;
        state.begin("database: record in the ledger")?;
        state.journal.push(Entry::Record(record.clone()));
        let recorded = state.record(epoch, record);
        state.end("database: record in the ledger")?;
        Ok(recorded)
    }
}

impl State {
    fn change(&mut self, change: &Change, epoch: Epoch) -> Decided {
        let snapshot = &mut self.simulation.desired.snapshot;
        let decided = snapshot.ledger.apply(change, Moment { now_ms: snapshot.now_ms, epoch });
        // The snapshot has only the ended reservations of current engines.
        let current: Vec<String> = snapshot.slots.iter().map(|slot| slot.engine().to_string()).collect();
        snapshot.ledger.forget_ended(|reservation| current.iter().any(|name| **name == **reservation.id()));
        decided
    }

    fn record(&mut self, epoch: Epoch, record: &LedgerRecord) -> LedgerRecorded {
        match record {
            LedgerRecord::Admission(queued) => {
                let ledger = &mut self.simulation.desired.snapshot.ledger;
                for (pool, queued) in queued {
                    let key = ScopeKey::pool(pool);
                    let mut scope = *ledger.scope(&key).unwrap();
                    let Role::Pool(row) = &mut scope.role else { panic!("{key} is no pool") };
                    (row.queued, row.counted_epoch) = (*queued, epoch);
                    ledger.put_scope(key, scope);
                }
                LedgerRecorded::Done
            }
            LedgerRecord::Capacity(capacities) => {
                let snapshot = &mut self.simulation.desired.snapshot;
                let measured: Measured = capacities.clone();
                let scopes = derive(&snapshot.catalog, &measured, &[].into()).unwrap();
                let is_new = |key: &ScopeKey| {
                    key.kind == ScopeKind::Pool && capacities.keys().any(|pool| pool.as_str() == &*key.name)
                };
                for (key, scope) in scopes.iter().filter(|(key, _)| is_new(key)) {
                    snapshot.ledger.set_limits(key, scope).unwrap();
                }
                LedgerRecorded::Done
            }
            LedgerRecord::Expiry => {
                let snapshot = &self.simulation.desired.snapshot;
                let is_overdue = |reservation: &&Arc<Reservation>| {
                    reservation.request.holder.is_external() && reservation.is_overdue(snapshot.now_ms)
                };
                let overdue: Vec<Arc<str>> =
                    snapshot.ledger.reservations().filter(is_overdue).map(|one| Arc::clone(one.id())).collect();
                let ended = overdue.into_iter().map(|id| self.change(&Change::Expire { id }, epoch).unwrap());
                LedgerRecorded::Expired(ended.collect())
            }
            LedgerRecord::Audit => LedgerRecorded::Audited(self.simulation.desired.snapshot.ledger.audit().unwrap()),
        }
    }
}

fn text(change: &Change) -> String {
    let word = match change {
        Change::Reserve(_) => "reserve",
        Change::Adopt { .. } => "adopt",
        Change::Confirm(_) => "confirm",
        Change::End(_) => "end",
        Change::Admit { .. } => "admit",
        Change::Transfer { .. } => "transfer",
        other => panic!("a master does not decide {other:?}"),
    };
    format!("{word} {}", change.id())
}
