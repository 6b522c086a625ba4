//! The judge of the ledger: what scopes hold is what their reservations are charged, nothing is negative, and no charge ends
//! while its engine runs.
//!
//! The sums of the reservations (`sums`) are compared with the scopes of those that have changed; the ledger's own audit compares
//! all scopes now and then.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::ledger::{Change, Ledger, Role, ScopeKey, ScopedChange};
use model::resource::Component;

use crate::activity::Cause;
use crate::state::State;

impl State {
    /// I1, I6: what scopes hold is what their reservations are charged, and is not negative.
    pub(super) fn judge_ledger(&mut self, cause: Cause) {
        let ledger = &self.database.state().ledger;
        let sums = &mut self.judge.seen.sums;
        let changed = sums.follow(ledger);
        let mut wrong = changed.scopes.iter().find_map(|key| sums.difference(ledger, key));
        if sums.is_out_of_range {
            wrong = Some("a sum leaves 64 bits".to_owned());
        }
        let is_negative =
            |scope: &model::ledger::Scope| Component::ALL.iter().any(|each| scope.counter.held.get(*each) < 0);
        let has_negative = ledger.scopes_in_no_order().any(|(_, scope)| is_negative(scope));
        if let Some(wrong) = wrong {
            self.violated(format!("the ledger does not add up: {wrong}"));
        }
        if has_negative {
            self.violated("the ledger holds a negative amount".to_owned());
        }
        let runs = |id: &&Arc<str>| self.agents.iter().any(|(name, agent)| name.as_str() == &***id && !agent.has_ended);
        let is_judged = matches!(cause, Cause::Scale | Cause::Statement);
        if let Some(engine) = changed.uncharged.iter().filter(|_| is_judged).find(runs) {
            self.violated(format!("the charge of engine {engine} ends while it runs"));
        }
    }

    /// The same for all scopes, as the ledger's audit computes them.
    pub(super) fn judge_all_sums(&mut self) {
        let ledger = &self.database.state().ledger;
        let sums = &self.judge.seen.sums;
        let mut wrong = match ledger.drifts() {
            Ok(drifts) => drifts.first().map(ToString::to_string),
            Err(refusal) => Some(format!("{refusal:?}")),
        };
        wrong = wrong.or_else(|| ledger.scopes().find_map(|(key, _)| sums.difference(ledger, key)));
        if let Some(wrong) = wrong {
            self.violated(format!("the ledger does not add up: {wrong}"));
        }
    }

    /// Checks that a batch of changes raises nothing further above its limit.
    pub fn judge_grants(&mut self, before: &Excess, changes: &[ScopedChange]) {
        let adopts = changes.iter().any(|one| matches!(one.change, Change::Adopt { .. } | Change::Transfer { .. }));
        let after = Excess::new(&self.database.state().ledger);
        if !adopts && before.scopes == after.scopes && after.is_above(before) {
            self.violated("a grant exceeds a limit".to_owned());
        }
    }
}

/// What is held above limits.
#[derive(Debug)]
pub struct Excess {
    /// The number of scopes.
    scopes: usize,
    /// By counter and component, of the scopes that hold anything above a limit.
    held: BTreeMap<ScopeKey, Vec<i64>>,
}

impl Excess {
    pub fn new(ledger: &Ledger) -> Self {
        let (mut scopes, mut held) = (0, BTreeMap::new());
        for (key, scope) in ledger.scopes_in_no_order() {
            scopes += 1;
            let parts = match &scope.role {
                Role::Pool(row) => [Some(row.shared), Some(row.unguaranteed)],
                Role::Principal | Role::Tenant(_) => [None; 2],
            };
            let counters = [Some(scope.counter)].into_iter().chain(parts).flatten();
            let above = counters.flat_map(|counter| {
                Component::ALL.map(|each| counter.left(each).map_or(0, |left| left.saturating_neg().max(0)))
            });
            if above.clone().any(|above| above > 0) {
                held.insert(key.clone(), above.collect());
            }
        }
        Self { scopes, held }
    }

    fn is_above(&self, other: &Self) -> bool {
        self.held.iter().any(|(key, after)| match other.held.get(key) {
            Some(before) => before.iter().zip(after).any(|(before, after)| after > before),
            None => true,
        })
    }
}
