//! A pod as it is kept: without what is never read of it.
//!
//! What an API server answers about a pod is mostly volumes, environment, files and who wrote which field (`managedFields`,
//! by far the dearest to take apart). Of thousands of pods that a list or a watch tells of, and of each that was just made,
//! none of that is read, so it is passed over and never becomes an object. Files may be secret besides.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{Container, Pod, PodSchedulingGate, PodSpec, PodStatus, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Resource;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};

use super::marks::FILE_ANNOTATION;

/// Such a pod. It is never written back.
#[derive(Debug, Clone)]
pub(super) struct Lean(pub(super) Pod);

#[derive(Deserialize)]
struct Told {
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
    containers: Option<Vec<Limited>>,
    node_name: Option<String>,
    scheduling_gates: Option<Vec<PodSchedulingGate>>,
}

#[derive(Deserialize)]
struct Limited {
    name: String,
    resources: Option<ResourceRequirements>,
}

/// All but the files.
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

impl<'de> Deserialize<'de> for Lean {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Told { metadata, spec, status } = Told::deserialize(deserializer)?;
        let limited = |it: Limited| Container { name: it.name, resources: it.resources, ..Container::default() };
        let spec = spec.map(|spec| PodSpec {
            containers: spec.containers.unwrap_or_default().into_iter().map(limited).collect(),
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
            annotations: metadata.annotations.map(|it| it.0),
            ..ObjectMeta::default()
        };
        Ok(Self(Pod { metadata, spec, status }))
    }
}

impl Resource for Lean {
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

    use super::super::cache::trimmed;
    use super::*;

    #[test]
    fn what_is_kept_is_what_would_be_kept_of_the_whole_pod() {
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
        let read: Pod = serde_json::from_value(whole.clone()).unwrap();
        let lean: Lean = serde_json::from_value(whole).unwrap();
        assert_eq!(lean.0, trimmed(read));
        assert!(!lean.0.metadata.annotations.unwrap().contains_key("enginehouse.io/file-0"));
    }

    #[test]
    fn a_pod_with_nothing_in_it_is_one_all_the_same() {
        let lean: Lean = serde_json::from_value(json!({"metadata": {"name": "e-1"}, "spec": null})).unwrap();
        assert_eq!((lean.0.metadata.name.as_deref(), lean.0.spec, lean.0.status), (Some("e-1"), None, None));
        assert!(serde_json::from_value::<Lean>(json!({"metadata": {"annotations": 1}})).is_err());
    }
}
