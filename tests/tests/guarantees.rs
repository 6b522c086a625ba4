//! The tests of `docs/guarantees.md`: each guarantee has at least one, each test exists, and its tier and file are those of the
//! sources. `UPDATE_PAGES=1 cargo test -p tests --test guarantees` writes the appendix of the page.
//!
//! `tests/scenarios/harness/guarantees.py` compares the appendix with the tests that passed in a run.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};

use tests::page::{self, code_words};
use tests::repository::{self, read};

const PAGE: &str = "docs/guarantees.md";
/// Shorter words in a table are not names of tests.
const SHORTEST_NAME: usize = 20;

const HEADING: &str = "Tests of the guarantees";
/// In the last column of tests that only the track record names.
const TRACK_RECORD: &str = "track record";

/// The first tier of `tests/run` that runs a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Tier {
    Quick,
    Default,
    Long,
}

impl Tier {
    fn word(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Default => "default",
            Self::Long => "long",
        }
    }
}

/// Where a test is, and which tier runs it first.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Location {
    tier: Tier,
    /// Whether the long tier runs more variants of it.
    more: bool,
    path: String,
}

/// All functions of tests and of their support by name; cases of contract suites are such functions. Of two functions with one
/// name the one that an earlier tier runs is kept.
fn functions() -> BTreeMap<String, Location> {
    let mut found: BTreeMap<String, Location> = BTreeMap::new();
    for file in repository::files().unwrap() {
        let is_rust = file.has_extension("rs") && !file.is_generated();
        let is_python = file.has_extension("py") && file.path.contains("/test_");
        if !is_rust && !is_python {
            continue;
        }
        let text = file.text().unwrap().unwrap();
        let only_tests = file.path.contains("tests/") || file.path.ends_with("/tests.rs");
        let tests = if is_python || only_tests {
            text.as_str()
        } else {
            text.split_once("#[cfg(test)]").map_or("", |(_, tests)| tests)
        };
        for (name, tier, more) in if is_python { of_python(tests) } else { of_rust(tests) } {
            let location = Location { tier, more, path: file.path.clone() };
            let kept = found.entry(name).or_insert_with(|| location.clone());
            if location.tier < kept.tier {
                *kept = location;
            }
        }
    }
    assert!(found.len() > 1_000, "only {} functions were found", found.len());
    found
}

/// A test that needs a server is ignored by cargo, and one in a module `long_only` is left to the long tier.
fn of_rust(text: &str) -> Vec<(String, Tier, bool)> {
    let (mut found, mut ignored, mut long_only) = (Vec::new(), false, false);
    for line in text.lines() {
        let word = line.trim_start();
        if word.starts_with("#[ignore") {
            ignored = true;
        } else if line.starts_with("mod long_only {") {
            long_only = true;
        } else if line == "}" {
            long_only = false;
        }
        let Some(rest) = word.trim_start_matches("pub ").trim_start_matches("async ").strip_prefix("fn ") else {
            continue;
        };
        let tier = match (long_only, ignored) {
            (true, _) => Tier::Long,
            (false, true) => Tier::Default,
            (false, false) => Tier::Quick,
        };
        found.push((rest.split(['(', '<']).next().unwrap().to_owned(), tier, false));
        ignored = false;
    }
    found
}

/// A scenario is marked in its decorators, or all of its file are; variants of one are made by `some` and `parameters`.
fn of_python(text: &str) -> Vec<(String, Tier, bool)> {
    let all_quick = text.lines().any(|line| line.starts_with("pytestmark") && line.contains("mark.quick"));
    let (mut found, mut decorators) = (Vec::new(), String::new());
    for line in text.lines() {
        if line.trim().is_empty() {
            decorators.clear();
        } else if let Some(rest) = line.strip_prefix("def ") {
            let tier = if decorators.contains("only_long") {
                Tier::Long
            } else if all_quick || decorators.contains("mark.quick") || decorators.contains("parameters(\"kill\")") {
                Tier::Quick
            } else {
                Tier::Default
            };
            let more = decorators.contains("some(") || decorators.contains("parameters(");
            found.push((rest.split('(').next().unwrap().to_owned(), tier, more));
        } else {
            decorators.push_str(line);
        }
    }
    found
}

fn is_name(word: &str) -> bool {
    word.len() >= SHORTEST_NAME && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

/// The numbers of the guarantees: the first cells of the page's tables.
fn guarantees(text: &str) -> BTreeSet<String> {
    let is_number = |cell: &str| {
        cell.strip_prefix(|c: char| c.is_ascii_uppercase()).is_some_and(|rest| rest.parse::<u32>().is_ok())
    };
    page::tables(text).into_iter().map(|row| row[0].clone()).filter(|cell| is_number(cell)).collect()
}

/// The appendix is written by hand in its first column and its last; the others follow from the sources.
#[test]
fn the_appendix_lists_the_tests_of_every_guarantee() {
    let functions = functions();
    let text = read(PAGE).unwrap();
    let (before, section) = text.split_once(&format!("\n## {HEADING}\n")).unwrap();
    let shown: BTreeMap<String, String> =
        page::tables(section).into_iter().map(|row| (code_words(&row[0])[0].to_owned(), row[3].clone())).collect();
    assert!(shown.len() > 100, "only {} tests are listed", shown.len());
    let lost: Vec<&String> = shown.keys().filter(|name| !functions.contains_key(*name)).collect();
    assert!(lost.is_empty(), "the page names tests that are not there: {lost:#?}");
    let guarantees = guarantees(before);
    let numbers: BTreeSet<String> = shown
        .values()
        .flat_map(|cell| cell.split(", "))
        .filter(|number| *number != TRACK_RECORD)
        .map(str::to_owned)
        .collect();
    assert!(guarantees.len() > 90, "only {} guarantees were found", guarantees.len());
    assert_eq!(numbers, guarantees, "guarantees of the appendix (left) and of the tables (right)");
    let (_, record) = before.split_once("\n## Track record\n").unwrap();
    for row in page::tables(record) {
        let named: Vec<&str> = row.iter().flat_map(|cell| code_words(cell)).filter(|word| is_name(word)).collect();
        assert!(!named.is_empty(), "no test shows this: {row:?}");
        let missing: Vec<&&str> = named.iter().filter(|name| !shown.contains_key(**name)).collect();
        assert!(missing.is_empty(), "not in the appendix: {missing:?}");
    }
    let rows: Vec<String> = shown.iter().map(|(name, numbers)| row(name, &functions[name], numbers)).collect();
    let table: Vec<&str> = section.lines().filter(|line| line.starts_with("| `")).collect();
    if std::env::var_os("UPDATE_PAGES").is_some() {
        let head = section.split("\n| `").next().unwrap();
        let written = format!("{before}\n## {HEADING}\n{head}\n{}\n", rows.join("\n"));
        std::fs::write(repository::root().join(PAGE), written).unwrap();
        return;
    }
    let differs: Vec<&String> = rows.iter().filter(|row| !table.contains(&row.as_str())).collect();
    assert!(
        differs.is_empty() && table.len() == rows.len(),
        "the appendix differs from the sources (UPDATE_PAGES=1 writes it): {differs:#?}"
    );
}

fn row(name: &str, location: &Location, numbers: &str) -> String {
    let more = if location.more { ", more variants in long" } else { "" };
    format!("| `{name}` | {}{more} | `{}` | {numbers} |", location.tier.word(), location.path)
}

#[test]
fn the_tier_of_a_test_is_read_from_its_attributes() {
    let rust = "#[test]\nfn one() {}\n#[tokio::test]\n#[ignore = \"x\"]\nasync fn two() {}\n\
                mod long_only {\n#[ignore = \"y\"]\n    fn three() {}\n}\nfn four() {}\n";
    let tiers: Vec<Tier> = of_rust(rust).into_iter().map(|(_, tier, _)| tier).collect();
    assert_eq!(tiers, [Tier::Quick, Tier::Default, Tier::Long, Tier::Quick]);
    let python = "@only_long\n@mark(\n    1,\n)\ndef test_one(a):\n    pass\n\n@mark(some(A, 1))\ndef test_two():\n    pass\n\n\
                  def test_three():\n    pass\n";
    let found = of_python(python);
    assert_eq!(found[0], ("test_one".to_owned(), Tier::Long, false));
    assert_eq!(found[1], ("test_two".to_owned(), Tier::Default, true));
    assert_eq!(found[2], ("test_three".to_owned(), Tier::Default, false));
}

/// What is not guaranteed is as much a part of the page as what is.
#[test]
fn the_page_says_what_is_not_guaranteed() {
    let text = read(PAGE).unwrap();
    let (_, after) = text.split_once("\n## What is not guaranteed\n").unwrap();
    let section = after.split("\n## ").next().unwrap();
    let entries = section.lines().filter(|line| line.starts_with("- **")).count();
    assert!(entries >= 10, "only {entries} entries");
}
