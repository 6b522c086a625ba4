//! What must hold in every state, and in every quiescent one.

use stateright::{Expectation, Property};

use super::state::{Live, Master, Phase, State, Tick};
use super::{Action, Engines};

/// More steps than any undisturbed tick has.
const MOST_STEPS: usize = 80;

pub(super) fn all(model: &Engines) -> Vec<Property<Engines>> {
    let mut properties = promised();
    let looks_at = |name| model.only.is_none_or(|only| only == name);
    properties.retain(|it| it.expectation != Expectation::Always || looks_at(it.name));
    properties
}

fn promised() -> Vec<Property<Engines>> {
    vec![
        Property::always("a stand-in is never drained before its replacement is ready", |_, state: &State| {
            !state.past.drained_early
        }),
        Property::always(
            "an engine that ever registered is never drained before its replacement is ready",
            |_, state: &State| !state.past.drained_in_absence,
        ),
        Property::always("who was told to drain is not registered", told_is_withdrawn),
        Property::always("an engine that is wanted is never drained", |_, state: &State| !state.past.drained_wanted),
        Property::always("a running engine is deleted only after its drain fact", |_, state: &State| {
            !state.past.killed_without_fact
        }),
        Property::always("what is converged was made or told, or a stand-in serves", |_, state: &State| {
            !state.past.converged_early
        }),
        Property::always("an acting master never makes a name again", |_, state: &State| !state.past.name_made_again),
        Property::always("no write of a deposed master is accepted", |_, state: &State| !state.past.deposed_wrote),
        Property::always("who registers is the engine that is recorded", registered_is_recorded),
        Property::always("at rest engines equal metadata, with no fact and nothing left over", at_rest),
        Property::sometimes("rest comes after every request", |model, state: &State| {
            state.said.count_ones() as usize == model.requests.len() && is_quiescent(model, state)
        }),
    ]
}

fn registered_is_recorded(_: &Engines, state: &State) -> bool {
    state.engines.iter().all(|engine| match engine.nodes.live {
        Live::Alive(uid) => engine.record.uid == uid,
        _ => true,
    })
}

fn told_is_withdrawn(_: &Engines, state: &State) -> bool {
    state.engines.iter().all(|engine| match engine.nodes.live {
        Live::Alive(uid) => engine.nodes.fact != Some(uid),
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
        if !state.is_present(index) {
            return engine.pod.is_none() && nodes.permit.is_none() && nodes.fact.is_none() && nodes.live == Live::None;
        }
        if engine.broken {
            // It waits for its turn, or has been made and never answers.
            let stands = engine.pod.is_some_and(|pod| pod.phase == Phase::Starting && engine.record.uid == pod.uid);
            return stands || engine.pod.is_none() && nodes.permit.is_none() && !engine.record.ended;
        }
        engine.pod.is_some_and(|pod| {
            let uid = pod.uid;
            let said = nodes.permit == Some(uid) && nodes.live == Live::Alive(uid) && nodes.fact.is_none();
            pod.phase == Phase::Warm && said && engine.record.uid == uid && !pod.relabeled
        })
    });
    let slots = state.slots.iter().flatten().count();
    let converging = state.alteration.is_some_and(|row| row.converging);
    each && !converging && (0..state.engines.len()).filter(|index| state.is_present(*index)).count() == slots
}

/// Whether the engine is the registered stand-in of a slot whose present engine never answers.
fn serves_for_a_broken_one(state: &State, index: usize) -> bool {
    let engine = &state.engines[index];
    let broken = (0..state.engines.len()).any(|other| {
        let present = &state.engines[other];
        state.is_present(other) && present.broken && present.slot == engine.slot
    });
    let uid = engine.record.uid;
    let registered = engine.nodes.live == Live::Alive(uid) && engine.nodes.permit == Some(uid);
    broken && !engine.broken && registered && engine.nodes.fact.is_none()
}

/// No step is enabled but faults and requests, and an undisturbed tick changes nothing.
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

/// The world after one undisturbed tick.
fn tick(model: &Engines, state: &State, grace_over: bool) -> Option<State> {
    let mut after = state.clone();
    for _ in 0..MOST_STEPS {
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
