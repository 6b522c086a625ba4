//! How objects, containers, volumes and files of an engine are called.
//!
//! Pod, headless service and config map bear the engine's name, which is a DNS label that begins with a letter and is
//! never used twice.

use model::engine_name::{dns_label, is_dns_label};

/// The first container: the engine agent, and in it the engine unless that is Spark.
pub const AGENT: &str = "engine-agent";
/// The container of Spark.
pub const SPARK: &str = "spark";
/// The container of an executor, as Spark calls it.
pub const EXECUTOR: &str = "spark-kubernetes-executor";
/// The working directory of the agent, with the spec's files.
pub const AGENT_DIR: &str = "/run/enginehouse";
/// Where the agent may write; gone with the pod.
pub const SCRATCH_DIR: &str = "/var/lib/enginehouse";
/// Where Spark finds its properties and the executors' template.
pub const SPARK_DIR: &str = "/etc/enginehouse-spark";
/// Spark's properties, below [`SPARK_DIR`] and in the config map.
pub const SPARK_PROPERTIES: &str = "spark.properties";
/// The executors' template, below [`SPARK_DIR`] and in the config map.
pub const EXECUTOR_TEMPLATE: &str = "executor-template.json";
/// The scheduling gate of a pod whose other objects are not made yet.
pub const GATE: &str = "enginehouse.io/incomplete";
/// The key of the taint on nodes that belong to a pool; its value is the pool's name.
pub const POOL_TAINT: &str = "enginehouse.io/pool";
/// The annotation of a namespace that a master made: the names of the network policies that it was made with. One of an earlier
/// version has none.
pub const POLICIES_ANNOTATION: &str = "enginehouse.io/network-policies";
/// The prefix of the config map with the epoch.
const EPOCH: &str = "enginehouse-epoch";

/// The config map that holds the highest epoch of an installation.
pub fn epoch_config_map(cluster: &str) -> String {
    let stem = dns_label(cluster, 63 - EPOCH.len() - 1);
    if is_dns_label(&stem) { format!("{EPOCH}-{stem}") } else { EPOCH.to_owned() }
}

/// The key of the spec's file in the config map: a path may hold what a key may not.
pub fn file_key(index: usize) -> String {
    format!("file-{index}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_epoch_of_each_installation_has_an_object_of_its_own() {
        assert_eq!(epoch_config_map("eh_1"), "enginehouse-epoch-eh-1");
        assert!(is_dns_label(&epoch_config_map(&"a".repeat(200))));
        assert_eq!(epoch_config_map("ä"), "enginehouse-epoch");
    }
}
