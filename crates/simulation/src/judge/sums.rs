//! The judge of the ledger: what scopes hold is what their reservations are charged, nothing is negative, and no charge ends
//! while its engine runs.
//!
//! The sums follow each change of a reservation. They are computed here once more, apart from the ledger, and compared with the
//! scopes of the reservations that have changed; the ledger's own audit compares all scopes now and then.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use model::ledger::{Change, Ledger, Parts, Reservation, Role, ScopeKey, ScopedChange};
use model::resource::{Amount, Component};

use super::seen::differing;
use crate::activity::Cause;
use crate::state::State;

/// What the reservations add up to.
#[derive(Debug, Default)]
pub(super) struct Sums {
    /// By id, as they were last seen.
    reservations: Vec<Arc<Reservation>>,
    /// The charged reservations of each lineage, by id.
    lineages: HashMap<Arc<str>, BTreeMap<Arc<str>, Arc<Reservation>>>,
    held: HashMap<ScopeKey, Amount>,
    /// A sum has left 64 bits.
    is_out_of_range: bool,
}

/// What has changed.
#[derive(Debug, Default)]
pub(super) struct Changed {
    scopes: BTreeSet<ScopeKey>,
    /// The reservations that were charged and are not any more.
    uncharged: Vec<Arc<str>>,
}

impl Sums {
    pub fn of(ledger: &Ledger) -> Self {
        let mut sums = Self::default();
        sums.follow(ledger);
        sums
    }

    /// Takes the changes of a ledger's reservations into account.
    fn follow(&mut self, ledger: &Ledger) -> Changed {
        let now: Vec<&Arc<Reservation>> = ledger.reservations().collect();
        let (was, is) = differing(&self.reservations, &now, |was, is| Arc::ptr_eq(was, is));
        let new: Vec<Arc<Reservation>> = now[is].iter().map(|one| Arc::clone(one)).collect();
        let old: Vec<Arc<Reservation>> = self.reservations.splice(was, new.iter().cloned()).collect();
        let new_by_id: BTreeMap<&Arc<str>, &Arc<Reservation>> = new.iter().map(|one| (one.id(), one)).collect();
        let mut changed = Changed::default();
        let mut added = new_by_id.clone();
        for before in &old {
            match new_by_id.get(before.id()) {
                Some(after) if Arc::ptr_eq(before, after) => drop(added.remove(before.id())),
                after => {
                    if before.state.is_charged() && after.is_none_or(|after| !after.state.is_charged()) {
                        changed.uncharged.push(Arc::clone(before.id()));
                    }
                    self.count(before, false, &mut changed);
                }
            }
        }
        for after in added.values() {
            self.count(after, true, &mut changed);
        }
        changed
    }

    /// Adds or removes a reservation.
    fn count(&mut self, one: &Arc<Reservation>, is_added: bool, changed: &mut Changed) {
        changed.scopes.extend(one.request.scopes.in_lock_order().cloned());
        if !one.state.is_charged() {
            return;
        }
        let of_lineage = self.lineages.get(&one.request.lineage).and_then(charged_to_policy);
        let lineage = self.lineages.entry(Arc::clone(&one.request.lineage)).or_default();
        if is_added {
            lineage.insert(Arc::clone(one.id()), Arc::clone(one));
        } else {
            lineage.remove(one.id());
        }
        let after = charged_to_policy(lineage);
        if lineage.is_empty() {
            self.lineages.remove(&one.request.lineage);
        }
        let requests = (one.request.scopes.pool().clone(), *one.amounts.requests());
        self.add([requests], is_added);
        self.add(of_lineage.into_iter().flatten(), false);
        self.add(after.into_iter().flatten(), true);
    }

    fn add(&mut self, amounts: impl IntoIterator<Item = (ScopeKey, Amount)>, is_added: bool) {
        for (key, amount) in amounts {
            let held = self.held.entry(key).or_default();
            let sum = if is_added { held.checked_add(&amount) } else { held.checked_sub(&amount) };
            self.is_out_of_range |= sum.is_none();
            *held = sum.unwrap_or(*held);
        }
    }

    fn held(&self, key: &ScopeKey) -> Amount {
        self.held.get(key).copied().unwrap_or_default()
    }

    /// How a scope differs from the sums.
    fn difference(&self, ledger: &Ledger, key: &ScopeKey) -> Option<String> {
        let scope = ledger.scope(key)?;
        let (stored, computed) = (scope.counter.held, self.held(key));
        if stored != computed {
            return Some(format!("{key} holds {stored:?} instead of {computed:?}"));
        }
        let Role::Pool(row) = &scope.role else { return None };
        let mut parts = Some(Parts::default());
        for (tenant, scope) in ledger.scopes_in_no_order() {
            let is_of_pool = tenant.tenant_and_pool().is_some_and(|(_, pool)| *pool == *key.name);
            if let (true, Role::Tenant(guarantees)) = (is_of_pool, scope.role) {
                parts = parts.and_then(|parts| parts.checked_add(&guarantees.parts(&self.held(tenant))));
            }
        }
        let stored = Parts { shared: row.shared.held, unguaranteed: row.unguaranteed.held };
        (parts != Some(stored)).then(|| format!("{key} holds the parts {stored:?} instead of {parts:?}"))
    }
}

/// What a lineage is charged in each scope that is charged nominal sizes.
fn charged_to_policy(lineage: &BTreeMap<Arc<str>, Arc<Reservation>>) -> Option<Vec<(ScopeKey, Amount)>> {
    let first = lineage.values().next()?;
    let most = lineage.values().fold(Amount::ZERO, |most, one| most.maximum(one.amounts.nominal()));
    Some(first.request.scopes.policy().map(|key| (key.clone(), most)).collect())
}

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
