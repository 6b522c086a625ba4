//! What a change decides, by the rows that its transaction reads.

use super::Ledger;
use super::data::{Data, Effect, Reservation, USER};
use super::parameters::Job;
use super::state::{Answer, Decision, Transaction, lock_of};

/// What follows from a decision.
pub(super) enum Next {
    /// There is something to write.
    Writes(Decision),
    /// There is nothing to write: the transaction is rolled back.
    Ends(Answer),
    /// A scope has no row yet.
    Inserts,
}

impl Ledger {
    /// Decides by what the transaction reads.
    pub(super) fn decide(&self, job: Job, view: &Data, transaction: &Transaction, audit_found: &mut bool) -> Next {
        let removed = self.without;
        let mut after = view.clone();
        let mut decision = Decision::default();
        match job {
            Job::Reserve { request, .. } | Job::Adopt { request, .. } | Job::Transfer { to: request, .. } => {
                let existing = view.of_key(request.key);
                let adopts = matches!(job, Job::Adopt { .. });
                if existing.is_some_and(|row| row.charged || !adopts) && !removed.request_key {
                    return Next::Ends(Answer::Done);
                }
                let anything = removed.only_locked_rows || removed.judged_under_lock || removed.read_under_lock;
                let usable = |scope: &usize| {
                    view.scopes[*scope].is_some() && (anything || transaction.locks & lock_of(*scope) != 0)
                };
                if !request.scopes().iter().all(usable) {
                    return Next::Inserts;
                }
                let from = match job {
                    Job::Transfer { from, .. } => Some(from),
                    _ => None,
                };
                let gone = from.and_then(|from| view.of_key(from.key)).filter(|row| row.charged);
                if from.is_some() && gone.is_none() {
                    return Next::Ends(Answer::Refused);
                }
                let of_old = gone.map(|row| row.request.amount);
                let held = transaction.tenant_held;
                let effect = view.effect(request, of_old, Some(request.amount), held);
                if !adopts && view.admits(request, effect) != Some(true) {
                    return Next::Ends(Answer::Refused);
                }
                after.charge(request, effect);
                if let Some(gone) = gone {
                    decision.reservations.push(Reservation { charged: false, ..gone });
                }
                decision.reservations.push(Reservation { request, charged: true });
                if !adopts {
                    decision.grant(request, effect);
                }
            }
            Job::End { request, .. } => {
                let Some(row) = view.of_key(request.key) else { return Next::Ends(Answer::Done) };
                if !row.charged && !removed.state_compared {
                    return Next::Ends(Answer::Done);
                }
                let mut effect = view.effect(request, Some(request.amount), None, transaction.tenant_held);
                if removed.row_amounts || removed.state_compared {
                    // The unit's new size is one larger.
                    let size = request.amount as i8 + i8::from(removed.row_amounts);
                    let shared = view.scopes[request.tenant].map_or(0, |tenant| tenant.shared_by(tenant.held, -size));
                    effect = Effect { policy: -size, pool: -size, shared };
                }
                after.charge(request, effect);
                decision.reservations.push(Reservation { charged: false, ..row });
            }
            Job::AlterGuarantee(guarantee) => {
                if view.guarantee == guarantee {
                    return Next::Ends(Answer::Done);
                }
                after.alter_guarantee(guarantee);
                decision.catalog = Some((view.user_limit, guarantee));
            }
            Job::AlterUser(limit) => {
                if view.user_limit == limit {
                    return Next::Ends(Answer::Done);
                }
                let locked = transaction.locks & lock_of(USER) != 0;
                if let Some(user) = after.scopes[USER].as_mut().filter(|_| locked) {
                    user.limit = limit;
                }
                decision.catalog = Some((limit, view.guarantee));
            }
            Job::Audit { scope, .. } => {
                if !view.drifts(scope) {
                    return Next::Ends(Answer::Done);
                }
                *audit_found = true;
                if let Some(row) = &mut after.scopes[scope] {
                    (row.held, row.shared_held) = view.computed(scope);
                }
            }
        }
        for (scope, row) in after.scopes.into_iter().enumerate() {
            decision.scopes[scope] = row.filter(|_| row != view.scopes[scope]);
        }
        Next::Writes(decision)
    }
}
