//! The limits of the ledger's scopes after a change of the catalog, as the transaction of an alteration writes them.

use std::collections::BTreeSet;

use model::catalog::Catalog;
use model::ledger::{Ledger, Measured, ScopeKey, derive};
use model::quota::{Capacity, Limit};
use model::resource::Triple;

/// The measured capacities that the limits of the ledger's pools follow from.
pub(super) fn measured(catalog: &Catalog, ledger: &Ledger) -> Measured {
    let of_pools = catalog.pools.iter().filter_map(|(name, pool)| {
        let is_measured = matches!(pool.spec.capacity, Some(Capacity::Nodes | Capacity::Registered));
        let scope = ledger.scope(&ScopeKey::pool(name)).filter(|scope| is_measured && scope.is_open)?;
        let capacity = Triple::from_fn(|component| match scope.counter.limit.get(component) {
            Limit::Of(limit) => Limit::Of(limit.saturating_add(pool.spec.protected.get(component).unwrap_or(0))),
            Limit::Unlimited => Limit::Unlimited,
        });
        Some((name.clone(), capacity))
    });
    of_pools.collect()
}

/// Writes the limits that follow from the catalog. Guarantees whose sum leaves 64 bits change nothing: their alteration is
/// refused.
pub(super) fn set(ledger: &mut Ledger, catalog: &Catalog, measured: &Measured) {
    let existing: BTreeSet<ScopeKey> = ledger.scopes().map(|(key, _)| key.clone()).collect();
    let Ok(derived) = derive(catalog, measured, &existing) else { return };
    for (key, scope) in derived {
        // A difference outside of 64 bits leaves the row as it is.
        let _ = ledger.set_limits(&key, &scope);
    }
}
