//! What holds for every package: its place, its lints, that it is not published, that there is one program.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::process::Command;

use tests::package;
use tests::repository::{read, root};

#[test]
fn a_package_is_called_like_its_folder() {
    for package in package::all().unwrap() {
        assert_eq!(package.name, package.folder);
    }
}

#[test]
fn no_package_can_be_published() {
    for package in package::all().unwrap() {
        assert!(!package.publishable, "{} has no publish = false", package.name);
    }
}

#[test]
fn every_package_has_the_lints_of_the_workspace() {
    for package in package::all().unwrap() {
        let manifest: toml::Table = package.manifest.parse().unwrap();
        let lints = manifest.get("lints").unwrap_or_else(|| panic!("{} has no lints", package.name));
        assert_eq!(lints.get("workspace"), Some(&toml::Value::Boolean(true)), "{}", package.name);
    }
}

#[test]
fn every_package_takes_its_dependencies_from_the_workspace() {
    // Another selection of features in one package would compile the same dependency a second time.
    for package in package::all().unwrap() {
        let manifest: toml::Table = package.manifest.parse().unwrap();
        for section in ["dependencies", "dev-dependencies", "build-dependencies"] {
            for (name, value) in manifest.get(section).and_then(toml::Value::as_table).into_iter().flatten() {
                let from_workspace = value.get("workspace") == Some(&toml::Value::Boolean(true));
                assert!(from_workspace, "{} names {name} itself in [{section}]", package.name);
                assert!(value.get("features").is_none(), "{} chooses features of {name}", package.name);
            }
        }
    }
}

/// Whether a section of the manifest or of one of its targets names the package, other than for tests.
fn is_built_with(manifest: &toml::Table, name: &str) -> bool {
    let names = |table: &toml::Table| {
        ["dependencies", "build-dependencies"].iter().any(|section| {
            let section = table.get(*section).and_then(toml::Value::as_table);
            section.is_some_and(|section| {
                let renamed = |value: &toml::Value| value.get("package").and_then(toml::Value::as_str) == Some(name);
                section.iter().any(|(key, value)| key == name || renamed(value))
            })
        })
    };
    let targets = manifest.get("target").and_then(toml::Value::as_table);
    names(manifest) || targets.into_iter().flatten().filter_map(|(_, target)| target.as_table()).any(names)
}

#[test]
fn only_tests_depend_on_the_simulation() {
    for package in package::all().unwrap() {
        let manifest = package.manifest.parse().unwrap();
        assert!(!is_built_with(&manifest, "simulation"), "{} is built with the simulation", package.name);
    }
}

#[test]
fn a_dependency_of_a_program_on_the_simulation_is_found() {
    let built = ["[dependencies]\nsimulation.workspace = true", "[build-dependencies]\nsimulation.workspace = true"];
    let others = [
        "[dependencies]\nworld = { package = \"simulation\" }",
        "[target.'cfg(unix)'.dependencies]\nsimulation = \"1\"",
    ];
    for manifest in built.into_iter().chain(others) {
        assert!(is_built_with(&manifest.parse().unwrap(), "simulation"), "{manifest}");
    }
    let tested = "[dependencies]\nmodel.workspace = true\n[dev-dependencies]\nsimulation.workspace = true";
    assert!(!is_built_with(&tested.parse().unwrap(), "simulation"));
}

#[test]
fn the_dev_profile_keeps_line_tables_of_every_package() {
    // It is that of the dependencies: what it does not name is optimized and has no line tables.
    let workspace: toml::Table = read("Cargo.toml").unwrap().parse().unwrap();
    let profiles = &workspace["profile"]["dev"]["package"];
    for package in package::all().unwrap() {
        let debug = profiles.get(&package.name).and_then(|profile| profile.get("debug"));
        assert_eq!(debug.and_then(toml::Value::as_str), Some("line-tables-only"), "{}", package.name);
    }
}

#[test]
fn cargo_warns_of_nothing_in_the_manifests() {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(root()).args(["metadata", "--no-deps", "--format-version", "1", "--offline"]);
    let output = cargo.output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn there_is_one_program_and_cargo_run_means_it() {
    let packages = package::all().unwrap();
    // Fuzz targets are built with a feature that nothing else has, and the benchmark runs the program.
    let programs: Vec<(&str, &str)> = packages
        .iter()
        .filter(|package| !["fuzz", "hot-path"].contains(&package.name.as_str()))
        .flat_map(|package| package.programs.iter().map(|program| (&*package.name, &**program)))
        .collect();
    assert_eq!(programs, [("enginehouse", "enginehouse")]);
    let workspace: toml::Table = read("Cargo.toml").unwrap().parse().unwrap();
    let members = workspace["workspace"]["default-members"].as_array().unwrap();
    assert_eq!(members, &[toml::Value::String("crates/enginehouse".to_owned())]);
}

#[test]
fn the_lints_of_the_workspace_deny_what_must_not_be() {
    let workspace: toml::Table = read("Cargo.toml").unwrap().parse().unwrap();
    let lints = &workspace["workspace"]["lints"];
    assert_eq!(lints["rust"]["unsafe_code"].as_str(), Some("forbid"));
    for lint in ["dbg_macro", "panic", "todo", "unimplemented", "unwrap_used"] {
        assert_eq!(lints["clippy"][lint].as_str(), Some("deny"), "{lint}");
    }
}

#[test]
fn a_release_has_no_failpoints() {
    let workspace: toml::Table = read("Cargo.toml").unwrap().parse().unwrap();
    let release = workspace["profile"]["release"].as_table().unwrap();
    // Failpoints hang on debug assertions, which a release has only if it asks for them.
    assert!(!release.contains_key("debug-assertions"), "the release profile has debug assertions");
    assert!(!release.contains_key("inherits"), "the release profile is another one's");
    let declared = read("crates/model/src/failpoint.rs").unwrap();
    let gate = "#[cfg(debug_assertions)]";
    let passed = declared.split("fail::fail_point!").next().unwrap();
    assert_eq!(declared.matches("fail::fail_point!").count(), 1);
    assert!(passed.trim_end().contains(gate), "the macro passes failpoints without asking for debug assertions");
    let last_gate = passed.rfind(gate).unwrap();
    assert!(!passed[last_gate..].contains('}'), "the gate of the macro is closed before the failpoint");
    for package in package::all().unwrap() {
        let uses_it = package.needs.iter().any(|need| need.name == "fail");
        assert!(!uses_it || package.name == "model", "{} uses crate fail past the macro", package.name);
    }
}

#[test]
fn the_licence_is_the_one_that_the_packages_name() {
    let workspace: toml::Table = read("Cargo.toml").unwrap().parse().unwrap();
    assert_eq!(workspace["workspace"]["package"]["license"].as_str(), Some("Apache-2.0"));
    let licence = read("LICENSE").unwrap();
    assert!(licence.contains("Apache License") && licence.contains("Version 2.0, January 2004"));
}
