//! A simulated day with fixed seeds, and thirty days with random ones. One seed is run again with `EH_SIMULATION_SEED=…`, and
//! `EH_SIMULATION_HOURS=…` if it was longer.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::time::Duration;

use simulation::{Activity, Mutant, Outcome, describe, minimize, mutant_of, run};

const HOUR: Duration = Duration::from_hours(1);
/// The length of a run without its end.
const LENGTH: Duration = Duration::from_hours(2);
const SHORT: Duration = Duration::from_mins(10);
const SEEDS: [u64; 10] = [1, 2, 3, 4, 5, 7, 8, 9, 10, 12];
/// The least speed, in multiples of processor time.
const SPEED: f64 = 1_000.0;

/// Runs a seed; a violation is printed with the part of its script that is needed for it.
fn checked(seed: u64, length: Duration, mutant: Option<Mutant>) -> Outcome {
    let outcome = run(seed, length, mutant).unwrap();
    let Some(violation) = &outcome.violation else {
        assert_active(seed, &outcome.activity);
        return outcome;
    };
    println!("{}", describe(seed, length, mutant, violation));
    for (at, event) in minimize(seed, length, mutant, 40).unwrap() {
        println!("  {at:?} {event:?}");
    }
    panic!("seed {seed}: {}", violation.what);
}

/// Runs seeds in two threads; each run has one.
fn checked_in_threads(seeds: &[u64], length: Duration) -> Vec<Outcome> {
    let halves = seeds.split_at(seeds.len() / 2);
    let all = |seeds: &[u64]| seeds.iter().map(|seed| checked(*seed, length, None)).collect::<Vec<_>>();
    std::thread::scope(|scope| {
        let other = scope.spawn(|| all(halves.1));
        let mut outcomes = all(halves.0);
        outcomes.extend(other.join().unwrap());
        outcomes
    })
}

/// A run in which too little happened shows nothing.
fn assert_active(seed: u64, activity: &Activity) {
    let Activity { created, released, opened, statements, faults, added, .. } = *activity;
    let least = [(created, 30), (added, 15), (released, 3), (opened, 100), (statements, 10), (faults, 20)];
    assert!(least.iter().all(|(count, least)| count >= least), "the run of seed {seed} is void: {activity:?}");
}

fn speed(outcomes: &[Outcome]) -> f64 {
    let speed = Outcome::speed(outcomes);
    println!("simulation: {speed}");
    speed.of_processor()
}

#[test]
fn a_simulated_day_violates_no_invariant() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    if let Some(seed) = number("EH_SIMULATION_SEED") {
        let mutant = std::env::var("EH_SIMULATION_MUTANT").ok().map(|name| mutant_of(&name).unwrap());
        let outcome = checked(seed, number("EH_SIMULATION_HOURS").map_or(LENGTH, Duration::from_hours), mutant);
        println!("{:?}", outcome.activity);
        speed(&[outcome]);
        return;
    }
    let outcomes = checked_in_threads(&SEEDS, LENGTH);
    let sum = |of: fn(&Activity) -> u64| outcomes.iter().map(|outcome| of(&outcome.activity)).sum::<u64>();
    assert!(sum(|all| all.cancelled) > 0 && sum(|all| all.late_calls) > 0 && sum(|all| all.moved) > 0);
    assert!(sum(|all| all.lost) > 20 && sum(|all| all.suspended) > 20 && sum(|all| all.refused_owners) > 0);
    assert!(sum(|all| all.terms) > 2 * outcomes.len() as u64);
    let restored = sum(|all| all.restored);
    println!("simulation: {restored} restores of the database, {} unknown engines drained", sum(|all| all.unknown));
    assert!(restored >= 10, "the database was restored {restored} times only: the day is void");
    let simulated: Duration = outcomes.iter().map(|outcome| outcome.simulated).sum();
    assert!(simulated >= 24 * HOUR, "only {simulated:?} were simulated");
    assert!(speed(&outcomes) >= SPEED);
}

/// Runs the command that a violation prints, in this binary instead of cargo's.
#[test]
fn the_printed_command_replays_a_violation() {
    let (seed, mutant) = (3, Some(Mutant::SeatsUnchecked));
    let violation = run(seed, HOUR, mutant).unwrap().violation.unwrap();
    let printed = describe(seed, HOUR, mutant, &violation);
    let (first, command) = printed.split_once("\nreplay: ").unwrap();
    assert!(first.starts_with(&format!("seed {seed}: ")), "{first}");
    let (variables, arguments) = command.split_once(" cargo test -p simulation --test day ").unwrap();
    let variables = variables.split(' ').map(|variable| variable.split_once('=').unwrap());
    let arguments = arguments.split(' ').filter(|argument| *argument != "--");
    let program = std::env::current_exe().unwrap();
    let replayed = std::process::Command::new(program).args(arguments).envs(variables).output().unwrap();
    let output = String::from_utf8_lossy(&replayed.stdout);
    assert!(!replayed.status.success() && output.contains(&printed), "{printed}\nis not in\n{output}");
}

#[test]
fn equal_seeds_are_equal_runs() {
    let twice = [(); 2].map(|()| run(42, SHORT, None).unwrap());
    assert_eq!(twice[0].activity, twice[1].activity);
    let other = run(43, SHORT, None).unwrap();
    assert_ne!(twice[0].activity, other.activity);
}

mod long_only {
    use std::time::{Duration, SystemTime, UNIX_EPOCH};

    use super::{HOUR, Outcome, SPEED, checked, speed};

    /// Half of it a run, so that a run has time to leave something behind.
    const LENGTH: Duration = Duration::from_hours(12);

    #[test]
    #[ignore = "long"]
    fn thirty_simulated_days_violate_no_invariant() {
        #[allow(clippy::disallowed_methods, reason = "the seeds are different each time, and are printed")]
        let first = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        println!("simulation: seeds from {first}");
        let mut outcomes: Vec<Outcome> = Vec::new();
        while outcomes.iter().map(|outcome| outcome.simulated).sum::<Duration>() < 30 * 24 * HOUR {
            println!("simulation: seed {}", first + outcomes.len() as u64);
            outcomes.push(checked(first + outcomes.len() as u64, LENGTH, None));
            let restored = outcomes.last().map_or(0, |outcome| outcome.activity.restored);
            assert!(restored > 0, "the database was never restored: the run is void");
        }
        assert!(speed(&outcomes) >= SPEED);
    }
}
