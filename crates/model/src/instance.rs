//! Instances: what an engine runs in.

use serde::{Deserialize, Serialize};

/// What an engine runs in; the same for all engines of an installation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InstanceKind {
    /// A local process, with Spark as a child. Spark has no executors there, and an overcommit has no effect.
    #[default]
    Process,
    /// A pod of a Kubernetes cluster. Spark is a second container, and each executor a further pod.
    Pod,
}

impl InstanceKind {
    /// Whether a pool must name the nodes of its engines. A cluster is shared with other workloads; a machine is one node with
    /// any name.
    pub const fn needs_nodes(self) -> bool {
        match self {
            Self::Process => false,
            Self::Pod => true,
        }
    }
}
