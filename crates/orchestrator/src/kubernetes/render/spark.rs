//! The container of Spark's driver, its service and its config map.
//!
//! When the pod terminates, the agent drains while Spark keeps running: a hook delays Spark's signal for as long as the agent
//! accepts connections, within the pod's grace.
//!
//! Spark shares only the pod's network with the agent: it has another user, no common process namespace, and none of the
//! agent's environment or files. Only Spark has a token of the service account, because it creates and deletes executors.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    ConfigMap, ConfigMapProjection, Container, DownwardAPIProjection, DownwardAPIVolumeFile, ExecAction, KeyToPath,
    Lifecycle, LifecycleHandler, ProjectedVolumeSource, Service, ServiceAccountTokenProjection, ServicePort,
    ServiceSpec, Volume, VolumeProjection,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use model::labels;

use super::{agent, executor, owned_metadata, passwd, properties, resources, secret, security};
use crate::kubernetes::config::Config;
use crate::kubernetes::names::{EXECUTOR_TEMPLATE, PASSWD, SPARK, SPARK_DIR};
use crate::{Error, Spec};

/// The volume with Spark's properties and the executor template.
const FILES: &str = "spark-files";
/// The volume with the token.
const TOKEN: &str = "spark-token";
/// Where API clients look for the token.
const TOKEN_DIR: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// The volumes that Spark may write to, with their mount paths. Spark's images also write below their own directory.
const SCRATCH: [(&str, &str); 3] =
    [("spark-tmp", "/tmp"), ("spark-local", "/var/data/spark-local"), ("spark-work", "/opt/spark/work-dir")];
/// The variable of Spark's environment with its scratch directories.
const LOCAL_DIRS_VARIABLE: &str = "SPARK_LOCAL_DIRS";
/// The variable of Spark's environment with the pod's address, for its hook.
const POD_ADDRESS_VARIABLE: &str = "POD_ADDRESS";
/// The lifetime of a token; the kubelet renews it.
const TOKEN_SECONDS: i64 = 3_607;

/// Spark's container, if the engine is Spark.
pub(super) fn container(spec: &Spec, config: &Config, users: security::Users) -> Option<Container> {
    let spark = spec.options.spark.as_ref()?;
    let mut mounts = vec![agent::mount(FILES, SPARK_DIR, true), agent::mount(TOKEN, TOKEN_DIR, true)];
    mounts.extend(passwd::line(spec, users).map(|_| passwd::mount(FILES)));
    mounts.extend(SCRATCH.iter().map(|(volume, path)| agent::mount(volume, path, false)));
    let own = [(LOCAL_DIRS_VARIABLE, SCRATCH[1].1)];
    let variables = spark.environment.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let variables = variables.filter(|(name, _)| ![LOCAL_DIRS_VARIABLE, POD_ADDRESS_VARIABLE].contains(name));
    let mut environment: Vec<_> =
        own.into_iter().chain(variables).map(|(name, value)| agent::variable(name, value)).collect();
    environment.push(agent::from_pod(POD_ADDRESS_VARIABLE, "status.podIP"));
    Some(Container {
        name: SPARK.to_owned(),
        image: Some(spec.image.clone()),
        command: Some(spark.argv.clone()),
        env: Some(environment),
        lifecycle: Some(Lifecycle {
            pre_stop: Some(LifecycleHandler {
                exec: Some(ExecAction { command: Some(wait_for_agent(config.agent_port)) }),
                ..LifecycleHandler::default()
            }),
            ..Lifecycle::default()
        }),
        ports: Some(vec![
            agent::port("driver", properties::DRIVER_PORT),
            agent::port("blocks", properties::BLOCK_PORT),
        ]),
        resources: Some(resources::engine(&spec.charge.driver.engine)),
        security_context: Some(security::container_context(users.spark)),
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        volume_mounts: Some(mounts),
        working_dir: Some(SCRATCH[2].1.to_owned()),
        ..Container::default()
    })
}

/// A command that returns once the agent accepts no more connections on the pod's address. Spark's images contain bash.
fn wait_for_agent(port: u16) -> Vec<String> {
    let script = format!("while (exec 3<>\"/dev/tcp/${POD_ADDRESS_VARIABLE}/{port}\") 2>/dev/null; do sleep 1; done");
    ["/bin/bash", "-c", &script].map(str::to_owned).to_vec()
}

pub(super) fn scratch_volumes() -> impl Iterator<Item = Volume> {
    SCRATCH.iter().map(|(volume, _)| agent::empty_dir(volume))
}

/// Spark's properties, from the Secret, and what is in the config map.
pub(super) fn files_volume(spec: &Spec, users: security::Users) -> Volume {
    let item = |key: &str| KeyToPath { key: key.to_owned(), mode: None, path: key.to_owned() };
    let mut items = vec![item(EXECUTOR_TEMPLATE)];
    items.extend(passwd::line(spec, users).map(|_| passwd::item()));
    let config_map = ConfigMapProjection { items: Some(items), name: spec.name.to_string(), optional: Some(false) };
    let sources = vec![
        VolumeProjection { secret: Some(secret::spark_properties(spec)), ..VolumeProjection::default() },
        VolumeProjection { config_map: Some(config_map), ..VolumeProjection::default() },
    ];
    Volume {
        name: FILES.to_owned(),
        projected: Some(ProjectedVolumeSource { default_mode: Some(agent::FILE_MODE), sources: Some(sources) }),
        ..Volume::default()
    }
}

/// The volume that Kubernetes would mount into every container if the service account's token were mounted automatically.
pub(super) fn token_volume() -> Volume {
    let token = VolumeProjection {
        service_account_token: Some(ServiceAccountTokenProjection {
            audience: None,
            expiration_seconds: Some(TOKEN_SECONDS),
            path: "token".to_owned(),
        }),
        ..VolumeProjection::default()
    };
    let authority = VolumeProjection {
        config_map: Some(ConfigMapProjection {
            items: Some(vec![KeyToPath { key: "ca.crt".to_owned(), mode: None, path: "ca.crt".to_owned() }]),
            name: "kube-root-ca.crt".to_owned(),
            optional: None,
        }),
        ..VolumeProjection::default()
    };
    let namespace = VolumeProjection {
        downward_api: Some(DownwardAPIProjection {
            items: Some(vec![DownwardAPIVolumeFile {
                path: "namespace".to_owned(),
                field_ref: Some(agent::field("metadata.namespace")),
                mode: None,
                resource_field_ref: None,
            }]),
        }),
        ..VolumeProjection::default()
    };
    Volume {
        name: TOKEN.to_owned(),
        projected: Some(ProjectedVolumeSource {
            default_mode: Some(0o444),
            sources: Some(vec![token, authority, namespace]),
        }),
        ..Volume::default()
    }
}

/// The headless service by which executors find the driver, even before it is ready.
pub(super) fn service(spec: &Spec) -> Service {
    let port = |name: &str, port: u16| ServicePort {
        name: Some(name.to_owned()),
        port: i32::from(port),
        protocol: Some("TCP".to_owned()),
        target_port: Some(IntOrString::Int(i32::from(port))),
        ..ServicePort::default()
    };
    // By labels that no executor shares. Labels are not unique, but a namespace belongs to one tenant.
    let selected = [(labels::NAME, spec.name.as_str()), (labels::ROLE, labels::ROLE_ENGINE)];
    Service {
        metadata: owned_metadata(spec),
        spec: Some(ServiceSpec {
            cluster_ip: Some("None".to_owned()),
            ports: Some(vec![port("driver", properties::DRIVER_PORT), port("blocks", properties::BLOCK_PORT)]),
            publish_not_ready_addresses: Some(true),
            selector: Some(selected.map(|(label, value)| (label.to_owned(), value.to_owned())).into()),
            ..ServiceSpec::default()
        }),
        status: None,
    }
}

/// The executor template, and the accounts of the image with that of the owner. Nothing in it is secret.
pub(super) fn config_map(spec: &Spec, config: &Config, users: security::Users) -> Result<ConfigMap, Error> {
    let mut data = BTreeMap::new();
    let template = serde_json::to_string_pretty(&executor::template(spec, config, users))
        .map_err(|error| Error::refused("could not serialize the executor template").caused_by(error))?;
    data.insert(EXECUTOR_TEMPLATE.to_owned(), template);
    data.extend(passwd::line(spec, users).map(|lines| (PASSWD.to_owned(), lines)));
    Ok(ConfigMap { metadata: owned_metadata(spec), data: Some(data), immutable: Some(true), ..ConfigMap::default() })
}
