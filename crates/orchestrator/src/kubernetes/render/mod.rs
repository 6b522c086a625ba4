//! Renders a spec to the objects of an engine: pure, and equal for equal specs.
//!
//! An engine is a pod with a scheduling gate, and a Secret with the agent's files, in which its keys are. A Spark engine is a
//! pod of two containers; it also has a headless service under which executors find the driver, and a config map with the
//! executor template. The pod owns the other objects; its uid is known only once it is created, so
//! [`OwnedObjects::with_owner`] adds it.

mod agent;
mod executor;
mod namespace;
mod network;
mod passwd;
mod placement;
mod properties;
mod resources;
mod secret;
mod security;
mod spark;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, LocalObjectReference, Pod, PodSchedulingGate, PodSpec, Secret, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use model::Epoch;
use model::engine_name::is_dns_label;

use super::config::Config;
use super::signature::Signer;
use super::{labels, names};
use crate::{Error, Spec};

pub use agent::{ADDRESS_VARIABLE, PORT_VARIABLE};
pub use namespace::{ENGINE_VERBS, NamespaceObjects, missing_policies, namespace};

/// The limit of bytes in the files of an engine. A Secret is limited to 1 MiB, and has Spark's properties too.
pub const MAX_FILES_BYTES: usize = 512 << 10;

/// The objects of one engine.
#[derive(Debug, Clone, PartialEq)]
pub struct EngineObjects {
    pub pod: Pod,
    /// The objects that are created after it.
    pub owned: OwnedObjects,
}

/// The other objects of a gated pod.
#[derive(Debug, Clone, PartialEq)]
pub struct OwnedObjects {
    pub secret: Secret,
    /// Of Spark only.
    pub service: Option<Service>,
    pub config_map: Option<ConfigMap>,
}

/// Refuses a spec that no pod can implement, in terms of the spec.
pub fn check(spec: &Spec, config: &Config) -> Result<(), Error> {
    spec.validate()?;
    let refuse = |reason: String| Err(Error::refused(reason));
    if let Some((label, _)) = config.selector.iter().find(|(label, value)| spec.labels.get(*label) != Some(*value)) {
        return refuse(format!("label \"{label}\" does not match the selector of this installation"));
    }
    for (label, value) in &spec.labels {
        labels::check_label(label, value)?;
    }
    for key in spec.annotations.keys() {
        labels::check_key(key)?;
    }
    for (label, value) in &spec.options.node_labels {
        labels::check_label(label, value)?;
    }
    if !is_dns_label(&spec.locality) {
        return refuse(format!("invalid namespace name \"{}\"", spec.locality));
    }
    if !config.covers(&spec.locality) {
        return refuse(format!("namespace \"{}\" is not listed in kubernetes.namespaces", spec.locality));
    }
    if spec.image.is_empty() {
        return refuse("no image: set one for the pool or in engines.images".to_owned());
    }
    let is_charged_for_spark = (spec.charge.driver.agent.is_some(), spec.charge.executors.is_some());
    if is_charged_for_spark != (spec.options.spark.is_some(), spec.options.spark.is_some()) {
        return refuse("the charge is not that of a pod of this engine type".to_owned());
    }
    if let Some(spark) = &spec.options.spark {
        labels::check_label(labels::SPARK_VERSION, &spark.version)?;
        if !spark.argv.first().is_some_and(|program| program.starts_with('/')) {
            return refuse("Spark's program is not an absolute path".to_owned());
        }
        if config.agent_image.is_empty() {
            return refuse("no image of the engine agent: set kubernetes.agent_image".to_owned());
        }
    }
    if spec.files.iter().map(|file| file.content.len()).sum::<usize>() > MAX_FILES_BYTES {
        return refuse(format!("more than {MAX_FILES_BYTES} bytes of files"));
    }
    security::Users::new(spec, config)?;
    passwd::check(spec)?;
    match spec.files.iter().find(|file| file.path == names::OWNER_UID) {
        Some(file) => refuse(format!("file \"{}\" has the name of one of ours", file.path)),
        None => Ok(()),
    }
}

pub fn engine(spec: &Spec, config: &Config, signer: &Signer, epoch: Epoch) -> Result<EngineObjects, Error> {
    check(spec, config)?;
    let users = security::Users::new(spec, config)?;
    let annotations = labels::engine_annotations(spec, epoch, signer);
    let mut containers = vec![agent::container(spec, config, users)];
    let mut volumes = vec![agent::scratch_volume(), secret::files_of_agent(spec)];
    let mut owned = OwnedObjects { secret: secret::secret(spec, config), service: None, config_map: None };
    if spec.options.spark.is_some() {
        volumes.extend([spark::files_volume(spec, users), spark::token_volume()]);
        volumes.extend(spark::scratch_volumes());
        containers.extend(spark::container(spec, config, users));
        owned.service = Some(spark::service(spec));
        owned.config_map = Some(spark::config_map(spec, config, users)?);
    }
    let pull_secrets = config.image_pull_secrets.iter().map(|name| LocalObjectReference { name: name.clone() });
    let pod = Pod {
        metadata: ObjectMeta {
            name: Some(spec.name.to_string()),
            namespace: Some(spec.locality.clone()),
            labels: Some(labels::engine_labels(spec)),
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
            // The kubelet would try to mount a Secret that does not exist yet, and again after a growing pause.
            scheduling_gates: Some(vec![PodSchedulingGate { name: names::GATE.to_owned() }]),
            security_context: Some(security::pod_context()),
            service_account_name: Some(config.service_account.clone()),
            share_process_namespace: Some(false),
            // Rounded up: a longer grace does less harm than a shorter one.
            termination_grace_period_seconds: Some(spec.grace.as_millis().div_ceil(1_000).max(1) as i64),
            tolerations: Some(placement::tolerations(spec)),
            volumes: Some(volumes),
            ..PodSpec::default()
        }),
        status: None,
    };
    Ok(EngineObjects { pod, owned })
}

impl OwnedObjects {
    /// The objects as owned by the pod with this name and uid, so that they are deleted with it.
    #[must_use]
    pub fn with_owner(&self, name: &str, uid: &str) -> Self {
        let owner = OwnerReference {
            api_version: "v1".to_owned(),
            kind: "Pod".to_owned(),
            name: name.to_owned(),
            uid: uid.to_owned(),
            controller: Some(true),
            block_owner_deletion: None,
        };
        let mut owned = self.clone();
        let Self { secret, service, config_map } = &mut owned;
        let service = service.as_mut().map(|service| &mut service.metadata);
        let config_map = config_map.as_mut().map(|config_map| &mut config_map.metadata);
        for metadata in [Some(&mut secret.metadata), service, config_map].into_iter().flatten() {
            metadata.owner_references = Some(vec![owner.clone()]);
        }
        let data = secret.data.get_or_insert_default();
        data.insert(names::OWNER_UID.to_owned(), ByteString(uid.as_bytes().to_vec()));
        owned
    }
}

/// Name, namespace and labels of an object that the pod will own.
fn owned_metadata(spec: &Spec) -> ObjectMeta {
    ObjectMeta {
        name: Some(spec.name.to_string()),
        namespace: Some(spec.locality.clone()),
        labels: Some(labels::engine_labels(spec)),
        ..ObjectMeta::default()
    }
}
