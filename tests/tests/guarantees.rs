//! `docs/guarantees.md` names tests: each of them is in the sources, and each guarantee names one.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeSet;

use tests::page::{self, code_words};
use tests::repository::{self, read};

const PAGE: &str = "docs/guarantees.md";
/// A test's name is a sentence: words this short are something else.
const SHORTEST_NAME: usize = 20;

/// The names of all functions of tests, and of what tests call: cases of contract suites are functions too. What the
/// program consists of is none.
fn functions() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for file in repository::files().unwrap() {
        let word = if file.has_extension("rs") && !file.is_generated() {
            "fn "
        } else if file.has_extension("py") && file.path.contains("/test_") {
            "def "
        } else {
            continue;
        };
        let text = file.text().unwrap().unwrap();
        let only_tests = file.path.contains("tests/") || file.path.ends_with("/tests.rs");
        let tests =
            if only_tests { text.as_str() } else { text.split_once("#[cfg(test)]").map_or("", |(_, tests)| tests) };
        for line in tests.lines().map(str::trim_start) {
            let line = line.trim_start_matches("pub ").trim_start_matches("async ");
            let Some(rest) = line.strip_prefix(word) else { continue };
            names.insert(rest.split(['(', '<']).next().unwrap().to_owned());
        }
    }
    assert!(names.len() > 1_000, "only {} functions were found", names.len());
    names
}

fn is_name(word: &str) -> bool {
    word.len() >= SHORTEST_NAME && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

#[test]
fn every_test_that_the_page_of_guarantees_names_is_there() {
    let functions = functions();
    let text = read(PAGE).unwrap();
    let mut named = BTreeSet::new();
    for row in page::tables(&text) {
        let of_row: Vec<&str> = row.iter().flat_map(|cell| code_words(cell)).filter(|word| is_name(word)).collect();
        assert!(!of_row.is_empty(), "no test shows this: {row:?}");
        named.extend(of_row.into_iter().map(str::to_owned));
    }
    assert!(named.len() > 100, "only {} tests are named", named.len());
    let lost: Vec<&String> = named.iter().filter(|name| !functions.contains(*name)).collect();
    assert!(lost.is_empty(), "the page names tests that are not there: {lost:#?}");
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
