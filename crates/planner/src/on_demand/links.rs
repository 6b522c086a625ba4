//! The links and pools that demand is assigned to.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;

use model::catalog::UnitSpec;
use model::ledger::{Moment, Role, ScopeKey};
use model::name::PoolName;
use model::on_demand::IdleTimeout;
use model::owner::Owner;
use model::quota::Capacity;
use model::slot::{Link, SlotKey};
use model::type_selector::version_of;

use super::request::{UNPLACED, UnplacedEngine};
use super::scaled_links::ScaledLinks;
use super::slots::{LinkSlots, is_of_session};
use crate::admit::{self, Headroom, Rejected, Request};
use crate::choose::{GroupState, LinkState, PoolCondition, PoolState};
use crate::desired::DesiredState;
use crate::scale::{Group, ScalingLimits};

/// Of a unit whose sizes exceed what can be reserved.
const TOO_LARGE: &str = "its sizes are too large";

/// A link with its slots and the options of its unit.
#[derive(Debug)]
pub(super) struct LinkOptions<'p> {
    pub link: Link,
    /// `None` if it has none.
    pub slots: Option<LinkSlots<'p>>,
    pub unit: &'p UnitSpec,
    pub idle_timeout: IdleTimeout,
    starts_on_demand: bool,
    /// Whether sessions of its tenant wait.
    is_asked: bool,
    /// How many engines admission would grant now.
    admissible: u64,
    /// Why no engine can ever fit; `None` if one can.
    pub impossible: Option<String>,
    /// Its engines that have no slot yet; `None` if they are too large.
    pub engine: Option<UnplacedEngine>,
    /// Of each owner whose engines cannot start, why, if a repetition does not remove that: a fragment that names the engine.
    pub refusals: BTreeMap<Option<Owner>, String>,
}

/// The links that are scaled, of tenants in order, each in the order of its lists.
pub(super) fn all<'p>(
    desired: &'p DesiredState,
    scaled: &ScaledLinks<'_>,
    mut slots: BTreeMap<Link, LinkSlots<'p>>,
    headroom: &mut Headroom,
    adopting: &BTreeSet<String>,
    at: Moment,
) -> Vec<LinkOptions<'p>> {
    let catalog = &desired.snapshot.catalog;
    let mut links = Vec::new();
    for (tenant, of_tenant) in &catalog.tenants {
        for pool in of_tenant.spec.pools.iter().filter(|pool| !adopting.contains(pool.as_str())) {
            for unit in catalog.pool(pool).map_or(&[][..], |spec| &spec.units) {
                let link = Link { tenant: tenant.clone(), pool: pool.clone(), unit: unit.clone() };
                let Some(spec) = catalog.unit(unit).filter(|_| scaled.contains(&link)) else { continue };
                let (slots, is_asked) = (slots.remove(&link), scaled.is_asked(tenant));
                let engine = UnplacedEngine::new(desired, &link);
                let (admissible, impossible) = if is_asked {
                    capacity_for(engine.as_ref(), spec.priority, headroom, (desired.limits.burst, at))
                } else {
                    (0, None)
                };
                links.push(LinkOptions {
                    unit: spec,
                    idle_timeout: spec.idle_timeout(&desired.defaults),
                    starts_on_demand: spec.starts_on_demand(&desired.defaults),
                    is_asked,
                    admissible,
                    impossible,
                    engine,
                    refusals: slots.as_ref().map(LinkSlots::refusals).unwrap_or_default(),
                    slots,
                    link,
                });
            }
        }
    }
    links
}

/// How many engines of the link admission would grant now, up to what a round starts, and why none can ever fit. Changes nothing.
fn capacity_for(
    engine: Option<&UnplacedEngine>,
    priority: i32,
    headroom: &mut Headroom,
    (burst, at): (u32, Moment),
) -> (u64, Option<String>) {
    let request = engine.and_then(|engine| Some((engine.requests(UNPLACED..UNPLACED + 1).next()?, engine.pods)));
    let Some((reservation, pods)) = request else { return (0, Some(TOO_LARGE.to_owned())) };
    let request = Request { reservation, replaces: None, priority, asked_at_ms: at.now_ms, pods: Some(pods) };
    match admit::impossible(&request, headroom, at.now_ms) {
        Some(why) => (0, Some(Rejected { request: &request, why }.limit())),
        None => (headroom.grantable(&request, u64::from(burst), at), None),
    }
}

/// The pools of the catalog.
pub(super) fn pools(desired: &DesiredState, headroom: &Headroom) -> BTreeMap<PoolName, PoolState> {
    let needs_nodes = desired.defaults.instances.needs_nodes();
    let states = desired.snapshot.catalog.pools.iter().filter_map(|(name, pool)| {
        let scope = headroom.ledger.scope(&ScopeKey::pool(name))?;
        let condition = match (&scope.role, &pool.spec.capacity) {
            _ if pool.spec.lacks_nodes(needs_nodes).is_some() => PoolCondition::NoNodes,
            (Role::Pool(_), Some(Capacity::Registered)) if !scope.is_open => PoolCondition::NotRegistered,
            _ => PoolCondition::Open,
        };
        Some((name.clone(), PoolState { condition, counter: scope.counter, grown_at_ms: None }))
    });
    states.collect()
}

impl LinkOptions<'_> {
    /// The group of an owner without slots and demand, as if the link had no other.
    pub fn empty_group<'s>(&self, desired: &DesiredState, owner: Option<&Owner>) -> Group<&'s SlotKey> {
        let timeout = self.idle_timeout.duration();
        let timeout_ms = timeout.map(|timeout| u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX));
        let of_tenant = |engines: u32| if owner.is_none() { u64::from(engines) } else { 0 };
        Group {
            limits: ScalingLimits {
                seats: self.seats(),
                min: of_tenant(self.unit.min_engines),
                max: u64::from(self.unit.max_engines),
                spare: if self.starts_on_demand { of_tenant(self.unit.spare_engines) } else { 0 },
                // The engine of a session ends with it: what is left is any idle time at all.
                idle_timeout_ms: if is_of_session(owner) { Some(1) } else { timeout_ms },
                burst: u64::from(desired.limits.burst),
            },
            waiting: 0,
            admitted: None,
            is_backing_off: false,
            has_lapsed: false,
            is_cooling: false,
            engines: Vec::new(),
            pending: Vec::new(),
            stalled: Vec::new(),
        }
    }

    fn seats(&self) -> NonZeroU64 {
        NonZeroU64::new(u64::from(self.unit.seats())).unwrap_or(NonZeroU64::MIN)
    }

    /// The link as demand is assigned to it. `granted`: the requests of slots that count as granted.
    pub fn state(&self, desired: &DesiredState, granted: &BTreeSet<&str>) -> LinkState {
        let slots = self.slots.as_ref();
        let groups = slots.into_iter().flat_map(LinkSlots::owners).map(|owner| {
            let mut group = self.empty_group(desired, owner);
            group.waiting = u64::from(self.is_asked);
            if let Some(slots) = slots {
                slots.add_to(owner, &mut group, granted);
            }
            let owner = owner.cloned();
            let is_refused = self.refusals.contains_key(&owner);
            (owner, GroupState { is_refused, ..GroupState::from(&group) })
        });
        let pool = desired.snapshot.catalog.pool(&self.link.pool);
        let count = slots.map_or(0, LinkSlots::count);
        LinkState {
            link: self.link.clone(),
            engine_type: self.unit.engine_type,
            version: pool
                .and_then(|pool| desired.defaults.image(pool, self.unit.engine_type))
                .and_then(version_of)
                .map(str::to_owned),
            shared_by: self.unit.shared_by,
            starts_on_demand: self.starts_on_demand,
            can_ever_fit: self.impossible.is_none(),
            below_max: u64::from(self.unit.max_engines).saturating_sub(count),
            admissible: self.admissible,
            engine: self.engine.as_ref().map(|engine| *engine.amounts.nominal()).unwrap_or_default(),
            seats: self.seats(),
            groups: groups.collect(),
        }
    }
}
