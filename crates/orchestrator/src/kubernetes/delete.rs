//! `delete`: deletes this very pod, by its uid, with the given grace.

use std::time::Duration;

use either::Either;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Preconditions};
use model::{EngineName, Epoch, failpoint, millis};

use super::cluster::Cluster;
use super::epoch_fence::EpochFence;
use super::error::CallError;
use super::get;
use super::read::EnginePod;
use crate::{Deleted, Error, failpoints};

/// The shortest grace that is ever sent, in seconds.
pub(super) const MIN_GRACE_S: u32 = 1;

/// Ends the engine with this uid.
pub(super) async fn delete(
    cluster: &Cluster,
    fence: &EpochFence,
    name: &EngineName,
    uid: &str,
    grace: Duration,
    epoch: Epoch,
) -> Result<Deleted, Error> {
    fence.check(epoch).await?;
    failpoint!(failpoints::DELETE_ADMITTED);
    let known = cluster.store.find(name).filter(|engine| engine.observed.uid == uid);
    let engine = match known {
        Some(engine) => engine,
        None => match get::get(cluster, name, None).await? {
            Some(engine) => engine,
            None => return Ok(Deleted::Gone),
        },
    };
    if engine.observed.uid != uid {
        return Err(Error::Gone { name: name.clone(), uid: uid.to_owned(), present: engine.observed.uid.clone() });
    }
    let Some(grace_s) = grace_seconds(&engine, grace, cluster.clock.wall_ms()) else {
        return Ok(Deleted::Terminating);
    };
    let pods = cluster.pods(&engine.namespace);
    let deleted = cluster.effect(pods.delete(name.as_str(), &delete_params(uid, grace_s))).await;
    failpoint!(failpoints::DELETE_SIGNALLED);
    match deleted.map(Either::left) {
        Ok(Some(pod)) if is_terminating(&pod) => {
            cluster.store.apply_reply(pod, cluster.clock.boottime());
            tracing::info!(engine = %name, uid, grace_s, "terminating engine");
            Ok(Deleted::Terminating)
        }
        Ok(_) | Err(CallError::NotFound(_)) => {
            cluster.store.remove(&engine.namespace, name.as_str(), uid);
            Ok(Deleted::Gone)
        }
        Err(CallError::Conflict(text)) => match get::get(cluster, name, None).await? {
            None => Ok(Deleted::Gone),
            Some(present) if present.observed.uid != uid => {
                Err(Error::Gone { name: name.clone(), uid: uid.to_owned(), present: present.observed.uid.clone() })
            }
            Some(_) => Err(Error::transient(format!("delete pod {}/{name}: {text}", engine.namespace))),
        },
        Err(error) => Err(error.into_error(&format!("delete pod {}/{name}", engine.namespace))),
    }
}

/// Deletes only the object with this uid.
pub(super) fn delete_params(uid: &str, grace_s: u32) -> DeleteParams {
    DeleteParams {
        grace_period_seconds: Some(grace_s),
        preconditions: Some(Preconditions { uid: Some(uid.to_owned()), resource_version: None }),
        ..DeleteParams::background()
    }
}

/// Whether a deleted pod still exists: it waits for the kubelet, or for a finalizer.
fn is_terminating(pod: &Pod) -> bool {
    let has_finalizers = pod.metadata.finalizers.as_ref().is_some_and(|finalizers| !finalizers.is_empty());
    has_finalizers || pod.metadata.deletion_grace_period_seconds.is_some_and(|grace| grace > 0)
}

/// The grace to send, in seconds; `None` if the pod will be gone earlier anyway. The server counts the grace of a second
/// delete from the first one, so the time since then is added.
///
/// Never 0, which removes the object although its containers may still run, unobserved. For a pod that has no node or has
/// ended the server uses 0 by itself; it knows, while our view may miss that the pod was just assigned a node.
fn grace_seconds(engine: &EnginePod, grace: Duration, now_ms: i64) -> Option<u32> {
    let whole = |ms: i64| u32::try_from(ms.max(0).saturating_add(999) / 1_000).unwrap_or(u32::MAX).max(MIN_GRACE_S);
    let grace_ms = millis::from_duration(grace);
    let Some(deletion) = engine.deletion else { return Some(whole(grace_ms)) };
    let desired_ms = now_ms.saturating_add(grace_ms);
    if desired_ms >= deletion.deadline_ms {
        return None;
    }
    let requested_ms = deletion.deadline_ms.saturating_sub(deletion.grace_s.saturating_mul(1_000));
    Some(whole(desired_ms.saturating_sub(requested_ms)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubernetes::read::{self, Classified};
    use crate::kubernetes::signature::{self, SIGNATURE_ANNOTATION};
    use serde_json::json;

    const MINUTE: Duration = Duration::from_mins(1);

    fn engine(node: Option<&str>, phase: &str, deletion: Option<(&str, i64)>) -> EnginePod {
        let signer = signature::tests::signer("eh");
        let pod = serde_json::from_value(json!({
            "metadata": {"name": "one", "namespace": "n", "uid": "u",
                "annotations": {SIGNATURE_ANNOTATION: signer.sign("n", "one")},
                "deletionTimestamp": deletion.map(|(at, _)| at), "deletionGracePeriodSeconds": deletion.map(|(_, grace)| grace)},
            "spec": {"containers": [], "nodeName": node},
            "status": {"phase": phase},
        }))
        .unwrap();
        match read::classify(&pod, &[], &signer) {
            Classified::Engine(engine) => *engine,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn no_pod_is_force_deleted_whatever_its_node() {
        assert_eq!(grace_seconds(&engine(Some("node-1"), "Running", None), Duration::ZERO, 0), Some(1));
        assert_eq!(grace_seconds(&engine(Some("node-1"), "Running", None), Duration::from_millis(1_001), 0), Some(2));
        assert_eq!(grace_seconds(&engine(Some("node-1"), "Failed", None), Duration::ZERO, 0), Some(1));
        assert_eq!(grace_seconds(&engine(None, "Pending", None), Duration::ZERO, 0), Some(1));
        assert_eq!(grace_seconds(&engine(None, "Pending", None), Duration::MAX, 0), Some(u32::MAX));
    }

    #[test]
    fn a_grace_is_shortened_from_now_and_never_extended() {
        // Deleted at the start of 1970 with a grace of ten minutes; now it is a minute later.
        let terminating = engine(Some("node-1"), "Running", Some(("1970-01-01T00:10:00Z", 600)));
        assert_eq!(grace_seconds(&terminating, MINUTE, 60_000), Some(120));
        assert_eq!(grace_seconds(&terminating, 9 * MINUTE, 60_000), None);
        assert_eq!(grace_seconds(&terminating, 60 * MINUTE, 60_000), None);
        assert_eq!(grace_seconds(&terminating, Duration::ZERO, 60_000), Some(60));
    }
}
