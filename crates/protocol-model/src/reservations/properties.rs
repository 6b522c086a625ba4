//! The properties of all states, and of all quiescent states.

use stateright::{Expectation, Property};

use super::state::{Engine, Master, Phase, Program, Reservation, State, Tick};
use super::{Action, Reservations};

/// An upper bound on the steps of an undisturbed tick.
const MAX_STEPS: usize = 80;

pub(super) fn all(model: &Reservations) -> Vec<Property<Reservations>> {
    let mut properties = promised();
    let is_checked = |name| model.only.is_none_or(|only| only == name);
    properties.retain(|property| property.expectation != Expectation::Always || is_checked(property.name));
    properties
}

fn promised() -> Vec<Property<Reservations>> {
    vec![
        Property::always("what runs fits its pool", fits),
        Property::always("what runs is charged", runs_charged),
        Property::always("a slot that was taken down stays charged", stays_charged),
        Property::always("one slot at a time is taken down", |_, state: &State| {
            state.down.iter().filter(|is_down| **is_down).count() <= 1
        }),
        Property::always("one program runs under a reservation", |_, state: &State| running(state) <= 1),
        Property::always(
            "at rest every slot has a charged engine or waits for capacity, and nothing else is charged",
            at_rest,
        ),
        Property::sometimes("rest comes after every request", |model, state: &State| {
            state.issued.count_ones() as usize == model.requests.len() && is_quiescent(model, state)
        }),
    ]
}

fn running(state: &State) -> usize {
    let programs = state.holder.iter().flat_map(|holder| holder.programs);
    programs.filter(|program| *program == Program::Running).count()
}

/// In every phase. An instance that a late call created is an orphan, or is adopted regardless of limits.
fn fits(model: &Reservations, state: &State) -> bool {
    let instances = state.engines.iter().filter_map(|engine| engine.instance);
    instances.filter(|instance| !instance.late).count() + running(state) <= usize::from(model.pool.capacity)
}

fn runs_charged(_: &Reservations, state: &State) -> bool {
    let engines = state.engines.iter().all(|engine| {
        let reserved = engine.instance.is_some_and(|instance| instance.reserved);
        !reserved || engine.is_charged()
    });
    engines && (running(state) == 0 || state.holder_is_charged())
}

/// From the turn of the slot until an engine has registered, or a statement gives it a stand-in.
fn stays_charged(_: &Reservations, state: &State) -> bool {
    (0..2).filter(|slot| state.down[*slot] && state.in_place[*slot]).all(|slot| {
        let mut of_slot = state.engines.iter().filter(|engine| engine.slot == slot);
        of_slot.any(Engine::is_charged)
    })
}

fn at_rest(model: &Reservations, state: &State) -> bool {
    if !is_quiescent(model, state) {
        return true;
    }
    let is_full = model.held(state) >= model.pool.capacity;
    let serves = |index: usize| {
        let engine = &state.engines[index];
        engine.instance.is_some_and(|instance| {
            let is_used = engine.reservation == Some(Reservation::Used(instance.uid));
            instance.phase == Phase::Registered && instance.uid == engine.record.uid && is_used
        })
    };
    let is_queued = |index: usize| {
        let engine = &state.engines[index];
        engine.instance.is_none() && engine.reservation.is_none() && is_full
    };
    let engines = (0..state.engines.len()).all(|index| {
        let engine = &state.engines[index];
        if state.is_current(index) {
            return serves(index) || is_queued(index);
        }
        let stands_in = state.slots[engine.slot].is_some_and(is_queued) && serves(index);
        stands_in || engine.instance.is_none() && !engine.is_charged()
    });
    let holder = state.holder.and_then(|holder| holder.reservation);
    engines && !holder.is_some_and(Reservation::is_overdue)
}

/// Only faults and requests are enabled, and an undisturbed tick of the acting master changes nothing.
fn is_quiescent(model: &Reservations, state: &State) -> bool {
    if state.master != Master::Acting(Tick::Idle) || state.late.is_some() {
        return false;
    }
    let mut actions = Vec::new();
    Reservations::outside_actions(state, &mut actions);
    if actions.into_iter().any(|action| model.apply(&mut state.clone(), action)) {
        return false;
    }
    tick(model, state).is_none_or(|after| {
        (&after.engines, after.slots, after.holder, after.counted)
            == (&state.engines, state.slots, state.holder, state.counted)
    })
}

/// The state after one undisturbed tick.
fn tick(model: &Reservations, state: &State) -> Option<State> {
    let mut after = state.clone();
    for _ in 0..MAX_STEPS {
        let mut actions: Vec<Action> = Vec::new();
        Reservations::master_actions(&after, &mut actions);
        if !actions.into_iter().any(|action| model.apply(&mut after, action)) {
            return None;
        }
        if after.master == Master::Acting(Tick::Idle) {
            return Some(after);
        }
    }
    None
}
