//! A plan over 10,000 engines: in an unchanged tick, which is nearly every one, in ticks with a few changes, and without a
//! cache; and with sessions that wait in each of 1,000 scaling groups of 10 engines. With it the comparison before it, and the peer:
//! decoding the database's answer, which a tick needs anyway. Prints the ratios.
//!
//! A tick computes both, so the targets hold for their sum. `choose`, `scale` and `admit` are also measured by themselves. Run with
//! `cargo bench -p planner`, which is a release build.
#![allow(clippy::unwrap_used, missing_docs)]

mod pure;
mod state;
mod ticks;
mod timing;

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use model::ledger::Ledger;
use planner::{Action, ObservedState, Plan, plan, probes};
use planner::{DesiredState, Scaling};
use state::{ENGINES, steady, waiting};
use ticks::{measure, print};

/// The time budget of comparison and plan together.
const TARGET: Duration = Duration::from_millis(2);
/// The same while sessions wait in every scaling group.
const TARGET_OF_DEMAND: Duration = Duration::from_millis(10);

/// A full plan with its probes.
fn whole(desired: &DesiredState, observed: &ObservedState) -> Plan {
    assert!(probes(desired, observed).is_empty());
    plan(desired, observed)
}

fn plans(criterion: &mut Criterion) {
    let (desired, observed) = steady();
    assert_eq!(observed.instances.len(), ENGINES);
    let steady = whole(&desired, &observed);
    assert_eq!((steady.chains.len(), steady.waits.len(), steady.rows.len()), (0, 0, ENGINES));
    let nothing = ObservedState { registry_complete: true, ..ObservedState::default() };
    let mut fresh = desired.clone();
    fresh.snapshot.engines.iter_mut().for_each(|record| record.uid = None);
    fresh.snapshot.ledger = Ledger::new(fresh.snapshot.ledger.scopes().map(|(key, scope)| (key.clone(), *scope)), []);
    fresh.snapshot.ledger.audit().unwrap();
    assert_eq!(whole(&fresh, &nothing).chains.len(), ENGINES);
    let mut group = criterion.benchmark_group("10000 engines");
    group.bench_function("the first plan", |b| b.iter(|| plan(black_box(&desired), &observed)));
    group.bench_function("a plan that makes all of them", |b| b.iter(|| plan(black_box(&fresh), &nothing)));
    group.bench_function("a plan without the list of engines", |b| {
        b.iter(|| planner::plan_without_engines(black_box(&desired), "it does not answer"));
    });
    group.finish();
    let bytes = serde_json::to_vec(&desired.snapshot).unwrap().len();
    println!("{ENGINES} engines, a snapshot of {bytes} bytes");
    print("nothing is new", measure(&desired, &observed, 0, false), TARGET);
    print("10 registrations, 10 drain orders and 10 loads differ", measure(&desired, &observed, 10, false), TARGET);
    print("100 of each differ", measure(&desired, &observed, 100, false), TARGET);
    print("nothing is remembered", measure(&desired, &observed, 0, true), TARGET);
    let (waiting, observed) = waiting(&desired, &observed);
    let added = added(&whole(&waiting, &observed));
    let engines = added.iter().sum();
    println!("{} of {} scaling groups get {engines} engines", added.len(), waiting.snapshot.demand.len());
    print("sessions wait in every scaling group", measure(&waiting, &observed, 0, false), TARGET_OF_DEMAND);
    pure::measure_and_print(&waiting, engines, TARGET_OF_DEMAND);
}

/// The engines that each link is given.
fn added(plan: &Plan) -> Vec<u64> {
    let scalings = plan.decisions().filter_map(|decision| match &decision.action {
        Action::Scale(scaling) => Some(&**scaling),
        _ => None,
    });
    scalings.map(|scaling: &Scaling| u64::from(scaling.slots.added())).collect()
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20).measurement_time(Duration::from_secs(3)).warm_up_time(Duration::from_millis(500));
    targets = plans
}
criterion_main!(benches);
