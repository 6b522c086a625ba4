//! Import cycles between the files of a crate: those that are left are recorded in `import_cycles.txt`, which may only shrink.
//!
//! After a cycle was broken or a file renamed, `UPDATE_PAGES=1 cargo test --workspace --test import_cycles` writes the list.
//! Breaking a cycle means to move what both files need to a file below them.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};

use tests::imports;
use tests::package;
use tests::repository::{self, read, root};

const RECORD: &str = "tests/tests/import_cycles.txt";

/// One line for each cycle: its crate and its files below `src`.
fn cycles() -> BTreeSet<String> {
    let files = repository::files().unwrap();
    let mut lines = BTreeSet::new();
    for package in package::all().unwrap() {
        let folder = match package.name.as_str() {
            "tests" => "tests".to_owned(),
            "hot-path" => "benches/hot-path".to_owned(),
            name => format!("crates/{name}"),
        };
        for cycle in imports::cycles(&imports::graph(&folder, &files).unwrap()) {
            let names: Vec<String> = cycle.into_iter().collect();
            lines.insert(format!("{}: {}", package.name, names.join(" ")));
        }
    }
    lines
}

/// The number of files in cycles, for each crate.
fn files_in_cycles<'a>(lines: impl IntoIterator<Item = &'a str>) -> BTreeMap<&'a str, usize> {
    let mut counts = BTreeMap::new();
    for line in lines {
        let (name, files) = line.split_once(": ").unwrap();
        *counts.entry(name).or_default() += files.split(' ').count();
    }
    counts
}

#[test]
fn import_cycles_inside_crates_only_become_fewer() {
    let found = cycles();
    let record = read(RECORD).unwrap();
    let recorded: BTreeSet<String> = record.lines().map(str::to_owned).collect();
    if std::env::var_os("UPDATE_PAGES").is_some() {
        let before = files_in_cycles(record.lines());
        for (name, files) in files_in_cycles(found.iter().map(String::as_str)) {
            let allowed = before.get(name).copied().unwrap_or_default();
            assert!(
                files <= allowed,
                "{name}: {files} files are in import cycles, and there were {allowed}: {found:#?}"
            );
        }
        let lines: Vec<String> = found.into_iter().collect();
        let record = if lines.is_empty() { String::new() } else { lines.join("\n") + "\n" };
        std::fs::write(root().join(RECORD), record).unwrap();
        return;
    }
    let new: Vec<&String> = found.difference(&recorded).collect();
    let gone: Vec<&String> = recorded.difference(&found).collect();
    assert!(
        new.is_empty() && gone.is_empty(),
        "{RECORD} (UPDATE_PAGES=1 writes it if no crate has more): found {new:#?}, no longer found {gone:#?}"
    );
}
