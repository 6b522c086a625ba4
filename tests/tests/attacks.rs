//! The rows of `docs/attacks.md` and the tests of the attack corpus: each row has one test function, whose name begins with its
//! number; variants are parameters of it.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeSet;

use tests::page;
use tests::repository::{self, read};

const PAGE: &str = "docs/attacks.md";
const TESTS: &str = "tests/scenarios/attacks/";
/// The fewest rows: a reader of the page that finds none would agree with everything.
const FEWEST: usize = 45;

/// The number in `def test_a12_…`.
fn number(line: &str) -> Option<String> {
    Some(line.strip_prefix("def test_")?.split('_').next()?.to_uppercase())
}

#[test]
fn each_row_of_the_attack_corpus_has_one_test() {
    let rows: Vec<String> = page::tables(&read(PAGE).unwrap()).into_iter().map(|row| row[0].clone()).collect();
    let mut tests = Vec::new();
    for file in repository::files().unwrap() {
        if file.path.starts_with(TESTS) && file.has_extension("py") {
            tests.extend(file.text().unwrap().unwrap().lines().filter_map(number));
        }
    }
    for (what, numbers) in [("rows", &rows), ("test functions", &tests)] {
        let twice = repeated(numbers);
        assert!(twice.is_empty(), "these numbers have more than one of the {what}: {twice:?}");
    }
    let (rows, tests) = (BTreeSet::from_iter(rows), BTreeSet::from_iter(tests));
    assert_eq!(rows, tests, "rows (left) and tests (right)");
    assert!(rows.len() >= FEWEST, "only {} rows", rows.len());
}

fn repeated(numbers: &[String]) -> Vec<&String> {
    let mut once = BTreeSet::new();
    numbers.iter().filter(|number| !once.insert(*number)).collect()
}
