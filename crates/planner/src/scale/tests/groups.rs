//! Random groups, and what becomes of one when a round is applied.

use std::num::NonZeroU64;

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use super::Id;
use crate::scale::{EngineCondition, Group, Occupancy, PendingEngine, ReadyEngine, Scaled, ScalingLimits, StalledSlot};

/// Of all groups that have one. The idle times of engines lie around it.
pub(super) const TIMEOUT_MS: u64 = 100;

/// Numbers the slots of a kind in an order that is not that of the list.
fn id(kind: char, index: usize) -> Id {
    (kind, ((index * 7 + 3) % 11) as u32)
}

fn occupancy() -> impl Strategy<Value = Occupancy> {
    let idle_ms = prop_oneof![Just(0), TIMEOUT_MS - 1..=TIMEOUT_MS + 2, 200_u64..210];
    prop_oneof![
        1 => Just(Occupancy::Unknown),
        1 => Just(Occupancy::Retiring),
        4 => idle_ms.clone().prop_map(|idle_ms| Occupancy::Sessions { taken: 0, idle_ms }),
        4 => (1_u64..7, idle_ms).prop_map(|(taken, idle_ms)| Occupancy::Sessions { taken, idle_ms }),
    ]
}

fn engines() -> impl Strategy<Value = Vec<ReadyEngine<Id>>> {
    let condition = prop_oneof![
        8 => Just(EngineCondition::Serving),
        1 => Just(EngineCondition::Outdated),
        1 => Just(EngineCondition::Draining),
    ];
    let engine = (prop::bool::weighted(0.8), condition, occupancy());
    prop::collection::vec(engine, 0..7).prop_map(|engines| {
        let named = engines.into_iter().enumerate();
        named
            .map(|(index, (is_on_demand, condition, occupancy))| ReadyEngine {
                id: id('e', index),
                is_on_demand,
                condition,
                occupancy,
            })
            .collect()
    })
}

fn pending() -> impl Strategy<Value = Vec<PendingEngine<Id>>> {
    let engine = (prop::bool::weighted(0.8), prop::bool::weighted(0.2), any::<bool>());
    prop::collection::vec(engine, 0..4).prop_map(|engines| {
        let named = engines.into_iter().enumerate();
        named
            .map(|(index, (is_on_demand, has_stand_in, is_created))| PendingEngine {
                id: id('p', index),
                is_on_demand,
                has_stand_in,
                is_created,
            })
            .collect()
    })
}

fn stalled() -> impl Strategy<Value = Vec<StalledSlot<Id>>> {
    let slot = (prop::bool::weighted(0.8), prop::bool::weighted(0.2), any::<bool>());
    prop::collection::vec(slot, 0..3).prop_map(|slots| {
        let named = slots.into_iter().enumerate();
        named
            .map(|(index, (is_on_demand, has_stand_in, is_backing_off))| StalledSlot {
                id: id('q', index),
                is_on_demand,
                has_stand_in,
                is_backing_off,
            })
            .collect()
    })
}

fn limits() -> impl Strategy<Value = ScalingLimits> {
    let min = prop_oneof![2 => Just(0), 1 => 0_u64..5];
    let max = prop_oneof![9_u64..12, 0_u64..9];
    let timeout = prop_oneof![5 => Just(Some(TIMEOUT_MS)), 1 => Just(None)];
    let burst = prop_oneof![1_u64..4, Just(10)];
    let spare = prop_oneof![Just(0), 1_u64..3];
    (1_u64..6, min, max, spare, timeout, burst).prop_map(|(seats, min, max, spare, idle_timeout_ms, burst)| {
        ScalingLimits { seats: NonZeroU64::new(seats).unwrap(), min, max, spare, idle_timeout_ms, burst }
    })
}

pub(super) fn groups() -> impl Strategy<Value = Group<Id>> {
    let waiting = prop_oneof![2 => Just(0), 2 => 1_u64..12, 1 => 12_u64..60];
    let admitted = prop_oneof![2 => Just(None), 1 => (0_u64..6).prop_map(Some)];
    let flags = (prop::bool::weighted(0.15), any::<bool>(), prop::bool::weighted(0.25));
    (limits(), waiting, admitted, flags, engines(), pending(), stalled()).prop_map(
        |(limits, waiting, admitted, (is_backing_off, has_lapsed, is_cooling), engines, pending, stalled)| Group {
            limits,
            waiting,
            admitted,
            is_backing_off,
            has_lapsed,
            is_cooling,
            engines,
            pending,
            stalled,
        },
    )
}

/// The same groups with each call.
pub(super) fn fixed(count: usize) -> Vec<Group<Id>> {
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let strategy = groups();
    (0..count).map(|_| strategy.new_tree(&mut runner).unwrap().current()).collect()
}

/// The group without the slots that end. Those that are started are pending and not created yet.
pub(super) fn applied(group: &Group<Id>, scaled: &Scaled<Id>) -> Group<Id> {
    let is_left = |id: &Id| scaled.removals.iter().all(|removal| removal.id != *id);
    let mut after = group.clone();
    after.engines.retain(|engine| is_left(&engine.id));
    after.pending.retain(|engine| is_left(&engine.id));
    after.stalled.retain(|slot| is_left(&slot.id));
    let highest = after.engines.iter().map(|engine| engine.id.1).chain(after.pending.iter().map(|engine| engine.id.1));
    let next = highest.max().unwrap_or(100).max(100);
    after.pending.extend((1..=scaled.start).map(|number| PendingEngine {
        id: ('p', next + number as u32),
        is_on_demand: true,
        has_stand_in: false,
        is_created: false,
    }));
    after.admitted = group.admitted.map(|admitted| admitted.saturating_sub(scaled.start));
    after
}

/// The group when all its engines have registered, all that can be is admitted, and the idle timeout has passed. Waiting
/// sessions are not bound, and sessions do not end.
pub(super) fn later(group: &Group<Id>) -> Group<Id> {
    let mut after =
        Group { admitted: None, is_backing_off: false, has_lapsed: true, is_cooling: false, ..group.clone() };
    for engine in &mut after.engines {
        engine.occupancy = match engine.occupancy {
            Occupancy::Sessions { taken, idle_ms } => {
                Occupancy::Sessions { taken, idle_ms: idle_ms.saturating_add(TIMEOUT_MS) }
            }
            Occupancy::Retiring => Occupancy::Sessions { taken: 0, idle_ms: TIMEOUT_MS },
            Occupancy::Unknown => Occupancy::Unknown,
        };
    }
    let registered = |id: Id, is_on_demand| ReadyEngine {
        // The kind is part of the name, so the number may be that of another slot.
        id,
        is_on_demand,
        condition: EngineCondition::Serving,
        occupancy: Occupancy::Sessions { taken: 0, idle_ms: 0 },
    };
    after.engines.extend(after.pending.drain(..).map(|engine| registered(engine.id, engine.is_on_demand)));
    after.pending.extend(after.stalled.drain(..).map(|slot| PendingEngine {
        id: slot.id,
        is_on_demand: slot.is_on_demand,
        has_stand_in: false,
        is_created: true,
    }));
    after
}
