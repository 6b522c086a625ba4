//! The licenses of the libraries: the page lists them all, and each permits what we do with them.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::fmt::Write as _;

use tests::libraries;
use tests::repository::{read, root};

const PAGE: &str = "docs/licenses.md";
/// Writes the page instead of comparing it.
const UPDATE: &str = "EH_UPDATE_LICENSES";

/// Licenses that ask for no more than their text and the notices beside a copy of the program.
const PERMISSIVE: [&str; 13] = [
    "0BSD",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Whether each license of the expression is permissive, so that it does not matter which alternative is chosen.
fn is_permissive(expression: &str) -> bool {
    let expression = expression.replace(['(', ')'], " ").replace("Apache-2.0 WITH LLVM-exception", "Apache-2.0");
    expression.split_whitespace().filter(|word| !["OR", "AND"].contains(word)).all(|word| PERMISSIVE.contains(&word))
}

#[test]
fn every_library_has_a_permissive_license() {
    for (license, libraries) in libraries::by_license().unwrap() {
        assert!(is_permissive(&license), "{license}: {libraries:?}");
    }
    assert!(is_permissive("(MIT OR Apache-2.0) AND Unicode-3.0"));
    assert!(!is_permissive("MIT OR GPL-3.0-only") && !is_permissive("MPL-2.0"));
}

#[test]
fn the_page_lists_every_library_with_its_license() {
    let mut table = "| license | libraries |\n| --- | --- |\n".to_owned();
    let by_license: BTreeMap<_, _> = libraries::by_license().unwrap();
    for (license, libraries) in &by_license {
        let names: Vec<String> = libraries.iter().map(|name| format!("`{name}`")).collect();
        writeln!(table, "| {license} | {} |", names.join(", ")).unwrap();
    }
    let page = read(PAGE).unwrap();
    let above = page.split("| license |").next().unwrap();
    let expected = format!("{above}{table}");
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(root().join(PAGE), expected).unwrap();
    } else {
        assert!(page == expected, "{PAGE} is outdated: run `{UPDATE}=1 cargo test -p tests --test licenses`");
    }
}
