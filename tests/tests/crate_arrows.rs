//! Who may import whom: the two tables of `docs/architecture.md`, compared with what cargo knows.
//!
//! The tables are exact, so that the page shows the system as it is: an arrow that the code has and the page lacks is
//! as wrong as the other way round. Dependencies of tests are free.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};

use tests::package::{self, Package};
use tests::page::{self, code_words};
use tests::repository::{self, read};

const PAGE: &str = "docs/architecture.md";
const CRATES: &str = "Crates, and who imports whom";
const LIBRARIES: &str = "Outside libraries that have one home";
/// The packages of these checks, of the fuzz targets and of the benchmark are no part of the system.
const CHECKS: [&str; 3] = ["fuzz", "hot-path", "tests"];
/// The program sees everything.
const PROGRAM: &str = "enginehouse";

/// A row of the page's table of crates.
struct Entry {
    line: usize,
    imports: BTreeSet<String>,
}

fn set(words: Vec<&str>) -> BTreeSet<String> {
    words.into_iter().map(str::to_owned).collect()
}

/// Columns: line, crate, what it owns, what it imports.
fn entries() -> BTreeMap<String, Entry> {
    let rows = page::table(&read(PAGE).unwrap(), CRATES).unwrap();
    let entry = |row: &Vec<String>| {
        let name = code_words(&row[1]).first().unwrap_or_else(|| panic!("no crate in {row:?}")).to_string();
        (name, Entry { line: row[0].parse().unwrap(), imports: set(code_words(&row[3])) })
    };
    let entries: BTreeMap<String, Entry> = rows.iter().map(entry).collect();
    assert_eq!(entries.len(), rows.len(), "a crate stands twice in the table");
    entries
}

fn system() -> Vec<Package> {
    let all = package::all().unwrap();
    for checks in CHECKS {
        assert!(all.iter().any(|package| package.name == checks), "cargo does not know the package {checks}");
    }
    all.into_iter().filter(|package| !CHECKS.contains(&package.name.as_str())).collect()
}

fn imports(package: &Package) -> BTreeSet<String> {
    package.needs.iter().filter(|need| need.ours).map(|need| need.name.clone()).collect()
}

#[test]
fn the_page_lists_every_crate_and_no_other() {
    let listed: BTreeSet<String> = entries().into_keys().collect();
    let there: BTreeSet<String> = system().into_iter().map(|package| package.name).collect();
    assert_eq!(listed, there);
}

#[test]
fn every_arrow_is_on_the_page_and_every_arrow_of_the_page_is_there() {
    let entries = entries();
    for package in system().iter().filter(|package| package.name != PROGRAM) {
        assert_eq!(
            imports(package),
            entries[&package.name].imports,
            "what `{}` imports (left) is not what {PAGE} says (right): drop the arrow, or change the page and say why",
            package.name
        );
    }
}

#[test]
fn arrows_point_downwards_and_never_along_a_line() {
    let entries = entries();
    for (name, entry) in &entries {
        for imported in &entry.imports {
            let below = entries.get(imported).unwrap_or_else(|| panic!("{name} imports {imported}, which is no crate"));
            assert!(
                below.line > entry.line,
                "`{name}` on line {} imports `{imported}` on line {}",
                entry.line,
                below.line
            );
        }
    }
    assert_eq!(entries[PROGRAM].line, 1);
    assert_eq!(entries.values().filter(|entry| entry.line == 1).count(), 1);
}

#[test]
fn an_outside_library_with_one_home_is_used_nowhere_else() {
    let rows = page::table(&read(PAGE).unwrap(), LIBRARIES).unwrap();
    let packages = system();
    for row in rows {
        let library = code_words(&row[0])[0];
        let users: BTreeSet<String> = packages
            .iter()
            .filter(|package| package.needs.iter().any(|need| !need.ours && need.name == library))
            .map(|package| package.name.clone())
            .collect();
        assert_eq!(users, set(code_words(&row[1])), "who uses {library} (left) is not what {PAGE} says (right)");
    }
}

#[test]
fn the_vocabulary_has_neither_io_nor_async() {
    let model = system().into_iter().find(|package| package.name == "model").unwrap();
    for need in &model.needs {
        let async_or_io = ["tokio", "futures", "async-trait", "sqlx", "thrift", "zookeeper-client", "tracing"];
        assert!(!async_or_io.contains(&need.name.as_str()), "model imports {}", need.name);
    }
}

#[test]
fn the_rooms_of_the_two_agents_never_import_each_other() {
    let files = repository::files().unwrap();
    let room = |prefix: &str| {
        let files = files.iter().filter(|file| file.path.starts_with(prefix) && file.has_extension("rs"));
        let texts: Vec<(String, String)> =
            files.map(|file| (file.path.clone(), file.text().unwrap().unwrap())).collect();
        assert!(texts.len() > 3, "there are hardly any files below {prefix}");
        texts
    };
    for (path, text) in room("crates/engine-agent/src/engine") {
        for other in ["crate::metadata", "metadata::Store", "use metadata", "planner::"] {
            assert!(!text.contains(other), "{path} mentions {other}: an agent beside an engine knows no database");
        }
    }
    for (path, text) in room("crates/engine-agent/src/metadata") {
        assert!(!text.contains("crate::engine::"), "{path} mentions the room of engines");
    }
}
