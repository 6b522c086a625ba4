//! The names of the objects, containers and files of an engine.
//!
//! Pod, Secret, headless service and config map have the engine's name, which is a DNS label that begins with a letter and is never
//! reused.

use model::engine_name::{dns_label, is_dns_label};

/// The first container: the engine agent, which contains the engine unless that is Spark.
pub const AGENT: &str = "engine-agent";
pub const SPARK: &str = "spark";
/// The container of an executor; the name that Spark uses.
pub const EXECUTOR: &str = "spark-kubernetes-executor";
/// The agent's working directory, with the spec's files.
pub const AGENT_DIR: &str = "/run/enginehouse";
/// Where the agent may write; deleted with the pod.
pub const SCRATCH_DIR: &str = "/var/lib/enginehouse";
/// The directory of Spark's properties and the executor template.
pub const SPARK_DIR: &str = "/etc/enginehouse-spark";
/// The file of Spark's properties, below [`SPARK_DIR`] and in the Secret.
pub const SPARK_PROPERTIES: &str = "spark.properties";
/// The file of the executor template, below [`SPARK_DIR`] and in the config map.
pub const EXECUTOR_TEMPLATE: &str = "executor-template.json";
/// The uid of the pod that a Secret is for: a key in it, and a file in [`AGENT_DIR`].
pub const OWNER_UID: &str = "owner-uid";
/// The file of accounts in the config map.
pub const PASSWD: &str = "passwd";
/// The scheduling gate of a pod whose other objects do not exist yet.
pub const GATE: &str = "enginehouse.io/incomplete";
/// The key of the taint of nodes that belong to a pool; its value is the pool's name.
pub const POOL_TAINT: &str = "enginehouse.io/pool";
/// The annotation of a namespace that a master created: the names of the network policies that it was created with. Older
/// versions did not set it.
pub const POLICIES_ANNOTATION: &str = "enginehouse.io/network-policies";
/// The prefix of the name of the config map with the epoch.
const EPOCH: &str = "enginehouse-epoch";

/// The config map that holds the highest epoch of an installation.
pub fn epoch_config_map(cluster: &str) -> String {
    let stem = dns_label(cluster, 63 - EPOCH.len() - 1);
    if is_dns_label(&stem) { format!("{EPOCH}-{stem}") } else { EPOCH.to_owned() }
}

/// The key of a file in the Secret. A path may contain characters that a key may not.
pub fn file_key(index: usize) -> String {
    format!("file-{index}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_installation_has_its_own_epoch_config_map() {
        assert_eq!(epoch_config_map("eh_1"), "enginehouse-epoch-eh-1");
        assert!(is_dns_label(&epoch_config_map(&"a".repeat(200))));
        assert_eq!(epoch_config_map("ä"), "enginehouse-epoch");
    }
}
