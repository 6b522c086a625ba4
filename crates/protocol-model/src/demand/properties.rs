//! The properties of all states, and of all quiescent states.

use stateright::{Expectation, Property};

use super::state::{Broken, Life, Master, Phase, State, Tick};
use super::{Action, Demand};

/// An upper bound on the steps of an undisturbed tick.
const MAX_STEPS: usize = 80;

pub(super) fn all(model: &Demand) -> Vec<Property<Demand>> {
    let mut properties = promised();
    let is_checked = |name| model.only.is_none_or(|only| only == name);
    properties.retain(|property| property.expectation != Expectation::Always || is_checked(property.name));
    properties
}

fn promised() -> Vec<Property<Demand>> {
    vec![
        Property::always("no engine is started without a session", |_, state: &State| !state.broken.too_many),
        Property::always("no slot of a busy engine is removed", |_, state: &State| !state.broken.busy_removed),
        Property::always("no session opens on a released engine", |_, state: &State| !state.broken.opened_on_released),
        Property::always("no removal falls below the minimum", |_, state: &State| !state.broken.below_min),
        Property::always("what a statement started no master ends", |_, state: &State| !state.broken.started_removed),
        Property::always("no slot on demand is queued", |_, state: &State| !state.broken.queued),
        Property::always("no created engine is cancelled while its client comes again", |_, state: &State| {
            !state.broken.sought_cancelled
        }),
        Property::always("no tick creates an engine that it cancels", |_, state: &State| !state.broken.wasted),
        Property::always("no engine is replaced that is registered or on a ready node", |_, state: &State| {
            !state.broken.replaced_too_early
        }),
        Property::always("at rest no session waits without a reason, and no engine runs without one", at_rest),
        Property::sometimes("rest comes after every request", |model, state: &State| {
            let came = state.sessions.iter().all(|session| session.phase != Phase::Outside);
            state.issued.count_ones() as usize == model.requests.len() && came && is_quiescent(model, state)
        }),
    ]
}

fn at_rest(model: &Demand, state: &State) -> bool {
    if state.broken != Broken::default() || !is_quiescent(model, state) {
        return true;
    }
    let count = state.slots.iter().flatten().count();
    let is_hung = state.engines.iter().any(|engine| engine.hung);
    let is_full = count == model.link.max || state.free == 0 || is_hung;
    let slots = state.slots.iter().flatten().all(|slot| {
        let engine = &state.engines[slot.engine];
        let is_needed = state.taken(slot.engine) > 0 || count <= state.min || !slot.on_demand || engine.silent;
        let mut older = state.engines[..slot.engine].iter().filter(|older| older.ordinal == engine.ordinal);
        let is_served = older.any(|older| older.registered);
        // One that hangs delays only itself, and slots that are served.
        engine.registered && is_needed || engine.hung || is_hung && is_served
    });
    let older = state.engines.iter().enumerate().all(|(at, engine)| {
        let stands_in = state.slots[engine.ordinal].is_some_and(|slot| slot.engine > at && is_hung);
        !engine.is_alive() || state.slot_of(at).is_some() || stands_in || state.is_cut(at, model.link)
    });
    let sessions = state.sessions.iter().all(|session| match session.phase {
        Phase::Waiting | Phase::Leaving(_) => is_full,
        Phase::Open(engine) => state.engines[engine].life == Life::Running,
        _ => !session.row.waits || !session.leased,
    });
    slots && older && sessions
}

/// Only faults, clients and requests are enabled, and an undisturbed tick of the acting master changes nothing.
fn is_quiescent(model: &Demand, state: &State) -> bool {
    if !matches!(state.master, Master::Acting(Tick::Idle, _)) || state.late.is_some() {
        return false;
    }
    let mut actions = Vec::new();
    model.proxy_actions(state, &mut actions);
    model.engine_actions(state, &mut actions);
    if actions.into_iter().any(|action| model.apply(&mut state.clone(), action)) {
        return false;
    }
    tick(model, state).is_none_or(|after| (&after.engines, after.slots) == (&state.engines, state.slots))
}

/// The state after one undisturbed tick.
fn tick(model: &Demand, state: &State) -> Option<State> {
    let mut after = state.clone();
    for _ in 0..MAX_STEPS {
        let mut actions: Vec<Action> = Vec::new();
        Demand::master_actions(&after, &mut actions);
        if !actions.into_iter().any(|action| model.apply(&mut after, action)) {
            return None;
        }
        if matches!(after.master, Master::Acting(Tick::Idle, _)) {
            return Some(after);
        }
    }
    None
}
