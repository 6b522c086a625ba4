//! What an engine is made from, and the rules that hold for it everywhere.
//!
//! A spec is complete: nothing of the process that asks for it reaches the engine, except what stands here.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Component, Path};
use std::time::Duration;

use model::engine_type::ResourceRequests;
use model::labels::{self, LabelMap};
use model::quantity::{Cpu, Memory};
use model::{EngineName, Generation};

use crate::Error;

/// Words of a command line at most.
pub const MAX_ARGUMENTS: usize = 512;
/// Files of a spec at most.
pub const MAX_FILES: usize = 32;
/// Bytes of all files of a spec at most.
pub const MAX_FILES_BYTES: usize = 1 << 20;
/// Labels and annotations of a spec at most, each.
pub const MAX_LABELS: usize = 128;
/// Variables of a spec's environment at most.
pub const MAX_VARIABLES: usize = 512;
/// The log of one engine that is kept, in bytes, when the spec says nothing else.
pub const DEFAULT_LOG_BYTES: u64 = 16 << 20;

/// The wish for one engine.
#[derive(Debug, Clone)]
pub struct Spec {
    /// Its name; label `name` must say the same.
    pub name: EngineName,
    /// Its labels.
    pub labels: LabelMap,
    /// The generation of the snapshot from which it was planned.
    pub generation: Generation,
    /// Further annotations.
    pub annotations: BTreeMap<String, String>,
    /// The namespace that it belongs to; an orchestrator without namespaces only keeps the label.
    pub namespace: String,
    /// The image that it runs from; empty, and of no meaning, where the orchestrator needs none.
    pub image: String,
    /// Its command line; the first word is the absolute path of the program.
    pub argv: Vec<String>,
    /// Files that stand in its working directory when it starts.
    pub files: Vec<SpecFile>,
    /// Its environment.
    pub environment: BTreeMap<String, String>,
    /// What it asks of the place where it runs.
    pub requests: ResourceRequests,
    /// The nodes that it may run on; `None`: any; empty: none, which is refused.
    pub nodes: Option<Vec<String>>,
    /// How long it may take to end when somebody other than `delete` ends it (a node that is shut down).
    pub grace: Duration,
    /// What is kept of its output.
    pub log: LogPolicy,
    /// What it needs besides where engines are pods; other orchestrators take no notice of it.
    pub pod: PodWish,
}

/// What an engine needs besides when it is a pod.
#[derive(Debug, Clone, Default)]
pub struct PodWish {
    /// CPU that may be promised for each 100 that are there; `None` is 100. Divides the requests, never the limits.
    pub cpu_overcommit_percent: Option<u32>,
    /// Labels that its node must have, besides those that [`Spec::nodes`] asks for.
    pub node_labels: BTreeMap<String, String>,
    /// Spark beside its agent, in a container of its own with the spec's image; `None`: the agent is the engine.
    pub spark: Option<Box<SparkWish>>,
}

/// What Spark needs besides its agent.
#[derive(Debug, Clone)]
pub struct SparkWish {
    /// The version of Spark in the image: label `spark-version`.
    pub version: String,
    /// Its command line; the first word is the absolute path of the program.
    pub argv: Vec<String>,
    /// Its environment, besides what the pod needs.
    pub environment: BTreeMap<String, String>,
    /// Properties of Spark that the installation and the unit ask for, and what its agent needs. What the pod needs to
    /// work stands above them.
    pub properties: BTreeMap<String, String>,
    /// Memory of the driver's heap, without overhead.
    pub driver_memory: Memory,
    /// CPU of each executor.
    pub executor_cpu: Cpu,
    /// Memory of each executor's heap, without overhead.
    pub executor_memory: Memory,
    /// Executors at rest.
    pub min_executors: u32,
    /// Executors at most.
    pub max_executors: u32,
}

/// A file for an engine.
#[derive(Clone, PartialEq, Eq)]
pub struct SpecFile {
    /// Where, relative to the engine's working directory; without `..`.
    pub path: String,
    /// What stands in it. May be secret: never printed, never logged.
    pub content: Vec<u8>,
    /// Its permissions, such as `0o600`.
    pub mode: u32,
}

impl fmt::Debug for SpecFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpecFile").field("path", &self.path).field("bytes", &self.content.len()).finish_non_exhaustive()
    }
}

/// What is kept of an engine's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogPolicy {
    /// Bytes at most; the newest are kept. At most twice as many are on the disk for a moment.
    pub keep_bytes: u64,
}

impl Default for LogPolicy {
    fn default() -> Self {
        Self { keep_bytes: DEFAULT_LOG_BYTES }
    }
}

impl Spec {
    /// Refuses what no orchestrator could make an engine from.
    pub fn validate(&self) -> Result<(), Error> {
        let refuse = |reason: String| Err(Error::Refused { reason });
        match self.labels.get(labels::NAME) {
            Some(label) if label == self.name.as_str() => {}
            other => return refuse(format!("label \"name\" is {other:?} and not \"{}\"", self.name)),
        }
        if self.labels.len() > MAX_LABELS || self.annotations.len() > MAX_LABELS {
            return refuse(format!("more than {MAX_LABELS} labels or annotations"));
        }
        if self.argv.len() > MAX_ARGUMENTS || self.argv.iter().any(|word| word.contains('\0')) {
            return refuse(format!("more than {MAX_ARGUMENTS} arguments, or a zero byte in one"));
        }
        if !self.argv.first().is_some_and(|program| Path::new(program).is_absolute()) {
            return refuse("the program is not named by an absolute path".to_owned());
        }
        if self.environment.len() > MAX_VARIABLES {
            return refuse(format!("more than {MAX_VARIABLES} variables"));
        }
        if let Some(name) =
            self.environment.iter().find_map(|(name, value)| (!is_variable(name, value)).then_some(name))
        {
            return refuse(format!("variable \"{name}\" can't be set"));
        }
        if self.nodes.as_ref().is_some_and(Vec::is_empty) {
            return refuse("the node list is empty: it may run nowhere".to_owned());
        }
        self.validate_files()
    }

    fn validate_files(&self) -> Result<(), Error> {
        let bytes: usize = self.files.iter().map(|file| file.content.len()).sum();
        if self.files.len() > MAX_FILES || bytes > MAX_FILES_BYTES {
            return Err(Error::refused(format!("more than {MAX_FILES} files or {MAX_FILES_BYTES} bytes in them")));
        }
        let mut seen = BTreeSet::new();
        for file in &self.files {
            let inside = !file.path.is_empty()
                && Path::new(&file.path).components().all(|part| matches!(part, Component::Normal(_)));
            if !inside || file.path.contains('\0') || !seen.insert(&file.path) {
                return Err(Error::refused(format!(
                    "file \"{}\" is not one path inside the working directory",
                    file.path
                )));
            }
        }
        Ok(())
    }
}

fn is_variable(name: &str, value: &str) -> bool {
    !name.is_empty() && !name.contains(['=', '\0']) && !value.contains('\0')
}
