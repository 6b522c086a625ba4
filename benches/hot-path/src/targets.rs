//! The targets of the hot path, and whether this run has met them.

use crate::cores::Placement;
use crate::idle::{Busy, Cost, Kind};
use crate::measured::{Measurements, Quantity};
use crate::route::Through;
use crate::spread::Spread;

/// Two hops against two HAProxys: what is added to a round trip.
const ROUND_TRIP: f64 = 1.0;
const ROUND_TRIP_P99: f64 = 1.2;
/// Throughput, at least, and processor time of a GB, at most.
const THROUGHPUT: f64 = 1.0;
const PROCESSOR: f64 = 1.0;
/// The smallest frame for which these two hold.
const FRAME_BYTES: usize = 64_000;
/// An idle session, in KiB in each process.
const IDLE_KIB: f64 = 4.0;
const IDLE_KIB_WITH_TLS: f64 = 24.0;
/// Logins against the bare backend.
const LOGINS: f64 = 1.0;
/// A busy session beside idle ones against the same alone: it is as fast if it differs by less than rounds do.
const BUSY: f64 = 1.05;

/// One target.
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    pub what: String,
    /// Such as `at most 1.00`.
    pub limit: String,
    pub measured: String,
    /// `None` if the run did not measure it.
    pub is_met: Option<bool>,
}

/// A limit in one direction.
#[derive(Debug, Clone, Copy)]
enum Limit {
    AtMost(f64),
    AtLeast(f64),
}

impl Limit {
    fn text(self) -> String {
        match self {
            Self::AtMost(limit) => format!("at most {limit:.2}"),
            Self::AtLeast(limit) => format!("at least {limit:.2}"),
        }
    }

    fn is_met(self, value: f64) -> bool {
        match self {
            Self::AtMost(limit) => value <= limit,
            Self::AtLeast(limit) => value >= limit,
        }
    }
}

/// A target for the median of ratios.
fn ratio(what: String, limit: Limit, measured: Option<Spread>) -> Target {
    Target {
        what,
        limit: limit.text(),
        measured: measured.map_or_else(|| "not measured".to_owned(), |spread| spread.to_string()),
        is_met: measured.map(|spread| limit.is_met(spread.median)),
    }
}

fn value(what: String, limit: Limit, measured: Option<f64>) -> Target {
    Target {
        what,
        limit: limit.text(),
        measured: measured.map_or_else(|| "not measured".to_owned(), |value| format!("{value:.2}")),
        is_met: measured.map(|value| limit.is_met(value)),
    }
}

/// The targets of the rounds.
pub fn of_rounds(measurements: &Measurements, has_tls: bool) -> Vec<Target> {
    let mut targets = Vec::new();
    for placement in Placement::ALL {
        let name = placement.name();
        for (quantity, what, limit) in
            [(Quantity::RoundTrip, "p50", ROUND_TRIP), (Quantity::RoundTripP99, "p99", ROUND_TRIP_P99)]
        {
            let measured = measurements.added_ratio(placement, quantity);
            targets.push(ratio(format!("added round trip, {what}, {name}"), Limit::AtMost(limit), measured));
        }
        for bytes in measurements.frames().into_iter().filter(|bytes| *bytes >= FRAME_BYTES) {
            let against =
                |quantity| measurements.ratio(placement, Through::Enginehouse, Through::TwoHaproxys, quantity);
            let size = kilobytes(bytes);
            let measured = against(Quantity::Throughput(bytes));
            targets.push(ratio(format!("throughput, {size}, {name}"), Limit::AtLeast(THROUGHPUT), measured));
            let measured = against(Quantity::ProcessorPerGigabyte(bytes));
            targets.push(ratio(format!("processor time of a GB, {size}, {name}"), Limit::AtMost(PROCESSOR), measured));
        }
        // The bare backend has no TLS, so there is nothing to compare a handshake with.
        let logins = measurements.ratio(placement, Through::Enginehouse, Through::Nothing, Quantity::Logins);
        let logins = logins.filter(|_| !has_tls);
        targets.push(ratio(
            format!("logins with OpenSession to those of the backend, {name}"),
            Limit::AtLeast(LOGINS),
            logins,
        ));
    }
    targets
}

/// The targets of idle sessions.
pub fn of_idle(costs: &[Cost], busy: &Busy, has_tls: bool) -> Vec<Target> {
    let limit = if has_tls { IDLE_KIB_WITH_TLS } else { IDLE_KIB };
    let mut targets = Vec::new();
    for (kind, role) in [(Kind::Unbound, "proxy"), (Kind::Bound, "proxy"), (Kind::Bound, "agent")] {
        let of_role = costs.iter().filter(|cost| cost.kind == kind && cost.role == role);
        for cost in of_role {
            let what = format!("KiB of {} {} sessions each, {role}", cost.sessions, kind.name());
            targets.push(value(what, Limit::AtMost(limit), Some(cost.resident_kib)));
            let what = format!("threads for {} {} sessions, {role}", cost.sessions, kind.name());
            targets.push(value(what, Limit::AtMost(0.0), Some(cost.threads as f64)));
        }
    }
    let what = format!("added round trip of a busy session beside {} idle ones to that alone", busy.sessions);
    targets.push(value(what, Limit::AtMost(BUSY), busy.ratio()));
    targets
}

/// A size as the tables have it: `359 kB`, `16 MB`.
pub fn kilobytes(bytes: usize) -> String {
    if bytes >= 1_000_000 { format!("{} MB", bytes / 1_000_000) } else { format!("{} kB", bytes / 1_000) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::measured::Round;

    fn measurements(ours: f64) -> Measurements {
        let mut measurements = Measurements::default();
        for placement in Placement::ALL {
            for number in 0..3 {
                let round = Round { placement, number };
                for (through, value) in
                    [(Through::Nothing, 1.0), (Through::TwoHaproxys, 2.0), (Through::Enginehouse, ours)]
                {
                    for quantity in [Quantity::RoundTrip, Quantity::RoundTripP99, Quantity::Logins] {
                        measurements.add(round, through, quantity, value);
                    }
                    for bytes in [1_000, 64_000] {
                        measurements.add(round, through, Quantity::Throughput(bytes), value);
                        measurements.add(round, through, Quantity::ProcessorPerGigabyte(bytes), value);
                    }
                }
            }
        }
        measurements
    }

    #[test]
    fn a_target_is_met_by_the_median_of_the_rounds() {
        let met = |ours: f64| -> Vec<Option<bool>> {
            of_rounds(&measurements(ours), false).into_iter().map(|target| target.is_met).collect()
        };
        // Round trip, its p99, throughput and processor time of 64 kB, and logins; pinned and free.
        let [slow, equal] = [[false, false, true, false, true], [true, true, true, true, true]];
        assert_eq!(met(3.0), [slow, slow].concat().into_iter().map(Some).collect::<Vec<_>>());
        assert_eq!(met(2.0), [equal, equal].concat().into_iter().map(Some).collect::<Vec<_>>());
        assert_eq!(met(2.15)[..2], [Some(false), Some(true)]);
    }

    #[test]
    fn what_was_not_measured_is_neither_met_nor_missed() {
        let with_tls = of_rounds(&measurements(2.0), true);
        assert_eq!(with_tls.iter().filter(|target| target.is_met.is_none()).count(), 2);
        let of_nothing = of_rounds(&Measurements::default(), false);
        assert!(of_nothing.iter().all(|target| target.is_met.is_none() && target.measured == "not measured"));
    }

    #[test]
    fn memory_and_threads_of_idle_sessions_have_limits() {
        let cost = |kind, role, resident_kib, threads| Cost {
            kind,
            role,
            processes: 1,
            sessions: 1_000,
            resident_kib,
            proportional_kib: resident_kib,
            threads,
        };
        let costs = [
            cost(Kind::Unbound, "proxy", 3.9, 0),
            cost(Kind::Bound, "proxy", 4.1, 1),
            cost(Kind::Bound, "backend", 40.0, 0),
            cost(Kind::Haproxy, "first HAProxy", 40.0, 0),
        ];
        let busy = Busy { alone: measurements(2.0), beside: measurements(2.2), sessions: 1_000 };
        let met: Vec<Option<bool>> = of_idle(&costs, &busy, false).into_iter().map(|target| target.is_met).collect();
        assert_eq!(met, [true, true, false, false, false].map(Some));
        assert_eq!(of_idle(&costs, &busy, true)[2].is_met, Some(true));
    }

    #[test]
    fn sizes_are_short() {
        assert_eq!([1_000, 64_000, 359_000, 16_000_000].map(kilobytes), ["1 kB", "64 kB", "359 kB", "16 MB"]);
    }
}
