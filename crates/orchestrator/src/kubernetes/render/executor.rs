//! The pod template of Spark's executors: labels, placement, security. Sizes and image are Spark properties.

use k8s_openapi::api::core::v1::{ConfigMapVolumeSource, Container, LocalObjectReference, Pod, PodSpec, Volume};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{agent, passwd, placement, security};
use crate::Spec;
use crate::kubernetes::config::Config;
use crate::kubernetes::{labels, names};

/// Where an executor may write.
const TMP: &str = "tmp";
/// The volume with the executor's file of accounts.
const PASSWD: &str = "passwd";
/// The termination grace of an executor.
const GRACE_SECONDS: i64 = 30;

/// Spark adds name, owner (the driver's pod), image, sizes and its own labels.
pub(super) fn template(spec: &Spec, config: &Config, users: security::Users) -> Pod {
    let passwd = passwd::line(spec, users).is_some();
    let secrets: Vec<_> =
        config.image_pull_secrets.iter().map(|name| LocalObjectReference { name: name.clone() }).collect();
    Pod {
        metadata: ObjectMeta { labels: Some(labels::executor_labels(spec)), ..ObjectMeta::default() },
        spec: Some(PodSpec {
            affinity: placement::affinity(spec),
            automount_service_account_token: Some(false),
            containers: vec![Container {
                name: names::EXECUTOR.to_owned(),
                security_context: Some(security::container_context(users.spark)),
                volume_mounts: Some(
                    [agent::mount(TMP, "/tmp", false), agent::mount("work", "/opt/spark/work-dir", false)]
                        .into_iter()
                        .chain(passwd.then(|| passwd::mount(PASSWD)))
                        .collect(),
                ),
                ..Container::default()
            }],
            enable_service_links: Some(false),
            image_pull_secrets: (!secrets.is_empty()).then_some(secrets),
            restart_policy: Some("Never".to_owned()),
            security_context: Some(security::pod_context()),
            termination_grace_period_seconds: Some(GRACE_SECONDS),
            tolerations: Some(placement::tolerations(spec)),
            volumes: Some(
                [agent::empty_dir(TMP), agent::empty_dir("work")]
                    .into_iter()
                    .chain(passwd.then(|| accounts(spec)))
                    .collect(),
            ),
            ..PodSpec::default()
        }),
        status: None,
    }
}

/// The file of accounts, from the config map of the engine.
fn accounts(spec: &Spec) -> Volume {
    Volume {
        name: PASSWD.to_owned(),
        config_map: Some(ConfigMapVolumeSource {
            default_mode: Some(agent::FILE_MODE),
            items: Some(vec![passwd::item()]),
            name: spec.name.to_string(),
            optional: Some(false),
        }),
        ..Volume::default()
    }
}
