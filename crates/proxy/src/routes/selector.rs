//! The selector of engines: which ones a session may use, by tenant, pool, unit, type and owner.
//!
//! Where a unit is shared by group, user or session, a session may use the engines of its own owner only. An engine whose owner is
//! of another kind than its unit's option is from before an ALTER; no session may use it. A selector is of one reading of the
//! catalog; engines' agents check the owner again. An engine has the type and version of its unit and pool in the catalog: while an
//! ALTER of the image is converging, an engine of the version before may be selected.

use std::collections::{BTreeMap, BTreeSet};

use model::catalog::Catalog;
use model::configuration::Defaults;
use model::name::{PoolName, TenantName, UnitName};
use model::owner::{Owner, SharedBy};
use model::sharing::Sharer;
use model::slot::{Link, Slot};
use model::type_selector::TypeSelector;

/// What a session states about the engines that it may use; `None` for any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SessionLabels {
    pub(crate) tenant: TenantName,
    pub(crate) pool: Option<PoolName>,
    pub(crate) unit: Option<UnitName>,
    pub(crate) engine_type: Option<TypeSelector>,
    /// As whom the session shares engines.
    pub(crate) sharer: Sharer,
}

/// Selects the engines that a session may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EngineSelector {
    pub(crate) labels: SessionLabels,
    /// The units of each pool whose engines have the type; `None` if the session asks for none.
    of_type: Option<BTreeMap<PoolName, BTreeSet<UnitName>>>,
    /// Who shares the engines of each matching unit.
    shared_by: BTreeMap<UnitName, SharedBy>,
}

impl EngineSelector {
    pub(crate) fn new(catalog: &Catalog, defaults: &Defaults, labels: SessionLabels) -> Self {
        let of_type = labels.engine_type.as_ref().map(|asked| of_type(catalog, defaults, asked));
        let mut selector = Self { labels, of_type, shared_by: BTreeMap::new() };
        let tenant = &selector.labels.tenant;
        let pools = catalog.tenant(tenant).into_iter().flat_map(|tenant| &tenant.pools);
        let units = pools.flat_map(|pool| {
            let units = catalog.pool(pool).map_or(&[][..], |spec| &spec.units).iter();
            units.filter(|unit| selector.matches_parts(tenant, pool, unit))
        });
        let shared_by = units.filter_map(|unit| Some((unit.clone(), catalog.unit(unit)?.shared_by))).collect();
        selector.shared_by = shared_by;
        selector
    }

    /// The same by another reading of the catalog.
    pub(crate) fn in_catalog(&self, catalog: &Catalog, defaults: &Defaults) -> Self {
        Self::new(catalog, defaults, self.labels.clone())
    }

    /// The same for engines of any type.
    pub(crate) fn of_any_type(&self, catalog: &Catalog, defaults: &Defaults) -> Self {
        Self::new(catalog, defaults, SessionLabels { engine_type: None, ..self.labels.clone() })
    }

    pub(crate) fn matches(&self, link: &Link) -> bool {
        self.matches_parts(&link.tenant, &link.pool, &link.unit)
    }

    pub(super) fn matches_parts(&self, tenant: &TenantName, pool: &PoolName, unit: &UnitName) -> bool {
        self.labels.tenant == *tenant
            && self.labels.pool.as_ref().is_none_or(|selected| selected == pool)
            && self.labels.unit.as_ref().is_none_or(|selected| selected == unit)
            && self.of_type.as_ref().is_none_or(|pools| pools.get(pool).is_some_and(|units| units.contains(unit)))
    }

    /// Whether the engines of the slot are to serve the session.
    pub(crate) fn matches_slot(&self, slot: &Slot) -> bool {
        self.matches(&slot.key.link()) && self.may_share(&slot.key.unit, slot.owner.as_ref())
    }

    /// Whether the session may use an engine of the unit that has this owner. Engines of a unit that does not match any more, which
    /// are about to end, count as those of a unit that the tenant shares.
    pub(crate) fn may_share(&self, unit: &UnitName, owner: Option<&Owner>) -> bool {
        let shared_by = self.shared_by.get(unit).copied().unwrap_or_default();
        shared_by.is_kind_of(owner) && self.labels.sharer.is_owner(owner)
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
        match self.labels.sharer.owner(first)? {
            Owner::Session(_) => Some("this session".to_owned()),
            owner => Some(owner.to_string()),
        }
    }
}

/// The units of each pool whose engines have the type.
fn of_type(catalog: &Catalog, defaults: &Defaults, asked: &TypeSelector) -> BTreeMap<PoolName, BTreeSet<UnitName>> {
    let pools = catalog.pools.iter().map(|(name, pool)| {
        let has_type =
            |unit: &&UnitName| catalog.unit(unit).is_some_and(|spec| asked.selects_unit(&pool.spec, spec, defaults));
        (name.clone(), pool.spec.units.iter().filter(has_type).cloned().collect())
    });
    pools.collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use model::catalog::{PoolSpec, TenantSpec, UnitSpec, Versioned};
    use model::change::UnitPatch;
    use model::engine_type::EngineType;
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

    fn labels() -> SessionLabels {
        let sharer = Sharer::new("ann", &["etl".to_owned()], "5e551");
        SessionLabels { tenant: TenantName::new("t_1").unwrap(), pool: None, unit: None, engine_type: None, sharer }
    }

    fn selector(pool: Option<&str>, unit: Option<&str>) -> EngineSelector {
        let (pool, unit) = (pool.map(|pool| PoolName::new(pool).unwrap()), unit.map(unit_name));
        EngineSelector::new(&catalog(), &Defaults::default(), SessionLabels { pool, unit, ..labels() })
    }

    #[test]
    fn only_units_of_the_type_and_version_of_their_pool_match() {
        let mut catalog = catalog();
        for (unit, engine_type) in [("own", EngineType::Spark), ("all", EngineType::Spark)] {
            catalog.units.get_mut(&unit_name(unit)).unwrap().spec.engine_type = engine_type;
        }
        let rp_2 = PoolName::new("rp_2").unwrap();
        catalog.pools.get_mut(&rp_2).unwrap().spec.image = Some("registry:5000/spark:3.5.1".to_owned());
        let images = [(EngineType::Spark, "spark:4.0.0".to_owned())].into();
        let defaults = Defaults { images, ..Defaults::default() };
        for (asked, expected) in [
            (None, &["rp_1/own", "rp_1/ours", "rp_1/all", "rp_2/all"][..]),
            (Some("datafusion"), &["rp_1/ours"]),
            (Some("spark"), &["rp_1/own", "rp_1/all", "rp_2/all"]),
            (Some("spark-3.5"), &["rp_2/all"]),
            (Some("spark-4"), &["rp_1/own", "rp_1/all"]),
            (Some("spark-3.51"), &[]),
            (Some("hiveserver2"), &[]),
        ] {
            let engine_type = asked.map(|asked| asked.parse().unwrap());
            let selector = EngineSelector::new(&catalog, &defaults, SessionLabels { engine_type, ..labels() });
            let links = [("rp_1", "own"), ("rp_1", "ours"), ("rp_1", "all"), ("rp_2", "all")];
            let matches = |(pool, unit): &(&str, &str)| {
                selector.matches_parts(&labels().tenant, &PoolName::new(*pool).unwrap(), &unit_name(unit))
            };
            let found: Vec<String> =
                links.into_iter().filter(matches).map(|(pool, unit)| format!("{pool}/{unit}")).collect();
            assert_eq!(found, expected, "{asked:?}");
            let has_users = expected.contains(&"rp_1/own");
            assert_eq!(
                selector.has_unit_shared_by(SharedBy::User),
                has_users,
                "{asked:?}: only units of the type count"
            );
        }
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
