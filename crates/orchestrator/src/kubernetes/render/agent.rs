//! The container of the engine agent, its files, its probes.

use k8s_openapi::api::core::v1::{
    Container, ContainerPort, EmptyDirVolumeSource, EnvVar, EnvVarSource, HTTPGetAction, ObjectFieldSelector, Probe,
    Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{resources, security};
use crate::kubernetes::config::Config;
use crate::kubernetes::names::{AGENT, AGENT_DIR, SCRATCH_DIR};
use crate::{Spec, UID_VARIABLE};

/// The variable of the agent's environment that holds the pod's address.
pub const ADDRESS_VARIABLE: &str = "ENGINEHOUSE_ENGINE_ADDRESS";
/// The variable of the agent's environment that holds the port on which it accepts connections.
pub const PORT_VARIABLE: &str = "ENGINEHOUSE_ENGINE_PORT";
/// The volume with the agent's files.
pub(super) const FILES: &str = "agent-files";
/// The volume that the agent may write to.
const SCRATCH: &str = "agent-scratch";
/// The period of the startup probe.
const STARTUP_PERIOD_S: u64 = 2;
/// How much later than the agent the startup probe gives up: the agent then ends by itself and reports why.
const STARTUP_SLACK_S: u64 = 30;
/// The files of a volume belong to root and the pod's group; no other user may read them.
pub(super) const FILE_MODE: i32 = 0o440;

/// The agent, which contains the engine unless that is Spark.
pub(super) fn container(spec: &Spec, config: &Config, users: security::Users) -> Container {
    let has_spark = spec.options.spark.is_some();
    let mut environment: Vec<EnvVar> = spec.environment.iter().map(|(name, value)| variable(name, value)).collect();
    environment.push(from_pod(UID_VARIABLE, "metadata.uid"));
    environment.push(from_pod(ADDRESS_VARIABLE, "status.podIP"));
    environment.push(variable(PORT_VARIABLE, &config.agent_port.to_string()));
    Container {
        name: AGENT.to_owned(),
        image: Some(if has_spark { config.agent_image.clone() } else { spec.image.clone() }),
        command: Some(spec.argv.clone()),
        env: Some(environment),
        ports: Some(vec![port("agent", config.agent_port)]),
        resources: Some(match &spec.charge.driver.agent {
            Some(container) => resources::agent(container),
            None => resources::engine(&spec.charge.driver.engine),
        }),
        security_context: Some(security::container_context(users.agent)),
        // Succeeds after the warm-up query.
        startup_probe: Some(Probe {
            failure_threshold: Some(startup_tries(config)),
            period_seconds: Some(STARTUP_PERIOD_S as i32),
            timeout_seconds: Some(5),
            ..probe("/livez", config.agent_port)
        }),
        // A restart aborts the running statements, so it takes three minutes without a reply.
        liveness_probe: Some(Probe {
            failure_threshold: Some(9),
            period_seconds: Some(20),
            timeout_seconds: Some(10),
            ..probe("/livez", config.agent_port)
        }),
        readiness_probe: Some(Probe {
            period_seconds: Some(5),
            timeout_seconds: Some(5),
            ..probe("/readyz", config.agent_port)
        }),
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        volume_mounts: Some(vec![mount(FILES, AGENT_DIR, true), mount(SCRATCH, SCRATCH_DIR, false)]),
        working_dir: Some(AGENT_DIR.to_owned()),
        ..Container::default()
    }
}

pub(super) fn scratch_volume() -> Volume {
    empty_dir(SCRATCH)
}

pub(super) fn empty_dir(name: &str) -> Volume {
    Volume { name: name.to_owned(), empty_dir: Some(EmptyDirVolumeSource::default()), ..Volume::default() }
}

pub(super) fn mount(volume: &str, path: &str, read_only: bool) -> VolumeMount {
    VolumeMount {
        name: volume.to_owned(),
        mount_path: path.to_owned(),
        read_only: read_only.then_some(true),
        ..VolumeMount::default()
    }
}

pub(super) fn variable(name: &str, value: &str) -> EnvVar {
    // The kubelet would expand "$(NAME)"; values are literal.
    EnvVar { name: name.to_owned(), value: Some(value.replace("$(", "$$(")), value_from: None }
}

pub(super) fn from_pod(name: &str, path: &str) -> EnvVar {
    let source = EnvVarSource { field_ref: Some(field(path)), ..EnvVarSource::default() };
    EnvVar { name: name.to_owned(), value: None, value_from: Some(source) }
}

pub(super) fn field(path: &str) -> ObjectFieldSelector {
    ObjectFieldSelector { api_version: None, field_path: path.to_owned() }
}

pub(super) fn port(name: &str, port: u16) -> ContainerPort {
    ContainerPort { name: Some(name.to_owned()), container_port: i32::from(port), ..ContainerPort::default() }
}

fn startup_tries(config: &Config) -> i32 {
    let deadline_s = config.start_deadline.as_secs().saturating_add(STARTUP_SLACK_S);
    i32::try_from(deadline_s.div_ceil(STARTUP_PERIOD_S)).unwrap_or(i32::MAX)
}

/// An unauthenticated HTTP endpoint of the agent.
fn probe(path: &str, port: u16) -> Probe {
    let action = HTTPGetAction {
        path: Some(path.to_owned()),
        port: IntOrString::Int(i32::from(port)),
        ..HTTPGetAction::default()
    };
    Probe { http_get: Some(action), ..Probe::default() }
}
