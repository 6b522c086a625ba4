//! The audit: recomputes what scopes hold from the reservations and, for the parts of a pool, from the rows of its
//! tenants.
//!
//! No difference is expected. One that a defect or a hand made is corrected and reported with both values.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::book::Ledger;
use super::refusal::{Of, Refusal};
use super::scope::{Parts, Role, Scope, ScopeKey};
use crate::resource::{Amount, Component};

/// A counter whose held amount was wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drift {
    pub scope: ScopeKey,
    pub of: Of,
    pub component: Component,
    pub stored: i64,
    pub computed: i64,
}

impl fmt::Display for Drift {
    /// `user "alice": 2 CPU instead of 1`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = match self.of {
            Of::Limit => "",
            Of::Shared => " (shared part)",
            Of::Unguaranteed => " (unguaranteed part)",
        };
        let [stored, computed] = [self.stored, self.computed].map(|amount| self.component.number(amount));
        write!(f, "{}{part}: {stored} {} instead of {computed}", self.scope, self.component.noun())
    }
}

impl Ledger {
    /// What every scope must hold that holds anything.
    fn computed(&self) -> Result<BTreeMap<ScopeKey, Amount>, Refusal> {
        let mut held: BTreeMap<ScopeKey, Amount> = BTreeMap::new();
        let mut add = |key: &ScopeKey, amount: &Amount| {
            let held = held.entry(key.clone()).or_default();
            *held = held.checked_add(amount).ok_or(Refusal::OutOfRange)?;
            Ok(())
        };
        let mut lineages: BTreeMap<&Arc<str>, (&super::scope::Scopes, Amount)> = BTreeMap::new();
        for reservation in self.reservations().filter(|reservation| reservation.state.is_charged()) {
            let request = &reservation.request;
            add(request.scopes.pool(), reservation.amounts.requests())?;
            let (_, most) = lineages.entry(&request.lineage).or_insert((&request.scopes, Amount::ZERO));
            *most = most.maximum(reservation.amounts.nominal());
        }
        for (scopes, most) in lineages.values() {
            for key in scopes.policy() {
                add(key, most)?;
            }
        }
        Ok(held)
    }

    /// The differences of all scopes. Every reservation of them, and every tenant of their pools, must be there.
    pub fn drifts(&self) -> Result<Vec<Drift>, Refusal> {
        let corrected = self.corrected()?;
        let pairs = self.scopes().filter_map(|(key, stored)| Some((key, stored, corrected.get(key)?)));
        Ok(pairs.flat_map(|(key, stored, computed)| differences(key, stored, computed)).collect())
    }

    /// Corrects all scopes and returns the differences.
    pub fn audit(&mut self) -> Result<Vec<Drift>, Refusal> {
        let drifts = self.drifts()?;
        for (key, scope) in self.corrected()? {
            self.put_scope(key, scope);
        }
        Ok(drifts)
    }

    /// The rows of all scopes with what they must hold.
    fn corrected(&self) -> Result<BTreeMap<ScopeKey, Scope>, Refusal> {
        let held = self.computed()?;
        let mut of_pools: BTreeMap<&str, Parts> = BTreeMap::new();
        let mut corrected = BTreeMap::new();
        // Tenants precede pools.
        for (key, stored) in self.scopes() {
            let mut scope = *stored;
            scope.counter.held = held.get(key).copied().unwrap_or_default();
            match (&mut scope.role, key.tenant_and_pool()) {
                (Role::Tenant(guarantees), Some((_, pool))) => {
                    let parts = of_pools.entry(pool).or_default();
                    let of_tenant = guarantees.parts(&scope.counter.held);
                    *parts = parts.checked_add(&of_tenant).ok_or(Refusal::OutOfRange)?;
                }
                (Role::Pool(row), _) => {
                    let parts = of_pools.get(&*key.name).copied().unwrap_or_default();
                    (row.shared.held, row.unguaranteed.held) = (parts.shared, parts.unguaranteed);
                }
                _ => {}
            }
            corrected.insert(key.clone(), scope);
        }
        Ok(corrected)
    }
}

fn differences(key: &ScopeKey, stored: &Scope, computed: &Scope) -> Vec<Drift> {
    let mut counters = vec![(Of::Limit, stored.counter.held, computed.counter.held)];
    if let (Role::Pool(stored), Role::Pool(computed)) = (&stored.role, &computed.role) {
        counters.push((Of::Shared, stored.shared.held, computed.shared.held));
        counters.push((Of::Unguaranteed, stored.unguaranteed.held, computed.unguaranteed.held));
    }
    let of_counter = |(of, stored, computed): (Of, Amount, Amount)| {
        Component::ALL.into_iter().filter_map(move |component| {
            let (stored, computed) = (stored.get(component), computed.get(component));
            (stored != computed).then(|| Drift { scope: key.clone(), of, component, stored, computed })
        })
    };
    counters.into_iter().flat_map(of_counter).collect()
}
