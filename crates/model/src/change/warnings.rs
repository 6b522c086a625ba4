//! Warnings: what an object that is valid does not do, or promises in vain.
//!
//! They are computed from a catalog that may have changed since, and decide nothing.

use super::{Change, ObjectPatch, PoolPatch, Setting};
use crate::capacity::Amount;
use crate::catalog::{Catalog, PoolSpec};
use crate::name::{PoolName, QuotaName, TenantName};
use crate::quota::{Capacity, Limit, QuotaSpec, TenantQuota, TransferLimit, nominal_capacity, pool_limit};
use crate::resource::Component;

/// By how much a declared capacity may exceed that of the nodes, in percent.
const MAX_EXCESS_PERCENT: i64 = 10;

impl Change {
    /// Whether there can be warnings: a plain change of engines has none, and needs no catalog to find out.
    pub fn concerns_quotas(&self) -> bool {
        let (Self::Create { object, .. } | Self::Alter { object, .. }) = self else { return false };
        match object {
            ObjectPatch::Tenant(_, patch) => matches!(self, Self::Alter { .. }) && patch.pools.is_some(),
            ObjectPatch::ResourcePool(_, PoolPatch { capacity, protected, cpu_overcommit, .. }) => {
                *capacity != Setting::Keep || *protected != Setting::Keep || *cpu_overcommit != Setting::Keep
            }
            ObjectPatch::ResourceUnit(..) => false,
            ObjectPatch::ResourceQuota(..) => true,
        }
    }

    /// The warnings for the user who ran this change, from the catalog after it.
    pub fn warnings(&self, after: &Catalog) -> Vec<String> {
        let (Self::Create { object, .. } | Self::Alter { object, .. }) = self else { return Vec::new() };
        match object {
            ObjectPatch::Tenant(name, _) => unused_quotas(after, name),
            ObjectPatch::ResourcePool(name, _) => {
                after.pool(name).and_then(|spec| excess_guarantees(after, name, spec, None)).into_iter().collect()
            }
            ObjectPatch::ResourceUnit(..) => Vec::new(),
            ObjectPatch::ResourceQuota(name, _) => {
                let quota = after.quotas.get(name);
                quota.map(|quota| quota_warnings(after, name, &quota.spec)).unwrap_or_default()
            }
        }
    }
}

/// The warnings of a quota: a missing link, limits without effect, and guarantees that its pool cannot hold.
pub fn quota_warnings(catalog: &Catalog, name: &QuotaName, spec: &QuotaSpec) -> Vec<String> {
    let Some(quota) = spec.of_tenant() else { return Vec::new() };
    let mut warnings = Vec::new();
    if catalog.tenant(&quota.tenant).is_some_and(|tenant| !tenant.pools.contains(&quota.pool)) {
        warnings.push(unused(name, quota));
    }
    for (option, limit) in [("BORROW_LIMIT", &quota.borrow_limit), ("LEND_LIMIT", &quota.lend_limit)] {
        warnings.extend(without_guarantee(name, quota, option, limit));
    }
    warnings.extend(catalog.pool(&quota.pool).and_then(|pool| excess_guarantees(catalog, &quota.pool, pool, None)));
    warnings
}

fn unused(name: &QuotaName, quota: &TenantQuota) -> String {
    let TenantQuota { tenant, pool, .. } = quota;
    format!("resource quota \"{name}\" has no effect while tenant \"{tenant}\" does not list resource pool \"{pool}\"")
}

/// The quotas of the tenant on pools that it does not list.
fn unused_quotas(catalog: &Catalog, tenant: &TenantName) -> Vec<String> {
    let Some(spec) = catalog.tenant(tenant) else { return Vec::new() };
    let quotas = catalog.quotas.iter().filter_map(|(name, quota)| Some((name, quota.spec.of_tenant()?)));
    let unused_ones = quotas.filter(|(_, quota)| quota.tenant == *tenant && !spec.pools.contains(&quota.pool));
    unused_ones.map(|(name, quota)| unused(name, quota)).collect()
}

/// Components of a borrow or lend limit that the guarantee does not name.
fn without_guarantee(name: &QuotaName, quota: &TenantQuota, option: &str, limit: &TransferLimit) -> Option<String> {
    let TransferLimit::Amount(amount) = limit else { return None };
    let named = Component::ALL
        .into_iter()
        .filter(|component| amount.get(*component).is_some() && quota.guarantee.get(*component).is_none());
    let words: Vec<&str> = named.map(Component::keyword).collect();
    (!words.is_empty()).then(|| {
        let words = words.join(" and ");
        format!("{option} of resource quota \"{name}\" has no effect on {words}, which its GUARANTEE does not name")
    })
}

/// The warning of a pool whose guarantees exceed its capacity without the protected part. `nodes` is the allocatable
/// amount of its nodes where that is known.
pub fn excess_guarantees(catalog: &Catalog, name: &PoolName, spec: &PoolSpec, nodes: Option<Amount>) -> Option<String> {
    let quotas = catalog.quotas.values().filter_map(|quota| quota.spec.of_tenant());
    let of_pool: Vec<&TenantQuota> = quotas.filter(|quota| quota.pool == *name).collect();
    let excess = Component::ALL.into_iter().filter_map(|component| {
        // The rules keep the sum below 2^53.
        let guaranteed: i64 = of_pool.iter().filter_map(|quota| quota.guarantee.get(component)).sum();
        match nominal(spec, component, nodes) {
            Limit::Of(limit) if guaranteed > limit => {
                Some(format!("{} of {}", component.shown(guaranteed), component.shown(limit.max(0))))
            }
            Limit::Of(_) | Limit::Unlimited => None,
        }
    });
    let excess: Vec<String> = excess.collect();
    (!excess.is_empty()).then(|| {
        format!("guarantees on resource pool \"{name}\" exceed its capacity: {} are guaranteed", excess.join(" and "))
    })
}

/// The warning of a pool whose declared capacity exceeds the allocatable amount of its nodes by more than 10 %: engines
/// would be granted that no node can take.
pub fn excess_capacity(name: &PoolName, spec: &PoolSpec, nodes: Amount) -> Option<String> {
    let Some(Capacity::Amount(declared)) = &spec.capacity else { return None };
    let amounts = [(Component::Cpu, nodes.cpu_millis), (Component::Memory, nodes.memory_bytes)];
    let excess = amounts.into_iter().filter_map(|(component, of_nodes)| {
        let of_nodes = i64::try_from(of_nodes).unwrap_or(i64::MAX);
        let declared = declared.get(component)?;
        let is_excess = i128::from(declared) * 100 > i128::from(of_nodes) * i128::from(100 + MAX_EXCESS_PERCENT);
        is_excess.then(|| format!("{} of {}", component.shown(declared), component.shown(of_nodes)))
    });
    let excess: Vec<String> = excess.collect();
    (!excess.is_empty()).then(|| {
        format!(
            "CAPACITY of resource pool \"{name}\" exceeds that of its nodes by more than {MAX_EXCESS_PERCENT} %: {} are \
             declared",
            excess.join(" and ")
        )
    })
}

/// What tenants can be granted of a component of the pool, in nominal units.
fn nominal(spec: &PoolSpec, component: Component, nodes: Option<Amount>) -> Limit {
    let capacity = match (&spec.capacity, nodes) {
        (Some(Capacity::Amount(amount)), _) => amount.limit(component),
        (Some(Capacity::Nodes), Some(Amount { cpu_millis, memory_bytes })) => match component {
            Component::Cpu => Limit::Of(i64::try_from(cpu_millis).unwrap_or(i64::MAX)),
            Component::Memory => Limit::Of(i64::try_from(memory_bytes).unwrap_or(i64::MAX)),
            Component::Engines => Limit::Unlimited,
        },
        (None | Some(Capacity::Nodes | Capacity::Registered), _) => Limit::Unlimited,
    };
    let limit = pool_limit(capacity, spec.protected.get(component).unwrap_or(0));
    match component {
        Component::Cpu => nominal_capacity(limit, spec.cpu_overcommit.unwrap_or(100)),
        Component::Memory | Component::Engines => limit,
    }
}
