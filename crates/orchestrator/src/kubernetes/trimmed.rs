//! A pod reduced to the fields that are read.
//!
//! Most of a pod in a reply is volumes, environment, files and the owners of fields (`managedFields`, by far the most
//! expensive part to decode). None of that is read of the thousands of pods in a list or a watch, nor of a pod that was just
//! created, so it is skipped while decoding. Files may also be secret.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{Container, Pod, PodSchedulingGate, PodSpec, PodStatus, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Resource;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};

use super::labels::FILE_ANNOTATION;

/// A trimmed pod. It is never written back.
#[derive(Debug, Clone)]
pub(super) struct TrimmedPod(pub(super) Pod);

impl TrimmedPod {
    /// Name and namespace.
    pub(super) fn key(&self) -> (String, String) {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        (text(&self.0.metadata.name), text(&self.0.metadata.namespace))
    }

    /// Empty if it has none.
    pub(super) fn uid(&self) -> &str {
        self.0.metadata.uid.as_deref().unwrap_or_default()
    }

    /// The resource version, which is a number in every server with etcd behind it.
    pub(super) fn version(&self) -> Option<u64> {
        self.0.metadata.resource_version.as_deref()?.parse().ok()
    }

    /// Versions that are not numbers cannot be compared: the latest reply or event wins.
    pub(super) fn is_older_than(&self, other: &Self) -> bool {
        matches!((self.version(), other.version()), (Some(version), Some(other)) if version < other)
    }

    pub(super) fn node(&self) -> Option<&str> {
        self.0.spec.as_ref()?.node_name.as_deref()
    }

    pub(super) fn label(&self, label: &str) -> Option<&str> {
        self.0.metadata.labels.as_ref()?.get(label).map(String::as_str)
    }

    pub(super) fn into_labels(self) -> BTreeMap<String, String> {
        self.0.metadata.labels.unwrap_or_default()
    }
}

impl From<Pod> for TrimmedPod {
    fn from(mut pod: Pod) -> Self {
        pod.metadata.managed_fields = None;
        if let Some(annotations) = &mut pod.metadata.annotations {
            annotations.retain(|key, _| !key.starts_with(FILE_ANNOTATION));
        }
        pod.spec = pod.spec.as_ref().map(kept);
        Self(pod)
    }
}

/// The fields of a pod's spec that are read.
pub(super) fn kept(spec: &PodSpec) -> PodSpec {
    let container = |container: &Container| Container {
        name: container.name.clone(),
        resources: container.resources.clone(),
        ..Container::default()
    };
    PodSpec {
        containers: spec.containers.iter().map(container).collect(),
        node_name: spec.node_name.clone(),
        scheduling_gates: spec.scheduling_gates.clone(),
        ..PodSpec::default()
    }
}

#[derive(Deserialize)]
struct Fields {
    metadata: Metadata,
    spec: Option<Spec>,
    status: Option<PodStatus>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    deletion_grace_period_seconds: Option<i64>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<Annotations>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    containers: Option<Vec<TrimmedContainer>>,
    node_name: Option<String>,
    scheduling_gates: Option<Vec<PodSchedulingGate>>,
}

#[derive(Deserialize)]
struct TrimmedContainer {
    name: String,
    resources: Option<ResourceRequirements>,
}

/// All except the files.
struct Annotations(BTreeMap<String, String>);

impl<'de> Deserialize<'de> for Annotations {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Kept;
        impl<'de> Visitor<'de> for Kept {
            type Value = Annotations;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("annotations")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut kept = BTreeMap::new();
                while let Some(key) = map.next_key::<String>()? {
                    if key.starts_with(FILE_ANNOTATION) {
                        map.next_value::<IgnoredAny>()?;
                    } else {
                        kept.insert(key, map.next_value()?);
                    }
                }
                Ok(Annotations(kept))
            }
        }
        deserializer.deserialize_map(Kept)
    }
}

impl<'de> Deserialize<'de> for TrimmedPod {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Fields { metadata, spec, status } = Fields::deserialize(deserializer)?;
        let container = |trimmed: TrimmedContainer| Container {
            name: trimmed.name,
            resources: trimmed.resources,
            ..Container::default()
        };
        let spec = spec.map(|spec| PodSpec {
            containers: spec.containers.unwrap_or_default().into_iter().map(container).collect(),
            node_name: spec.node_name,
            scheduling_gates: spec.scheduling_gates,
            ..PodSpec::default()
        });
        let metadata = ObjectMeta {
            name: metadata.name,
            namespace: metadata.namespace,
            uid: metadata.uid,
            resource_version: metadata.resource_version,
            creation_timestamp: metadata.creation_timestamp,
            deletion_timestamp: metadata.deletion_timestamp,
            deletion_grace_period_seconds: metadata.deletion_grace_period_seconds,
            labels: metadata.labels,
            annotations: metadata.annotations.map(|annotations| annotations.0),
            ..ObjectMeta::default()
        };
        Ok(Self(Pod { metadata, spec, status }))
    }
}

impl Resource for TrimmedPod {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        Pod::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        Pod::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        Pod::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        Pod::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.0.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.0.metadata
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    #[test]
    fn decoding_and_trimming_keep_the_same_fields() {
        let whole = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": "e-1", "namespace": "rp-1--t-1", "uid": "u-1", "resourceVersion": "12",
                "creationTimestamp": "2026-01-02T03:04:05Z", "deletionTimestamp": "2026-01-02T03:05:05Z",
                "deletionGracePeriodSeconds": 30, "labels": {"name": "enginehouse"},
                "annotations": {"enginehouse.io/epoch": "3", "enginehouse.io/file-0": "secret", "note": "kept"},
                "managedFields": [{"manager": "enginehouse", "operation": "Update", "apiVersion": "v1",
                    "time": "2026-01-02T03:04:05Z", "fieldsType": "FieldsV1", "fieldsV1": {"f:metadata": {}}}],
            },
            "spec": {
                "nodeName": "node-1", "schedulingGates": [{"name": "enginehouse.io/complete"}],
                "volumes": [{"name": "v", "emptyDir": {}}], "restartPolicy": "Never",
                "containers": [{"name": "engine", "image": "i", "env": [{"name": "A", "value": "1"}],
                    "resources": {"requests": {"cpu": "1", "memory": "1280Mi"}, "limits": {"memory": "1280Mi"}}}],
            },
            "status": {"phase": "Pending", "podIP": "10.0.0.1", "qosClass": "Burstable", "conditions": [
                {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-02T03:04:05Z"}],
                "containerStatuses": [{"name": "engine", "image": "i", "imageID": "x", "ready": false, "restartCount": 0,
                    "state": {"waiting": {"reason": "ContainerCreating"}}}]},
        });
        let complete: Pod = serde_json::from_value(whole.clone()).unwrap();
        let trimmed: TrimmedPod = serde_json::from_value(whole).unwrap();
        assert_eq!(trimmed.0, TrimmedPod::from(complete).0);
        assert!(!trimmed.0.metadata.annotations.unwrap().contains_key("enginehouse.io/file-0"));
    }

    #[test]
    fn an_empty_pod_is_decoded() {
        let trimmed: TrimmedPod = serde_json::from_value(json!({"metadata": {"name": "e-1"}, "spec": null})).unwrap();
        assert_eq!((trimmed.0.metadata.name.as_deref(), trimmed.0.spec, trimmed.0.status), (Some("e-1"), None, None));
        assert!(serde_json::from_value::<TrimmedPod>(json!({"metadata": {"annotations": 1}})).is_err());
    }
}
