//! `choose`, `scale` and `admit` by themselves, for what the plan passes to them while sessions wait in every scaling group. What
//! that plan does in addition, reading its slots and writing its requests and decisions, is not part of it.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use model::catalog::UnitSpec;
use model::charge::Charge;
use model::configuration::Defaults;
use model::demand::ScalingGroup;
use model::instance::InstanceKind;
use model::ledger::{Amounts, Counter, Holder, Moment, Request as Reserve, Scopes, lineage_of};
use model::number::Incarnation;
use model::slot::SlotKey;
use model::snapshot::Snapshot;
use model::{PoolName, UnitName};
use planner::{
    AdmissionRules, DesiredState, EngineCondition, Group, GroupState, Headroom, LinkState, Occupancy, PATIENCE, Pods,
    PoolCondition, PoolState, ReadyEngine, Request, ScalingLimits, admit, choose, scale,
};

use crate::state::{ENGINES, SEATS, SLOTS_OF_LINK};
use crate::timing::{ROUNDS, print_part, print_peer, print_time, time_of};

/// Ordinals from here on are those of engines without a slot.
const UNPLACED: u32 = 1 << 30;

/// What `choose` and `scale` decide from. Each engine has one session.
struct Input<'a> {
    desired: &'a DesiredState,
    links: Vec<LinkState>,
    pools: BTreeMap<PoolName, PoolState>,
    groups: Vec<(ScalingGroup, Group<&'a SlotKey>)>,
}

impl<'a> Input<'a> {
    fn new(desired: &'a DesiredState) -> Self {
        let snapshot = &desired.snapshot;
        let mut slots: Vec<&SlotKey> = snapshot.slots.iter().map(|slot| &slot.key).collect();
        slots.sort();
        let of_links = slots.chunks(SLOTS_OF_LINK as usize);
        let groups: Vec<_> = of_links.map(|keys| group(desired, keys)).collect();
        let links = groups.iter().map(|(of, group)| link(desired, of, group)).collect();
        let open = || PoolState { condition: PoolCondition::Open, counter: Counter::UNLIMITED, grown_at_ms: None };
        let pools = snapshot.catalog.pools.keys().map(|pool| (pool.clone(), open())).collect();
        Self { desired, links, pools, groups }
    }

    /// The number of engines that each group starts.
    fn scaled(&self) -> Vec<u64> {
        self.groups.iter().map(|(_, group)| scale(group).start).collect()
    }

    /// Requests for these engines.
    fn requests(&self, starts: &[u64]) -> Vec<Request> {
        let groups = self.groups.iter().zip(starts);
        groups.flat_map(|((of, _), starts)| (0..*starts).map(|number| self.request(of, number as u32))).collect()
    }

    fn request(&self, ScalingGroup { link, .. }: &ScalingGroup, number: u32) -> Request {
        let charge = charge(self.desired, &link.unit);
        let (tenant, pool, unit) = (link.tenant.clone(), link.pool.clone(), link.unit.clone());
        let holder = Holder::Engine { unit: unit.clone(), incarnation: Incarnation::UNDRAWN };
        let key = SlotKey { tenant, pool, unit, ordinal: UNPLACED + number };
        let reservation = Reserve {
            id: key.engine(Incarnation::UNDRAWN).into(),
            holder,
            lineage: lineage_of(&key, Incarnation::UNDRAWN, None),
            scopes: Scopes::new(&key.tenant, &key.pool, None, None),
            amounts: Amounts::of_engine(&charge).unwrap(),
            asked: None,
            ttl_ms: None,
        };
        let (asked_at_ms, pods) = (self.desired.snapshot.now_ms - 1_000, Some(Pods::from(&charge)));
        Request { reservation: Arc::new(reservation), replaces: None, priority: 0, asked_at_ms, pods }
    }
}

fn charge(desired: &DesiredState, unit: &UnitName) -> Charge {
    Charge::of_unit(unit_of(desired, unit), InstanceKind::Process)
}

fn unit_of<'a>(desired: &'a DesiredState, unit: &UnitName) -> &'a UnitSpec {
    desired.snapshot.catalog.unit(unit).unwrap()
}

fn group<'a>(desired: &DesiredState, keys: &[&'a SlotKey]) -> (ScalingGroup, Group<&'a SlotKey>) {
    let link = keys[0].link();
    let unit = unit_of(desired, &link.unit);
    let engine = |id: &&'a SlotKey| ReadyEngine {
        id: *id,
        is_on_demand: false,
        condition: EngineCondition::Serving,
        occupancy: Occupancy::Sessions { taken: 1, idle_ms: 0 },
    };
    let limits = ScalingLimits {
        seats: NonZeroU64::new(u64::from(SEATS)).unwrap(),
        min: u64::from(unit.min_engines),
        max: u64::from(unit.max_engines),
        spare: u64::from(unit.spare_engines),
        idle_timeout_ms: None,
        burst: u64::from(desired.limits.burst),
    };
    let group = Group {
        limits,
        waiting: 0,
        admitted: None,
        is_backing_off: false,
        has_lapsed: false,
        is_cooling: false,
        engines: keys.iter().map(engine).collect(),
        pending: Vec::new(),
        stalled: Vec::new(),
    };
    (ScalingGroup { link, owner: None }, group)
}

fn link(desired: &DesiredState, of: &ScalingGroup, group: &Group<&SlotKey>) -> LinkState {
    let unit = unit_of(desired, &of.link.unit);
    LinkState {
        link: of.link.clone(),
        engine_type: unit.engine_type,
        version: None,
        shared_by: unit.shared_by,
        starts_on_demand: unit.starts_on_demand(&Defaults::default()),
        can_ever_fit: true,
        below_max: u64::from(unit.max_engines - SLOTS_OF_LINK),
        admissible: group.limits.burst,
        engine: *Amounts::of_engine(&charge(desired, &of.link.unit)).unwrap().nominal(),
        seats: group.limits.seats,
        groups: [(None, GroupState::from(group))].into(),
    }
}

/// The time of each function in one round. `starts`: the engines that the plan starts.
fn round(input: &mut Input<'_>, starts: u64) -> [Duration; 3] {
    let snapshot = &input.desired.snapshot;
    let mut assignment = None;
    let choosing = time_of(|| assignment = Some(choose(&snapshot.demand, &input.links, &input.pools, snapshot.now_ms)));
    let assignment = assignment.unwrap();
    for (of, group) in &mut input.groups {
        (group.waiting, group.admitted) = (assignment.groups[of].waiting, None);
    }
    let mut wanted = Vec::new();
    let before = time_of(|| wanted = input.scaled());
    let requests = input.requests(&wanted);
    let mut headroom = Headroom { ledger: snapshot.ledger.clone(), ..Headroom::default() };
    let at = Moment { now_ms: snapshot.now_ms, epoch: snapshot.master.epoch };
    let rules = AdmissionRules { at, patience: PATIENCE, awaiting: [].into() };
    let mut granted = 0;
    let admitting = time_of(|| {
        let admission = admit(&requests, &mut headroom, &rules);
        granted = admission.granted.len() as u64;
        admission
    });
    for ((_, group), wanted) in input.groups.iter_mut().zip(wanted) {
        group.admitted = Some(wanted);
    }
    let mut started = Vec::new();
    let after = time_of(|| started = input.scaled());
    assert_eq!((granted, started.iter().sum::<u64>()), (starts, starts), "it is what the plan starts");
    [choosing, before + after, admitting]
}

/// Measures and prints them, with the peer in turns. `starts`: the engines that the plan of the same state starts.
pub fn measure_and_print(desired: &DesiredState, starts: u64, target: Duration) {
    let answer = serde_json::to_vec(&desired.snapshot).unwrap();
    let mut input = Input::new(desired);
    assert_eq!(input.groups.len() * SLOTS_OF_LINK as usize, ENGINES);
    let (mut times, mut reads) = (Vec::new(), Vec::new());
    for number in 0..=ROUNDS {
        let of_round = round(&mut input, starts);
        let read = time_of(|| serde_json::from_slice::<Snapshot>(&answer).unwrap());
        if number > 0 {
            times.push(of_round);
            reads.push(read);
        }
    }
    println!("choose, scale and admit by themselves, for the same; processor time; least, middle, most of {ROUNDS}");
    let sums: Vec<Duration> = times.iter().map(|times| times.iter().sum()).collect();
    print_time("all three", &sums, target);
    for (at, what) in ["choose", "scale, before and after admission", "admit"].into_iter().enumerate() {
        print_part(what, times.iter().map(|times| times[at]).collect());
    }
    print_peer("rounds of all three", reads, &sums);
}
