//! `docs/guarantees.md` names tests: each of them is in the sources, each guarantee names one, and the page states in which
//! tier each runs. `UPDATE_PAGES=1 cargo test -p tests --test guarantees` writes that table.
//!
//! The tier is read from the sources here; `tests/scenarios/harness/guarantees.py` compares the table with what passed in a
//! run.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};

use tests::page::{self, code_words};
use tests::repository::{self, read};

const PAGE: &str = "docs/guarantees.md";
/// A test's name is a sentence: words this short are something else.
const SHORTEST_NAME: usize = 20;

const HEADING: &str = "In which tier each test runs";

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

/// All functions of tests, and of what tests call, by name: cases of contract suites are functions too. Functions of the
/// program are left out. Of two functions of one name the one that an earlier tier runs is kept.
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

#[test]
fn every_test_that_the_page_of_guarantees_names_is_there() {
    let functions = functions();
    let text = read(PAGE).unwrap();
    let (before, section) = text.split_once(&format!("\n## {HEADING}\n")).unwrap();
    let mut named = BTreeSet::new();
    for row in page::tables(before) {
        let of_row: Vec<&str> = row.iter().flat_map(|cell| code_words(cell)).filter(|word| is_name(word)).collect();
        assert!(!of_row.is_empty(), "no test shows this: {row:?}");
        named.extend(of_row.into_iter().map(str::to_owned));
    }
    assert!(named.len() > 100, "only {} tests are named", named.len());
    let lost: Vec<&String> = named.iter().filter(|name| !functions.contains_key(*name)).collect();
    assert!(lost.is_empty(), "the page names tests that are not there: {lost:#?}");
    let rows: Vec<String> = named.iter().map(|name| row(name, &functions[name])).collect();
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
        "the table of tiers differs from the sources (UPDATE_PAGES=1 writes it): {differs:#?}"
    );
}

fn row(name: &str, location: &Location) -> String {
    let more = if location.more { ", more variants in long" } else { "" };
    format!("| `{name}` | {}{more} | `{}` |", location.tier.word(), location.path)
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
