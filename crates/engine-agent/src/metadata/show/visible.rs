//! Which objects of the catalog the caller may see: a user those of the own tenants; admins, operators and auditors
//! all.

use std::collections::BTreeSet;

use model::catalog::Catalog;
use model::name::{PoolName, TenantName, UnitName};

use crate::metadata::context::Context;

/// The objects that the caller may see.
pub(super) struct Visible {
    pub(super) tenants: BTreeSet<TenantName>,
    pub(super) pools: BTreeSet<PoolName>,
    pub(super) units: BTreeSet<UnitName>,
}

pub(super) fn visible(context: &Context, catalog: &Catalog) -> Visible {
    if context.subject.may_in_any(context.kind) {
        return Visible {
            tenants: catalog.tenants.keys().cloned().collect(),
            pools: catalog.pools.keys().cloned().collect(),
            units: catalog.units.keys().cloned().collect(),
        };
    }
    let tenants: BTreeSet<TenantName> = context.subject.tenants(catalog, context.kind).into_iter().cloned().collect();
    let own = tenants.iter().filter_map(|tenant| catalog.tenant(tenant));
    let pools: BTreeSet<PoolName> = own.flat_map(|tenant| tenant.pools.iter().cloned()).collect();
    let units =
        pools.iter().filter_map(|pool| catalog.pool(pool)).flat_map(|pool| pool.units.iter().cloned()).collect();
    Visible { tenants, pools, units }
}
