//! The slots of links as scaling sees them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use model::engine_name::EngineName;
use model::number::Incarnation;
use model::on_demand::IdleTimeout;
use model::owner::Owner;
use model::scaling::SlotsSeen;
use model::slot::{Link, Origin, Slot, SlotKey};

use super::scaled_links::ScaledLinks;
use crate::backoff;
use crate::builder::{Candidate, PlanBuilder};
use crate::desired::DesiredState;
use crate::inventory::{Engine, Inventory};
use crate::observed::{EngineUse, ObservedState};
use crate::role::{self, Role};
use crate::scale::{EngineCondition, Group, Occupancy, PendingEngine, ReadyEngine, StalledSlot};

/// The slots of one link.
#[derive(Debug)]
pub(super) struct LinkSlots<'p> {
    pub seen: SlotsSeen,
    /// In the order of keys.
    slots: Vec<SlotState<'p>>,
    /// The indexes of each owner's slots. A link may have as many owners as slots.
    of_owner: BTreeMap<Option<&'p Owner>, Vec<usize>>,
}

/// One slot.
#[derive(Debug)]
pub(super) struct SlotState<'p> {
    slot: &'p Slot,
    kind: Kind,
    has_stand_in: bool,
    /// The name of its current engine.
    current: EngineName,
    /// The instance of the current engine, if that serves.
    uid: Option<&'p str>,
    /// Whether a session has been open on the engine that serves.
    was_used: bool,
    /// Why its current engine cannot start, if a repetition does not remove that.
    refusal: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// An engine serves, or did and may again.
    Ready(Occupancy),
    /// Its engine holds a reservation and is on its way.
    Pending { is_created: bool },
    /// It takes part in this plan's round of admission.
    Candidate,
    /// Its engine is unreachable: the plan gives it another one, which is on its way from then on.
    Replaced,
    /// Nothing is on its way: its last start has failed and waits.
    BackingOff,
    /// Its last start has failed and is repeated by this plan.
    Repeating,
    /// The plan gives it another engine first.
    Changing,
}

/// The rules by which a slot whose engine does not serve counts. The tests replace one at a time and show that each replacement
/// is detected.
trait SlotRules {
    /// Whether the seats of the slot are on their way: its engine holds a reservation, or is granted one by this plan, and is not
    /// in back-off. A session that they cover waits for this slot although another link could serve it.
    fn is_pending(&self, kind: Kind, is_granted: bool) -> bool {
        match kind {
            // What is replaced has lost its sessions, and none of those that wait needs another engine. What is repeated may turn out
            // to be short of capacity in the next plan.
            Kind::Replaced | Kind::Pending { .. } | Kind::Repeating => true,
            Kind::Candidate => is_granted,
            Kind::BackingOff | Kind::Changing | Kind::Ready(_) => false,
        }
    }

    /// Whether the engine that is on its way exists. One that this plan gives the slot does not: neither the unreachable one that
    /// it replaces nor the failed start that it repeats is worth more than an engine that is about to register.
    fn is_created(&self, kind: Kind) -> bool {
        matches!(kind, Kind::Pending { is_created: true })
    }

    /// Whether no engine of its group is started because of it.
    fn backs_off(&self, kind: Kind) -> bool {
        kind == Kind::BackingOff
    }
}

struct Design;

impl SlotRules for Design {}

/// The slots of these links.
pub(super) fn all<'p>(
    builder: &PlanBuilder<'p>,
    scaled: &ScaledLinks<'_>,
    (inventory, roles): (&Inventory<'p>, &[Role<'_>]),
    candidates: &BTreeMap<String, Candidate>,
) -> BTreeMap<Link, LinkSlots<'p>> {
    let stand_ins = role::stand_ins(inventory, roles, Some(&builder.failed_nodes));
    let state_of = |slot: &'p Slot, engine: &Engine<'p>| {
        let stand_in = stand_ins.get(&slot.key).and_then(|name| inventory.engine(name));
        state(builder, slot, engine, (stand_in, candidates.contains_key(engine.name.as_str())))
    };
    // Slots are in the order of their keys.
    let of_links = inventory.slots.chunk_by(|(one, _), (other, _)| one.key.has_link_of(&other.key));
    let links = of_links.filter_map(|slots| {
        let link = slots.first().map(|(slot, _)| slot.key.link()).filter(|link| scaled.contains(link))?;
        let states = slots.iter().map(|(slot, at)| state_of(slot, &inventory.engines[*at]));
        Some((link, LinkSlots::new(states.collect())))
    });
    links.collect()
}

fn state<'p>(
    builder: &PlanBuilder<'p>,
    slot: &'p Slot,
    engine: &Engine<'p>,
    (stand_in, is_candidate): (Option<&Engine<'_>>, bool),
) -> SlotState<'p> {
    let (desired, observed) = (builder.desired, builder.observed);
    let seen = observed.scaling.uses.get(&engine.name);
    let kind = if builder.failed_nodes.is_unreachable(engine) {
        Kind::Replaced
    } else {
        kind((desired, observed), slot, (engine, seen), stand_in, is_candidate)
    };
    SlotState {
        slot,
        kind,
        has_stand_in: stand_in.is_some(),
        current: engine.name.clone(),
        uid: engine.alive().filter(|_| engine.is_ready()).map(|instance| instance.uid.as_str()),
        was_used: seen.is_some_and(|seen| seen.was_used),
        refusal: refusal(observed, engine).filter(|_| kind == Kind::BackingOff),
    }
}

fn kind(
    (desired, observed): (&DesiredState, &ObservedState),
    slot: &Slot,
    (engine, seen): (&Engine<'_>, Option<&EngineUse>),
    stand_in: Option<&Engine<'_>>,
    is_candidate: bool,
) -> Kind {
    if engine.is_ready() {
        return Kind::Ready(occupancy(engine, seen));
    }
    if let Some(serving) = stand_in.filter(|stand_in| stand_in.is_ready()) {
        // What is being replaced is not released before it is.
        return Kind::Ready(never_idle(occupancy(serving, observed.scaling.uses.get(&serving.name))));
    }
    let stays = engine.record.is_none_or(|record| record.end_reason.is_none() && record.ended_at_ms.is_none());
    let was_registered = engine.permit.is_some_and(|permit| permit.answered) && engine.alive().is_some();
    if stays && (was_registered || stand_in.is_some_and(Engine::has_registered)) {
        return Kind::Ready(Occupancy::Unknown);
    }
    if is_candidate {
        return Kind::Candidate;
    }
    let failed = observed.create_failures.get(&engine.name).is_some_and(|failure| !failure.retry_in.is_zero());
    let ended = engine.record.and_then(|record| Some(backoff::after_end(slot, record, record.ended_at_ms?)));
    if failed || ended.is_some_and(|back_off| back_off.until_ms > desired.snapshot.now_ms) {
        return Kind::BackingOff;
    }
    // Its seats are no reason to wait.
    if stays && engine.alive().is_some() && refusal(observed, engine).is_some() {
        return Kind::BackingOff;
    }
    if ended.is_some() {
        return Kind::Repeating;
    }
    match engine.charged() {
        Some(_) if stays => Kind::Pending { is_created: engine.uid().is_some() },
        _ => Kind::Changing,
    }
}

/// Why the slot's engine, which has not registered, failed or cannot start, if a repetition does not remove that.
fn refusal(observed: &ObservedState, engine: &Engine<'_>) -> Option<String> {
    let unknown = || "unknown reason".to_owned();
    if let Some(record) = engine.record.filter(|record| record.ended_at_ms.is_some()) {
        let reason = || record.ended_reason.clone().unwrap_or_else(unknown);
        return (record.retryable == Some(false)).then(reason);
    }
    if let Some(failure) = observed.create_failures.get(&engine.name) {
        return (!failure.is_retryable).then(|| format!("it could not be created: {}", failure.reason));
    }
    let instance = engine.alive().filter(|_| !engine.has_registered())?;
    let is_refused = instance.fault.is_some_and(|fault| !fault.is_retryable());
    is_refused.then(|| instance.reason.clone().unwrap_or_else(unknown))
}

fn occupancy(engine: &Engine<'_>, seen: Option<&EngineUse>) -> Occupancy {
    let Some(load) = engine.load else { return Occupancy::Unknown };
    match seen {
        Some(seen) if seen.is_retiring && load.sessions == 0 => Occupancy::Retiring,
        // An agent that reports no idle time does not know the call to retire.
        _ => {
            let idle_ms = seen.map_or(0, |seen| u64::try_from(seen.idle_for.as_millis()).unwrap_or(u64::MAX));
            let is_idle = load.sessions == 0 && load.running == 0;
            Occupancy::Sessions { taken: u64::from(load.sessions), idle_ms: if is_idle { idle_ms } else { 0 } }
        }
    }
}

fn never_idle(occupancy: Occupancy) -> Occupancy {
    match occupancy {
        Occupancy::Sessions { taken, .. } => Occupancy::Sessions { taken, idle_ms: 0 },
        other => other,
    }
}

impl<'p> LinkSlots<'p> {
    /// From the states in the order of keys.
    fn new(slots: Vec<SlotState<'p>>) -> Self {
        let mut of_owner: BTreeMap<Option<&'p Owner>, Vec<usize>> = BTreeMap::new();
        for (at, state) in slots.iter().enumerate() {
            of_owner.entry(state.slot.owner.as_ref()).or_default().push(at);
        }
        Self { seen: SlotsSeen::of(slots.iter().map(|state| state.slot)), slots, of_owner }
    }

    /// For each owner, which engine cannot start and why, if that is so of every slot of the owner without a serving engine.
    pub fn refusals(&self) -> BTreeMap<Option<Owner>, String> {
        let of_owner = self.of_owner.iter().filter_map(|(owner, slots)| {
            let states = slots.iter().map(|at| &self.slots[*at]);
            let waits = states.filter(|state| !matches!(state.kind, Kind::Ready(_)));
            let mut refusals = waits.map(|state| Some((&state.current, state.refusal.as_deref()?)));
            let (engine, reason) = refusals.next()??;
            let text = || (owner.cloned(), format!("engine \"{engine}\" cannot start: {reason}"));
            refusals.all(|refusal| refusal.is_some()).then(text)
        });
        of_owner.collect()
    }

    pub fn slot(&self, key: &SlotKey) -> Option<&SlotState<'p>> {
        let at = self.slots.binary_search_by(|state| state.slot.key.cmp(key)).ok()?;
        Some(&self.slots[at])
    }

    /// How many there are, of all owners.
    pub fn count(&self) -> u64 {
        self.slots.len() as u64
    }

    /// The owners of their engines; `None` of those that the tenant shares.
    pub fn owners(&self) -> impl Iterator<Item = Option<&Owner>> {
        self.of_owner.keys().copied()
    }

    /// Adds those of an owner to its group. `granted`: the requests of slots that count as granted.
    pub fn add_to(&self, owner: Option<&Owner>, group: &mut Group<&'p SlotKey>, granted: &BTreeSet<&str>) {
        self.add_by(&Design, owner, group, granted);
    }

    fn add_by(
        &self,
        rules: &dyn SlotRules,
        owner: Option<&Owner>,
        group: &mut Group<&'p SlotKey>,
        granted: &BTreeSet<&str>,
    ) {
        let slots = self.of_owner.get(&owner).into_iter().flatten();
        for state in slots.map(|at| &self.slots[*at]) {
            let (id, is_on_demand) = (&state.slot.key, state.slot.origin == Origin::Demand);
            let is_backing_off = rules.backs_off(state.kind);
            group.is_backing_off |= is_backing_off;
            match state.kind {
                // While sessions wait, engines are polled before each plan. Otherwise one without an answer has just registered:
                // it is no reason for another one, and is not cancelled either.
                Kind::Ready(Occupancy::Unknown) if group.waiting == 0 && state.uid.is_some() => {
                    let (has_stand_in, is_created) = (true, true);
                    group.pending.push(PendingEngine { id, is_on_demand, has_stand_in, is_created });
                }
                Kind::Ready(occupancy) => {
                    let occupancy =
                        if is_of_session(owner) { state.ends_with_session(occupancy, group) } else { occupancy };
                    group.engines.push(ReadyEngine {
                        id,
                        is_on_demand,
                        condition: EngineCondition::Serving,
                        occupancy,
                    });
                }
                kind if rules.is_pending(kind, granted.contains(state.current.as_str())) => {
                    let (is_created, has_stand_in) = (rules.is_created(kind), state.has_stand_in);
                    group.pending.push(PendingEngine { id, is_on_demand, has_stand_in, is_created });
                }
                kind => {
                    // What changes is left to the plan's other decisions, and no start waits for it.
                    let is_on_demand = is_on_demand && kind != Kind::Changing;
                    let has_stand_in = state.has_stand_in;
                    group.stalled.push(StalledSlot { id, is_on_demand, has_stand_in, is_backing_off });
                }
            }
        }
    }

    /// The time until the next idle engine reaches the timeout. Those of sessions have none.
    pub fn due(&self, timeout: IdleTimeout) -> Option<Duration> {
        let timeout = timeout.duration()?;
        let on_demand = self.slots.iter().filter(|state| state.slot.origin == Origin::Demand);
        let idle = on_demand.filter(|state| !is_of_session(state.slot.owner.as_ref()));
        let idle = idle.filter_map(|state| match state.kind {
            Kind::Ready(Occupancy::Sessions { taken: 0, idle_ms }) if idle_ms > 0 => {
                Some(Duration::from_millis(idle_ms))
            }
            _ => None,
        });
        idle.filter_map(|idle| timeout.checked_sub(idle)).filter(|left| !left.is_zero()).min()
    }
}

/// Whether the engine is that of a single session, which it ends with.
pub(super) const fn is_of_session(owner: Option<&Owner>) -> bool {
    matches!(owner, Some(Owner::Session(_)))
}

impl<'p> SlotState<'p> {
    /// The occupancy of the engine of a session: idle, whatever the timeout, as soon as its session has closed. One that was not
    /// used yet is until its demand has lapsed, because a session leaves the demand shortly before it is opened.
    fn ends_with_session(&self, occupancy: Occupancy, group: &Group<&SlotKey>) -> Occupancy {
        match occupancy {
            Occupancy::Sessions { taken: 0, idle_ms } => {
                let has_ended = self.was_used || group.has_lapsed;
                Occupancy::Sessions { taken: 0, idle_ms: if has_ended { idle_ms } else { 0 } }
            }
            other => other,
        }
    }

    pub fn incarnation(&self) -> Incarnation {
        self.slot.incarnation
    }

    /// Whether this plan may remove it: slots of other origins end by statements only, and one that this plan gives another
    /// engine is removed by the next plan, before that engine is created.
    pub fn is_removable(&self) -> bool {
        self.slot.origin == Origin::Demand && !matches!(self.kind, Kind::Replaced | Kind::Repeating)
    }

    /// Its current engine with the uid of its instance, if that is registered.
    pub fn serving(&self) -> Option<(&EngineName, &'p str)> {
        Some((&self.current, self.uid?))
    }
}

#[cfg(test)]
mod tests;
