//! The properties of all states, and of all quiescent states.

use stateright::{Expectation, Property};

use super::state::{Master, Phase, Registration, State, Tick};
use super::{Action, Engines};

/// An upper bound on the steps of an undisturbed tick.
const MAX_STEPS: usize = 80;

pub(super) fn all(model: &Engines) -> Vec<Property<Engines>> {
    let mut properties = promised();
    let is_checked = |name| model.only.is_none_or(|only| only == name);
    properties.retain(|property| property.expectation != Expectation::Always || is_checked(property.name));
    properties
}

fn promised() -> Vec<Property<Engines>> {
    vec![
        Property::always("a stand-in is never drained before its replacement is ready", |_, state: &State| {
            !state.history.drained_early
        }),
        Property::always(
            "an engine that ever registered is never drained before its replacement is ready",
            |_, state: &State| !state.history.drained_in_absence,
        ),
        Property::always("an engine with a drain order is not registered", draining_is_withdrawn),
        Property::always("a desired engine is never drained", |_, state: &State| !state.history.drained_desired),
        Property::always("a running engine is deleted only after its drain order", |_, state: &State| {
            !state.history.killed_without_drain_order
        }),
        Property::always(
            "a converged engine was created or ordered to drain, or a stand-in serves",
            |_, state: &State| !state.history.converged_early,
        ),
        Property::always("in place, an engine is created when nothing is left of the older one", |_, state: &State| {
            !state.history.created_before_end_of_older
        }),
        Property::always("in place, one slot at a time is taken down", |_, state: &State| !state.history.both_down),
        Property::always("an acting master never reuses a name", |_, state: &State| !state.history.name_made_again),
        Property::always("no write of a deposed master is accepted", |_, state: &State| !state.history.deposed_wrote),
        Property::always("only the recorded engine registers", registered_is_recorded),
        Property::always("at rest engines equal metadata, with no drain order and nothing left over", at_rest),
        Property::sometimes("rest comes after every request", |model, state: &State| {
            state.issued.count_ones() as usize == model.requests.len() && is_quiescent(model, state)
        }),
    ]
}

fn registered_is_recorded(_: &Engines, state: &State) -> bool {
    state.engines.iter().all(|engine| match engine.nodes.registration {
        Registration::Alive(uid) => engine.record.uid == uid,
        _ => true,
    })
}

fn draining_is_withdrawn(_: &Engines, state: &State) -> bool {
    state.engines.iter().all(|engine| match engine.nodes.registration {
        Registration::Alive(uid) => engine.nodes.drain_order != Some(uid),
        _ => true,
    })
}

fn at_rest(model: &Engines, state: &State) -> bool {
    if !is_quiescent(model, state) {
        return true;
    }
    let each = (0..state.engines.len()).all(|index| {
        let engine = &state.engines[index];
        let nodes = engine.nodes;
        if serves_for_a_broken_one(state, index) {
            return true;
        }
        if !state.is_current(index) {
            return engine.pod.is_none()
                && nodes.permit.is_none()
                && nodes.drain_order.is_none()
                && nodes.registration == Registration::None;
        }
        if engine.broken {
            // It waits for the surge limit, or was created and never answers.
            let stands = engine.pod.is_some_and(|pod| pod.phase == Phase::Starting && engine.record.uid == pod.uid);
            return stands || engine.pod.is_none() && nodes.permit.is_none() && !engine.record.ended;
        }
        engine.pod.is_some_and(|pod| {
            let uid = pod.uid;
            let settled = nodes.permit == Some(uid)
                && nodes.registration == Registration::Alive(uid)
                && nodes.drain_order.is_none();
            pod.phase == Phase::Warm && settled && engine.record.uid == uid && !pod.relabeled
        })
    });
    let slots = state.slots.iter().flatten().count();
    let converging = state.alteration.is_some_and(|row| row.converging);
    each && !converging && (0..state.engines.len()).filter(|index| state.is_current(*index)).count() == slots
}

/// Whether the engine is the registered stand-in of a slot whose current engine never answers.
fn serves_for_a_broken_one(state: &State, index: usize) -> bool {
    let engine = &state.engines[index];
    let broken = (0..state.engines.len()).any(|other| {
        let present = &state.engines[other];
        state.is_current(other) && present.broken && present.slot == engine.slot
    });
    let uid = engine.record.uid;
    let registered = engine.nodes.registration == Registration::Alive(uid) && engine.nodes.permit == Some(uid);
    broken && !engine.broken && registered && engine.nodes.drain_order.is_none()
}

/// Only faults and requests are enabled, and an undisturbed tick changes nothing.
fn is_quiescent(model: &Engines, state: &State) -> bool {
    let Master::Acting { epoch, tick: Tick::Idle } = state.master else { return false };
    if epoch != state.epoch || state.late.is_some() {
        return false;
    }
    let mut actions = Vec::new();
    Engines::pod_actions(state, &mut actions);
    if actions.into_iter().any(|action| model.apply(&mut state.clone(), action)) {
        return false;
    }
    [false, true].into_iter().all(|grace_over| {
        let after = tick(model, state, grace_over);
        after.is_none_or(|after| {
            (&after.engines, after.slots, after.alteration, after.generation)
                == (&state.engines, state.slots, state.alteration, state.generation)
        })
    })
}

/// The state after one undisturbed tick.
fn tick(model: &Engines, state: &State, grace_over: bool) -> Option<State> {
    let mut after = state.clone();
    for _ in 0..MAX_STEPS {
        let mut actions: Vec<Action> = Vec::new();
        Engines::master_actions(&after, &mut actions);
        if grace_over {
            actions.reverse();
        }
        if !actions.into_iter().any(|action| model.apply(&mut after, action)) {
            return None;
        }
        if matches!(after.master, Master::Acting { tick: Tick::Idle, .. }) {
            return Some(after);
        }
    }
    None
}
