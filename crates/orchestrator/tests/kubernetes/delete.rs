//! `delete` against a server that is changed by others.

use std::time::Duration;

use model::engine_state::Phase;
use orchestrator::{Deleted, Error, Orchestrator as _};

use super::cluster::{Cluster, Fault, status};
use super::support::{EPOCH, LONG, NAMESPACE, all, datafusion, eventually, open};

#[tokio::test]
async fn a_pod_that_took_the_name_since_is_not_touched() {
    let cluster = Cluster::new();
    let (ours, other) = (open(&cluster), open(&cluster));
    let spec = datafusion(1);
    let first = ours.ensure(&spec, EPOCH).await.unwrap();
    // Our store misses the event, like that of a suspended process.
    cluster.remove("pods", NAMESPACE, spec.name.as_str());
    let second = other.ensure(&spec, EPOCH).await.unwrap();
    let refused = ours.delete(&spec.name, &first.uid, Duration::ZERO, EPOCH).await;
    assert_eq!(refused, Err(Error::Gone { name: spec.name.clone(), uid: first.uid, present: second.uid.clone() }));
    assert_eq!(cluster.get("pods", NAMESPACE, spec.name.as_str()).unwrap()["metadata"]["uid"], second.uid.as_str());
}

#[tokio::test]
async fn after_a_lost_reply_the_same_delete_succeeds() {
    let cluster = Cluster::new();
    let kubernetes = open(&cluster);
    let spec = datafusion(1);
    let made = kubernetes.ensure(&spec, EPOCH).await.unwrap();
    cluster.fail("DELETE ", Fault::LostReply(status(500, "", "no quorum")));
    assert!(kubernetes.delete(&spec.name, &made.uid, LONG, EPOCH).await.unwrap_err().is_retryable());
    assert_eq!(kubernetes.delete(&spec.name, &made.uid, LONG, EPOCH).await, Ok(Deleted::Gone));
}

#[tokio::test]
async fn a_deleted_engine_is_listed_as_terminating_at_once() {
    let cluster = Cluster::new();
    let kubernetes = open(&cluster);
    let mut spec = datafusion(1);
    "stubborn".clone_into(&mut spec.argv[1]);
    let made = kubernetes.ensure(&spec, EPOCH).await.unwrap();
    eventually(&kubernetes, "it runs", |listing| listing.engines[0].phase == Phase::Running).await;
    assert_eq!(kubernetes.delete(&spec.name, &made.uid, LONG, EPOCH).await, Ok(Deleted::Terminating));
    let engine = all(&kubernetes).await.engines.remove(0);
    assert_eq!((engine.phase, engine.reason.as_deref()), (Phase::Terminating, Some("terminating with a grace of 1h")));
}
