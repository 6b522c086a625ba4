//! The security contexts of the *restricted* pod security standard: no root, no new privileges, no capabilities, the default
//! system call filter.

use k8s_openapi::api::core::v1::{Capabilities, PodSecurityContext, SeccompProfile, SecurityContext};

use crate::kubernetes::config::{AGENT_UID, Config};
use crate::{Error, Spec};

/// The user of Spark in Apache's images. It differs from the agent's, so that neither can inspect the other.
const SPARK_USER: u32 = 185;
/// The group of the files of volumes.
const GROUP: i64 = 10_001;

pub(super) fn pod_context() -> PodSecurityContext {
    PodSecurityContext {
        fs_group: Some(GROUP),
        run_as_non_root: Some(true),
        seccomp_profile: Some(SeccompProfile { type_: "RuntimeDefault".to_owned(), localhost_profile: None }),
        ..PodSecurityContext::default()
    }
}

/// The users of an engine's containers. An engine that runs as its owner has the owner's uid wherever statements are run: in Spark and
/// its executors, or in the agent that contains the engine.
#[derive(Debug, Clone, Copy)]
pub(super) struct Users {
    pub(super) agent: i64,
    pub(super) spark: i64,
}

impl Users {
    pub(super) fn new(spec: &Spec, config: &Config) -> Result<Self, Error> {
        let owner = spec.run_as.as_ref().map(|run_as| config.user_id(&run_as.user)).transpose()?;
        let has_spark = spec.options.spark.is_some();
        let agent = owner.filter(|_| !has_spark).unwrap_or(AGENT_UID);
        Ok(Self { agent: agent.into(), spark: owner.unwrap_or(SPARK_USER).into() })
    }
}

pub(super) fn container_context(user: i64) -> SecurityContext {
    SecurityContext {
        allow_privilege_escalation: Some(false),
        capabilities: Some(Capabilities { add: None, drop: Some(vec!["ALL".to_owned()]) }),
        privileged: Some(false),
        read_only_root_filesystem: Some(true),
        run_as_group: Some(user),
        run_as_non_root: Some(true),
        run_as_user: Some(user),
        ..SecurityContext::default()
    }
}
