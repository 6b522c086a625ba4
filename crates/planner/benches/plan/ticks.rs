//! Ticks: the comparison with the last one, and the plan.

use std::time::Duration;

use model::snapshot::Snapshot;
use planner::{DesiredState, IncrementalPlanner, ObservedState};

use crate::state::{disturb, read_again};
use crate::timing::{ROUNDS, print_part, print_peer, print_time, time_of};

/// What ticks of one kind take.
#[derive(Default)]
pub struct Times {
    compares: Vec<Duration>,
    plans: Vec<Duration>,
    reads: Vec<Duration>,
}

/// Ticks of one kind, with the peer in turns: `disturbed` engines of each kind differ from the tick before.
pub fn measure(desired: &DesiredState, observed: &ObservedState, disturbed: usize, forgets: bool) -> Times {
    let answer = serde_json::to_vec(&desired.snapshot).unwrap();
    let mut times = Times::default();
    let mut planner = IncrementalPlanner::default();
    for round in 0..=ROUNDS {
        let (desired, mut observed) = read_again(desired, observed);
        if round % 2 == 1 {
            disturb(&mut observed, disturbed);
        }
        if forgets {
            planner = IncrementalPlanner::default();
        }
        let mut delta = None;
        let compare = time_of(|| delta = Some(planner.compare(desired, observed)));
        let mut delta = delta.unwrap();
        let plan = time_of(|| (delta.probes(), planner.plan(&mut delta)));
        planner.keep(delta);
        let read = time_of(|| serde_json::from_slice::<Snapshot>(&answer).unwrap());
        if round > 0 {
            times.compares.push(compare);
            times.plans.push(plan);
            times.reads.push(read);
        }
    }
    times
}

/// Prints them; `target` is the time budget of comparison and plan together.
pub fn print(what: &str, times: Times, target: Duration) {
    println!("{what}; processor time; least, middle, most of {ROUNDS}");
    let sums: Vec<Duration> = times.compares.iter().zip(&times.plans).map(|(compare, plan)| *compare + *plan).collect();
    print_time("all that a tick computes", &sums, target);
    print_part("comparing with the last tick", times.compares);
    print_part("the probes and the plan", times.plans);
    print_peer("comparisons with their plans", times.reads, &sums);
}
