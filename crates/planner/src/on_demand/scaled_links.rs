//! The links that a plan scales, and their engines: the others are neither joined nor counted.

use std::collections::{HashMap, HashSet};

use foldhash::fast::RandomState;
use model::catalog::UnitSpec;
use model::configuration::Defaults;
use model::name::TenantName;
use model::number::Incarnation;
use model::slot::{Link, Origin, SlotKey};

use crate::desired::DesiredState;
use crate::inventory::Inventory;
use crate::name_set::NameSet;
use crate::observed::ObservedState;
use crate::role::{self, Role};
use crate::scope::Scope;

/// Links of the catalog of which the tenant's sessions wait, a slot follows demand, or idle engines are kept ready.
#[derive(Debug)]
pub(super) struct ScaledLinks<'p> {
    links: HashSet<Link, RandomState>,
    asked: HashSet<&'p TenantName>,
}

impl<'p> ScaledLinks<'p> {
    /// Those of the desired state. A link that the catalog no longer has may be among them; nothing is scaled there.
    pub fn of(desired: &'p DesiredState) -> Self {
        let (snapshot, catalog) = (&desired.snapshot, &desired.snapshot.catalog);
        let current = snapshot.demand.iter().filter(|demand| demand.is_current(snapshot.now_ms));
        let asked: HashSet<&TenantName> = current.map(|demand| &demand.key.tenant).collect();
        let on_demand = snapshot.slots.iter().filter(|slot| slot.origin == Origin::Demand);
        let mut links: HashSet<Link, RandomState> = on_demand.map(|slot| slot.key.link()).collect();
        for (tenant, of_tenant) in &catalog.tenants {
            let pools = of_tenant.spec.pools.iter().filter_map(|pool| Some((pool, catalog.pool(pool)?)));
            for (pool, unit) in pools.flat_map(|(pool, spec)| spec.units.iter().map(move |unit| (pool, unit))) {
                let has_spares = || catalog.unit(unit).is_some_and(|unit| keeps_spares(unit, &desired.defaults));
                if asked.contains(tenant) || has_spares() {
                    links.insert(Link { tenant: tenant.clone(), pool: pool.clone(), unit: unit.clone() });
                }
            }
        }
        Self { links, asked }
    }

    /// Whether the link is scaled.
    pub fn contains(&self, link: &Link) -> bool {
        self.links.contains(link)
    }

    /// Whether sessions of the tenant wait.
    pub fn is_asked(&self, tenant: &TenantName) -> bool {
        self.asked.contains(tenant)
    }

    /// Their engines with roles.
    pub fn engines(&self, desired: &'p DesiredState, observed: &'p ObservedState) -> (Inventory<'p>, Vec<Role<'p>>) {
        let scope = self.scope(desired);
        let is_most = scope.slots.len() > desired.snapshot.slots.len() / 2;
        let inventory = Inventory::join(desired, observed, Some(&scope).filter(|_| !is_most));
        let roles = role::classify_all(desired, &inventory);
        (inventory, roles)
    }

    /// Every engine that has or had one of their slots.
    fn scope(&self, desired: &DesiredState) -> Scope {
        let snapshot = &desired.snapshot;
        let mut of_slots = Membership::new(self);
        let scaled =
            snapshot.slots.iter().enumerate().filter_map(|(at, slot)| of_slots.contains(&slot.key).then_some(at));
        let slots: Vec<usize> = scaled.collect();
        let (mut names, mut issued) = (NameSet::default(), HashMap::<Incarnation, &SlotKey, RandomState>::default());
        let mut of_records = Membership::new(self);
        for record in snapshot.engines.iter().filter(|record| of_records.contains(&record.slot)) {
            names.insert(&record.name);
            issued.insert(record.incarnation, &record.slot);
        }
        let unissued = slots.iter().map(|at| &snapshot.slots[*at]);
        for slot in unissued.filter(|slot| issued.get(&slot.incarnation) != Some(&&slot.key)) {
            names.insert(&slot.engine());
        }
        Scope { names, slots }
    }
}

/// Whether idle engines of the unit are kept ready.
pub(super) fn keeps_spares(unit: &UnitSpec, defaults: &Defaults) -> bool {
    unit.spare_engines > 0 && unit.starts_on_demand(defaults)
}

/// Whether slots belong to the links. Most slots and rows are beside others of their link.
struct Membership<'a, 'k> {
    links: &'a ScaledLinks<'a>,
    last: Option<(&'k SlotKey, bool)>,
}

impl<'a, 'k> Membership<'a, 'k> {
    fn new(links: &'a ScaledLinks<'a>) -> Self {
        Self { links, last: None }
    }

    fn contains(&mut self, slot: &'k SlotKey) -> bool {
        match self.last {
            Some((last, contains)) if last.has_link_of(slot) => contains,
            _ => {
                let contains = self.links.contains(&slot.link());
                self.last = Some((slot, contains));
                contains
            }
        }
    }
}
