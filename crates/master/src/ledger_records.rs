//! What a master records in the ledger apart from changes of reservations: measured capacities, the expiry of external
//! reservations, the end of an admission round, and the audit. Each is recorded only when there is something to record, so a
//! steady tick does no work here.
//!
//! Capacities and the expiry precede the plan. A lost node then lowers the limit of its pool before the plan returns the
//! charges of its engines: in the other order another request could take the amount of a node that is gone. The snapshot
//! must have been read, because it says which pools have the capacity of their nodes and what is recorded of them. The plan
//! is still made from the older limits: the database refuses what no longer fits, and the next tick follows at once.
//!
//! What is remembered here is only when something was last recorded. A record that fails is written by a later tick; the
//! capacities of a deposed master are rejected by its epoch.

use std::collections::BTreeMap;
use std::time::Duration;

use model::ledger::{LedgerRecord, LedgerRecorded, Reservation, Role, ScopeKey};
use model::log_throttle::KeyedLogThrottle;
use model::millis;
use model::name::PoolName;
use model::number::Epoch;
use model::observation::ObservedNode;
use model::snapshot::Snapshot;

use crate::ctx::{ControllerCtx, Failure, FailureKind};
use crate::node_capacity::NodeCapacities;

/// The records of one term.
#[derive(Debug)]
pub(crate) struct LedgerRecords {
    capacities: NodeCapacities,
    /// How often the ledger is audited.
    audit: Duration,
    /// The last audit, at first the beginning of the term.
    audited_at: Duration,
    failed: KeyedLogThrottle<&'static str>,
}

impl LedgerRecords {
    /// The first audit follows one interval after `now`.
    pub fn new(audit: Duration, now: Duration) -> Self {
        Self { capacities: NodeCapacities::default(), audit, audited_at: now, failed: KeyedLogThrottle::default() }
    }

    /// Records what the plan must find in the database. Returns whether anything was recorded, so that the next tick may
    /// find more to do.
    pub async fn before_plan(
        &mut self,
        ctx: &dyn ControllerCtx,
        epoch: Epoch,
        snapshot: &Snapshot,
        nodes: Option<&[ObservedNode]>,
    ) -> Result<bool, Failure> {
        let mut is_recorded = false;
        let due = self.capacities.due(snapshot, nodes.unwrap_or_default(), ctx.clock());
        if !due.is_empty() {
            let pools: Vec<PoolName> = due.keys().cloned().collect();
            if self.record(ctx, epoch, &LedgerRecord::Capacity(due)).await?.is_some() {
                self.capacities.recorded(pools, ctx.clock());
                is_recorded = true;
            }
        }
        if external(snapshot).any(|reservation| reservation.is_overdue(snapshot.now_ms))
            && let Some(LedgerRecorded::Expired(ended)) = self.record(ctx, epoch, &LedgerRecord::Expiry).await?
        {
            for reservation in &ended {
                let (id, state, pool) = (reservation.id(), reservation.state, reservation.request.scopes.pool_name());
                tracing::info!(reservation = %id, %state, pool, "deadline of a reservation has passed");
            }
            is_recorded |= !ended.is_empty();
        }
        Ok(is_recorded)
    }

    /// Records what an admission round left in the queues, if it differs from what the snapshot has. `ungranted` is the number
    /// of requests of each pool that were granted by the plan and refused by the database.
    pub async fn admission(
        &mut self,
        ctx: &dyn ControllerCtx,
        epoch: Epoch,
        snapshot: &Snapshot,
        queued: &BTreeMap<PoolName, i64>,
        ungranted: &BTreeMap<String, i64>,
    ) -> Result<(), Failure> {
        let left = queued.iter().map(|(pool, queued)| {
            (pool, queued.saturating_add(ungranted.get(pool.as_str()).copied().unwrap_or_default()))
        });
        let differs = |(pool, queued): &(&PoolName, i64)| {
            let Some(Role::Pool(row)) = snapshot.ledger.scope(&ScopeKey::pool(pool)).map(|scope| scope.role) else {
                return false;
            };
            (row.queued, row.counted_epoch) != (*queued, epoch)
        };
        let changed: BTreeMap<PoolName, i64> =
            left.filter(differs).map(|(pool, queued)| (pool.clone(), queued)).collect();
        if !changed.is_empty() {
            self.record(ctx, epoch, &LedgerRecord::Admission(changed)).await?;
        }
        Ok(())
    }

    /// Audits the ledger if that is due. Every difference is a defect, and was corrected.
    pub async fn audit(&mut self, ctx: &dyn ControllerCtx, epoch: Epoch) -> Result<(), Failure> {
        let now = ctx.clock();
        if now.saturating_sub(self.audited_at) < self.audit {
            return Ok(());
        }
        // One that fails is repeated after an interval: it may be expensive.
        self.audited_at = now;
        if let Some(LedgerRecorded::Audited(drifts)) = self.record(ctx, epoch, &LedgerRecord::Audit).await? {
            for drift in drifts {
                let (stored, computed) = (drift.stored, drift.computed);
                tracing::error!(scope = %drift.scope, stored, computed, %drift, "the ledger held a wrong amount; corrected");
            }
        }
        Ok(())
    }

    /// Records; `None` if that failed and a later tick records it. The only failure is that this process is no longer master.
    async fn record(
        &mut self,
        ctx: &dyn ControllerCtx,
        epoch: Epoch,
        record: &LedgerRecord,
    ) -> Result<Option<LedgerRecorded>, Failure> {
        let what = match record {
            LedgerRecord::Admission(_) => "admission",
            LedgerRecord::Capacity(_) => "capacity",
            LedgerRecord::Expiry => "expiry",
            LedgerRecord::Audit => "audit",
        };
        match ctx.record(epoch, record).await {
            Ok(recorded) => {
                self.failed.clear(&what);
                Ok(Some(recorded))
            }
            Err(failure) => {
                match failure.kind() {
                    FailureKind::NotMaster => return Err(failure),
                    FailureKind::Stale => {}
                    FailureKind::Refused | FailureKind::Away => {
                        if let Some(times) = self.failed.hit(what, ctx.clock()) {
                            tracing::warn!(decision = "record in the ledger", record = what, %failure, times, "decision failed");
                        }
                    }
                }
                Ok(None)
            }
        }
    }
}

/// The time until the first deadline of an external reservation or wait, or the first end of a registered capacity's lease, that
/// has not passed.
pub(crate) fn next_deadline(snapshot: &Snapshot) -> Option<Duration> {
    let leases = snapshot.ledger.scopes().filter_map(|(_, scope)| scope.registered_until_ms());
    let deadlines = external(snapshot).filter_map(|reservation| reservation.deadline_ms).chain(leases);
    let next = deadlines.filter(|deadline_ms| *deadline_ms > snapshot.now_ms).min();
    next.map(|deadline_ms| millis::to_duration(deadline_ms.saturating_sub(snapshot.now_ms)))
}

/// The external reservations that have not ended: only those have a deadline that ends them.
fn external(snapshot: &Snapshot) -> impl Iterator<Item = &Reservation> {
    let reservations = snapshot.ledger.reservations().map(|reservation| &**reservation);
    reservations.filter(|reservation| reservation.request.holder.is_external() && !reservation.state.is_ended())
}
