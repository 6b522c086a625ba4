//! What raises the limit that a refused request is short of: a statement that can be run as it is, or what else to do.
//!
//! An ALTER replaces a whole amount, and a component that an amount does not name is unlimited. So the statement repeats all
//! components as the catalog has them, and raises the one that is short by what is missing. It is a function of the catalog that
//! refused the request: once another statement has changed that amount, it takes that change back.

use ddl::{Statement, quoted_name};
use model::catalog::{Catalog, PoolSpec};
use model::change::{Change, ObjectPatch, PoolPatch, QuotaPatch, Setting};
use model::ledger::{Of, ScopeKey, ScopeKind, Shortage};
use model::name::{PoolName, QuotaName, TenantName};
use model::quota::{
    Capacity, Count, CpuAmount, DeclaredAmount, Limit, MemoryAmount, Principal, QuotaScope, QuotaSpec, QuotaSubject,
    nominal_capacity, pool_limit,
};
use model::resource::Component;

/// The remedy as the second half of a sentence, for [`Shortage::error`]. `None` if the catalog has no limit of the scope, or
/// if the raised amount would be larger than any.
pub fn remedy(catalog: &Catalog, shortage: &Shortage) -> Option<String> {
    let missing = shortage.asked.saturating_sub(shortage.left).max(0);
    if shortage.scope.kind == ScopeKind::Pool {
        return of_pool(catalog, shortage, missing);
    }
    let (name, quota) = quota_of(catalog, &shortage.scope)?;
    let raised = |amount: &DeclaredAmount| raised(amount, shortage.component, |amount| amount.saturating_add(missing));
    let patch = match &quota.scope {
        QuotaScope::Tenant(quota) => {
            QuotaPatch { guarantee: Setting::Set(raised(&quota.guarantee)?), ..QuotaPatch::default() }
        }
        QuotaScope::User(quota) | QuotaScope::Creator(quota) => {
            QuotaPatch { limit: Setting::Set(raised(&quota.limit)?), ..QuotaPatch::default() }
        }
    };
    Some(alter(ObjectPatch::ResourceQuota(name.clone(), patch)))
}

fn alter(object: ObjectPatch) -> String {
    Statement::Change { change: Change::Alter { if_exists: false, object }, in_place: false, wait: None }.to_string()
}

fn of_pool(catalog: &Catalog, shortage: &Shortage, missing: i64) -> Option<String> {
    let name = PoolName::new(&*shortage.scope.name).ok()?;
    let spec = catalog.pool(&name)?;
    match spec.capacity.as_ref()? {
        Capacity::Nodes => Some(format!("add a node to resource pool {}", quoted_name(name.as_str()))),
        Capacity::Registered => {
            Some(format!("register a larger capacity of resource pool {}", quoted_name(name.as_str())))
        }
        Capacity::Amount(declared) => {
            let component = shortage.component;
            let raised = raised(declared, component, |declared| match shortage.of {
                Of::Limit => declared.saturating_add(missing),
                Of::Shared | Of::Unguaranteed => {
                    let guaranteed = guaranteed(catalog, &name, component);
                    with_more_unguaranteed(spec, component, (declared, guaranteed), missing)
                }
            })?;
            let patch = PoolPatch { capacity: Setting::Set(Capacity::Amount(raised)), ..PoolPatch::default() };
            Some(alter(ObjectPatch::ResourcePool(name, patch)))
        }
    }
}

/// What all tenants are guaranteed of the pool.
fn guaranteed(catalog: &Catalog, pool: &PoolName, component: Component) -> i64 {
    let quotas = catalog.quotas.values().filter_map(|quota| quota.spec.of_tenant()).filter(|quota| quota.pool == *pool);
    quotas.filter_map(|quota| quota.guarantee.get(component)).fold(0, i64::saturating_add)
}

/// The capacity of which no guarantee covers `missing` more, in nominal units, than it does of `declared`.
fn with_more_unguaranteed(
    spec: &PoolSpec,
    component: Component,
    (declared, guaranteed): (i64, i64),
    missing: i64,
) -> i64 {
    let overcommit = if component == Component::Cpu { spec.cpu_overcommit.unwrap_or(100) } else { 100 };
    let protected = spec.protected.get(component).unwrap_or(0);
    let Limit::Of(nominal) = nominal_capacity(pool_limit(Limit::Of(declared), protected), overcommit) else {
        return declared;
    };
    // Guarantees that exceed the capacity leave nothing until it exceeds them.
    let needed = i128::from(nominal.max(guaranteed)) + i128::from(missing);
    let overcommit = i128::from(overcommit.max(1));
    let requests = (needed * 100 + overcommit - 1).div_euclid(overcommit);
    i64::try_from(requests).unwrap_or(i64::MAX).saturating_add(protected)
}

/// The amount with one component changed; `None` if it does not name the component, or if the result is out of range.
fn raised(amount: &DeclaredAmount, component: Component, by: impl FnOnce(i64) -> i64) -> Option<DeclaredAmount> {
    let raised = by(amount.get(component)?);
    let mut amount = amount.clone();
    match component {
        Component::Cpu => amount.cpu = Some(CpuAmount::from_millis(raised)?),
        Component::Memory => amount.memory = Some(MemoryAmount::from_bytes(raised)?),
        Component::Engines => amount.engines = Some(Count::new(raised)?),
    }
    Some(amount)
}

/// The quota that limits a user, a creator or a tenant on a pool.
pub(crate) fn quota_of<'a>(catalog: &'a Catalog, scope: &ScopeKey) -> Option<(&'a QuotaName, &'a QuotaSpec)> {
    let of = |subject: fn(Principal) -> QuotaSubject| {
        let own = catalog.quota_of(&subject(Principal::Named(scope.name.to_string())));
        own.or_else(|| catalog.quota_of(&subject(Principal::Default)))
    };
    match scope.kind {
        ScopeKind::User => of(QuotaSubject::User),
        ScopeKind::Creator => of(QuotaSubject::Creator),
        ScopeKind::Tenant => {
            let (tenant, pool) = scope.tenant_and_pool()?;
            catalog.quota_of(&QuotaSubject::Tenant(TenantName::new(tenant).ok()?, PoolName::new(pool).ok()?))
        }
        ScopeKind::Pool => None,
    }
}
