//! The names of the steps are those of the code, and `docs/model.md` has each of them and each test of a variant.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use protocol_model::{alteration, demand, engines, ledger, reservations};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn names() -> BTreeSet<&'static str> {
    let alteration = alteration::Action::EACH.iter().map(|action| action.name());
    let engines = engines::Action::EACH.iter().map(|action| action.name());
    let ledger = ledger::Action::EACH.iter().map(|action| action.name());
    let reservations = reservations::Action::EACH.iter().map(|action| action.name());
    let demand = demand::Action::EACH.iter().map(|action| action.name());
    alteration.chain(engines).chain(ledger).chain(reservations).chain(demand).collect()
}

/// Steps that are no code of ours: faults, deadlines, late arrivals, what ZooKeeper, the orchestrator, clients and external
/// holders do by themselves, and what only a variant does.
fn is_outside(name: &str) -> bool {
    let outside = ["fault: ", "time: ", "late: ", "zookeeper: ", "orchestrator: ", "client: ", "holder: ", "without: "];
    outside.iter().any(|prefix| name.starts_with(prefix))
}

/// Every failpoint of the crates that the protocol runs in.
fn failpoints() -> BTreeMap<String, String> {
    let files = [
        "crates/metadata/src/failpoints.rs",
        "crates/engine-agent/src/metadata/failpoints.rs",
        "crates/engine-agent/src/engine/failpoints.rs",
        "crates/coordination/src/failpoints.rs",
        "crates/master/src/failpoints.rs",
    ];
    let mut found = BTreeMap::new();
    for file in files {
        for line in read(file).lines().filter(|line| line.starts_with("pub const ") && line.contains(": &str = ")) {
            let name = line.split('"').nth(1).unwrap_or_else(|| panic!("{file}: {line}"));
            found.insert(name.to_owned(), file.to_owned());
        }
    }
    assert!(found.len() > 40, "only {} failpoints were found", found.len());
    found
}

#[test]
fn every_step_is_a_failpoint_or_a_function_of_the_code() {
    let failpoints = failpoints();
    for name in names().into_iter().filter(|name| !is_outside(name)) {
        let Some((file, function)) = name.rsplit_once("::") else {
            assert!(failpoints.contains_key(name), "no failpoints.rs has \"{name}\"");
            continue;
        };
        let (krate, module) = file.split_once("::").unwrap_or_else(|| panic!("{name} names no module"));
        let source = read(&format!("crates/{krate}/src/{}.rs", module.replace("::", "/")));
        let defined = source.contains(&format!("fn {function}(")) || source.contains(&format!("fn {function}<"));
        assert!(defined, "crates/{krate}: module {module} has no function {function}");
    }
}

#[test]
fn the_page_has_every_step_and_every_variant() {
    let page = read("docs/model.md");
    for name in names() {
        assert!(page.contains(&format!("`{name}`")), "docs/model.md lacks the step `{name}`");
    }
    for file in ["alteration_without", "engines_without", "ledger_without", "reservations_without", "demand_without"] {
        let source = read(&format!("crates/protocol-model/tests/{file}.rs"));
        let tests: Vec<&str> = source
            .split("#[test]")
            .skip(1)
            .map(|test| test.split("fn ").nth(1).and_then(|rest| rest.split('(').next()).unwrap())
            .collect();
        assert!(tests.len() >= 5, "{file}: {tests:?}");
        for test in tests {
            assert!(page.contains(&format!("`{test}`")), "docs/model.md lacks the test `{test}`");
        }
    }
}

/// The switches of `Without`, each of which removes a rule.
fn switches(file: &str) -> Vec<String> {
    let source = read(&format!("crates/protocol-model/src/{file}"));
    let fields = source.split("pub struct Without {").nth(1).and_then(|rest| rest.split('}').next()).unwrap();
    let fields = fields.lines().filter_map(|line| line.trim().strip_prefix("pub ")?.strip_suffix(": bool,"));
    fields.map(str::to_owned).collect()
}

#[test]
fn each_switchable_rule_is_switched_off_by_a_test() {
    for (model, least) in [("alteration", 15), ("engines", 15), ("ledger", 14), ("reservations", 13), ("demand", 20)] {
        let tests = read(&format!("crates/protocol-model/tests/{model}_without.rs"));
        let switches = switches(&format!("{model}/parameters.rs"));
        assert!(switches.len() >= least, "{model}: {switches:?}");
        for switch in switches {
            let is_removed = tests
                .match_indices(&format!("removed.{switch}"))
                .any(|(at, found)| tests[at + found.len()..].starts_with([' ', ',', ')']));
            assert!(is_removed, "no test of {model}_without removes {switch}");
        }
    }
}

#[test]
fn the_page_names_only_existing_failpoints() {
    let failpoints = failpoints();
    let page = read("docs/model.md");
    for word in page.split('`').skip(1).step_by(2) {
        let dotted = word.split('.').count() == 3 && word.chars().all(|c| c.is_ascii_lowercase() || "._".contains(c));
        assert!(!dotted || failpoints.contains_key(word), "docs/model.md names `{word}`, which no failpoints.rs has");
    }
}
