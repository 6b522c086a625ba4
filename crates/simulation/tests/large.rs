//! An installation with 1,000 engines: the invariants are those of every run. The speed is printed, with the target of the design.
//!
//! `tests/measure simulation cargo test --release -p simulation --test large -- --nocapture` keeps it.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::time::Duration;

use simulation::{Activity, Outcome, run_large};

const ENGINES: u64 = 1_000;
/// The target of the design, in multiples of processor time.
const TARGET: f64 = 1_000.0;
/// Less than this is a check that is quadratic again: at first it was 4 times real time.
const LEAST: f64 = if cfg!(debug_assertions) { 5.0 } else { 60.0 };

/// Runs an installation; returns its speed in multiples of processor time.
fn checked(seed: u64, length: Duration) -> f64 {
    let outcome = run_large(seed, length, ENGINES).unwrap();
    assert_eq!(outcome.violation, None, "seed {seed}");
    let activity = outcome.activity;
    let Activity { ticks, slots, created, released, opened, statements, faults, .. } = activity;
    let engines = slots / ticks;
    println!(
        "simulation, seed {seed}: {engines} engines on average, {created} created, {released} released; {opened} sessions \
         opened, {statements} statements, {faults} faults, {ticks} ticks"
    );
    let speed = Outcome::speed(&[outcome]);
    println!("simulation, seed {seed}: {speed}");
    let hours = length.as_secs_f64() / 3_600.0;
    assert!(engines >= ENGINES * 9 / 10, "{engines} engines");
    let happened = [(opened, 50.0), (statements, 8.0), (faults, 6.0), (released, 3.0)];
    assert!(happened.iter().all(|(count, an_hour)| *count as f64 >= an_hour * hours), "{activity:?}");
    speed.of_processor()
}

fn assert_fast(speed: f64) {
    // The target is that of a release build.
    if !cfg!(debug_assertions) {
        let is_met = if speed >= TARGET { "met" } else { "missed" };
        println!("simulation: {speed:.0} x, target {TARGET:.0} x: {is_met}");
    }
    assert!(speed >= LEAST, "{speed} times real time");
}

#[test]
fn a_thousand_engines_violate_no_invariant() {
    let of_build = if cfg!(debug_assertions) { 10 } else { 120 };
    let mins = std::env::var("EH_SIMULATION_MINS").ok().map_or(of_build, |mins| mins.parse().unwrap());
    assert_fast(checked(1, Duration::from_mins(mins)));
}

mod long_only {
    use super::{Duration, assert_fast, checked};

    #[test]
    #[ignore = "long"]
    fn a_thousand_engines_violate_no_invariant_in_a_day() {
        for seed in 1..=4 {
            assert_fast(checked(seed, Duration::from_hours(6)));
        }
    }
}
