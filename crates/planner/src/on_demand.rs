//! The slots of a plan that follow demand: what it adds before the round of admission as requests, and what it decides after it.
//!
//! A plan does this in two steps around its one round of admission. The first assigns demand to links and computes the engines
//! that are wanted; each is a request like those of the slots, with the age of its demand. The second scales with the number
//! that was granted. A slot without a reservation counts as on its way in the first step if it would be granted without these
//! requests, and in the second if it was granted; otherwise it is queued and covers no session.
//!
//! The engines of a link that have different owners are different groups: each has the sessions of its owner, and they share
//! `MAX_ENGINES`. Engines of one user are charged to it, so their requests are, too.
//!
//! All engines of a group count, also those that an incremental plan does not cover; those of links that are not scaled
//! (`scaled_links`) do not matter. Nothing is done without demand and without slots of origin *demand*, nor while the registry may
//! be incomplete and an engine that runs is missing there: it may be in use.

mod groups;
mod links;
mod reason;
mod request;
mod scaled_links;
mod slots;
mod unmet;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use foldhash::fast::RandomState;
use model::ledger::Moment;
use model::number::Generation;
use model::scaling::{LinkScale, SlotAddition, SlotRemoval, SlotsSeen};
use model::shared::Shared;
use model::slot::{Origin, SlotKey};

use crate::admit::{Admission, Headroom, Request};
use crate::builder::{Candidate, PlanBuilder};
use crate::choose::{Assignment, choose};
use crate::decision::{Action, Decision, Release, Scaling, Stage};
use crate::demand_reported::DemandReported;
use crate::desired::DesiredState;
use crate::observed::{Instance, ObservedState};
use crate::role::Engines;
use crate::scale::{Group, RemovalReason, Scaled, scale_link};
use groups::GroupDemand;
use links::LinkOptions;
use reason::{because, end_word, removal_reason};
use request::UNPLACED;
pub(crate) use request::put_users;
pub(crate) use scaled_links::ScaledLinks;
use scaled_links::keeps_spares;
use slots::is_of_session;
use unmet::Planned;

/// The engines on demand between the two steps.
pub(crate) struct OnDemand<'p> {
    links: Vec<LinkOptions<'p>>,
    assignment: Assignment,
    /// Link by link.
    groups: Vec<GroupDemand>,
    /// The requests for engines without a slot, by id, with the index of their group.
    wanted: HashMap<Arc<str>, usize>,
    requests: Vec<Request>,
}

/// What admission has granted.
#[derive(Debug, Clone, Copy)]
struct Admitted<'a> {
    /// The slots' requests that count as granted.
    candidates: &'a BTreeSet<&'a str>,
    /// Whether it has decided about engines without a slot, too.
    is_final: bool,
}

/// The links that the plan scales; `None` if it has nothing to do here: no session waits, no slot follows demand, and no spare
/// engine may be needed.
pub(crate) fn links<'p>(builder: &PlanBuilder<'p>, engines: Engines<'_, 'p>) -> Option<ScaledLinks<'p>> {
    let (desired, observed) = (builder.desired, builder.observed);
    let (snapshot, defaults) = (&desired.snapshot, &desired.defaults);
    let has_demand = snapshot.demand.iter().any(|demand| demand.is_current(snapshot.now_ms));
    let is_needed = has_demand
        || snapshot.slots.iter().any(|slot| slot.origin == Origin::Demand)
        || snapshot.catalog.units.values().any(|unit| keeps_spares(&unit.spec, defaults));
    if !is_needed || !is_settled(observed) {
        return None;
    }
    let all = ScaledLinks::of(desired);
    let scaled = if engines.is_complete { all } else { all.without_busy(desired, observed, engines.inventory) };
    (has_demand || !scaled.is_empty()).then_some(scaled)
}

/// Whether it is known which engines are registered. While the registry may be incomplete, it is if none that runs is missing:
/// a new installation need not wait.
fn is_settled(observed: &ObservedState) -> bool {
    if observed.registry_complete {
        return true;
    }
    let registered: HashSet<&str, RandomState> =
        observed.registrations.iter().filter_map(|registration| registration.uid.as_deref()).collect();
    let is_missing = |instance: &Shared<Instance>| instance.is_alive() && !registered.contains(instance.uid.as_str());
    !observed.instances.iter().any(is_missing)
}

impl<'p> OnDemand<'p> {
    /// The first step: what is wanted. `granted`: the candidates that have a reservation if nothing else is requested. Links of
    /// pools in `adopting` are left alone.
    pub fn new(
        builder: &PlanBuilder<'p>,
        engines: Engines<'_, 'p>,
        scaled: &ScaledLinks<'p>,
        (candidates, granted): (&BTreeMap<String, Candidate>, &BTreeSet<&str>),
        headroom: &mut Headroom,
        adopting: &BTreeSet<String>,
        at: Moment,
    ) -> Self {
        let (desired, observed) = (builder.desired, builder.observed);
        let slots = if engines.is_complete {
            slots::all(builder, scaled, (engines.inventory, engines.roles), candidates)
        } else {
            let (inventory, roles) = scaled.engines(desired, observed);
            slots::all(builder, scaled, (&inventory, &roles), candidates)
        };
        let links = links::all(desired, scaled, slots, headroom, adopting, at);
        let states: Vec<_> = links.iter().map(|link| link.state(desired, granted)).collect();
        let pools = links::pools(desired, headroom);
        let assignment = choose(&desired.snapshot.demand, &states, &pools, desired.snapshot.now_ms);
        let groups = groups::all(&links, &assignment);
        let mut this = Self { links, assignment, groups, wanted: HashMap::new(), requests: Vec::new() };
        for of_link in this.by_link() {
            let scaled =
                this.scaled(desired, of_link.clone(), builder, Admitted { candidates: granted, is_final: false });
            let mut ordinal = UNPLACED;
            for (at, scaled) in of_link.zip(scaled) {
                ordinal = this.want(desired, at, (scaled.start, ordinal));
            }
        }
        this
    }

    /// The indexes of the groups of each link.
    fn by_link(&self) -> Vec<Range<usize>> {
        let mut first = 0;
        let of_links = self.groups.chunk_by(|one, other| one.link == other.link);
        let ranges = of_links.map(|groups| {
            let range = first..first + groups.len();
            first = range.end;
            range
        });
        ranges.collect()
    }

    /// Scales the groups of one link.
    fn scaled(
        &self,
        desired: &DesiredState,
        of_link: Range<usize>,
        builder: &PlanBuilder<'_>,
        admitted: Admitted<'_>,
    ) -> Vec<Scaled<&'p SlotKey>> {
        let of_link = &self.groups[of_link];
        let max = of_link.first().map_or(0, |group| u64::from(self.links[group.link].unit.max_engines));
        let groups = of_link.iter().map(|demand| self.group(desired, demand, builder, admitted));
        scale_link(&mut groups.collect::<Vec<_>>(), max)
    }

    fn group(
        &self,
        desired: &DesiredState,
        demand: &GroupDemand,
        builder: &PlanBuilder<'_>,
        admitted: Admitted<'_>,
    ) -> Group<&'p SlotKey> {
        let link = &self.links[demand.link];
        let owner = demand.group.owner.as_ref();
        let scaling = &builder.observed.scaling;
        let recent = scaling.recent_demand.as_ref();
        let recent = recent.map(|recent| recent.get(&demand.group).copied().unwrap_or(0));
        let mut group = link.empty_group(desired, owner);
        group.waiting = demand.waiting;
        group.admitted = admitted.is_final.then_some(demand.granted);
        group.has_lapsed = recent.is_some_and(|recent| recent <= demand.waiting);
        group.is_cooling = scaling.released.contains(&link.link) && !is_of_session(owner);
        if let Some(slots) = &link.slots {
            slots.add_to(owner, &mut group, admitted.candidates);
        }
        group
    }

    /// Adds requests for engines that have no slot yet, with the age of their demand and ordinals from the given one on. Returns
    /// the next ordinal.
    fn want(&mut self, desired: &DesiredState, at: usize, (engines, first): (u64, u32)) -> u32 {
        let demand = &self.groups[at];
        let link = &self.links[demand.link];
        let asked_at_ms = demand.since_ms.unwrap_or(desired.snapshot.now_ms);
        let next = first.saturating_add(u32::try_from(engines).unwrap_or(u32::MAX));
        if let Some(engine) = link.engine.as_ref().filter(|_| engines > 0) {
            let of_user = demand.started_for.as_ref().map(|user| engine.started_for(desired, user));
            let engine = of_user.as_ref().unwrap_or(engine);
            let (priority, pods) = (link.unit.priority, Some(engine.pods));
            for reservation in engine.requests(first..next) {
                self.wanted.insert(Arc::clone(&reservation.id), at);
                self.requests.push(Request { reservation, replaces: None, priority, asked_at_ms, pods });
            }
        }
        next
    }

    /// The requests that take part in the round of admission.
    pub fn take_requests(&mut self) -> Vec<Request> {
        std::mem::take(&mut self.requests)
    }

    /// Counts a granted request; returns whether it is one of these.
    pub fn count_granted(&mut self, id: &str) -> bool {
        let Some(at) = self.wanted.get(id) else { return false };
        self.groups[*at].granted += 1;
        true
    }

    /// The second step: the slots that are added and removed, after the round of admission.
    pub fn decide(self, builder: &mut PlanBuilder<'p>, admission: &Admission<'_>) {
        let of_slots = admission.granted.iter().filter(|request| !request.reservation.is_unplaced());
        let granted: BTreeSet<&str> = of_slots.map(|request| request.id()).collect();
        let mut scaled: Vec<Scaled<&SlotKey>> = Vec::with_capacity(self.groups.len());
        for of_link in self.by_link() {
            let groups = &self.groups[of_link.clone()];
            let results =
                self.scaled(builder.desired, of_link, builder, Admitted { candidates: &granted, is_final: true });
            if let Some(decision) = self.decision(groups, &results, builder.desired.snapshot.catalog.generation) {
                keep_uncreated(builder, &decision);
                builder.push(Stage::Scale, vec![decision]);
            }
            scaled.extend(results);
        }
        let Self { links, assignment, groups, wanted, .. } = &self;
        let assigned = assignment.groups.iter().map(|(group, demand)| (group.clone(), demand.waiting));
        let planned = Planned { assignment, links, groups, wanted, scaled: &scaled };
        builder.demand = DemandReported {
            assigned: assigned.collect(),
            unmet: planned.unmet(admission, &builder.desired.snapshot.catalog),
            due: links.iter().filter_map(|link| link.slots.as_ref()?.due(link.idle_timeout)).min(),
        };
    }

    /// The change of a link's slots, of all its groups.
    fn decision(&self, groups: &[GroupDemand], results: &[Scaled<&SlotKey>], read_at: Generation) -> Option<Decision> {
        let link = &self.links[groups.first()?.link];
        let slots = link.slots.as_ref();
        let seen = SlotsSeen { read_at, ..slots.map(|slots| slots.seen).unwrap_or_default() };
        let mut scaling = Scaling {
            slots: LinkScale { link: link.link.clone(), seen, add: Vec::new(), remove: Vec::new() },
            release: Vec::new(),
        };
        let mut waiting = Vec::new();
        for (demand, scaled) in groups.iter().zip(results) {
            if scaled.start > 0 {
                scaling.slots.add.push(SlotAddition {
                    owner: demand.group.owner.clone(),
                    started_for: demand.started_for.clone(),
                    count: u32::try_from(scaled.start).unwrap_or(u32::MAX),
                });
                waiting.push(demand.waiting);
            }
            for removal in &scaled.removals {
                let slot = slots.and_then(|slots| slots.slot(removal.id)).filter(|slot| slot.is_removable());
                let Some(slot) = slot else { continue };
                let removed = SlotRemoval {
                    slot: removal.id.clone(),
                    incarnation: slot.incarnation(),
                    reason: removal_reason(removal.reason, link, demand.group.owner.as_ref()),
                    word: end_word(removal.reason, demand.group.owner.as_ref()),
                };
                match (removal.reason, slot.serving()) {
                    (RemovalReason::Idle, Some((engine, uid))) => {
                        scaling.release.push(Release { engine: engine.clone(), uid: uid.to_owned(), slot: removed });
                    }
                    // Only an agent can tell that its engine is idle.
                    (RemovalReason::Idle, None) => {}
                    _ => scaling.slots.remove.push(removed),
                }
            }
        }
        if scaling.slots.add.is_empty() && scaling.is_only_added() {
            return None;
        }
        let reason = because(&scaling, link, &waiting);
        Some(Decision { engine: None, slot: None, reason, action: Action::Scale(Box::new(scaling)) })
    }
}

/// An engine whose slot is removed is not created before.
fn keep_uncreated(builder: &mut PlanBuilder<'_>, decision: &Decision) {
    let Action::Scale(scaling) = &decision.action else { return };
    let removed: BTreeSet<&SlotKey> = scaling.slots.remove.iter().map(|removal| &removal.slot).collect();
    if removed.is_empty() {
        return;
    }
    builder.chains.retain(|chain| {
        let slot = chain.decisions.first().and_then(|decision| decision.slot.as_ref());
        chain.stage != Stage::Create || !slot.is_some_and(|slot| removed.contains(slot))
    });
}
