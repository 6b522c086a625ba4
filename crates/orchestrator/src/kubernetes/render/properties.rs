//! Spark's properties: those of the spec, overridden by those that the pod needs.
//!
//! The properties by which the agent finds Spark's server are among the spec's: they are the same wherever Spark runs.

use std::collections::BTreeMap;

use model::charge::ExecutorPods;

use super::resources;
use crate::kubernetes::config::Config;
use crate::kubernetes::names::{EXECUTOR_TEMPLATE, SPARK_DIR};
use crate::kubernetes::{labels, names};
use crate::{SparkOptions, Spec};

/// Where executors reach the driver.
pub(super) const DRIVER_PORT: u16 = 7_078;
/// Where executors fetch blocks from the driver.
pub(super) const BLOCK_PORT: u16 = 7_079;

/// All properties, by key.
pub(super) fn all(spec: &Spec, spark: &SparkOptions, config: &Config) -> BTreeMap<String, String> {
    let mut all = spark.properties.clone();
    let mut set = |key: &str, value: String| drop(all.insert(key.to_owned(), value));
    set("spark.app.id", labels::spark_app_id(spec));
    set("spark.app.name", spec.name.to_string());
    set("spark.master", master(spec, spark, config));
    set("spark.submit.deployMode", "client".to_owned());
    set("spark.driver.bindAddress", "0.0.0.0".to_owned());
    set("spark.driver.host", format!("{}.{}.svc", spec.name, spec.locality));
    set("spark.driver.port", DRIVER_PORT.to_string());
    set("spark.driver.blockManager.port", BLOCK_PORT.to_string());
    set("spark.driver.memory", memory(spec.charge.driver.engine.memory_bytes));
    if let Some(ExecutorPods { container, .. }) = spec.charge.executors {
        // Spark requests the sum of both for each executor.
        set("spark.executor.memory", memory(container.memory_bytes));
        set("spark.executor.memoryOverhead", memory(container.overhead_bytes));
        set("spark.executor.cores", threads(container.cpu_millis).to_string());
        set("spark.kubernetes.executor.request.cores", resources::cpu(container.cpu_request_millis));
        set("spark.kubernetes.executor.limit.cores", resources::cpu(container.cpu_millis));
    }
    set("spark.kubernetes.namespace", spec.locality.clone());
    set("spark.kubernetes.driver.pod.name", spec.name.to_string());
    set("spark.kubernetes.container.image", spec.image.clone());
    set("spark.kubernetes.authenticate.serviceAccountName", config.service_account.clone());
    // Executors are configured by their template only: the role in the namespace covers nothing but pods.
    set("spark.kubernetes.executor.disableConfigMap", "true".to_owned());
    set("spark.kubernetes.executor.podTemplateFile", format!("{SPARK_DIR}/{EXECUTOR_TEMPLATE}"));
    set("spark.kubernetes.executor.podTemplateContainerName", names::EXECUTOR.to_owned());
    set("spark.kubernetes.executor.podNamePrefix", executor_prefix(spec));
    set("spark.dynamicAllocation.enabled", (spark.min_executors != spark.max_executors).to_string());
    if spark.max_executors == 0 {
        // Spark refuses 0 as a number of executors, even if it would create none.
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

/// Spark refuses a prefix of more than 47 characters. The end of the name is kept: it has the incarnation and the hash.
fn executor_prefix(spec: &Spec) -> String {
    let name = spec.name.as_str();
    let kept = &name[name.len().saturating_sub(47)..];
    let start = kept.find(|c: char| c.is_ascii_lowercase()).unwrap_or(0);
    kept[start..].to_owned()
}

/// A driver that may have no executors runs tasks in its own threads; otherwise it could not run any.
fn master(spec: &Spec, spark: &SparkOptions, config: &Config) -> String {
    if spark.max_executors == 0 {
        return format!("local[{}]", threads(spec.charge.driver.engine.cpu_millis));
    }
    format!("k8s://{}", config.api_server)
}

/// The number of threads that can use this much CPU.
fn threads(cpu_millis: u64) -> u64 {
    cpu_millis.div_ceil(1_000).max(1)
}

/// In the format of Spark, whose `m` is MiB.
fn memory(bytes: u64) -> String {
    format!("{}m", resources::mebibytes(bytes))
}
