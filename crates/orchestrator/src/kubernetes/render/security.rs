//! The security contexts of the *restricted* pod security standard: no root, no new privileges, no capabilities, the default
//! system call filter.

use k8s_openapi::api::core::v1::{Capabilities, PodSecurityContext, SeccompProfile, SecurityContext};

/// The user of the engine agent.
pub(super) const AGENT_USER: i64 = 10_001;
/// The user of Spark in Apache's images. It differs from the agent's, so that neither can inspect the other.
pub(super) const SPARK_USER: i64 = 185;
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
