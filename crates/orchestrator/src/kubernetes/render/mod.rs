//! From a spec to the objects of an engine: pure, and equal for equal specs.
//!
//! An engine without executors is one pod. A Spark engine is a pod of two containers with a scheduling gate, a headless
//! service under which executors find the driver, and a config map with the agent's file, Spark's properties and the
//! executors' template; service and config map bear the pod's uid as owner, which is known only when the pod is made, so
//! [`Rest::owned`] makes them from the answer.

mod agent;
mod executor;
mod namespace;
mod network;
mod placement;
mod properties;
mod resources;
mod security;
mod spark;

use k8s_openapi::api::core::v1::{ConfigMap, LocalObjectReference, Pod, PodSchedulingGate, PodSpec, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use model::Epoch;
use model::engine_name::is_dns_label;

use super::config::Config;
use super::signature::Signer;
use super::{marks, names};
use crate::{Error, Spec};

pub use agent::{ADDRESS_VARIABLE, PORT_VARIABLE};
pub use namespace::{ENGINE_VERBS, Room, lacking, room};

/// Bytes of files that an engine without executors may have: they are annotations, of which a pod has 256 KiB.
pub const MAX_ANNOTATED_BYTES: usize = 200 << 10;

/// The objects of one engine.
#[derive(Debug, Clone, PartialEq)]
pub struct Objects {
    /// The pod.
    pub pod: Pod,
    /// What is made after it; `None` for an engine that is one object.
    pub rest: Option<Rest>,
}

/// What a pod with a gate needs besides; without its owner.
#[derive(Debug, Clone, PartialEq)]
pub struct Rest {
    service: Service,
    config_map: ConfigMap,
}

/// Refuses what no pod could be made from, in words about the spec.
pub fn check(spec: &Spec, config: &Config) -> Result<(), Error> {
    spec.validate()?;
    let refuse = |reason: String| Err(Error::refused(reason));
    if let Some((label, _)) = config.selector.iter().find(|(label, value)| spec.labels.get(*label) != Some(*value)) {
        return refuse(format!("label \"{label}\" is not this installation's: the engine would never be listed"));
    }
    for (label, value) in &spec.labels {
        marks::check_label(label, value)?;
    }
    for key in spec.annotations.keys() {
        marks::check_key(key)?;
    }
    for (label, value) in &spec.pod.node_labels {
        marks::check_label(label, value)?;
    }
    if !is_dns_label(&spec.namespace) {
        return refuse(format!("\"{}\" is no name of a namespace", spec.namespace));
    }
    if !config.covers(&spec.namespace) {
        return refuse(format!(
            "namespace \"{}\" is not one of kubernetes.namespaces: the engine would never be listed",
            spec.namespace
        ));
    }
    if spec.image.is_empty() {
        return refuse("no image: neither the pool nor the configuration (engines.images) names one".to_owned());
    }
    if spec.pod.cpu_overcommit_percent == Some(0) {
        return refuse("the CPU overcommit is 0 percent".to_owned());
    }
    if let Some(spark) = &spec.pod.spark {
        marks::check_label(marks::SPARK_VERSION, &spark.version)?;
        if !spark.argv.first().is_some_and(|program| program.starts_with('/')) {
            return refuse("Spark's program is not named by an absolute path".to_owned());
        }
        if config.agent_image.is_empty() {
            return refuse("no image of the engine agent beside Spark: kubernetes.agent_image names none".to_owned());
        }
    } else if spec.files.iter().map(|file| file.content.len()).sum::<usize>() > MAX_ANNOTATED_BYTES {
        return refuse(format!("more than {MAX_ANNOTATED_BYTES} bytes of files"));
    }
    match spec.files.iter().find(|file| std::str::from_utf8(&file.content).is_err()) {
        Some(file) => refuse(format!("file \"{}\" is not text", file.path)),
        None => Ok(()),
    }
}

/// The objects of the engine.
pub fn engine(spec: &Spec, config: &Config, signer: &Signer, epoch: Epoch) -> Result<Objects, Error> {
    check(spec, config)?;
    let mut annotations = marks::annotations_of(spec, epoch, signer);
    let mut containers = vec![agent::container(spec, config)];
    let mut volumes = vec![agent::scratch_volume()];
    let mut gates = None;
    let rest = if spec.pod.spark.is_some() {
        volumes.extend([agent::files_from_config_map(spec), spark::files_volume(spec), spark::token_volume()]);
        volumes.extend(spark::scratch_volumes());
        containers.extend(spark::container(spec, config));
        gates = Some(vec![PodSchedulingGate { name: names::GATE.to_owned() }]);
        Some(Rest { service: spark::service(spec), config_map: spark::config_map(spec, config)? })
    } else {
        volumes.push(agent::files_from_annotations(spec));
        annotations.extend(agent::file_annotations(spec));
        None
    };
    let pull_secrets = config.image_pull_secrets.iter().map(|name| LocalObjectReference { name: name.clone() });
    let pod = Pod {
        metadata: ObjectMeta {
            name: Some(spec.name.to_string()),
            namespace: Some(spec.namespace.clone()),
            labels: Some(marks::of_engine(spec)),
            annotations: Some(annotations),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec {
            affinity: placement::affinity(spec),
            automount_service_account_token: Some(false),
            containers,
            enable_service_links: Some(false),
            image_pull_secrets: (!config.image_pull_secrets.is_empty()).then(|| pull_secrets.collect()),
            restart_policy: Some("Never".to_owned()),
            scheduling_gates: gates,
            security_context: Some(security::of_pod()),
            service_account_name: Some(config.service_account.clone()),
            share_process_namespace: Some(false),
            // A part of a second more is better than one less.
            termination_grace_period_seconds: Some(spec.grace.as_millis().div_ceil(1_000).max(1) as i64),
            tolerations: Some(placement::tolerations(spec)),
            volumes: Some(volumes),
            ..PodSpec::default()
        }),
        status: None,
    };
    Ok(Objects { pod, rest })
}

impl Rest {
    /// Service and config map, owned by the pod of that name and uid: they go when it goes.
    pub fn owned(&self, name: &str, uid: &str) -> (Service, ConfigMap) {
        let owner = OwnerReference {
            api_version: "v1".to_owned(),
            kind: "Pod".to_owned(),
            name: name.to_owned(),
            uid: uid.to_owned(),
            controller: Some(true),
            block_owner_deletion: None,
        };
        let (mut service, mut config_map) = (self.service.clone(), self.config_map.clone());
        service.metadata.owner_references = Some(vec![owner.clone()]);
        config_map.metadata.owner_references = Some(vec![owner]);
        (service, config_map)
    }
}

/// Name, namespace and labels of what belongs to an engine besides its pod.
fn metadata_beside(spec: &Spec) -> ObjectMeta {
    ObjectMeta {
        name: Some(spec.name.to_string()),
        namespace: Some(spec.namespace.clone()),
        labels: Some(marks::of_engine(spec)),
        ..ObjectMeta::default()
    }
}
