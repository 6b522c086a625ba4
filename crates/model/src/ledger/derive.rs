//! Derivation: the scopes, with their limits, that follow from a catalog and the measured capacities of its pools.
//!
//! Deterministic, and independent of what scopes hold. Applied to the catalogs before and after an alteration, the
//! difference is what the alteration writes ([`changed`]). Rows of users and creators are inserted on first use, so
//! their keys are an input; so are the keys of tenants and pools whose objects are gone: their scopes are closed until
//! nothing is held of them. Limits that were derived from a stale catalog must not be written: the caller derives under
//! the lock that alterations take.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::limits::PoolCapacity;
use super::scope::{Scope, ScopeKey, ScopeKind};
use crate::catalog::{Catalog, PoolSpec};
use crate::error::UserError;
use crate::name::{PoolName, TenantName};
use crate::quota::{Capacity, DeclaredAmount, Guarantee, Limit, PoolComponent, Principal, QuotaScope, TenantQuota};
use crate::resource::{Amount, Triple};

/// The capacities that the catalog does not state, in requests: of pools whose capacity is that of their nodes, or is
/// registered. A pool that is missing here is closed, because nothing is known about it.
pub type Measured = BTreeMap<PoolName, Triple<Limit>>;

/// All scopes of the catalog's tenants and pools and of its quotas, and those of `existing`, each once. Sums of
/// guarantees outside of 64 bits are an error.
pub fn derive(
    catalog: &Catalog,
    measured: &Measured,
    existing: &BTreeSet<ScopeKey>,
) -> Result<BTreeMap<ScopeKey, Scope>, UserError> {
    let quotas = Quotas::new(catalog);
    let mut scopes = BTreeMap::new();
    let mut guarantees: HashMap<&PoolName, Vec<Triple<Option<Guarantee>>>> = HashMap::new();
    for (name, tenant) in &catalog.tenants {
        for pool in tenant.spec.pools.iter().filter(|pool| catalog.pools.contains_key(*pool)) {
            let guarantee = match quotas.tenants.get(&(name, pool)) {
                Some(quota) => Triple::from_fn(|component| quota.guarantee(component)),
                None => Triple::all(None),
            };
            guarantees.entry(pool).or_default().push(guarantee);
            scopes.insert(ScopeKey::tenant(name, pool), Scope::tenant(&guarantee));
        }
    }
    for (name, pool) in &catalog.pools {
        let of_tenants = guarantees.get(name).map_or(&[][..], Vec::as_slice);
        scopes.insert(ScopeKey::pool(name), pool_scope(&pool.spec, measured.get(name), of_tenants)?);
    }
    for (name, limit) in &quotas.users.named {
        scopes.insert(ScopeKey::user(name), Scope::principal(limits(limit)));
    }
    for (name, limit) in &quotas.creators.named {
        scopes.insert(ScopeKey::creator(name), Scope::principal(limits(limit)));
    }
    for key in existing {
        scopes.entry(key.clone()).or_insert_with(|| match key.kind {
            ScopeKind::User => quotas.users.unnamed(),
            ScopeKind::Creator => quotas.creators.unnamed(),
            ScopeKind::Tenant => Scope { is_open: false, ..Scope::tenant(&Triple::all(None)) },
            ScopeKind::Pool => closed_pool(),
        });
    }
    Ok(scopes)
}

/// The scopes of these users and creators on first use.
pub fn principals(catalog: &Catalog, keys: impl IntoIterator<Item = ScopeKey>) -> Vec<(ScopeKey, Scope)> {
    let quotas = Quotas::new(catalog);
    keys.into_iter().filter_map(|key| Some((key.clone(), of_principal(&quotas, &key)?))).collect()
}

/// The scope of a user or creator on first use.
pub fn principal(catalog: &Catalog, key: &ScopeKey) -> Option<Scope> {
    of_principal(&Quotas::new(catalog), key)
}

fn of_principal(quotas: &Quotas<'_>, key: &ScopeKey) -> Option<Scope> {
    let of_kind = match key.kind {
        ScopeKind::User => &quotas.users,
        ScopeKind::Creator => &quotas.creators,
        ScopeKind::Tenant | ScopeKind::Pool => return None,
    };
    let named = of_kind.named.get(&*key.name).map(|limit| Scope::principal(limits(limit)));
    Some(named.unwrap_or_else(|| of_kind.unnamed()))
}

/// The scopes of `after` that `before` does not have like this, in lock order.
pub fn changed(before: &BTreeMap<ScopeKey, Scope>, after: BTreeMap<ScopeKey, Scope>) -> Vec<(ScopeKey, Scope)> {
    after.into_iter().filter(|(key, scope)| before.get(key) != Some(scope)).collect()
}

/// The quotas of a catalog by their subject.
struct Quotas<'a> {
    tenants: HashMap<(&'a TenantName, &'a PoolName), &'a TenantQuota>,
    users: Principals<'a>,
    creators: Principals<'a>,
}

/// The limits of users, or of creators.
#[derive(Default)]
struct Principals<'a> {
    named: BTreeMap<&'a str, &'a DeclaredAmount>,
    /// The limit of each one without a quota of its own.
    default: Option<&'a DeclaredAmount>,
}

impl<'a> Quotas<'a> {
    fn new(catalog: &'a Catalog) -> Self {
        let mut quotas =
            Self { tenants: HashMap::new(), users: Principals::default(), creators: Principals::default() };
        for quota in catalog.quotas.values() {
            let (principals, quota) = match &quota.spec.scope {
                QuotaScope::Tenant(quota) => {
                    quotas.tenants.insert((&quota.tenant, &quota.pool), quota);
                    continue;
                }
                QuotaScope::User(quota) => (&mut quotas.users, quota),
                QuotaScope::Creator(quota) => (&mut quotas.creators, quota),
            };
            match &quota.name {
                Principal::Named(name) => drop(principals.named.insert(name, &quota.limit)),
                Principal::Default => principals.default = Some(&quota.limit),
            }
        }
        quotas
    }
}

impl Principals<'_> {
    fn unnamed(&self) -> Scope {
        Scope::principal(self.default.map_or(Triple::all(Limit::Unlimited), limits))
    }
}

fn limits(amount: &DeclaredAmount) -> Triple<Limit> {
    Triple::from_fn(|component| amount.limit(component))
}

fn pool_scope(
    spec: &PoolSpec,
    measured: Option<&Triple<Limit>>,
    guarantees: &[Triple<Option<Guarantee>>],
) -> Result<Scope, UserError> {
    let (capacity, is_open) = match (&spec.capacity, measured) {
        (None, _) => (Triple::all(Limit::Unlimited), true),
        (Some(Capacity::Amount(declared)), _) => (limits(declared), true),
        (Some(Capacity::Nodes | Capacity::Registered), Some(measured)) => (*measured, true),
        (Some(Capacity::Nodes | Capacity::Registered), None) => (Triple::all(Limit::Of(0)), false),
    };
    let protected = Amount::from_fn(|component| spec.protected.get(component).unwrap_or(0));
    let overcommit_percent = spec.cpu_overcommit.unwrap_or(100);
    let scope = PoolCapacity { capacity, protected, overcommit_percent }.scope(guarantees)?;
    Ok(Scope { is_open, ..scope })
}

/// A pool that was dropped: nothing limits what it still holds, and nothing is granted.
fn closed_pool() -> Scope {
    let part = PoolComponent {
        unguaranteed: Limit::Unlimited,
        unguaranteed_held: 0,
        shared: Limit::Unlimited,
        shared_held: 0,
    };
    Scope { is_open: false, ..Scope::pool(Triple::all(Limit::Unlimited), &Triple::all(part)) }
}
