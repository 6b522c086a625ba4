//! What a round measures on each route, and how two routes are compared: round by round.

use std::collections::BTreeMap;

use crate::cores::Placement;
use crate::route::Through;
use crate::spread::Spread;

/// A quantity of a route in a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Quantity {
    /// The median of round trips, in µs.
    RoundTrip,
    /// The 99th percentile of round trips, in µs.
    RoundTripP99,
    /// Seconds of processor time of the relays for a million round trips.
    ProcessorPerMillionCalls,
    /// Bytes of results per second, in GB, with frames of so many bytes.
    Throughput(usize),
    /// Seconds of processor time of the relays for a GB of results, with frames of so many bytes.
    ProcessorPerGigabyte(usize),
    /// Seconds of processor time of one process for a million round trips.
    CallsOf(&'static str),
    /// The same for a GB of results, with frames of so many bytes.
    GigabyteOf(&'static str, usize),
    /// Logins with OpenSession per second.
    Logins,
}

/// A round with the processes placed in one way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Round {
    pub placement: Placement,
    pub number: usize,
}

/// All that was measured.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Measurements(BTreeMap<(Placement, Through, Quantity), BTreeMap<usize, f64>>);

impl Measurements {
    /// Adds a value of a round, in the unit of its quantity.
    pub fn add(&mut self, round: Round, through: Through, quantity: Quantity, value: f64) {
        self.0.entry((round.placement, through, quantity)).or_default().insert(round.number, value);
    }

    /// The values by round.
    pub fn rounds(&self, placement: Placement, through: Through, quantity: Quantity) -> BTreeMap<usize, f64> {
        self.0.get(&(placement, through, quantity)).cloned().unwrap_or_default()
    }

    /// The spread over the rounds; `None` if it was not measured.
    pub fn spread(&self, placement: Placement, through: Through, quantity: Quantity) -> Option<Spread> {
        Spread::of(self.rounds(placement, through, quantity).into_values())
    }

    /// One route against another, in each round that has both.
    pub fn ratio(&self, placement: Placement, of: Through, to: Through, quantity: Quantity) -> Option<Spread> {
        let to = self.rounds(placement, to, quantity);
        let of = self.rounds(placement, of, quantity).into_iter();
        Spread::of(of.filter_map(|(round, value)| Some(value / to.get(&round)?)))
    }

    /// What a route adds to the direct one, in each round that has both.
    pub fn added(&self, placement: Placement, through: Through, quantity: Quantity) -> BTreeMap<usize, f64> {
        let direct = self.rounds(placement, Through::Nothing, quantity);
        let of = self.rounds(placement, through, quantity).into_iter();
        of.filter_map(|(round, value)| Some((round, value - direct.get(&round)?))).collect()
    }

    /// What Enginehouse adds against what two HAProxys add, in each round. Rounds in which the HAProxys add nothing have no ratio.
    pub fn added_ratio(&self, placement: Placement, quantity: Quantity) -> Option<Spread> {
        let peer = self.added(placement, Through::TwoHaproxys, quantity);
        let ours = self.added(placement, Through::Enginehouse, quantity).into_iter();
        Spread::of(ours.filter_map(|(round, value)| {
            let peer = peer.get(&round).filter(|peer| **peer > 0.0)?;
            Some(value / peer)
        }))
    }

    /// The processes of a route whose processor time was measured.
    pub fn processes(&self, through: Through) -> Vec<&'static str> {
        let of_route = self.0.keys().filter(|(_, of, _)| *of == through);
        let mut names: Vec<&'static str> = of_route
            .filter_map(|(_, _, quantity)| match quantity {
                Quantity::CallsOf(process) => Some(*process),
                _ => None,
            })
            .collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// The sizes of frames that were fetched, in bytes.
    pub fn frames(&self) -> Vec<usize> {
        let mut sizes: Vec<usize> = self
            .0
            .keys()
            .filter_map(|(_, _, quantity)| match quantity {
                Quantity::Throughput(bytes) => Some(*bytes),
                _ => None,
            })
            .collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const PLACEMENT: Placement = Placement::Pinned;

    fn round_trips(of: &[(Through, [f64; 3])]) -> Measurements {
        let mut measurements = Measurements::default();
        for (through, values) in of {
            for (number, value) in values.iter().enumerate() {
                measurements.add(Round { placement: PLACEMENT, number }, *through, Quantity::RoundTrip, *value);
            }
        }
        measurements
    }

    #[test]
    fn ratios_are_those_of_each_round() {
        let measured = round_trips(&[
            (Through::Nothing, [10.0, 20.0, 10.0]),
            (Through::TwoHaproxys, [20.0, 40.0, 30.0]),
            (Through::Enginehouse, [25.0, 60.0, 40.0]),
        ]);
        let ratio = measured.added_ratio(PLACEMENT, Quantity::RoundTrip).unwrap();
        assert_eq!((ratio.minimum, ratio.median, ratio.maximum), (1.5, 1.5, 2.0));
        let whole = measured.ratio(PLACEMENT, Through::Enginehouse, Through::Nothing, Quantity::RoundTrip).unwrap();
        assert_eq!((whole.minimum, whole.maximum), (2.5, 4.0));
        assert_eq!(measured.added_ratio(Placement::Free, Quantity::RoundTrip), None);
        assert_eq!(measured.spread(PLACEMENT, Through::OneHaproxy, Quantity::RoundTrip), None);
    }

    #[test]
    fn a_round_in_which_the_peer_adds_nothing_has_no_ratio() {
        let measured = round_trips(&[
            (Through::Nothing, [10.0, 10.0, 10.0]),
            (Through::TwoHaproxys, [9.0, 10.0, 12.0]),
            (Through::Enginehouse, [14.0, 14.0, 14.0]),
        ]);
        let ratio = measured.added_ratio(PLACEMENT, Quantity::RoundTrip).unwrap();
        assert_eq!((ratio.minimum, ratio.maximum), (2.0, 2.0));
    }
}
