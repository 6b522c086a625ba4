//! The properties of all states.

use stateright::{Expectation, Property};

use super::Ledger;
use super::data::{A, USER};
use super::parameters::Job;
use super::state::{Answer, Owner, Progress, State};

pub(super) fn all(model: &Ledger) -> Vec<Property<Ledger>> {
    let mut properties = promised();
    let is_checked = |name| model.only.is_none_or(|only| only == name);
    properties.retain(|property| property.expectation != Expectation::Always || is_checked(property.name));
    properties
}

fn promised() -> Vec<Property<Ledger>> {
    vec![
        Property::always("nothing is granted beyond a limit", |_, state: &State| !state.history.over_granted),
        Property::always("scopes hold what is charged", held_is_charged),
        Property::always("the audit finds no difference", |_, state: &State| !state.history.audit_found),
        Property::always("no transactions wait for each other", no_circle),
        Property::always("a request has at most one reservation", one_reservation),
        Property::always("a granted request has its reservation", granted_is_there),
        Property::always("the limits of scopes are those of the catalog", limits_are_the_catalogs),
        Property::always("no write of a deposed master is accepted", |_, state: &State| !state.history.deposed_wrote),
        Property::always("a successor of the same size receives its predecessor's charge", transferred),
        Property::sometimes("every transaction has ended", |_, state: &State| {
            state.progress.iter().all(|progress| matches!(progress, Progress::Ended(_)))
        }),
    ]
}

/// While no transaction is open. In the variant with two transactions it would fail between them, which nothing sees.
fn held_is_charged(_: &Ledger, state: &State) -> bool {
    state.open().next().is_some() || !(0..state.data.scopes.len()).any(|scope| state.data.drifts(scope))
}

fn no_circle(model: &Ledger, state: &State) -> bool {
    (0..model.jobs.len()).all(|first| {
        let mut job = first;
        for _ in 0..model.jobs.len() {
            match model.waits_for(state, job) {
                Some(Owner::Job(other)) if other == first => return false,
                Some(Owner::Job(other)) => job = other,
                _ => return true,
            }
        }
        true
    })
}

fn one_reservation(_: &Ledger, state: &State) -> bool {
    let rows = &state.data.reservations;
    rows.windows(2).all(|pair| pair[0].request.key != pair[1].request.key)
}

fn granted_is_there(model: &Ledger, state: &State) -> bool {
    model.jobs.iter().zip(&state.progress).all(|(job, progress)| {
        let granted = *progress == Progress::Ended(Answer::Done);
        !granted || job.request().is_none_or(|request| state.data.of_key(request.key).is_some())
    })
}

fn limits_are_the_catalogs(_: &Ledger, state: &State) -> bool {
    let of_user = state.data.scopes[USER].is_none_or(|user| user.limit == state.data.user_limit);
    of_user && state.data.scopes[A].is_none_or(|tenant| tenant.exclusive == state.data.guarantee)
}

fn transferred(model: &Ledger, state: &State) -> bool {
    model
        .jobs
        .iter()
        .zip(&state.progress)
        .all(|(job, progress)| !matches!(job, Job::Transfer { .. }) || *progress != Progress::Ended(Answer::Refused))
}
