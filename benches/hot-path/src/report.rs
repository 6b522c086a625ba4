//! The tables of a run: minimum, median and maximum of its rounds.

use crate::cores::Placement;
use crate::drift::{self, Drift};
use crate::idle::{Busy, Cost};
use crate::measured::{Measurements, Quantity};
use crate::route::Through;
use crate::spread::Spread;
use crate::targets::{Target, kilobytes};

/// The cost of a connection that PgBouncer documents, for comparison: its hops are another protocol's.
const PGBOUNCER: &str = "PgBouncer documents \"low memory requirements (2 kB per connection by default)\" \
    (github.com/pgbouncer/pgbouncer.github.io, features.md); it documents no time or processor time.";

/// Prints a table with its columns aligned.
fn print(title: &str, header: &[&str], rows: &[Vec<String>]) {
    println!("\n{title}");
    let header: Vec<String> = header.iter().map(|cell| (*cell).to_owned()).collect();
    let all = || std::iter::once(&header).chain(rows);
    let widths: Vec<usize> = (0..header.len())
        .map(|column| all().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0))
        .collect();
    for row in all() {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:<width$}")).collect();
        println!("  {}", cells.join("  ").trim_end());
    }
}

fn shown(spread: Option<Spread>) -> String {
    spread.map_or_else(String::new, |spread| spread.to_string())
}

/// The tables of the rounds.
pub fn print_rounds(measurements: &Measurements) {
    for placement in Placement::ALL {
        let of = |through: Through, quantity| shown(measurements.spread(placement, through, quantity));
        let name = placement.name();
        let round_trips = Through::ALL.map(|through| {
            let added = Spread::of(measurements.added(placement, through, Quantity::RoundTrip).into_values());
            vec![
                through.name().to_owned(),
                of(through, Quantity::RoundTrip),
                of(through, Quantity::RoundTripP99),
                shown(added.filter(|_| through != Through::Nothing)),
                of(through, Quantity::ProcessorPerMillionCalls),
            ]
        });
        let header = [
            "route",
            "p50 in µs",
            "p99 in µs",
            "added to p50 in µs",
            "seconds of processor time of relays, 1,000,000 calls",
        ];
        print(&format!("Round trips, {name}: minimum, median, maximum"), &header, &round_trips);
        for (title, quantity) in [
            ("Results in GB per second", Quantity::Throughput as fn(usize) -> Quantity),
            (
                "Seconds of processor time of relays for a GB of results",
                Quantity::ProcessorPerGigabyte as fn(usize) -> Quantity,
            ),
        ] {
            let sizes = measurements.frames();
            let titles: Vec<String> = sizes.iter().map(|bytes| kilobytes(*bytes)).collect();
            let header: Vec<&str> = std::iter::once("route").chain(titles.iter().map(String::as_str)).collect();
            let rows: Vec<Vec<String>> = Through::ALL
                .into_iter()
                .map(|through| {
                    let cells = sizes.iter().map(|bytes| of(through, quantity(*bytes)));
                    std::iter::once(through.name().to_owned()).chain(cells).collect()
                })
                .collect();
            print(&format!("{title}, {name}: minimum, median, maximum"), &header, &rows);
        }
        print_processes(measurements, placement);
        let logins = Through::ALL.map(|through| vec![through.name().to_owned(), of(through, Quantity::Logins)]);
        print(
            &format!("Logins with OpenSession per second, {name}: minimum, median, maximum"),
            &["route", "logins"],
            &logins,
        );
    }
}

/// The processor time of each process, with the medians of the rounds.
fn print_processes(measurements: &Measurements, placement: Placement) {
    let sizes = measurements.frames();
    let mut titles = vec!["route".to_owned(), "process".to_owned(), "1,000,000 calls".to_owned()];
    titles.extend(sizes.iter().map(|bytes| format!("GB, {}", kilobytes(*bytes))));
    let median = |through: Through, quantity| {
        let spread = measurements.spread(placement, through, quantity);
        spread.map_or_else(String::new, |spread| format!("{:.3}", spread.median))
    };
    let row = |through: Through, process: &'static str| {
        let mut row = vec![through.name().to_owned(), process.to_owned(), median(through, Quantity::CallsOf(process))];
        row.extend(sizes.iter().map(|bytes| median(through, Quantity::GigabyteOf(process, *bytes))));
        row
    };
    let of_route = |through: Through| {
        let processes = measurements.processes(through).into_iter();
        processes.map(|process| row(through, process)).collect::<Vec<_>>()
    };
    let rows: Vec<Vec<String>> = Through::ALL.into_iter().flat_map(of_route).collect();
    let header: Vec<&str> = titles.iter().map(String::as_str).collect();
    print(&format!("Seconds of processor time of each process, {}: medians", placement.name()), &header, &rows);
}

/// The tables of idle sessions.
pub fn print_idle(costs: &[Cost], busy: &Busy) {
    let rows: Vec<Vec<String>> = costs
        .iter()
        .map(|cost| {
            vec![
                cost.kind.name().to_owned(),
                cost.sessions.to_string(),
                cost.role.to_owned(),
                cost.processes.to_string(),
                format!("{:.2}", cost.resident_kib),
                format!("{:.2}", cost.proportional_kib),
                format!("{:+}", cost.threads),
            ]
        })
        .collect();
    let header = ["sessions", "number", "role", "processes", "KiB of RSS each", "KiB of PSS each", "threads"];
    print("Idle sessions, in addition to 100 of them", &header, &rows);
    println!("  {PGBOUNCER}");
    let rows = Through::ALL.map(|through| {
        let of = |measurements: &Measurements, quantity| shown(measurements.spread(Placement::Free, through, quantity));
        vec![
            through.name().to_owned(),
            of(&busy.alone, Quantity::RoundTrip),
            of(&busy.beside, Quantity::RoundTrip),
            of(&busy.alone, Quantity::RoundTripP99),
            of(&busy.beside, Quantity::RoundTripP99),
        ]
    });
    let title = format!("Round trips of a busy session alone and beside {} idle ones, free, in µs", busy.sessions);
    print(&title, &["route", "p50 alone", "p50 beside", "p99 alone", "p99 beside"], &rows);
    if let Some(change) = busy.drift() {
        println!("  drift of the direct route: {:+.1} %", change * 100.0);
    }
}

/// The targets, with whether they are met.
pub fn print_targets(targets: &[Target]) {
    let rows: Vec<Vec<String>> = targets
        .iter()
        .map(|target| {
            let is_met = match target.is_met {
                Some(true) => "yes",
                Some(false) => "no",
                None => "-",
            };
            vec![target.what.clone(), target.limit.clone(), target.measured.clone(), is_met.to_owned()]
        })
        .collect();
    let header = ["two hops against two HAProxys", "limit", "measured", "met"];
    print("Targets; of ratios of rounds, the median counts", &header, &rows);
}

/// The drift of the direct route. Returns whether the run is void.
pub fn print_drifts(drifts: &[Drift]) -> bool {
    let rows: Vec<Vec<String>> = drifts
        .iter()
        .map(|drift| {
            let quantity = match drift.quantity {
                Quantity::Throughput(bytes) => format!("throughput, {}", kilobytes(bytes)),
                Quantity::Logins => "logins".to_owned(),
                _ => "round trip, p50".to_owned(),
            };
            let note = if drift.is_void() { "above the limit" } else { "" };
            vec![
                quantity,
                drift.placement.name().to_owned(),
                format!("{:+.1} %", drift.change * 100.0),
                note.to_owned(),
            ]
        })
        .collect();
    let limit = drift::LIMIT * 100.0;
    let title =
        format!("Drift of the direct route, last third of the rounds against the first; the limit is {limit:.0} %");
    print(&title, &["quantity", "placement", "drift", ""], &rows);
    drifts.iter().any(Drift::is_void)
}
