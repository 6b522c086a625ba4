//! Every mutant of the world ends a run with a violation: the simulation rediscovers the bugs that the protections prevent. The
//! same run without the mutant violates nothing.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::time::Duration;

use simulation::script::script_for;
use simulation::{Mutant, Violation, run_beginning, run_script};

const LENGTH: Duration = Duration::from_hours(1);
/// Of mutants that only the end of a run reveals.
const SHORT: Duration = Duration::from_mins(10);
/// Seeds that are tried for each mutant: most need one or two.
const SEEDS: u64 = 20;

fn length_for(mutant: Mutant) -> Duration {
    if matches!(mutant, Mutant::CancelledAtOnce | Mutant::NoTimer | Mutant::RowOnlyWithNode) { SHORT } else { LENGTH }
}

/// The seed and the violation that reveal a mutant.
fn found(mutant: Mutant) -> Option<(u64, Violation)> {
    (1..=SEEDS).find_map(|seed| {
        let length = length_for(mutant);
        let script = script_for(mutant, seed, length).unwrap();
        Some((seed, run_script(seed, length, &script, Some(mutant)).unwrap().violation?))
    })
}

/// The violation without the mutant, until the mutant was found.
fn control(mutant: Mutant, seed: u64, at: Duration) -> Option<String> {
    let length = length_for(mutant);
    let script = script_for(mutant, seed, length).unwrap();
    let outcome = if at < length {
        run_beginning(seed, at, &script).unwrap()
    } else {
        run_script(seed, length, &script, None).unwrap()
    };
    Some(outcome.violation?.what)
}

fn wrong(mutants: &[Mutant]) -> Vec<String> {
    let wrong = |mutant: &Mutant| {
        let Some((seed, Violation { what, at, .. })) = found(*mutant) else {
            return Some(format!("{mutant:?} violates no invariant"));
        };
        println!("{mutant:?}: seed {seed}, after {at:?}: {what}");
        control(*mutant, seed, at).map(|what| format!("without {mutant:?}, seed {seed}: {what}"))
    };
    mutants.iter().filter_map(wrong).collect()
}

#[test]
fn every_mutant_of_the_world_is_found() {
    let (some, others) = Mutant::ALL.split_at(Mutant::ALL.len() / 2);
    let wrong = std::thread::scope(|scope| {
        let others = scope.spawn(|| wrong(others));
        [wrong(some), others.join().unwrap()].concat()
    });
    assert!(wrong.is_empty(), "{wrong:#?}");
}

mod long_only {
    use simulation::Mutant;

    use super::{LENGTH, control};

    /// Each mutant's script makes something happen often that is rare otherwise.
    #[test]
    #[ignore = "long"]
    fn the_script_of_no_mutant_violates_an_invariant_without_it() {
        let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
        let seeds = number("EH_SIMULATION_SEED").map_or(1..=15, |seed| seed..=seed);
        for seed in seeds {
            for mutant in Mutant::ALL {
                let violation = control(mutant, seed, LENGTH);
                assert_eq!(violation, None, "{mutant:?}, seed {seed}");
            }
        }
    }
}
