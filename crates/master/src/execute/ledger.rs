//! The ledger changes that lead chains: each is written before the rest of its chain, in the order of the plan.
//!
//! The order of the plan is that in which requests were admitted, so a transaction never decides a later grant before an
//! earlier one. It also has at most as many changes and scopes as the database accepts. What the database refuses is not
//! an error: another holder was faster, and the next tick decides again from newer amounts.

use std::collections::HashSet;
use std::ops::Range;
use std::time::Duration;
use std::vec;

use model::ledger::{Change, Refusal, ScopedChange, State, unknown};
use planner::{Action, Chain, Decision};

use super::{Executed, Executor, throttle_key};
use crate::ctx::{Applied, ControllerCtx, Effect, Expected, Failure, FailureKind};

/// The most changes of one transaction.
const MAX_CHANGES: usize = 256;
/// The most scopes of one transaction.
const MAX_SCOPES: usize = 64;

/// What became of one transaction of leads.
#[derive(Debug, Default)]
pub(super) struct Led<'a> {
    pub executed: Executed,
    /// The chains whose change took effect, in the order of the plan.
    pub granted: Vec<&'a Chain>,
}

/// The changes that lead chains of one stage, as transactions that are written one after the other.
pub(super) struct Leads<'a> {
    executor: &'a Executor,
    ctx: &'a dyn ControllerCtx,
    expected: Expected<'a>,
    until: Duration,
    chains: Vec<&'a Chain>,
    changes: Vec<ScopedChange>,
    batches: vec::IntoIter<Range<usize>>,
    /// Whether no further transaction is written: its server is unavailable, or the master must stop.
    is_ended: bool,
}

/// The change that leads a chain.
pub(super) fn lead(chain: &Chain) -> Option<(&Decision, &ScopedChange)> {
    let decision = chain.decisions.first()?;
    match &decision.action {
        Action::Ledger(change) => Some((decision, change)),
        _ => None,
    }
}

impl<'a> Leads<'a> {
    pub(super) fn new(
        executor: &'a Executor,
        ctx: &'a dyn ControllerCtx,
        expected: Expected<'a>,
        stage: &'a [Chain],
        until: Duration,
    ) -> Self {
        let (chains, changes): (Vec<_>, Vec<_>) =
            stage.iter().filter_map(|chain| Some((chain, lead(chain)?.1.clone()))).unzip();
        let batches = batches(&changes).into_iter();
        Self { executor, ctx, expected, until, chains, changes, batches, is_ended: false }
    }

    /// Writes the next transaction; `None` after the last one. A transaction that fails leaves its chains to the next tick; if its
    /// server is unavailable, also those of the transactions after it.
    pub(super) async fn write_next(mut self) -> Option<(Led<'a>, Self)> {
        let batch = self.batches.next()?;
        let led = self.write(batch).await;
        Some((led, self))
    }

    async fn write(&mut self, batch: Range<usize>) -> Led<'a> {
        let Self { executor, ctx, expected, until, .. } = *self;
        let (chains, changes) = (&self.chains[batch.clone()], &self.changes[batch]);
        let mut led = Led::default();
        if self.is_ended || ctx.clock() >= until {
            led.executed.left += changes.len();
            note_ungranted(&mut led.executed, changes);
            return led;
        }
        if executor.shutdown.is_cancelled() {
            led.executed.stop = Some(Failure::Lost("shutting down".to_owned()));
            self.is_ended = true;
            return led;
        }
        match ctx.apply(Effect::Ledger { epoch: expected.epoch, changes }).await {
            Ok(Applied::Decided(decided)) => {
                for ((chain, change), decided) in chains.iter().zip(changes).zip(decided) {
                    let Some((decision, _)) = lead(chain) else { continue };
                    match decided {
                        // A name is reserved once: a repeat returns a reservation that has ended, and the next plan renews
                        // its slot.
                        Ok(reservation) if is_grant(&change.change) && !reservation.state.is_charged() => {
                            note_ungranted(&mut led.executed, std::slice::from_ref(change));
                        }
                        Ok(_) => {
                            executor.log_applied(decision, expected);
                            led.executed.applied += 1;
                            led.granted.push(chain);
                        }
                        Err(refusal) => {
                            note_ungranted(&mut led.executed, std::slice::from_ref(change));
                            executor.log_change_refused(decision, &change.change, &refusal, ctx.clock());
                        }
                    }
                }
            }
            Ok(_) => note_ungranted(&mut led.executed, changes),
            Err(failure) => {
                note_ungranted(&mut led.executed, changes);
                executor.log_batch_failed(&failure, changes.len(), ctx.clock());
                self.is_ended = matches!(failure.kind(), FailureKind::Away | FailureKind::NotMaster);
                if failure.kind() == FailureKind::NotMaster {
                    led.executed.stop = Some(failure);
                }
            }
        }
        led
    }
}

impl Executor {
    fn log_change_refused(&self, decision: &Decision, change: &Change, refusal: &Refusal, now: Duration) {
        let row = decision.row(0);
        let key = throttle_key(&row, "refused");
        let Some(times) = self.failed.lock().hit(key, now) else { return };
        let (decision, engine, slot, text) = (row.decision, row.engine, row.slot, text(change, refusal));
        if is_shortage(refusal) {
            tracing::debug!(decision, engine, slot, refusal = text, times, "reservation not granted");
        } else {
            tracing::info!(decision, engine, slot, refusal = text, times, "change of the ledger refused");
        }
    }

    fn log_batch_failed(&self, failure: &Failure, changes: usize, now: Duration) {
        let key = ("change the ledger".to_owned(), String::new(), String::new());
        let Some(times) = self.failed.lock().hit(key, now) else { return };
        match failure.kind() {
            FailureKind::Stale | FailureKind::NotMaster => {
                tracing::info!(decision = "change reservations", changes, %failure, times, "decision rejected");
            }
            FailureKind::Refused | FailureKind::Away => {
                tracing::warn!(decision = "change reservations", changes, %failure, times, "decision failed");
            }
        }
    }
}

/// The ranges of changes that are written in one transaction each, in order.
fn batches(changes: &[ScopedChange]) -> Vec<Range<usize>> {
    let mut batches = Vec::new();
    let (mut start, mut scopes) = (0, HashSet::new());
    for (at, change) in changes.iter().enumerate() {
        let of_change = || change.scopes.in_lock_order();
        let added = of_change().filter(|scope| !scopes.contains(scope)).count();
        if at > start && (at - start == MAX_CHANGES || scopes.len() + added > MAX_SCOPES) {
            batches.push(start..at);
            start = at;
            scopes.clear();
        }
        scopes.extend(of_change());
    }
    if start < changes.len() {
        batches.push(start..changes.len());
    }
    batches
}

/// Whether the change makes a request that the plan admitted a charged reservation.
const fn is_grant(change: &Change) -> bool {
    matches!(change, Change::Reserve(_) | Change::Admit { .. } | Change::Transfer { .. })
}

/// Requests that the plan granted and that have no reservation all the same.
fn note_ungranted(executed: &mut Executed, changes: &[ScopedChange]) {
    for change in changes {
        if is_grant(&change.change) {
            *executed.ungranted.entry(change.scopes.pool_name().to_owned()).or_default() += 1;
        }
    }
}

/// Whether the request fits no longer: normal, because limits and what is held change while a plan is made.
const fn is_shortage(refusal: &Refusal) -> bool {
    matches!(refusal, Refusal::Short(_) | Refusal::Closed(_) | Refusal::NoScope(_) | Refusal::MustQueue(_))
}

fn text(change: &Change, refusal: &Refusal) -> String {
    match (change.request(), refusal) {
        (Some(request), _) => refusal.error(request, None).text(),
        (None, Refusal::Short(shortage)) => shortage.detail(None),
        (None, Refusal::Unknown(id)) => unknown(id).text(),
        (None, Refusal::WrongState { id, from, to }) => {
            format!("reservation \"{id}\" is {} and cannot become {to}", from.map_or("missing", State::as_str))
        }
        (None, refusal) => format!("{refusal:?}"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use model::ledger::Scopes;
    use model::{PoolName, TenantName};

    use super::*;

    /// A change of a reservation of this tenant, in one pool.
    fn change(number: usize, tenant: usize) -> ScopedChange {
        let (tenant, pool) = (TenantName::new(format!("t_{tenant}")).unwrap(), PoolName::new("rp_1").unwrap());
        let change = Change::Admit { id: format!("r-{number}").into() };
        ScopedChange { scopes: Scopes::new(&tenant, &pool, None, None), change }
    }

    #[test]
    fn a_batch_has_at_most_256_changes() {
        let changes: Vec<ScopedChange> = (0..600).map(|number| change(number, 1)).collect();
        assert_eq!(batches(&changes), [0..256, 256..512, 512..600]);
        assert!(batches(&[]).is_empty());
    }

    #[test]
    fn a_batch_has_at_most_64_scopes() {
        // The pool and 63 tenants.
        let changes: Vec<ScopedChange> = (0..130).map(|number| change(number, number)).collect();
        assert_eq!(batches(&changes), [0..63, 63..126, 126..130]);
        // Few tenants that alternate are in one.
        let changes: Vec<ScopedChange> = (0..200).map(|number| change(number, number % 63)).collect();
        assert_eq!(batches(&changes), [Range { start: 0, end: 200 }]);
    }
}
