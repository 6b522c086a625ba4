//! What is printed of a violation: the seed, and the command that runs it again.

use std::time::Duration;

use crate::mutant::Mutant;
use crate::run::Violation;

/// The seed with the violation, then the command.
pub fn describe(seed: u64, length: Duration, mutant: Option<Mutant>, violation: &Violation) -> String {
    let Violation { what, at, step } = violation;
    let mutant = mutant.map(|mutant| format!(" EH_SIMULATION_MUTANT={mutant:?}")).unwrap_or_default();
    let hours = length.as_secs() / 3_600;
    format!(
        "seed {seed}: {what} at {at:?}, after {step} events\n\
         replay: EH_SIMULATION_SEED={seed} EH_SIMULATION_HOURS={hours}{mutant} \
         cargo test -p simulation --test day a_simulated_day -- --nocapture"
    )
}

/// The mutant with this name.
pub fn mutant_of(name: &str) -> Option<Mutant> {
    Mutant::ALL.into_iter().find(|mutant| format!("{mutant:?}") == name)
}
