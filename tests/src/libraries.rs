//! The libraries that the program contains, with their licenses, from `cargo metadata`.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::output::stdout;
use crate::repository::root;

const PROGRAM: &str = "enginehouse";
/// The platform of the container image. Other platforms have other libraries.
const PLATFORM: &str = "x86_64-unknown-linux-gnu";

/// The names of the libraries of the program with the features of the image, by the license expression (SPDX) of their packages. Libraries
/// of build scripts and of tests are no part of the program; those that only expand code are listed, too.
pub fn by_license() -> Result<BTreeMap<String, BTreeSet<String>>> {
    let mut cargo = Command::new(env!("CARGO"));
    let arguments = ["metadata", "--format-version", "1", "--locked", "--offline", "--filter-platform", PLATFORM];
    cargo.current_dir(root()).args(arguments).args(["--features", "enginehouse/object-stores"]);
    let metadata: Value = serde_json::from_str(&stdout(&mut cargo)?)?;
    let mut packages: BTreeMap<&str, &Value> = BTreeMap::new();
    for package in metadata["packages"].as_array().context("no packages")? {
        packages.insert(package["id"].as_str().context("a package has no id")?, package);
    }
    let mut needs: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for node in metadata["resolve"]["nodes"].as_array().context("no nodes")? {
        let of_node = node["deps"].as_array().into_iter().flatten();
        let is_normal = |need: &&Value| {
            need["dep_kinds"].as_array().is_some_and(|kinds| kinds.iter().any(|it| it["kind"].is_null()))
        };
        let ids = of_node.filter(is_normal).filter_map(|need| need["pkg"].as_str()).collect();
        needs.insert(node["id"].as_str().context("a node has no id")?, ids);
    }
    let program = packages.iter().find(|(_, package)| package["name"] == PROGRAM).context("no program")?.0;
    let (mut found, mut next) = (BTreeSet::new(), vec![*program]);
    while let Some(id) = next.pop() {
        if found.insert(id) {
            next.extend(needs.get(id).into_iter().flatten());
        }
    }
    let mut by_license: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    // Our own packages have no source.
    for package in found.iter().map(|id| packages[id]).filter(|package| package["source"].is_string()) {
        let name = package["name"].as_str().context("a package has no name")?;
        let license = package["license"].as_str().with_context(|| format!("{name} states no license"))?;
        by_license.entry(expression(license)).or_default().insert(name.to_owned());
    }
    Ok(by_license)
}

/// The expression in the form of today: older packages separate alternatives by a slash.
fn expression(license: &str) -> String {
    license.split('/').map(str::trim).collect::<Vec<_>>().join(" OR ")
}
