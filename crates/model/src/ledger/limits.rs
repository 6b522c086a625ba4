//! Limits: what an alteration of the catalog, or an observed capacity, makes of a scope's row.
//!
//! An alteration never changes what a scope holds. Where it changes what a tenant is guaranteed, other amounts of the
//! tenant count as held of the shared and of the unguaranteed part, and the difference is added to the pool.

use super::book::Ledger;
use super::refusal::Refusal;
use super::scope::{Role, Scope, ScopeKey, ScopeKind};
use crate::error::UserError;
use crate::quota::{Guarantee, Limit, PoolComponent, TenantComponent, nominal_capacity, pool_limit};
use crate::resource::{Amount, Component, Triple};

/// The limits of a pool in its own units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolCapacity {
    /// In requests.
    pub capacity: Triple<Limit>,
    /// In requests.
    pub protected: Amount,
    /// 100 without overcommit.
    pub overcommit_percent: u32,
}

impl PoolCapacity {
    /// The row of an open pool whose tenants have these guarantees. Sums outside of 64 bits are an error.
    pub fn scope(&self, guarantees: &[Triple<Option<Guarantee>>]) -> Result<Scope, UserError> {
        let limit =
            Triple::from_fn(|component| pool_limit(self.capacity.get(component), self.protected.get(component)));
        let part = |component| {
            let nominal = match component {
                Component::Cpu => nominal_capacity(limit.cpu_m, self.overcommit_percent),
                Component::Memory | Component::Engines => limit.get(component),
            };
            // The sums of what is held are not of the limits.
            let tenant = |guarantee: &Triple<Option<Guarantee>>| TenantComponent {
                guarantee: guarantee.get(component),
                held: 0,
            };
            PoolComponent::new(nominal, &guarantees.iter().map(tenant).collect::<Vec<_>>())
        };
        let [cpu_m, memory, engines] = [part(Component::Cpu)?, part(Component::Memory)?, part(Component::Engines)?];
        Ok(Scope::pool(limit, &Triple { cpu_m, memory, engines }))
    }
}

impl Ledger {
    /// Inserts the scope, or gives it the limits of this row and opens or closes it. Changes nothing that it holds.
    pub fn set_limits(&mut self, key: &ScopeKey, new: &Scope) -> Result<(), Refusal> {
        let Some(old) = self.scope(key).copied() else {
            self.put_scope(key.clone(), *new);
            return Ok(());
        };
        let changed = Scope { is_open: new.is_open, ..old.with_limits_of(new) };
        let difference = changed.parts().checked_sub(&old.parts()).ok_or(Refusal::OutOfRange)?;
        if let Some((_, pool)) = key.tenant_and_pool() {
            let pool = ScopeKey { kind: ScopeKind::Pool, name: pool.into() };
            let mut row = *self.scope(&pool).ok_or_else(|| Refusal::NoScope(pool.clone()))?;
            if let Role::Pool(parts) = &mut row.role {
                let shared = parts.shared.held.checked_add(&difference.shared);
                let unguaranteed = parts.unguaranteed.held.checked_add(&difference.unguaranteed);
                parts.shared.held = shared.ok_or(Refusal::OutOfRange)?;
                parts.unguaranteed.held = unguaranteed.ok_or(Refusal::OutOfRange)?;
            }
            self.put_scope(pool, row);
        }
        self.put_scope(key.clone(), changed);
        Ok(())
    }
}
