//! The ledger changes that lead chains: those of a stage are written before the rest of its chains, in the order of the plan.
//!
//! The order of the plan is that in which requests were admitted, so a transaction never decides a later grant before an
//! earlier one. It also has at most as many changes and scopes as the database accepts. What the database refuses is not
//! an error: another holder was faster, and the next tick decides again from newer amounts.

use std::collections::HashSet;
use std::ops::Range;
use std::time::Duration;

use model::ledger::{Change, Refusal, ScopedChange, State, unknown};
use planner::{Action, Chain, Decision};

use super::{Executed, Executor, throttle_key};
use crate::ctx::{Applied, ControllerCtx, Effect, Expected, Failure, FailureKind};

/// The most changes of one transaction.
const MAX_CHANGES: usize = 256;
/// The most scopes of one transaction.
const MAX_SCOPES: usize = 64;

/// What became of the changes that lead the chains of a stage.
#[derive(Debug, Default)]
pub(super) struct Led {
    pub executed: Executed,
    /// The chains, by index, that stop here.
    pub stopped: HashSet<usize>,
}

/// The change that leads a chain.
pub(super) fn lead(chain: &Chain) -> Option<(&Decision, &ScopedChange)> {
    let decision = chain.decisions.first()?;
    match &decision.action {
        Action::Ledger(change) => Some((decision, change)),
        _ => None,
    }
}

impl Executor {
    /// Writes the changes that lead the chains, one transaction after the other. A transaction that fails leaves its chains
    /// to the next tick; if its server is unavailable, also those of the transactions after it.
    pub(super) async fn write_leads(
        &self,
        ctx: &dyn ControllerCtx,
        expected: Expected<'_>,
        chains: &[Chain],
        until: Duration,
    ) -> Led {
        let leads = chains.iter().enumerate().filter_map(|(at, chain)| Some((at, lead(chain)?)));
        let (decisions, changes): (Vec<_>, Vec<_>) =
            leads.map(|(at, (decision, change))| ((at, decision), change.clone())).unzip();
        let mut led = Led { stopped: decisions.iter().map(|(at, _)| *at).collect(), ..Led::default() };
        let mut is_away = false;
        for batch in batches(&changes) {
            let (decisions, changes) = (&decisions[batch.clone()], &changes[batch]);
            if led.executed.stop.is_some() || is_away || ctx.clock() >= until {
                led.executed.left += changes.len();
                note_ungranted(&mut led.executed, changes);
                continue;
            }
            if self.shutdown.is_cancelled() {
                led.executed.stop = Some(Failure::Lost("shutting down".to_owned()));
                continue;
            }
            match ctx.apply(Effect::Ledger { epoch: expected.epoch, changes }).await {
                Ok(Applied::Decided(decided)) => {
                    for (((at, decision), change), decided) in decisions.iter().zip(changes).zip(decided) {
                        match decided {
                            // A name is reserved once: a repeat returns a reservation that has ended, and the next plan renews
                            // its slot.
                            Ok(reservation) if is_grant(&change.change) && !reservation.state.is_charged() => {
                                note_ungranted(&mut led.executed, std::slice::from_ref(change));
                            }
                            Ok(_) => {
                                self.log_applied(decision, expected);
                                led.executed.applied += 1;
                                led.stopped.remove(at);
                            }
                            Err(refusal) => {
                                note_ungranted(&mut led.executed, std::slice::from_ref(change));
                                self.log_change_refused(decision, &change.change, &refusal, ctx.clock());
                            }
                        }
                    }
                }
                Ok(_) => note_ungranted(&mut led.executed, changes),
                Err(failure) => {
                    note_ungranted(&mut led.executed, changes);
                    self.log_batch_failed(&failure, changes.len(), ctx.clock());
                    is_away = failure.kind() == FailureKind::Away;
                    if failure.kind() == FailureKind::NotMaster {
                        led.executed.stop = Some(failure);
                    }
                }
            }
        }
        led
    }

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
