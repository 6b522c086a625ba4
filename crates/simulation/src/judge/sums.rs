//! The sums of a ledger's reservations, computed apart from the ledger.
//!
//! They follow each change of a reservation.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use model::ledger::{Ledger, Parts, Reservation, Role, ScopeKey};
use model::resource::Amount;

use super::differing::differing;

/// What the reservations add up to.
#[derive(Debug, Default)]
pub(super) struct Sums {
    /// By id, as they were last seen.
    reservations: Vec<Arc<Reservation>>,
    /// The charged reservations of each lineage, by id.
    lineages: HashMap<Arc<str>, BTreeMap<Arc<str>, Arc<Reservation>>>,
    held: HashMap<ScopeKey, Amount>,
    /// A sum has left 64 bits.
    pub is_out_of_range: bool,
}

/// What has changed.
#[derive(Debug, Default)]
pub(super) struct Changed {
    pub scopes: BTreeSet<ScopeKey>,
    /// The reservations that were charged and are not any more.
    pub uncharged: Vec<Arc<str>>,
}

impl Sums {
    pub fn of(ledger: &Ledger) -> Self {
        let mut sums = Self::default();
        sums.follow(ledger);
        sums
    }

    /// Takes the changes of a ledger's reservations into account.
    pub fn follow(&mut self, ledger: &Ledger) -> Changed {
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
    pub fn difference(&self, ledger: &Ledger, key: &ScopeKey) -> Option<String> {
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
