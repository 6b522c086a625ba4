//! The spec of an engine, and the validation that every implementation shares.
//!
//! A spec is complete: the engine receives nothing else of the process that requests it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use model::charge::{Charge, Container, DriverPod};
use model::labels::{self, LabelMap};
use model::{EngineName, Generation};

use crate::Error;

/// The limit of words of a command line.
pub const MAX_ARGUMENTS: usize = 512;
/// The limit of files of a spec.
pub const MAX_FILES: usize = 32;
/// The limit of bytes in all files of a spec.
pub const MAX_FILES_BYTES: usize = 1 << 20;
/// The limit of labels, and of annotations, of a spec.
pub const MAX_LABELS: usize = 128;
/// The limit of variables of a spec's environment.
pub const MAX_VARIABLES: usize = 512;
/// The limit of folders of an instance's user.
pub const MAX_FOLDERS: usize = 8;
/// The default of [`LogPolicy::keep_bytes`].
pub const DEFAULT_LOG_BYTES: u64 = 16 << 20;

/// The desired state of one engine.
#[derive(Debug, Clone)]
pub struct Spec {
    /// Must equal the label `name`.
    pub name: EngineName,
    pub labels: LabelMap,
    /// The generation of the snapshot from which it was planned.
    pub generation: Generation,
    /// Additional annotations.
    pub annotations: BTreeMap<String, String>,
    /// Where the implementation creates it, in the implementation's own terms: the namespace of a Kubernetes cluster. An
    /// implementation without localities ignores it.
    pub locality: String,
    /// The image that it runs from; ignored by an implementation without images.
    pub image: String,
    /// The command line; the first word is the absolute path of the program.
    pub argv: Vec<String>,
    /// Files that are in its working directory when it starts.
    pub files: Vec<SpecFile>,
    pub environment: BTreeMap<String, String>,
    /// What its pods request; ignored by an implementation without pods.
    pub charge: Charge,
    /// The nodes that it may run on; `None` means any, and an empty list is refused.
    pub nodes: Option<Vec<String>>,
    /// How long it may take to end if something other than `delete` ends it (a node that is shut down).
    pub grace: Duration,
    pub log: LogPolicy,
    /// The user that it runs as; `None`: the account that the implementation gives every engine.
    pub run_as: Option<RunAs>,
    /// Options that only some implementations support; the others ignore them.
    pub options: InstanceOptions,
}

/// The user that an instance runs as. An implementation maps the name to a uid, or refuses the spec; it never runs as root, and never
/// falls back to the account of the service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunAs {
    pub user: String,
    /// Folders that belong to the user alone. They are created where the instance runs on this machine, each below a folder that the
    /// user may enter.
    pub folders: Vec<PathBuf>,
}

/// Options of an instance that not every implementation supports.
#[derive(Debug, Clone, Default)]
pub struct InstanceOptions {
    /// Labels that its node must have, in addition to the condition of [`Spec::nodes`].
    pub node_labels: BTreeMap<String, String>,
    /// Runs Spark next to its agent, in a separate container with the spec's image; `None`: the agent is the engine.
    pub spark: Option<Box<SparkOptions>>,
}

/// How Spark runs next to its agent.
#[derive(Debug, Clone)]
pub struct SparkOptions {
    /// The version of Spark in the image, for the label `spark-version`.
    pub version: String,
    /// The command line; the first word is the absolute path of the program.
    pub argv: Vec<String>,
    /// The environment, without the variables that the instance itself needs.
    pub environment: BTreeMap<String, String>,
    /// Properties of Spark from the installation, the unit and its agent. The ones that the instance itself needs take
    /// precedence.
    pub properties: BTreeMap<String, String>,
    pub min_executors: u32,
    pub max_executors: u32,
}

/// A file for an engine.
#[derive(Clone, PartialEq, Eq)]
pub struct SpecFile {
    /// Relative to the engine's working directory; without `..`.
    pub path: String,
    /// May be secret: never printed, never logged.
    pub content: Vec<u8>,
    /// The permission bits, such as `0o600`.
    pub mode: u32,
}

impl fmt::Debug for SpecFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpecFile").field("path", &self.path).field("bytes", &self.content.len()).finish_non_exhaustive()
    }
}

/// How much of an engine's output is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogPolicy {
    /// The newest bytes are kept. For a moment, up to twice as many are on disk.
    pub keep_bytes: u64,
}

impl Default for LogPolicy {
    fn default() -> Self {
        Self { keep_bytes: DEFAULT_LOG_BYTES }
    }
}

impl Spec {
    /// A spec without optional parts: no files, no environment, minimal resources, any node, no grace.
    pub fn new(name: EngineName, argv: Vec<String>) -> Self {
        Self {
            labels: LabelMap::from([(labels::NAME.to_owned(), name.to_string())]),
            name,
            generation: Generation(0),
            annotations: BTreeMap::new(),
            locality: String::new(),
            image: String::new(),
            argv,
            files: Vec::new(),
            environment: BTreeMap::new(),
            charge: Charge {
                driver: DriverPod {
                    engine: Container {
                        cpu_millis: 1,
                        cpu_request_millis: 1,
                        memory_bytes: 1 << 20,
                        overhead_bytes: 0,
                    },
                    agent: None,
                },
                executors: None,
            },
            nodes: None,
            grace: Duration::ZERO,
            log: LogPolicy::default(),
            run_as: None,
            options: InstanceOptions::default(),
        }
    }

    /// Refuses a spec from which no orchestrator could create an engine.
    pub fn validate(&self) -> Result<(), Error> {
        let refuse = |reason: String| Err(Error::refused(reason));
        match self.labels.get(labels::NAME) {
            Some(label) if label == self.name.as_str() => {}
            Some(other) => return refuse(format!("label \"name\" is \"{other}\" instead of \"{}\"", self.name)),
            None => return refuse(format!("label \"name\" is missing; it must be \"{}\"", self.name)),
        }
        if self.labels.len() > MAX_LABELS || self.annotations.len() > MAX_LABELS {
            return refuse(format!("more than {MAX_LABELS} labels or annotations"));
        }
        if self.argv.len() > MAX_ARGUMENTS || self.argv.iter().any(|word| word.contains('\0')) {
            return refuse(format!("more than {MAX_ARGUMENTS} arguments, or a zero byte in one"));
        }
        if !self.argv.first().is_some_and(|program| Path::new(program).is_absolute()) {
            return refuse("the program is not an absolute path".to_owned());
        }
        if self.environment.len() > MAX_VARIABLES {
            return refuse(format!("more than {MAX_VARIABLES} variables"));
        }
        if let Some(name) =
            self.environment.iter().find_map(|(name, value)| (!is_variable(name, value)).then_some(name))
        {
            return refuse(format!("invalid environment variable \"{name}\""));
        }
        if self.nodes.as_ref().is_some_and(Vec::is_empty) {
            return refuse("the node list is empty".to_owned());
        }
        if let Some(run_as) = &self.run_as {
            run_as.validate()?;
        }
        self.validate_files()
    }

    fn validate_files(&self) -> Result<(), Error> {
        let bytes: usize = self.files.iter().map(|file| file.content.len()).sum();
        if self.files.len() > MAX_FILES || bytes > MAX_FILES_BYTES {
            return Err(Error::refused(format!("more than {MAX_FILES} files or {MAX_FILES_BYTES} bytes in them")));
        }
        let mut paths = BTreeSet::new();
        for file in &self.files {
            let is_inside = !file.path.is_empty()
                && Path::new(&file.path).components().all(|part| matches!(part, Component::Normal(_)));
            if !is_inside || file.path.contains('\0') || !paths.insert(&file.path) {
                return Err(Error::refused(format!(
                    "file \"{}\" is not a unique path inside the working directory",
                    file.path
                )));
            }
        }
        Ok(())
    }
}

impl RunAs {
    fn validate(&self) -> Result<(), Error> {
        if self.user.is_empty() || self.user.contains('\0') {
            return Err(Error::refused("the user to run as has no name"));
        }
        let is_plain = |folder: &&PathBuf| {
            folder.is_absolute() && !folder.components().any(|part| matches!(part, Component::ParentDir))
        };
        match self.folders.iter().find(|folder| !is_plain(folder)) {
            Some(folder) if self.folders.len() <= MAX_FOLDERS => {
                Err(Error::refused(format!("folder \"{}\" is not an absolute path", folder.display())))
            }
            None if self.folders.len() <= MAX_FOLDERS => Ok(()),
            _ => Err(Error::refused(format!("more than {MAX_FOLDERS} folders"))),
        }
    }
}

fn is_variable(name: &str, value: &str) -> bool {
    !name.is_empty() && !name.contains(['=', '\0']) && !value.contains('\0')
}
