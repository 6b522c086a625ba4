//! The selector of engines: which ones a session may use, by tenant, pool, unit and owner.
//!
//! Where a unit is shared by group, user or session, a session may use the engines of its own owner only. An engine whose owner is
//! of another kind than its unit's option is from before an ALTER; no session may use it. A selector is of one reading of the
//! catalog; engines' agents check the owner again.

use std::collections::BTreeMap;

use model::catalog::Catalog;
use model::name::{PoolName, TenantName, UnitName};
use model::owner::{Owner, SharedBy};
use model::sharing::Sharer;
use model::slot::{Link, Slot};

/// Selects the engines that a session may use; `None` for any pool or unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EngineSelector {
    pub(crate) tenant: TenantName,
    pub(crate) pool: Option<PoolName>,
    pub(crate) unit: Option<UnitName>,
    /// As whom the session shares engines.
    pub(crate) sharer: Sharer,
    /// Who shares the engines of each matching unit.
    shared_by: BTreeMap<UnitName, SharedBy>,
}

impl EngineSelector {
    pub(crate) fn new(
        catalog: &Catalog,
        tenant: TenantName,
        pool: Option<PoolName>,
        unit: Option<UnitName>,
        sharer: Sharer,
    ) -> Self {
        let pools = catalog.tenant(&tenant).into_iter().flat_map(|tenant| &tenant.pools);
        let pools = pools.filter(|of_tenant| pool.as_ref().is_none_or(|selected| selected == *of_tenant));
        let units = pools.flat_map(|pool| catalog.pool(pool).map_or(&[][..], |spec| &spec.units));
        let units = units.filter(|offered| unit.as_ref().is_none_or(|selected| selected == *offered));
        let shared_by = units.filter_map(|unit| Some((unit.clone(), catalog.unit(unit)?.shared_by))).collect();
        Self { tenant, pool, unit, sharer, shared_by }
    }

    /// The same by another reading of the catalog.
    pub(crate) fn in_catalog(&self, catalog: &Catalog) -> Self {
        let Self { tenant, pool, unit, sharer, shared_by: _ } = self.clone();
        Self::new(catalog, tenant, pool, unit, sharer)
    }

    pub(crate) fn matches(&self, link: &Link) -> bool {
        self.matches_parts(&link.tenant, &link.pool, &link.unit)
    }

    pub(super) fn matches_parts(&self, tenant: &TenantName, pool: &PoolName, unit: &UnitName) -> bool {
        self.tenant == *tenant
            && self.pool.as_ref().is_none_or(|selected| selected == pool)
            && self.unit.as_ref().is_none_or(|selected| selected == unit)
    }

    /// Whether the engines of the slot are to serve the session.
    pub(crate) fn matches_slot(&self, slot: &Slot) -> bool {
        self.matches(&slot.key.link()) && self.may_share(&slot.key.unit, slot.owner.as_ref())
    }

    /// Whether the session may use an engine of the unit that has this owner. Engines of a unit that does not match any more, which
    /// are about to end, count as those of a unit that the tenant shares.
    pub(crate) fn may_share(&self, unit: &UnitName, owner: Option<&Owner>) -> bool {
        let shared_by = self.shared_by.get(unit).copied().unwrap_or_default();
        shared_by.is_kind_of(owner) && self.sharer.is_owner(owner)
    }

    /// Whether a matching unit is shared like this.
    pub(crate) fn has_unit_shared_by(&self, shared_by: SharedBy) -> bool {
        self.shared_by.values().any(|of_unit| *of_unit == shared_by)
    }

    /// Whom all engines that the session may use are dedicated to, for messages; `None` if the tenant shares some of them.
    pub(crate) fn only_owner(&self) -> Option<String> {
        let mut kinds = self.shared_by.values();
        let first = *kinds.next()?;
        if kinds.any(|other| *other != first) {
            return None;
        }
        match self.sharer.owner(first)? {
            Owner::Session(_) => Some("this session".to_owned()),
            owner => Some(owner.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use model::catalog::{PoolSpec, TenantSpec, UnitSpec, Versioned};
    use model::change::UnitPatch;
    use model::configuration::Defaults;
    use model::number::Generation;

    use super::*;

    fn unit_name(name: &str) -> UnitName {
        UnitName::new(name).unwrap()
    }

    /// Tenant `t_1` with pool `rp_1` of units `own`, `ours` and `all`, and pool `rp_2` of unit `all`.
    fn catalog() -> Catalog {
        let generation = Generation(1);
        let mut catalog = Catalog::default();
        for (name, shared_by) in [("own", SharedBy::User), ("ours", SharedBy::Group), ("all", SharedBy::Tenant)] {
            let spec = UnitPatch::default().create(&Defaults::default()).unwrap();
            catalog.units.insert(unit_name(name), Versioned { spec: UnitSpec { shared_by, ..spec }, generation });
        }
        let pools = [("rp_1", &["own", "ours", "all"][..]), ("rp_2", &["all"])];
        for (name, units) in pools {
            let units = units.iter().map(|unit| unit_name(unit)).collect();
            let spec = PoolSpec { units, ..PoolSpec::default() };
            catalog.pools.insert(PoolName::new(name).unwrap(), Versioned { spec, generation });
        }
        let pools = pools.iter().map(|(pool, _)| PoolName::new(*pool).unwrap()).collect();
        let spec = TenantSpec { pools, ..TenantSpec::default() };
        catalog.tenants.insert(TenantName::new("t_1").unwrap(), Versioned { spec, generation });
        catalog
    }

    fn selector(pool: Option<&str>, unit: Option<&str>) -> EngineSelector {
        let pool = pool.map(|pool| PoolName::new(pool).unwrap());
        let ann = Sharer::new("ann", &["etl".to_owned()], "5e551");
        EngineSelector::new(&catalog(), TenantName::new("t_1").unwrap(), pool, unit.map(unit_name), ann)
    }

    #[test]
    fn an_engine_serves_sessions_of_its_owner_if_its_unit_is_shared_like_that() {
        let selector = selector(None, None);
        let (ann, bob) = (Owner::User("ann".to_owned()), Owner::User("bob".to_owned()));
        let etl = Owner::Group("etl".to_owned());
        for (unit, owner, may) in [
            ("own", Some(&ann), true),
            ("own", Some(&bob), false),
            ("own", Some(&etl), false),
            ("own", None, false),
            ("ours", Some(&etl), true),
            ("ours", Some(&ann), false),
            ("all", None, true),
            ("all", Some(&ann), false),
            ("dropped", None, true),
            ("dropped", Some(&ann), false),
        ] {
            assert_eq!(selector.may_share(&unit_name(unit), owner), may, "{unit} {owner:?}");
        }
    }

    #[test]
    fn only_matching_units_count() {
        use SharedBy::{Group, Session, Tenant, User};
        for (pool, unit, expected, owner) in [
            (None, None, &[Tenant, Group, User][..], None),
            (Some("rp_2"), None, &[Tenant], None),
            (None, Some("own"), &[User], Some("user \"ann\"")),
            (Some("rp_1"), Some("ours"), &[Group], Some("group \"etl\"")),
            (Some("rp_2"), Some("own"), &[], None),
        ] {
            let selector = selector(pool, unit);
            let found: Vec<SharedBy> =
                [Tenant, Group, User, Session].into_iter().filter(|kind| selector.has_unit_shared_by(*kind)).collect();
            assert_eq!((found.as_slice(), selector.only_owner().as_deref()), (expected, owner), "{pool:?} {unit:?}");
        }
    }
}
