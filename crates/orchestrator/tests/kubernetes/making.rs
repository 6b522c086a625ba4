//! `ensure` against a server that refuses, is late, or was changed by others.

use std::time::Duration;

use model::Epoch;
use model::engine_state::Phase;
use orchestrator::kubernetes::Config;
use orchestrator::kubernetes::config::DEFAULT_EPOCH_GOOD_FOR;
use orchestrator::{Error, Orchestrator as _};
use serde_json::json;

use super::cluster::{Cluster, Fault, status};
use super::place::{EPOCH, NAMESPACE, all, config, datafusion, eventually, open, open_with, spark};

const PODS: &str = "POST /api/v1/namespaces/rp-1--t-1/pods";
const READING: &str = "GET /api/v1/namespaces/enginehouse/configmaps/enginehouse-epoch-eh";

fn refusal<T: std::fmt::Debug>(result: Result<T, Error>, word: &str) {
    match result {
        Err(Error::Refused { reason }) if reason.contains(word) => {}
        other => panic!("not refused about {word:?}: {other:?}"),
    }
}

#[tokio::test]
async fn an_engine_without_executors_costs_one_reading_of_the_epoch_and_one_create() {
    let cluster = Cluster::new();
    let kubernetes = open(&cluster);
    kubernetes.ensure(&datafusion(1), EPOCH).await.unwrap();
    cluster.calls();
    cluster.advance(DEFAULT_EPOCH_GOOD_FOR);
    kubernetes.ensure(&datafusion(2), EPOCH).await.unwrap();
    assert_eq!(cluster.calls(), [READING, PODS]);
    // Without waiting for any watch.
    assert_eq!(all(&kubernetes).await.engines.len(), 2);
    cluster.calls();
    all(&kubernetes).await;
    assert_eq!(cluster.calls(), Vec::<String>::new(), "a look costs nothing");
}

#[tokio::test]
async fn a_hundred_creates_at_once_share_their_readings_of_the_epoch() {
    let cluster = Cluster::new();
    let kubernetes = open(&cluster);
    kubernetes.ensure(&datafusion(1_000), EPOCH).await.unwrap();
    cluster.calls();
    let specs: Vec<_> = (0..100).map(datafusion).collect();
    let all = futures::future::join_all(specs.iter().map(|spec| kubernetes.ensure(spec, EPOCH))).await;
    assert!(all.iter().all(Result::is_ok), "{all:?}");
    let calls = cluster.calls();
    let readings = calls.iter().filter(|line| line.contains("enginehouse-epoch")).count();
    assert_eq!(calls.len() - readings, 100);
    assert!(readings <= 3, "{readings}");
}

#[tokio::test]
async fn what_was_read_of_the_epoch_lets_effects_in_for_a_moment_and_no_longer() {
    let cluster = Cluster::new();
    let (deposed, acting) = (open(&cluster), open(&cluster));
    deposed.ensure(&datafusion(1), EPOCH).await.unwrap();
    acting.ensure(&datafusion(2), Epoch(EPOCH.0 + 1)).await.unwrap();
    cluster.calls();
    deposed.ensure(&datafusion(3), EPOCH).await.unwrap();
    assert_eq!(cluster.calls(), [PODS], "the clock stands still");
    cluster.advance(DEFAULT_EPOCH_GOOD_FOR);
    let refused = Err(Error::Deposed { epoch: EPOCH, highest: Epoch(EPOCH.0 + 1) });
    assert_eq!(deposed.ensure(&datafusion(4), EPOCH).await, refused);
    assert_eq!(cluster.calls(), [READING]);
    // What refuses is kept no longer than what lets in.
    assert_eq!(deposed.ensure(&datafusion(4), EPOCH).await, refused);
}

/// A process that is stopped after its reading was answered goes on with what it read before another master was elected.
#[tokio::test]
async fn effects_that_waited_for_a_reading_read_again_when_they_go_on_late() {
    for stopped in [Duration::ZERO, Duration::from_mins(1)] {
        let cluster = Cluster::new();
        let (deposed, acting) = (open(&cluster), open(&cluster));
        deposed.ensure(&datafusion(1), EPOCH).await.unwrap();
        cluster.advance(DEFAULT_EPOCH_GOOD_FOR);
        cluster.calls();
        let specs: Vec<_> = (2..6).map(datafusion).collect();
        let mut waiting: Vec<_> = specs.iter().map(|spec| Box::pin(deposed.ensure(spec, EPOCH))).collect();
        // The first one reads for itself, the others came while it did.
        for effect in &mut waiting {
            assert!(futures::poll!(effect.as_mut()).is_pending());
        }
        waiting.remove(0).await.unwrap();
        cluster.advance(DEFAULT_EPOCH_GOOD_FOR);
        waiting.remove(0).await.unwrap();
        assert_eq!(cluster.calls(), [READING, PODS, READING, PODS], "the second reading is for all that wait");
        acting.ensure(&datafusion(9), Epoch(EPOCH.0 + 1)).await.unwrap();
        cluster.calls();
        cluster.advance(stopped);
        let outcomes: Vec<_> = futures::future::join_all(waiting).await;
        let calls = cluster.calls();
        if stopped.is_zero() {
            assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
            assert_eq!(calls, [PODS, PODS], "they go on at once");
        } else {
            let refused = Err(Error::Deposed { epoch: EPOCH, highest: Epoch(EPOCH.0 + 1) });
            assert_eq!(outcomes, [refused.clone(), refused]);
            assert_eq!(calls, [READING]);
        }
    }
}

#[tokio::test]
async fn a_server_that_does_not_tell_the_epoch_is_waited_for_once_and_not_once_by_each() {
    let cluster = Cluster::new();
    let kubernetes = open_with(&cluster, Config { call_deadline: Duration::from_secs(1), ..config() });
    all(&kubernetes).await;
    cluster.calls();
    for _ in 0..20 {
        cluster.fail(READING, Fault::Silence);
    }
    let specs: Vec<_> = (0..20).map(datafusion).collect();
    let all = futures::future::join_all(specs.iter().map(|spec| kubernetes.ensure(spec, EPOCH))).await;
    assert!(all.iter().all(|it| it.as_ref().is_err_and(Error::is_retryable)), "{all:?}");
    // The first reading began before the others asked; the second is for all of them.
    assert_eq!(cluster.calls().len(), 2);
}

#[tokio::test]
async fn a_spark_engine_leaves_its_gate_when_everything_is_there() {
    let cluster = Cluster::new();
    let kubernetes = open(&cluster);
    let spec = spark(1);
    let made = kubernetes.ensure(&spec, EPOCH).await.unwrap();
    let name = spec.name.as_str();
    for resource in ["services", "configmaps"] {
        let object = cluster.get(resource, NAMESPACE, name).unwrap();
        assert_eq!(object["metadata"]["ownerReferences"][0]["uid"], made.uid.as_str(), "{resource}");
    }
    let listing = eventually(&kubernetes, "it runs", |it| it.engines.iter().any(|it| it.phase == Phase::Running)).await;
    assert_eq!(listing.engines[0].uid, made.uid);
}

#[tokio::test]
async fn what_belongs_to_a_pod_and_may_not_be_made_takes_the_pod_along() {
    let cluster = Cluster::new();
    cluster.deny("create services");
    let kubernetes = open(&cluster);
    refusal(kubernetes.ensure(&spark(1), EPOCH).await, "a right is missing");
    assert_eq!(cluster.names("pods"), Vec::<String>::new());
    assert!(all(&kubernetes).await.engines.is_empty());
}

#[tokio::test]
async fn a_gated_pod_counts_as_never_completed_by_our_clock_and_not_by_the_servers() {
    for created in ["2000-01-01T00:00:00Z", "2100-01-01T00:00:00Z"] {
        let cluster = Cluster::new();
        let spec = spark(1);
        cluster.fail("POST /api/v1/namespaces/rp-1--t-1/configmaps", Fault::Status(status(500, "", "no quorum")));
        open(&cluster).ensure(&spec, EPOCH).await.unwrap_err();
        cluster
            .change("pods", NAMESPACE, spec.name.as_str(), |pod| pod["metadata"]["creationTimestamp"] = created.into());
        let kubernetes = open(&cluster);
        let listed = async || all(&kubernetes).await.engines.remove(0);
        assert!(listed().await.incomplete, "{created}");
        cluster.advance(Duration::from_secs(119));
        assert!(listed().await.incomplete, "{created}");
        cluster.advance(Duration::from_secs(1));
        let ended = listed().await;
        assert_eq!((ended.phase, ended.incomplete), (Phase::Ended, false), "{created}");
        // A new master counts again.
        assert!(all(&open(&cluster)).await.engines[0].incomplete, "{created}");
    }
}

#[tokio::test]
async fn a_pod_whose_maker_was_cut_off_is_completed_by_the_next_who_asks() {
    let cluster = Cluster::new();
    let (first, second) = (open(&cluster), open(&cluster));
    let spec = spark(1);
    cluster.fail("POST /api/v1/namespaces/rp-1--t-1/configmaps", Fault::Status(status(500, "", "no quorum")));
    let cut_off = first.ensure(&spec, EPOCH).await;
    assert!(cut_off.as_ref().is_err_and(Error::is_retryable), "{cut_off:?}");
    assert!(cluster.get("configmaps", NAMESPACE, spec.name.as_str()).is_none());
    eventually(&second, "it is listed as incomplete", |it| it.engines.iter().any(|it| it.incomplete)).await;
    let again = second.ensure(&spec, EPOCH).await.unwrap();
    assert!(!again.created);
    assert!(cluster.get("configmaps", NAMESPACE, spec.name.as_str()).is_some());
    eventually(&second, "it runs", |it| it.engines.iter().any(|it| it.phase == Phase::Running)).await;
}

#[tokio::test]
async fn a_pod_that_nobody_completes_is_told_as_ended_and_can_be_deleted() {
    let cluster = Cluster::new();
    let kubernetes = open(&cluster);
    let spec = spark(1);
    cluster.fail("POST /api/v1/namespaces/rp-1--t-1/services", Fault::Status(status(500, "", "no quorum")));
    kubernetes.ensure(&spec, EPOCH).await.unwrap_err();
    let listed = all(&kubernetes).await.engines.remove(0);
    assert_eq!((listed.phase, listed.incomplete), (Phase::Pending, true));
    cluster.advance(Duration::from_mins(2));
    // The watch may be late; until it has told of the pod, two minutes are too long to believe in it.
    let ended = |it: &orchestrator::Listing| it.engines.first().is_some_and(|it| it.phase == Phase::Ended);
    let engine = eventually(&kubernetes, "it is told as ended", ended).await.engines.remove(0);
    assert_eq!(kubernetes.get(&spec.name).await.unwrap().unwrap().phase, Phase::Ended);
    kubernetes.delete(&spec.name, &engine.uid, Duration::ZERO, EPOCH).await.unwrap();
    assert_eq!(cluster.names("pods"), Vec::<String>::new());
}

#[tokio::test]
async fn a_lost_answer_is_an_effect_that_the_same_call_finds() {
    let cluster = Cluster::new();
    let kubernetes = open(&cluster);
    cluster.fail(PODS, Fault::LostAnswer(status(504, "Timeout", "request timed out")));
    let lost = kubernetes.ensure(&datafusion(1), EPOCH).await;
    assert!(lost.as_ref().is_err_and(Error::is_retryable), "{lost:?}");
    assert!(!kubernetes.ensure(&datafusion(1), EPOCH).await.unwrap().created);
    assert_eq!(cluster.names("pods").len(), 1);
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_waited_for_with_a_limit() {
    let cluster = Cluster::new();
    let kubernetes = open_with(&cluster, Config { call_deadline: Duration::from_secs(1), ..config() });
    cluster.fail(PODS, Fault::Silence);
    let late = kubernetes.ensure(&datafusion(1), EPOCH).await;
    assert!(late.as_ref().is_err_and(Error::is_retryable), "{late:?}");
    assert!(late.unwrap_err().to_string().contains("no answer within 1 s"));
}

#[tokio::test]
async fn after_a_429_no_effect_is_tried_until_its_pause_is_over() {
    let cluster = Cluster::new();
    let kubernetes = open(&cluster);
    kubernetes.ensure(&datafusion(1), EPOCH).await.unwrap();
    let mut busy = status(429, "TooManyRequests", "please try again later");
    busy["details"] = json!({"retryAfterSeconds": 7});
    cluster.fail(PODS, Fault::Status(busy));
    assert!(kubernetes.ensure(&datafusion(2), EPOCH).await.unwrap_err().is_retryable());
    cluster.calls();
    let waits = kubernetes.ensure(&datafusion(3), EPOCH).await.unwrap_err();
    assert!(waits.is_retryable() && waits.to_string().contains("asks to wait 7 s"), "{waits}");
    assert_eq!(cluster.calls(), Vec::<String>::new());
    assert_eq!(all(&kubernetes).await.engines.len(), 1, "looks go on");
    cluster.advance(Duration::from_secs(7));
    assert!(kubernetes.ensure(&datafusion(3), EPOCH).await.unwrap().created);
}

#[tokio::test]
async fn a_quota_is_a_refusal_and_a_quota_that_is_being_counted_is_not() {
    let cluster = Cluster::new();
    let kubernetes = open(&cluster);
    cluster.fail(PODS, Fault::Status(status(403, "Forbidden", "pods \"x\" is forbidden: exceeded quota: q")));
    refusal(kubernetes.ensure(&datafusion(1), EPOCH).await, "the quota is used up");
    cluster.fail(PODS, Fault::Status(status(409, "Conflict", "Operation cannot be fulfilled on resourcequotas \"q\"")));
    assert!(kubernetes.ensure(&datafusion(1), EPOCH).await.unwrap_err().is_retryable());
    assert!(kubernetes.ensure(&datafusion(1), EPOCH).await.unwrap().created);
}

#[tokio::test]
async fn a_foreign_pod_of_the_name_is_a_conflict_and_stays_as_it_is() {
    let cluster = Cluster::new();
    let kubernetes = open(&cluster);
    let spec = datafusion(1);
    let forged = json!({"metadata": {"name": spec.name.as_str(), "labels": spec.labels, "annotations":
        {"enginehouse.io/signature": "0".repeat(64)}}, "spec": {"containers": []}});
    cluster.put("pods", NAMESPACE, forged);
    let before = cluster.get("pods", NAMESPACE, spec.name.as_str());
    let conflict = kubernetes.ensure(&spec, EPOCH).await;
    assert!(matches!(&conflict, Err(Error::Conflict { reason, .. }) if reason.contains("foreign")), "{conflict:?}");
    let listing = eventually(&kubernetes, "it is told", |listing| !listing.foreign.is_empty()).await;
    assert!(listing.engines.is_empty());
    assert_eq!(
        (listing.foreign[0].namespace.as_str(), listing.foreign[0].name.as_str()),
        (NAMESPACE, spec.name.as_str())
    );
    assert_eq!(kubernetes.get(&spec.name).await, Ok(None));
    let uid = listing.foreign[0].uid.clone();
    kubernetes.delete(&spec.name, &uid, Duration::ZERO, EPOCH).await.unwrap();
    assert_eq!(cluster.get("pods", NAMESPACE, spec.name.as_str()), before);
}

#[tokio::test]
async fn two_installations_in_one_cluster_do_not_see_each_other() {
    let cluster = Cluster::new();
    let ours = open(&cluster);
    let theirs = open_with(&cluster, Config::new("other", "enginehouse", "image"));
    ours.ensure(&datafusion(1), EPOCH).await.unwrap();
    refusal(theirs.ensure(&datafusion(2), EPOCH).await, "never be listed");
    assert_eq!((all(&ours).await.engines.len(), all(&theirs).await.engines.len()), (1, 0));
    // Each has an epoch of its own.
    let mut spec = datafusion(3);
    spec.labels.insert("enginehouse.io/cluster".to_owned(), "other".to_owned());
    theirs.ensure(&spec, Epoch(1)).await.unwrap();
    assert_eq!(config().cluster, "eh");
}

#[tokio::test]
async fn an_epoch_that_can_not_be_read_lets_nobody_in() {
    let cluster = Cluster::new();
    let kubernetes = open(&cluster);
    cluster.put(
        "configmaps",
        "enginehouse",
        json!({"metadata": {"name": "enginehouse-epoch-eh"}, "data": {"epoch": "x"}}),
    );
    refusal(kubernetes.ensure(&datafusion(1), EPOCH).await, "is no epoch");
    assert_eq!(cluster.names("pods"), Vec::<String>::new());
}
