//! The packages of the workspace, from `cargo metadata`.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::output::stdout;
use crate::repository::root;

/// One package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Package {
    pub name: String,
    /// The name of the folder with its manifest.
    pub folder: String,
    /// The text of its manifest.
    pub manifest: String,
    /// Dependencies of its library, programs and build script, without those of tests; our own packages and others.
    pub needs: Vec<Need>,
    pub programs: Vec<String>,
    /// Whether it may be published to a registry.
    pub publishable: bool,
}

/// One dependency.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Need {
    pub name: String,
    /// Whether it is a package of this workspace.
    pub ours: bool,
}

/// Every package of the workspace, by name.
pub fn all() -> Result<Vec<Package>> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(root()).args(["metadata", "--no-deps", "--format-version", "1", "--offline"]);
    let metadata: Value = serde_json::from_str(&stdout(&mut cargo)?).context("cargo metadata is not JSON")?;
    let mut packages =
        array(&metadata, "packages")?.iter().map(package).collect::<Result<Vec<_>>>().context("cargo metadata")?;
    packages.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(packages)
}

fn package(value: &Value) -> Result<Package> {
    let manifest_path = text(value, "manifest_path")?;
    let folder = Path::new(&manifest_path).parent().and_then(Path::file_name).unwrap_or_default();
    let manifest = std::fs::read_to_string(&manifest_path).with_context(|| format!("cannot read {manifest_path}"))?;
    let mut needs = Vec::new();
    for need in array(value, "dependencies")? {
        if need["kind"].as_str() != Some("dev") {
            needs.push(Need { name: text(need, "name")?, ours: need["path"].is_string() });
        }
    }
    needs.sort();
    needs.dedup();
    let targets = array(value, "targets")?.iter();
    let programs = targets
        .filter(|target| target["kind"].as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind == "bin")))
        .map(|target| text(target, "name"))
        .collect::<Result<Vec<_>>>()?;
    Ok(Package {
        name: text(value, "name")?,
        folder: folder.to_string_lossy().into_owned(),
        manifest,
        needs,
        programs,
        // Cargo prints `publish = false` as an empty list of registries.
        publishable: value["publish"].as_array().is_none_or(|registries| !registries.is_empty()),
    })
}

fn array<'a>(value: &'a Value, key: &str) -> Result<&'a Vec<Value>> {
    value[key].as_array().with_context(|| format!("no list {key}"))
}

fn text(value: &Value, key: &str) -> Result<String> {
    value[key].as_str().map(str::to_owned).with_context(|| format!("no string {key}"))
}
