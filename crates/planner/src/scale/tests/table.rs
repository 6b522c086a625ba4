//! Table A of the design: one row for each case.

use std::num::NonZeroU64;

use super::{Id, Scale};
use crate::scale::{
    EngineCondition, Group, Occupancy, PendingEngine, ReadyEngine, RemovalReason, Scaled, ScalingLimits, UnmetReason,
    scale,
};

/// S/min/max/spare; `o` is outdated, `d` is draining, `*` is not created. Demand has lapsed, burst is 10 and the idle timeout is
/// 300 s unless the case names something else.
const TABLE: &str = "
| case | S/min/max/spare | engines taken/seats | pending | W | A | declared | start | cancel | drain | unmet | why |
| A1 free seats suffice | 4/1/5/0 | e1:0/4 (idle 10s) | – | 3 | – | 1 | 0 | – | – | 0 | – |
| A2 one missing, round up | 4/1/5/0 | e1:3/4 | – | 3 | – | 2 | 1 | – | – | 0 | – |
| A3 pending covers the rest | 4/1/5/0 | e1:3/4 | p1 | 5 | – | 2 | 0 | – | – | 0 | – |
| A4 pending short by 1 | 4/1/5/0 | e1:3/4 | p1 | 6 | – | 3 | 1 | – | – | 0 | – |
| A5 30 waiting, 10 seats | 10/0/50/0 | – | – | 30 | – | 3 | 3 | – | – | 0 | – |
| A6 cap at max | 4/0/5/0 | – | – | 100 | – | 5 | 5 | – | – | 80 | max |
| A7 min without demand | 4/2/5/0 | – | – | 0 | – | 2 | 2 | – | – | 0 | – |
| A8 scale to zero | 4/0/5/0 | e1:0/4 (301s) e2:0/4 (400s) | – | 0 | – | 0 | 0 | – | e2 e1 | 0 | – |
| A9 keep min | 4/1/5/0 | e1:0/4 (301s) e2:0/4 (400s) e3:0/4 (500s) | – | 0 | – | 1 | 0 | – | e3 e2 | 0 | – |
| A10 idle below timeout | 4/0/5/0 | e1:0/4 (299s) | – | 0 | – | 1 | 0 | – | – | 0 | – |
| A11 idle past timeout, needed | 4/0/5/0 | e1:4/4 e2:0/4 (400s) | – | 2 | – | 2 | 0 | – | – | 0 | – |
| A12 two idle, demand 2: release one | 4/0/5/0 | e1:0/4 (400s) e2:0/4 (600s) | – | 2 | – | 1 | 0 | – | e2 | 0 | – |
| A13 spare kept while loaded | 4/0/5/1 | e1:4/4 e2:0/4 (400s) | – | 0 | – | 2 | 0 | – | – | 0 | – |
| A14 spare started once | 4/0/5/1 | e1:4/4 | – | 0 | – | 2 | 1 | – | – | 0 | – |
| A15 no spare while one is pending | 4/0/5/1 | e1:4/4 | p1 | 0 | – | 2 | 0 | – | – | 0 | – |
| A16 spare released when nothing runs | 4/0/5/1 | e1:0/4 (400s) | – | 0 | – | 0 | 0 | – | e1 | 0 | – |
| A17 demand gone, cancel pending | 4/0/5/0 | e1:2/4 | p1* p2 | 0 | – | 1 | 0 | p1 p2 | – | 0 | – |
| A18 half gone, keep the starting one | 4/0/5/0 | e1:4/4 | p1* p2 | 3 | – | 2 | 0 | p1 | – | 0 | – |
| A19 max 5→2: idle first, then least busy | 4/0/2/0 | e1:4/4 e2:1/4 e3:0/4 (1s) e4:2/4 | – | 0 | – | 2 | 0 | – | e3 e2 | 0 | over-max |
| A20 max below the busy count | 4/0/1/0 | e1:4/4 e2:3/4 | p1 | 0 | – | 1 | 0 | p1 | e2 | 0 | over-max |
| A21 quota admits 1 of 3 | 4/0/5/0 | – | – | 12 | 1 | 1 | 1 | – | – | 8 | quota |
| A22 start back-off | 4/0/5/0 | – | – | 12 | – | 0 | 0 | – | – | 12 | back-off |
| A23 burst 2 | 4/0/50/0 | – | – | 40 | – | 2 | 2 | – | – | 32 | burst |
| A24 outdated engines replaced to min | 4/2/5/0 | e1:1/4o e2:0/4o (5s) | – | 0 | – | 2 | 2 | – | e1 e2 | 0 | outdated |
| A25 draining engine does not count | 4/1/5/0 | e1:2/4d | – | 1 | – | 1 | 1 | – | – | 0 | – |
| A26 busy engine never released | 4/0/5/0 | e1:1/4 (idle_since old) | – | 0 | – | 1 | 0 | – | – | 0 | – |
";

const CASES: usize = 26;
const DEFAULT_BURST: u64 = 10;
const IDLE_TIMEOUT_MS: u64 = 300_000;

/// The input columns, and the output columns as they are printed.
struct Case {
    name: String,
    group: Group<Id>,
    expected: Vec<String>,
}

fn cases() -> Vec<Case> {
    let rows = TABLE.lines().filter(|line| line.starts_with("| A"));
    rows.map(|row| case(&row.trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>())).collect()
}

fn case(columns: &[&str]) -> Case {
    let &[name, numbers, engines, pending, waiting, admitted, ..] = columns else { panic!("{columns:?}") };
    let numbers: Vec<u64> = numbers.split('/').map(number).collect();
    let &[seats, min, max, spare] = &numbers[..] else { panic!("{name}: {numbers:?}") };
    let (id, _) = name.split_once(' ').unwrap();
    let limits = ScalingLimits {
        seats: NonZeroU64::new(seats).unwrap(),
        min,
        max,
        spare,
        idle_timeout_ms: Some(IDLE_TIMEOUT_MS),
        burst: if id == "A23" { 2 } else { DEFAULT_BURST },
    };
    let group = Group {
        limits,
        waiting: number(waiting),
        admitted: (admitted != "–").then(|| number(admitted)),
        is_backing_off: id == "A22",
        has_lapsed: true,
        is_cooling: false,
        engines: engines.split(" e").filter(|text| *text != "–").map(|text| engine(text, seats)).collect(),
        pending: pending.split(' ').filter(|text| *text != "–").map(pending_engine).collect(),
        stalled: Vec::new(),
    };
    Case { name: name.to_owned(), group, expected: columns[6..].iter().map(|text| (*text).to_owned()).collect() }
}

fn number(text: &str) -> u64 {
    text.parse().unwrap()
}

fn id(kind: char, text: &str) -> Id {
    (kind, text.trim_start_matches(kind).parse().unwrap())
}

/// Such as `e1:0/4o (301s)`.
fn engine(text: &str, seats: u64) -> ReadyEngine<Id> {
    let (name, rest) = text.split_once(':').unwrap();
    let (occupied, idle) = rest.split_once(' ').unwrap_or((rest, "(0s)"));
    let (taken, of) = occupied.split_once('/').unwrap();
    assert_eq!(number(of.trim_end_matches(['o', 'd'])), seats);
    let condition = match of.chars().last() {
        Some('o') => EngineCondition::Outdated,
        Some('d') => EngineCondition::Draining,
        _ => EngineCondition::Serving,
    };
    let idle_ms = match idle.trim_matches(['(', ')']).trim_start_matches("idle ") {
        "idle_since old" => u64::MAX / 2,
        seconds => number(seconds.trim_end_matches('s')) * 1_000,
    };
    let occupancy = Occupancy::Sessions { taken: number(taken), idle_ms };
    ReadyEngine { id: id('e', name), is_on_demand: true, condition, occupancy }
}

/// Such as `p1*`.
fn pending_engine(text: &str) -> PendingEngine<Id> {
    PendingEngine {
        id: id('p', text.trim_end_matches('*')),
        is_on_demand: true,
        has_stand_in: false,
        is_created: !text.ends_with('*'),
    }
}

/// The output columns: declared, start, cancel, drain, unmet, why.
fn printed(scaled: &Scaled<Id>) -> Vec<String> {
    let of_kind = |kind: char| {
        let ids = scaled.removals.iter().map(|removal| removal.id).filter(|id| id.0 == kind);
        let ids: Vec<String> = ids.map(|(kind, number)| format!("{kind}{number}")).collect();
        if ids.is_empty() { "–".to_owned() } else { ids.join(" ") }
    };
    let drained = [RemovalReason::OverMax, RemovalReason::Outdated].into_iter();
    let drained = drained.filter(|reason| scaled.removed(*reason).next().is_some()).map(RemovalReason::as_str);
    let words: Vec<&str> = drained.chain(scaled.unmet_reason.map(UnmetReason::as_str)).collect();
    let why = if words.is_empty() { "–".to_owned() } else { words.join(" ") };
    let (declared, start, unmet) = (scaled.declared, scaled.start, scaled.unmet);
    vec![declared.to_string(), start.to_string(), of_kind('p'), of_kind('e'), unmet.to_string(), why]
}

/// The rows whose result differs, each with both results.
pub(super) fn differing(scale: Scale<'_>) -> Vec<String> {
    let differs = |case: Case| {
        let found = printed(&scale(&case.group));
        (found != case.expected).then(|| format!("{}: {:?} instead of {:?}", case.name, found, case.expected))
    };
    cases().into_iter().filter_map(differs).collect()
}

#[test]
fn table_a_holds_row_by_row() {
    let names: Vec<String> = cases().iter().map(|case| case.name.split(' ').next().unwrap().to_owned()).collect();
    let numbered: Vec<String> = (1..=CASES).map(|number| format!("A{number}")).collect();
    assert_eq!(names, numbered);
    assert_eq!(differing(&scale), Vec::<String>::new());
}
