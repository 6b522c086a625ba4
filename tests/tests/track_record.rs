//! The track record: the simulation rediscovers its rows by mutants, and `docs/simulation.md` has the reason for each other row.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};

use tests::page::{self, code_words};
use tests::repository::read;

const HEADING: &str = "Track record";
const MUTANTS: &str = "crates/simulation/src/mutant.rs";
/// The least number of rows that the simulation rediscovers.
const REDISCOVERED: usize = 15;
/// A shorter reason is none.
const SHORTEST_REASON: usize = 40;

/// The mutants that `every_mutant_of_the_world_is_found` runs.
fn mutants() -> BTreeSet<String> {
    let source = read(MUTANTS).unwrap();
    let (_, all) = source.split_once("pub const ALL").unwrap();
    let names = all.lines().filter_map(|line| line.trim().strip_prefix("Self::")?.strip_suffix(','));
    names.map(str::to_owned).collect()
}

/// The rows of `docs/simulation.md`: the bug, and what is in the other cell.
fn of_simulation() -> BTreeMap<String, String> {
    let rows = page::table(&read("docs/simulation.md").unwrap(), HEADING).unwrap();
    let count = rows.len();
    let rows: BTreeMap<String, String> = rows.into_iter().map(|row| (row[0].clone(), row[1].clone())).collect();
    assert_eq!(rows.len(), count, "a row is listed twice");
    rows
}

#[test]
fn the_simulation_names_every_row_of_the_track_record() {
    let record = page::table(&read("docs/guarantees.md").unwrap(), HEADING).unwrap();
    let record: BTreeSet<String> = record.into_iter().map(|row| row[0].clone()).collect();
    assert_eq!(of_simulation().into_keys().collect::<BTreeSet<_>>(), record);
}

#[test]
fn every_row_of_the_track_record_has_a_mutant_or_a_reason() {
    let mutants = mutants();
    let rows = of_simulation();
    let mut rediscovered = 0;
    for (bug, cell) in &rows {
        let named = code_words(cell);
        let unknown: Vec<_> = named.iter().filter(|name| !mutants.contains(**name)).collect();
        assert!(unknown.is_empty(), "{bug}: {unknown:?} are no mutants");
        rediscovered += usize::from(!named.is_empty());
        assert!(!named.is_empty() || cell.len() >= SHORTEST_REASON, "{bug}: neither a mutant nor a reason");
    }
    assert!(rediscovered >= REDISCOVERED, "only {rediscovered} of {} rows are rediscovered", rows.len());
}

#[test]
fn every_mutant_of_the_simulation_is_on_its_page() {
    let page = read("docs/simulation.md").unwrap();
    let named: BTreeSet<&str> = page.lines().filter(|line| line.starts_with('|')).flat_map(code_words).collect();
    let missing: Vec<String> = mutants().into_iter().filter(|name| !named.contains(&**name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
