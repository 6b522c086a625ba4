//! `delete`: this very pod, by its uid, with the grace that was said.

use std::time::Duration;

use either::Either;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Preconditions};
use model::{EngineName, Epoch, failpoint};

use super::answer::Failure;
use super::find;
use super::place::Place;
use super::read::Seen;
use crate::{Deleted, Error, failpoints};

/// The shortest grace that is ever sent, in seconds.
pub(super) const LEAST_GRACE_S: u32 = 1;

/// Ends this very engine.
pub(super) async fn delete(
    place: &Place,
    name: &EngineName,
    uid: &str,
    grace: Duration,
    epoch: Epoch,
) -> Result<Deleted, Error> {
    place.gate.admit(place, epoch).await?;
    failpoint!(failpoints::DELETE_ADMITTED);
    let known = place.cache.find(name).filter(|seen| seen.observed.uid == uid);
    let seen = match known {
        Some(seen) => seen,
        None => match find::engine(place, name, None).await? {
            Some(seen) => seen,
            None => return Ok(Deleted::Gone),
        },
    };
    if seen.observed.uid != uid {
        return Err(Error::Gone { name: name.clone(), uid: uid.to_owned(), present: seen.observed.uid });
    }
    let Some(grace_s) = grace_seconds(&seen, grace, place.clock.wall_ms()) else { return Ok(Deleted::Terminating) };
    let exactly = DeleteParams {
        grace_period_seconds: Some(grace_s),
        preconditions: Some(Preconditions { uid: Some(uid.to_owned()), resource_version: None }),
        ..DeleteParams::background()
    };
    let answer = place.effect(place.pods(&seen.namespace).delete(name.as_str(), &exactly)).await;
    failpoint!(failpoints::DELETE_SIGNALLED);
    let gone = || place.cache.gone(&seen.namespace, name.as_str(), uid);
    match answer.map(Either::left) {
        Ok(Some(pod)) if is_still_there(&pod) => {
            place.cache.wrote(pod, place.clock.boottime());
            tracing::info!(engine = %name, uid, grace_s, "engine told to end");
            Ok(Deleted::Terminating)
        }
        Ok(_) | Err(Failure::Absent(_)) => {
            gone();
            Ok(Deleted::Gone)
        }
        Err(Failure::Moved(text)) => match find::engine(place, name, None).await? {
            None => Ok(Deleted::Gone),
            Some(present) if present.observed.uid != uid => {
                Err(Error::Gone { name: name.clone(), uid: uid.to_owned(), present: present.observed.uid })
            }
            Some(_) => Err(Error::transient(format!("delete pod {}/{name}: {text}", seen.namespace))),
        },
        Err(failure) => Err(failure.into_error(&format!("delete pod {}/{name}", seen.namespace))),
    }
}

/// Whether a pod that was deleted waits for its end: for the kubelet, or for somebody's finalizer.
fn is_still_there(pod: &Pod) -> bool {
    let finalizers = pod.metadata.finalizers.as_ref().is_some_and(|it| !it.is_empty());
    finalizers || pod.metadata.deletion_grace_period_seconds.is_some_and(|grace| grace > 0)
}

/// The grace to send, in seconds; `None` if the pod is to be gone earlier anyway. The server counts the grace of a second
/// delete from the first one, so what has passed since is added.
///
/// Never 0: that takes the object away whatever runs, which may go on unseen. The server makes 0 of it itself for a pod
/// that has no node or has ended, and it knows: here a pod may have been given its node a moment ago.
fn grace_seconds(seen: &Seen, grace: Duration, now_ms: i64) -> Option<u32> {
    let whole = |ms: i64| u32::try_from(ms.max(0).saturating_add(999) / 1_000).unwrap_or(u32::MAX).max(LEAST_GRACE_S);
    let grace_ms = i64::try_from(grace.as_millis()).unwrap_or(i64::MAX);
    let Some((deadline_ms, given_s)) = seen.deletion else { return Some(whole(grace_ms)) };
    let wanted_ms = now_ms.saturating_add(grace_ms);
    if wanted_ms >= deadline_ms {
        return None;
    }
    let first_ms = deadline_ms.saturating_sub(given_s.saturating_mul(1_000));
    Some(whole(wanted_ms.saturating_sub(first_ms)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubernetes::read::{self, Found};
    use crate::kubernetes::signature::{SIGNATURE_ANNOTATION, Signer};
    use model::credential::ClusterSecret;
    use serde_json::json;

    const MINUTE: Duration = Duration::from_mins(1);

    fn seen(node: Option<&str>, phase: &str, deletion: Option<(&str, i64)>) -> Seen {
        let signer = Signer::new(ClusterSecret::new(*b"0123456789abcdef").unwrap(), "eh");
        let pod = serde_json::from_value(json!({
            "metadata": {"name": "one", "namespace": "n", "uid": "u",
                "annotations": {SIGNATURE_ANNOTATION: signer.sign("n", "one")},
                "deletionTimestamp": deletion.map(|it| it.0), "deletionGracePeriodSeconds": deletion.map(|it| it.1)},
            "spec": {"containers": [], "nodeName": node},
            "status": {"phase": phase},
        }))
        .unwrap();
        match read::pod(&pod, &[], &signer) {
            Found::Engine(seen) => *seen,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn no_pod_is_forced_away_whatever_is_known_of_its_node() {
        assert_eq!(grace_seconds(&seen(Some("node-1"), "Running", None), Duration::ZERO, 0), Some(1));
        assert_eq!(grace_seconds(&seen(Some("node-1"), "Running", None), Duration::from_millis(1_001), 0), Some(2));
        assert_eq!(grace_seconds(&seen(Some("node-1"), "Failed", None), Duration::ZERO, 0), Some(1));
        assert_eq!(grace_seconds(&seen(None, "Pending", None), Duration::ZERO, 0), Some(1));
        assert_eq!(grace_seconds(&seen(None, "Pending", None), Duration::MAX, 0), Some(u32::MAX));
    }

    #[test]
    fn a_grace_is_made_shorter_counted_from_now_and_never_longer() {
        // Told to end at the beginning of 1970 with ten minutes; now it is a minute later.
        let ending = seen(Some("node-1"), "Running", Some(("1970-01-01T00:10:00Z", 600)));
        assert_eq!(grace_seconds(&ending, MINUTE, 60_000), Some(120));
        assert_eq!(grace_seconds(&ending, 9 * MINUTE, 60_000), None);
        assert_eq!(grace_seconds(&ending, 60 * MINUTE, 60_000), None);
        assert_eq!(grace_seconds(&ending, Duration::ZERO, 60_000), Some(60));
    }
}
