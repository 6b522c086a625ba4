//! The links that a plan scales, and their engines: the others are neither joined nor counted.
//!
//! A plan of few differences leaves out links of which it is known without a join that nothing is decided: their engines on demand
//! are steady, and all in use.

use std::collections::{HashMap, HashSet};

use foldhash::fast::RandomState;
use model::catalog::UnitSpec;
use model::configuration::Defaults;
use model::name::{PoolName, TenantName, UnitName};
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
pub(crate) struct ScaledLinks<'p> {
    links: HashSet<Link, RandomState>,
    asked: HashSet<&'p TenantName>,
    /// Whether an engine may be started without a slot.
    may_start: bool,
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
        Self { links, asked, may_start: true }
    }

    /// Leaves out the links of which scaling decides nothing: no session of the tenant waits, no idle engine is kept ready, the
    /// slots are within both limits, and each engine on demand is steady and has a session. `planned`: the engines that this plan
    /// is made for. All others are steady.
    pub fn without_busy(self, desired: &DesiredState, observed: &ObservedState, planned: &Inventory<'_>) -> Self {
        let snapshot = &desired.snapshot;
        let quiet = self.links.iter().filter(|link| !self.asked.contains(&link.tenant));
        let counted = quiet.filter_map(|link| Some((link_ref(link), Count::new(snapshot.catalog.unit(&link.unit)?))));
        let mut counts: HashMap<LinkRef<'_>, Count<'_>, RandomState> =
            HashMap::with_capacity_and_hasher(self.links.len(), RandomState::default());
        counts.extend(counted.filter(|(_, count)| !keeps_spares(count.unit, &desired.defaults)));
        let mut on_demand: HashMap<Incarnation, &SlotKey, RandomState> = HashMap::default();
        for slot in &snapshot.slots {
            if let Some(count) = counts.get_mut(&(&slot.key.tenant, &slot.key.pool, &slot.key.unit)) {
                count.slots += 1;
                count.shared += u32::from(slot.owner.is_none());
                if slot.origin == Origin::Demand {
                    on_demand.insert(slot.incarnation, &slot.key);
                }
            }
        }
        for record in &snapshot.engines {
            let is_in_use = || observed.loads.get(&record.name).is_some_and(|load| load.sessions > 0);
            if on_demand.get(&record.incarnation).is_some_and(|slot| **slot == record.slot)
                && planned.engine(&record.name).is_none()
                && is_in_use()
            {
                on_demand.remove(&record.incarnation);
            }
        }
        // Without sessions that wait, only spare engines and the minimum are.
        let may_start = counts.len() < self.links.len() || counts.values().any(|count| !count.has_minimum());
        for slot in on_demand.values() {
            counts.remove(&(&slot.tenant, &slot.pool, &slot.unit));
        }
        counts.retain(|_, count| count.has_minimum() && count.slots <= count.unit.max_engines);
        let links = self.links.iter().filter(|link| !counts.contains_key(&link_ref(link))).cloned().collect();
        Self { links, asked: self.asked, may_start }
    }

    /// Whether the plan may ask for engines that have no slot yet.
    pub fn may_start(&self) -> bool {
        self.may_start
    }

    /// Whether no link is scaled.
    pub fn is_empty(&self) -> bool {
        self.links.is_empty()
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

/// A link by its names.
type LinkRef<'a> = (&'a TenantName, &'a PoolName, &'a UnitName);

fn link_ref(link: &Link) -> LinkRef<'_> {
    (&link.tenant, &link.pool, &link.unit)
}

/// The slots of a link.
struct Count<'p> {
    unit: &'p UnitSpec,
    slots: u32,
    /// Those whose engines the tenant shares.
    shared: u32,
}

impl<'p> Count<'p> {
    fn new(unit: &'p UnitSpec) -> Self {
        Self { unit, slots: 0, shared: 0 }
    }

    /// Whether there is no engine to start for the minimum.
    fn has_minimum(&self) -> bool {
        self.shared >= self.unit.min_engines
    }
}

/// Whether idle engines of the unit are kept ready.
pub(super) fn keeps_spares(unit: &UnitSpec, defaults: &Defaults) -> bool {
    unit.spare_engines > 0 && unit.starts_on_demand(defaults)
}

/// Whether slots belong to the links. Most slots and rows are beside others of their link.
struct Membership<'a, 'k> {
    links: HashSet<LinkRef<'a>, RandomState>,
    last: Option<(&'k SlotKey, bool)>,
}

impl<'a, 'k: 'a> Membership<'a, 'k> {
    fn new(scaled: &'a ScaledLinks<'_>) -> Self {
        Self { links: scaled.links.iter().map(link_ref).collect(), last: None }
    }

    fn contains(&mut self, slot: &'k SlotKey) -> bool {
        match self.last {
            Some((last, contains)) if last.has_link_of(slot) => contains,
            _ => {
                let contains = self.links.contains(&(&slot.tenant, &slot.pool, &slot.unit));
                self.last = Some((slot, contains));
                contains
            }
        }
    }
}
