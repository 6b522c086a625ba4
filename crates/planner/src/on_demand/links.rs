//! The links and pools that demand is assigned to.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;

use model::catalog::UnitSpec;
use model::configuration::Defaults;
use model::fit::{Nodes, Taken};
use model::ledger::{Ledger, Moment, Role, ScopeKey, Scopes};
use model::name::PoolName;
use model::on_demand::IdleTimeout;
use model::owner::Owner;
use model::quota::Capacity;
use model::slot::{Link, SlotKey};
use model::type_selector::version_of;

use super::request::{UNPLACED, request_of};
use super::slots::{LinkSlots, is_of_session};
use crate::admit::{self, Headroom, Rejected, Request};
use crate::choose::{GroupState, LinkState, PoolCondition, PoolState};
use crate::desired::DesiredState;
use crate::scale::{Group, ScalingLimits};

/// Of a unit whose sizes exceed what can be reserved.
const TOO_LARGE: &str = "its sizes are too large";

/// A link with the options of its unit.
#[derive(Debug)]
pub(super) struct LinkOptions<'p> {
    pub link: Link,
    pub unit: &'p UnitSpec,
    pub idle_timeout: IdleTimeout,
    starts_on_demand: bool,
    /// Whether sessions of its tenant wait.
    is_asked: bool,
    /// How many engines admission would grant now.
    admissible: u64,
    /// Why no engine can ever fit; `None` if one can.
    pub impossible: Option<String>,
    /// Of each owner whose engines cannot start, why, if a repetition does not remove that: a fragment that names the engine.
    pub refusals: BTreeMap<Option<Owner>, String>,
}

/// The links that start engines on demand or have such engines, of tenants in order, each in the order of its lists.
pub(super) fn all<'p>(
    desired: &'p DesiredState,
    slots: &BTreeMap<Link, LinkSlots<'p>>,
    headroom: &Headroom,
    adopting: &BTreeSet<String>,
    at: Moment,
) -> Vec<LinkOptions<'p>> {
    let catalog = &desired.snapshot.catalog;
    let now_ms = desired.snapshot.now_ms;
    let asked: BTreeSet<_> =
        desired.snapshot.demand.iter().filter(|it| it.is_current(now_ms)).map(|it| &it.key.tenant).collect();
    let mut nodes = headroom.nodes.clone();
    let mut links = Vec::new();
    for (tenant, of_tenant) in &catalog.tenants {
        for pool in of_tenant.spec.pools.iter().filter(|pool| !adopting.contains(pool.as_str())) {
            for unit in catalog.pool(pool).map_or(&[][..], |spec| &spec.units) {
                let link = Link { tenant: tenant.clone(), pool: pool.clone(), unit: unit.clone() };
                let has_demand = slots.get(&link).is_some_and(LinkSlots::has_demand);
                let is_scaled =
                    |unit: &&UnitSpec| asked.contains(tenant) || has_demand || keeps_spares(unit, &desired.defaults);
                let Some(spec) = catalog.unit(unit).filter(is_scaled) else { continue };
                let (admissible, impossible) = if asked.contains(tenant) {
                    room(desired, &link, spec, (&headroom.ledger, &mut nodes), at)
                } else {
                    (0, None)
                };
                links.push(LinkOptions {
                    unit: spec,
                    idle_timeout: spec.idle_timeout(&desired.defaults),
                    starts_on_demand: spec.starts_on_demand(&desired.defaults),
                    is_asked: asked.contains(tenant),
                    admissible,
                    impossible,
                    refusals: slots.get(&link).map(LinkSlots::refusals).unwrap_or_default(),
                    link,
                });
            }
        }
    }
    links
}

/// Whether idle engines of the unit are kept ready.
pub(super) fn keeps_spares(unit: &UnitSpec, defaults: &Defaults) -> bool {
    unit.spare_engines > 0 && unit.starts_on_demand(defaults)
}

/// How many engines of the link admission would grant now, up to what a round starts, and why none can ever fit. What they
/// would take of the nodes is put back.
fn room(
    desired: &DesiredState,
    link: &Link,
    unit: &UnitSpec,
    (ledger, nodes): (&Ledger, &mut Nodes),
    at: Moment,
) -> (u64, Option<String>) {
    let scopes = Scopes::new(&link.tenant, &link.pool, None, None);
    // Whole copies of the ledger, one for each link, would be most of a plan.
    let mut headroom =
        Headroom { ledger: ledger.of_scopes(&scopes), nodes: std::mem::take(nodes), ..Headroom::default() };
    let mut taken = Vec::new();
    let counted = count_grants(desired, link, unit, (&mut headroom, &mut taken), at);
    *nodes = headroom.nodes;
    for taken in &taken {
        nodes.put_back(taken);
    }
    counted
}

fn count_grants(
    desired: &DesiredState,
    link: &Link,
    unit: &UnitSpec,
    (headroom, taken): (&mut Headroom, &mut Vec<Taken>),
    at: Moment,
) -> (u64, Option<String>) {
    let mut granted = 0;
    while granted < u64::from(desired.limits.burst) {
        let Link { tenant, pool, unit: name } = link.clone();
        let key = SlotKey { tenant, pool, unit: name, ordinal: UNPLACED + granted as u32 };
        let Some((reservation, pods)) = request_of(desired, &key, None) else {
            return (0, Some(TOO_LARGE.to_owned()));
        };
        let (priority, asked_at_ms) = (unit.priority, at.now_ms);
        let request = Request { reservation, replaces: None, priority, asked_at_ms, pods: Some(pods) };
        if granted == 0
            && let Some(why) = admit::impossible(&request, headroom, at.now_ms)
        {
            return (0, Some(Rejected { request: &request, why }.limit()));
        }
        let Ok(of_pods) = headroom.grant(&request, at) else { break };
        taken.push(of_pods);
        granted += 1;
    }
    (granted, None)
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
    pub fn empty_group(&self, desired: &DesiredState, owner: Option<&Owner>) -> Group<SlotKey> {
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
    pub fn state(&self, desired: &DesiredState, slots: Option<&LinkSlots<'_>>, granted: &BTreeSet<&str>) -> LinkState {
        let owners: BTreeSet<Option<&Owner>> = slots.into_iter().flat_map(LinkSlots::owners).collect();
        let groups = owners.into_iter().map(|owner| {
            let mut group = self.empty_group(desired, owner);
            group.waiting = u64::from(self.is_asked);
            if let Some(slots) = slots {
                slots.add_to(owner, &mut group, granted);
            }
            let owner = owner.cloned();
            let is_refused = self.refusals.contains_key(&owner);
            (owner, GroupState { is_refused, ..GroupState::from(&group) })
        });
        let Link { tenant, pool, unit } = self.link.clone();
        let key = SlotKey { tenant, pool, unit, ordinal: UNPLACED };
        let pool = desired.pool(&key);
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
            engine: request_of(desired, &key, None).map(|(request, _)| *request.amounts.nominal()).unwrap_or_default(),
            seats: self.seats(),
            groups: groups.collect(),
        }
    }
}
