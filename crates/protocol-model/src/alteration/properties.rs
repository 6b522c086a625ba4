//! The properties of all states, and of all quiescent states.

use stateright::{Expectation, Property};

use super::state::{Agent, Answer, Master, Progress, Row, State, Tick};
use super::{Action, Alteration};

/// An upper bound on the steps of an undisturbed tick.
const MAX_STEPS: usize = 40;

pub(super) fn all(model: &Alteration) -> Vec<Property<Alteration>> {
    let mut properties = each();
    let is_checked = |name| model.only.is_none_or(|only| only == name);
    properties.retain(|property| property.expectation != Expectation::Always || is_checked(property.name));
    properties
}

fn each() -> Vec<Property<Alteration>> {
    vec![
        Property::always("no update is lost", no_update_is_lost),
        Property::always("the dependency of a committed statement exists", dependence_holds),
        Property::always("at most one alteration of an object is converging", one_converges),
        Property::always("no alteration commits without its node", |_, state: &State| {
            state.history.by_hand || !state.history.committed_without_node
        }),
        Property::always("an aborted alteration changes nothing, a repeated one changes once", |_, state: &State| {
            (0..2).all(|id| {
                let committed = u8::from(state.db.rows[id].is_committed());
                state.history.applied[id] == committed
            })
        }),
        Property::always("an answer stays true", answers_are_true),
        Property::always("a converged engine was created", converged_was_made),
        Property::always("no write of a deposed master is accepted", |_, state: &State| !state.history.deposed_wrote),
        Property::always("the node shows the object that was changed", |_, state: &State| {
            !state.history.node_has_another_object
        }),
        Property::always("the master deletes the node only of a settled alteration", |_, state: &State| {
            !state.history.node_lost_early
        }),
        Property::always("at rest engines equal metadata, with no node and nothing converging", at_rest),
        Property::sometimes("rest comes after both were answered", |model, state: &State| {
            state.agents.iter().all(|agent| matches!(agent, Agent::Done(_))) && is_quiescent(model, state)
        }),
        Property::sometimes("rest comes after a commit", |model, state: &State| {
            state.db.rows.iter().any(|row| row.is_committed()) && is_quiescent(model, state)
        }),
    ]
}

fn no_update_is_lost(model: &Alteration, state: &State) -> bool {
    (0..2).all(|agent| {
        let statement = model.workload.statement(agent);
        let object = state.db.objects[statement.object];
        !state.db.rows[statement.id].is_committed() || object.content & 1 << statement.id != 0
    })
}

fn dependence_holds(model: &Alteration, state: &State) -> bool {
    (0..2).all(|agent| {
        let statement = model.workload.statement(agent);
        !statement.refers || state.db.objects[1].content & 1 << statement.id == 0 || state.db.objects[0].exists
    })
}

fn one_converges(_: &Alteration, state: &State) -> bool {
    let of = |row: Row| match row {
        Row::Committed { object, progress: Progress::Converging, .. } => Some(object),
        _ => None,
    };
    let [one, other] = state.db.rows.map(of);
    one.is_none() || one != other
}

fn answers_are_true(model: &Alteration, state: &State) -> bool {
    (0..2).all(|agent| {
        let row = state.db.rows[model.workload.statement(agent).id];
        match state.agents[agent] {
            Agent::Done(Answer::Committed) => row.is_committed(),
            // A later commit would make this answer wrong.
            Agent::Done(Answer::Nothing) => !row.is_committed(),
            _ => true,
        }
    })
}

fn converged_was_made(_: &Alteration, state: &State) -> bool {
    state.db.rows.iter().all(|row| match row {
        Row::Committed { slot, progress: Progress::Converged, .. } => *slot == 0 || state.history.made & 1 << slot != 0,
        _ => true,
    })
}

fn at_rest(model: &Alteration, state: &State) -> bool {
    if !is_quiescent(model, state) {
        return true;
    }
    let engines_equal_metadata = (0..2).all(|object| {
        let slot = state.db.objects[object].slot;
        state.pods[object] == if slot == 0 { 0 } else { 1 << slot }
    });
    engines_equal_metadata && state.node.is_none() && !state.db.rows.iter().any(|row| row.is_converging())
}

/// Only faults are enabled, and an undisturbed tick changes nothing.
fn is_quiescent(model: &Alteration, state: &State) -> bool {
    let Master::Acting { epoch, tick: Tick::Idle } = state.master else { return false };
    let busy = state.agents.iter().any(|agent| !matches!(agent, Agent::Done(_) | Agent::Dead));
    if epoch != state.db.epoch || busy || state.late.is_some() || state.refusing {
        return false;
    }
    if state.open.iter().any(Option::is_some) {
        return false;
    }
    let mut after = state.clone();
    for _ in 0..MAX_STEPS {
        let mut actions: Vec<Action> = Vec::new();
        Alteration::master_actions(&after, &mut actions);
        // Time passes: the grace of an alteration in doubt expires when nothing else happens.
        if !actions.into_iter().any(|action| model.apply(&mut after, action)) {
            // Without a node, a master that reacts only to nodes has nothing to do.
            return model.without.level && state.node.is_none();
        }
        if matches!(after.master, Master::Acting { tick: Tick::Idle, .. }) {
            return (after.db, after.node, after.pods) == (state.db, state.node, state.pods);
        }
    }
    false
}
