//! Two tables, and deliberately broken rules that they detect. The first has two pools: a slot in the first pool whose engine does
//! not serve, beside a second pool that is free, and one session waits. The second has two slots of one group, of which the
//! waiting session needs one.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;

use model::demand::{Demand, DemandKey, ScalingGroup};
use model::engine_name::EngineName;
use model::engine_type::EngineType;
use model::ledger::Counter;
use model::name::{PoolName, TenantName, UnitName};
use model::owner::SharedBy;
use model::resource::Amount;
use model::slot::{Link, Origin, Replacement, Slot, SlotKey};

use super::{Design, Kind, LinkSlots, SlotRules, SlotState};
use crate::choose::{GroupState, LinkState, Outcome, PoolCondition, PoolState, choose};
use crate::scale::{Group, ScalingLimits, scale};
use model::number::Incarnation;

const SEATS: NonZeroU64 = NonZeroU64::new(4).unwrap();

/// Who serves the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Served {
    /// It waits for the engine of the slot.
    BySlot,
    /// Another engine is started in this pool.
    Started(&'static str),
}
use Served::{BySlot, Started};

/// The state of the slot in the first pool, whether its request is granted, and who serves the session.
const TABLE: &[(&str, Kind, bool, Served)] = &[
    ("it holds a reservation", Kind::Pending { is_created: false }, false, BySlot),
    ("it is created", Kind::Pending { is_created: true }, false, BySlot),
    ("it is granted a reservation", Kind::Candidate, true, BySlot),
    ("it is queued", Kind::Candidate, false, Started("rp_1")),
    ("its start has failed and waits", Kind::BackingOff, false, Started("rp_2")),
    ("its start is repeated", Kind::Repeating, false, BySlot),
    ("its node has failed", Kind::Replaced, false, BySlot),
    ("it is given another engine first", Kind::Changing, false, Started("rp_1")),
];

/// The state of slot 1 beside slot 0, whose engine exists and is about to register, and which of the two is removed because one is
/// enough.
const CANCELLED: &[(&str, Kind, u32)] = &[
    ("it holds a reservation", Kind::Pending { is_created: false }, 1),
    ("it is created, too, and its name is the second", Kind::Pending { is_created: true }, 0),
    ("it is granted a reservation", Kind::Candidate, 1),
    ("its node has failed", Kind::Replaced, 1),
    ("its start is repeated", Kind::Repeating, 1),
];

fn key(pool: &str) -> SlotKey {
    SlotKey {
        tenant: TenantName::new("t_1").unwrap(),
        pool: PoolName::new(pool).unwrap(),
        unit: UnitName::new("uc_1").unwrap(),
        ordinal: 0,
    }
}

fn slot(ordinal: u32) -> Slot {
    Slot {
        key: SlotKey { ordinal, ..key("rp_1") },
        incarnation: Incarnation(1),
        origin: Origin::Demand,
        failures: 0,
        replacement: Replacement::StandIn,
        born: Incarnation(1),
        started_for: None,
        asked_at_ms: 0,
        owner: None,
    }
}

fn state(slot: &Slot, kind: Kind) -> SlotState<'_> {
    SlotState { slot, kind, has_stand_in: false, current: slot.engine(), uid: None, was_used: false, refusal: None }
}

fn slots(kinds: &[Kind]) -> Vec<(Slot, Kind)> {
    (0..).map(slot).zip(kinds.iter().copied()).collect()
}

/// The group of the slots, for which a session waits as before.
fn group<'a>(rules: &dyn SlotRules, of_kinds: &'a [(Slot, Kind)], is_granted: bool) -> Group<&'a SlotKey> {
    let slots = LinkSlots::new(of_kinds.iter().map(|(slot, kind)| state(slot, *kind)).collect());
    let mut group = Group {
        limits: ScalingLimits { seats: SEATS, min: 0, max: 9, spare: 0, idle_timeout_ms: None, burst: 9 },
        waiting: 1,
        admitted: None,
        is_backing_off: false,
        has_lapsed: true,
        is_cooling: false,
        engines: Vec::new(),
        pending: Vec::new(),
        stalled: Vec::new(),
    };
    let names: Vec<_> = of_kinds.iter().filter(|_| is_granted).map(|(slot, _)| slot.engine()).collect();
    let granted: BTreeSet<&str> = names.iter().map(EngineName::as_str).collect();
    slots.add_by(rules, None, &mut group, &granted);
    group
}

fn link(pool: &str, of_link: Option<GroupState>, admissible: u64) -> LinkState {
    LinkState {
        link: key(pool).link(),
        engine_type: EngineType::Datafusion,
        version: None,
        shared_by: SharedBy::Tenant,
        starts_on_demand: true,
        can_ever_fit: true,
        below_max: 9,
        admissible,
        engine: Amount::default(),
        seats: SEATS,
        groups: of_link.into_iter().map(|group| (None, group)).collect(),
    }
}

/// Who serves the session if the first pool would admit so many further engines.
fn served(rules: &dyn SlotRules, (kind, is_granted): (Kind, bool), admissible: u64) -> Option<Served> {
    let demand = Demand {
        key: DemandKey::of_tenant(TenantName::new("t_1").unwrap(), "default"),
        waiting: 1,
        since_ms: 0,
        until_ms: i64::MAX,
    };
    let of_slot = GroupState::from(&group(rules, &slots(&[kind]), is_granted));
    let links = [link("rp_1", Some(of_slot), admissible), link("rp_2", None, 9)];
    let open = || PoolState { condition: PoolCondition::Open, counter: Counter::UNLIMITED, grown_at_ms: None };
    let pools: BTreeMap<PoolName, PoolState> =
        ["rp_1", "rp_2"].map(|pool| (PoolName::new(pool).unwrap(), open())).into();
    let assignment = choose(&[demand], &links, &pools, 0);
    let key = assignment.keys.first()?;
    match &key.rest {
        None => (key.seated.len() == 1).then_some(BySlot),
        Some(rest) => match &rest.outcome {
            Outcome::Starts(ScalingGroup { link: Link { pool, .. }, .. }) => {
                ["rp_1", "rp_2"].into_iter().find(|name| *name == pool.as_str()).map(Started)
            }
            _ => None,
        },
    }
}

/// The rows whose result differs, also with a first pool that is full: there, whatever is not on its way covers nothing.
fn differing(rules: &dyn SlotRules) -> Vec<&'static str> {
    let differs = |(_, kind, is_granted, expected): &&(&str, Kind, bool, Served)| {
        let of = |admissible| served(rules, (*kind, *is_granted), admissible);
        let in_full = if *expected == BySlot { BySlot } else { Started("rp_2") };
        of(9) != Some(*expected) || of(0) != Some(in_full)
    };
    let cancelled = |kind| {
        let slots = slots(&[Kind::Pending { is_created: true }, kind]);
        let scaled = scale(&group(rules, &slots, true));
        scaled.removals.into_iter().map(|removal| removal.id.ordinal).collect::<Vec<_>>()
    };
    let wrong = CANCELLED.iter().filter(|(_, kind, expected)| cancelled(*kind) != [*expected]).map(|(name, ..)| *name);
    TABLE.iter().filter(differs).map(|(name, ..)| *name).chain(wrong).collect()
}

#[test]
fn every_slot_counts_as_what_its_engine_is() {
    assert_eq!(differing(&Design), Vec::<&str>::new());
}

struct Mutant {
    name: &'static str,
    rules: Box<dyn SlotRules>,
}

/// Broken rules: a name, and the methods that each replaces.
macro_rules! mutants {
    ($($name:literal { $($methods:tt)* })*) => {
        fn mutants() -> Vec<Mutant> {
            vec![$({
                struct Broken;
                impl SlotRules for Broken {
                    $($methods)*
                }
                Mutant { name: $name, rules: Box::new(Broken) }
            }),*]
        }
    };
}

mutants! {
    "pending without a reservation" {
        fn is_pending(&self, kind: Kind, is_granted: bool) -> bool {
            kind == Kind::Candidate || Design.is_pending(kind, is_granted)
        }
    }
    "pending in back-off" {
        fn is_pending(&self, kind: Kind, is_granted: bool) -> bool {
            kind == Kind::BackingOff || Design.is_pending(kind, is_granted)
        }
    }
    "pending before it has another engine" {
        fn is_pending(&self, kind: Kind, is_granted: bool) -> bool {
            kind == Kind::Changing || Design.is_pending(kind, is_granted)
        }
    }
    "ignore the back-off" {
        fn backs_off(&self, _: Kind) -> bool { false }
    }
    "ignore pending" {
        fn is_pending(&self, _: Kind, _: bool) -> bool { false }
    }
    "ignore what is granted" {
        fn is_pending(&self, kind: Kind, _: bool) -> bool { Design.is_pending(kind, false) }
    }
    "what is replaced counts as created" {
        fn is_created(&self, kind: Kind) -> bool { kind == Kind::Replaced || Design.is_created(kind) }
    }
    "what is repeated counts as created" {
        fn is_created(&self, kind: Kind) -> bool { kind == Kind::Repeating || Design.is_created(kind) }
    }
    "nothing counts as created" {
        fn is_created(&self, _: Kind) -> bool { false }
    }
    "every slot without an engine backs off" {
        fn backs_off(&self, kind: Kind) -> bool { matches!(kind, Kind::Candidate | Kind::Changing | Kind::BackingOff) }
    }
}

#[test]
fn every_broken_rule_about_slots_is_detected() {
    for Mutant { name, rules } in mutants() {
        let rows = differing(rules.as_ref());
        assert!(!rows.is_empty(), "not detected: {name}");
        println!("{name}: {rows:?}");
    }
}
