//! Spark's properties: what the unit asks for, and above it what the pod needs to work.
//!
//! What its server needs for the agent to find it is among the wish's own: it is the same wherever Spark runs.

use std::collections::BTreeMap;

use super::resources;
use crate::kubernetes::config::Config;
use crate::kubernetes::names::{EXECUTOR_TEMPLATE, SPARK_DIR};
use crate::kubernetes::{marks, names};
use crate::{SparkWish, Spec};

/// Where executors reach the driver.
pub(super) const DRIVER_PORT: u16 = 7_078;
/// Where executors fetch blocks from the driver.
pub(super) const BLOCK_PORT: u16 = 7_079;

/// All properties, by key.
pub(super) fn all(spec: &Spec, spark: &SparkWish, config: &Config) -> BTreeMap<String, String> {
    let mut all = spark.properties.clone();
    let mut set = |key: &str, value: String| drop(all.insert(key.to_owned(), value));
    set("spark.app.id", marks::spark_app_id(spec));
    set("spark.app.name", spec.name.to_string());
    set("spark.master", master(spec, spark, config));
    set("spark.submit.deployMode", "client".to_owned());
    set("spark.driver.bindAddress", "0.0.0.0".to_owned());
    set("spark.driver.host", format!("{}.{}.svc", spec.name, spec.namespace));
    set("spark.driver.port", DRIVER_PORT.to_string());
    set("spark.driver.blockManager.port", BLOCK_PORT.to_string());
    set("spark.driver.memory", heap(spark.driver_memory.bytes()));
    set("spark.executor.memory", heap(spark.executor_memory.bytes()));
    set("spark.executor.memoryOverhead", format!("{}m", resources::overhead_mib(spark.executor_memory.bytes())));
    set("spark.executor.cores", spark.executor_cpu.threads().to_string());
    let cpu = spark.executor_cpu.millis();
    let asked = resources::overcommitted(cpu, spec.pod.cpu_overcommit_percent);
    set("spark.kubernetes.executor.request.cores", resources::cpu(asked));
    set("spark.kubernetes.executor.limit.cores", resources::cpu(cpu));
    set("spark.kubernetes.namespace", spec.namespace.clone());
    set("spark.kubernetes.driver.pod.name", spec.name.to_string());
    set("spark.kubernetes.container.image", spec.image.clone());
    set("spark.kubernetes.authenticate.serviceAccountName", config.service_account.clone());
    // Executors get everything from their template: the role in the namespace is about pods only.
    set("spark.kubernetes.executor.disableConfigMap", "true".to_owned());
    set("spark.kubernetes.executor.podTemplateFile", format!("{SPARK_DIR}/{EXECUTOR_TEMPLATE}"));
    set("spark.kubernetes.executor.podTemplateContainerName", names::EXECUTOR.to_owned());
    set("spark.kubernetes.executor.podNamePrefix", executor_prefix(spec));
    set("spark.dynamicAllocation.enabled", (spark.min_executors != spark.max_executors).to_string());
    if spark.max_executors == 0 {
        // Spark refuses 0 as a number of executors, also where nobody would make any.
        all.remove("spark.executor.instances");
    } else if spark.min_executors == spark.max_executors {
        set("spark.executor.instances", spark.max_executors.to_string());
    } else {
        set("spark.dynamicAllocation.shuffleTracking.enabled", "true".to_owned());
        set("spark.dynamicAllocation.minExecutors", spark.min_executors.to_string());
        set("spark.dynamicAllocation.initialExecutors", spark.min_executors.to_string());
        set("spark.dynamicAllocation.maxExecutors", spark.max_executors.to_string());
    }
    all
}

/// Spark refuses a prefix of more than 47 characters; the end of the name has the incarnation and the hash.
fn executor_prefix(spec: &Spec) -> String {
    let name = spec.name.as_str();
    let kept = &name[name.len().saturating_sub(47)..];
    let begins = kept.find(|c: char| c.is_ascii_lowercase()).unwrap_or(0);
    kept[begins..].to_owned()
}

/// Where the driver works: its own threads if it may have no executor, which could otherwise never run anything.
fn master(spec: &Spec, spark: &SparkWish, config: &Config) -> String {
    if spark.max_executors == 0 {
        return format!("local[{}]", spec.requests.driver_cpu_millis.div_ceil(1_000).max(1));
    }
    format!("k8s://{}", config.api_server)
}

fn heap(bytes: u64) -> String {
    format!("{}m", bytes.div_ceil(1 << 20))
}
