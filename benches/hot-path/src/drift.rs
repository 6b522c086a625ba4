//! The drift of the direct route: how much the machine itself has changed during the run.
//!
//! A drift is the change from the median of the first third of the rounds to that of the last third. A run in which a
//! quantity of the direct route drifts by more than [`LIMIT`] is void.

use crate::cores::Placement;
use crate::measured::{Measurements, Quantity};
use crate::route::Through;
use crate::spread::Spread;

/// The largest drift of a run that counts.
pub const LIMIT: f64 = 0.2;

/// The drift of one quantity.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Drift {
    pub placement: Placement,
    pub quantity: Quantity,
    /// The last third against the first one, less one.
    pub change: f64,
}

impl Drift {
    /// Whether it is above the limit, in either direction.
    pub fn is_void(&self) -> bool {
        self.change.abs() > LIMIT
    }
}

/// The drift of each quantity that the direct route has.
pub fn of(measurements: &Measurements) -> Vec<Drift> {
    let fetches = measurements.frames().into_iter().map(Quantity::Throughput);
    let quantities: Vec<Quantity> = [Quantity::RoundTrip, Quantity::Logins].into_iter().chain(fetches).collect();
    let all =
        Placement::ALL.into_iter().flat_map(|placement| quantities.iter().map(move |quantity| (placement, *quantity)));
    let drift = |(placement, quantity)| {
        let rounds: Vec<f64> = measurements.rounds(placement, Through::Nothing, quantity).into_values().collect();
        Some(Drift { placement, quantity, change: change(&rounds)? })
    };
    all.filter_map(drift).collect()
}

fn change(rounds: &[f64]) -> Option<f64> {
    let third = rounds.len().div_ceil(3);
    let median = |rounds: &[f64]| Some(Spread::of(rounds.iter().copied())?.median);
    Some(median(&rounds[rounds.len() - third..])? / median(&rounds[..third])? - 1.0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::measured::Round;

    #[test]
    fn one_outlier_is_no_drift() {
        assert_eq!(change(&[]), None);
        assert_eq!(change(&[1.0]), Some(0.0));
        assert_eq!(change(&[1.0, 9.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.1, 1.0]), Some(0.0));
        assert_eq!(change(&[2.0, 2.0, 2.0, 2.0, 3.0, 3.0, 3.0, 3.0, 3.0]), Some(0.5));
    }

    #[test]
    fn a_drift_in_either_direction_voids_the_run() {
        for (last, is_void) in [(1.19, false), (0.81, false), (1.21, true), (0.79, true)] {
            let mut measurements = Measurements::default();
            for (number, value) in [1.0, 1.0, last].into_iter().enumerate() {
                let round = Round { placement: Placement::Free, number };
                measurements.add(round, Through::Nothing, Quantity::Throughput(1_000), value);
                measurements.add(round, Through::Enginehouse, Quantity::Throughput(1_000), 1.0);
            }
            let drifts = of(&measurements);
            assert_eq!(drifts.len(), 1);
            assert_eq!(drifts[0].is_void(), is_void, "{last}");
        }
    }
}
