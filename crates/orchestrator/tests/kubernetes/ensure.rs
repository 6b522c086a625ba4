//! `ensure` against a server that refuses, is late, or is changed by others.

use std::time::Duration;

use model::Epoch;
use model::engine_state::Phase;
use orchestrator::kubernetes::Config;
use orchestrator::kubernetes::config::DEFAULT_EPOCH_GOOD_FOR;
use orchestrator::kubernetes::render;
use orchestrator::{Error, Orchestrator as _};
use serde_json::json;

use super::cluster::{Cluster, Fault, status};
use super::support::{EPOCH, NAMESPACE, all, config, datafusion, eventually, open, open_with, signer, spark};

const PODS: &str = "POST /api/v1/namespaces/rp-1--t-1/pods";
const SECRETS: &str = "POST /api/v1/namespaces/rp-1--t-1/secrets";
const EPOCH_READ: &str = "GET /api/v1/namespaces/enginehouse/configmaps/enginehouse-epoch-eh";

fn refusal<T: std::fmt::Debug>(result: Result<T, Error>, word: &str) {
    match result {
        Err(Error::Refused { reason, .. } | Error::Limit { reason }) if reason.contains(word) => {}
        other => panic!("not refused about {word:?}: {other:?}"),
    }
}

/// The calls without those that complete a pod.
fn first_calls(cluster: &Cluster) -> Vec<String> {
    let mut calls = cluster.calls();
    calls.retain(|call| call != SECRETS && !call.starts_with("PATCH "));
    calls
}

#[tokio::test]
async fn an_engine_without_executors_costs_an_epoch_read_two_creates_and_a_patch() {
    let cluster = Cluster::new();
    let kubernetes = open(&cluster);
    kubernetes.ensure(&datafusion(1), EPOCH).await.unwrap();
    cluster.calls();
    cluster.advance(DEFAULT_EPOCH_GOOD_FOR);
    kubernetes.ensure(&datafusion(2), EPOCH).await.unwrap();
    let patch = format!("PATCH /api/v1/namespaces/rp-1--t-1/pods/{}", datafusion(2).name);
    assert_eq!(cluster.calls(), [EPOCH_READ, PODS, SECRETS, &patch]);
    // Without waiting for a watch.
    assert_eq!(all(&kubernetes).await.engines.len(), 2);
    cluster.calls();
    all(&kubernetes).await;
    assert_eq!(cluster.calls(), Vec::<String>::new(), "a list makes no call");
}

#[tokio::test]
async fn concurrent_creates_share_their_epoch_reads() {
    let cluster = Cluster::new();
    let kubernetes = open(&cluster);
    kubernetes.ensure(&datafusion(1_000), EPOCH).await.unwrap();
    cluster.calls();
    let specs: Vec<_> = (0..100).map(datafusion).collect();
    let all = futures::future::join_all(specs.iter().map(|spec| kubernetes.ensure(spec, EPOCH))).await;
    assert!(all.iter().all(Result::is_ok), "{all:?}");
    let calls = cluster.calls();
    let reads = calls.iter().filter(|line| line.contains("enginehouse-epoch")).count();
    assert_eq!(calls.len() - reads, 300);
    assert!(reads <= 3, "{reads}");
}

#[tokio::test]
async fn an_epoch_read_admits_effects_for_a_limited_time() {
    let cluster = Cluster::new();
    let (deposed, acting) = (open(&cluster), open(&cluster));
    deposed.ensure(&datafusion(1), EPOCH).await.unwrap();
    acting.ensure(&datafusion(2), Epoch(EPOCH.0 + 1)).await.unwrap();
    cluster.calls();
    deposed.ensure(&datafusion(3), EPOCH).await.unwrap();
    assert_eq!(first_calls(&cluster), [PODS], "the clock does not move");
    cluster.advance(DEFAULT_EPOCH_GOOD_FOR);
    let refused = Err(Error::Deposed { epoch: EPOCH, highest: Epoch(EPOCH.0 + 1) });
    assert_eq!(deposed.ensure(&datafusion(4), EPOCH).await, refused);
    assert_eq!(cluster.calls(), [EPOCH_READ]);
    // A read that refuses is kept no longer than one that admits.
    assert_eq!(deposed.ensure(&datafusion(4), EPOCH).await, refused);
}

/// A process that is suspended after the reply continues with an epoch from before another master was elected.
#[tokio::test]
async fn effects_that_continue_after_a_suspension_read_the_epoch_again() {
    for suspended in [Duration::ZERO, Duration::from_mins(1)] {
        let cluster = Cluster::new();
        let (deposed, acting) = (open(&cluster), open(&cluster));
        deposed.ensure(&datafusion(1), EPOCH).await.unwrap();
        cluster.advance(DEFAULT_EPOCH_GOOD_FOR);
        cluster.calls();
        let specs: Vec<_> = (2..6).map(datafusion).collect();
        let mut waiting: Vec<_> = specs.iter().map(|spec| Box::pin(deposed.ensure(spec, EPOCH))).collect();
        // The first one reads for itself; the others arrive while it does.
        for effect in &mut waiting {
            assert!(futures::poll!(effect.as_mut()).is_pending());
        }
        waiting.remove(0).await.unwrap();
        cluster.advance(DEFAULT_EPOCH_GOOD_FOR);
        waiting.remove(0).await.unwrap();
        assert_eq!(first_calls(&cluster), [EPOCH_READ, PODS, EPOCH_READ, PODS], "the second read serves all waiters");
        acting.ensure(&datafusion(9), Epoch(EPOCH.0 + 1)).await.unwrap();
        cluster.calls();
        cluster.advance(suspended);
        let outcomes: Vec<_> = futures::future::join_all(waiting).await;
        let calls = first_calls(&cluster);
        if suspended.is_zero() {
            assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
            assert_eq!(calls, [PODS, PODS], "they continue at once");
        } else {
            let refused = Err(Error::Deposed { epoch: EPOCH, highest: Epoch(EPOCH.0 + 1) });
            assert_eq!(outcomes, [refused.clone(), refused]);
            assert_eq!(calls, [EPOCH_READ]);
        }
    }
}

#[tokio::test]
async fn a_silent_server_is_waited_for_once_by_all_effects() {
    let cluster = Cluster::new();
    let kubernetes = open_with(&cluster, Config { call_deadline: Duration::from_secs(1), ..config() });
    all(&kubernetes).await;
    cluster.calls();
    for _ in 0..20 {
        cluster.fail(EPOCH_READ, Fault::Silence);
    }
    let specs: Vec<_> = (0..20).map(datafusion).collect();
    let all = futures::future::join_all(specs.iter().map(|spec| kubernetes.ensure(spec, EPOCH))).await;
    assert!(all.iter().all(|result| result.as_ref().is_err_and(Error::is_retryable)), "{all:?}");
    // The first read began before the others arrived; the second serves all of them.
    assert_eq!(cluster.calls().len(), 2);
}

#[tokio::test]
async fn a_spark_engine_is_ungated_once_its_objects_exist() {
    let cluster = Cluster::new();
    let kubernetes = open(&cluster);
    let spec = spark(1);
    let made = kubernetes.ensure(&spec, EPOCH).await.unwrap();
    let name = spec.name.as_str();
    for resource in ["secrets", "services", "configmaps"] {
        let object = cluster.get(resource, NAMESPACE, name).unwrap();
        assert_eq!(object["metadata"]["ownerReferences"][0]["uid"], made.uid.as_str(), "{resource}");
    }
    let listing = eventually(&kubernetes, "it runs", |listing| {
        listing.engines.iter().any(|engine| engine.phase == Phase::Running)
    })
    .await;
    assert_eq!(listing.engines[0].uid, made.uid);
}

/// What a pod requests is not part of its labels: another version of the program may compute other amounts.
#[tokio::test]
async fn a_pod_that_requests_other_amounts_is_kept() {
    let cluster = Cluster::new();
    let kubernetes = open(&cluster);
    for spec in [datafusion(1), spark(2)] {
        let first = kubernetes.ensure(&spec, EPOCH).await.unwrap();
        let containers = || cluster.get("pods", NAMESPACE, spec.name.as_str()).unwrap()["spec"]["containers"].clone();
        let before = containers();
        let mut other = spec.clone();
        other.charge.driver.engine.overhead_bytes += 1 << 20;
        let rendered = |spec| render::engine(spec, &config(), &signer(), EPOCH).unwrap().pod.spec;
        assert_ne!(rendered(&other), rendered(&spec));
        let second = kubernetes.ensure(&other, EPOCH).await.unwrap();
        assert_eq!((second.uid, second.created), (first.uid, false));
        assert_eq!(containers(), before);
    }
}

#[tokio::test]
async fn a_pod_whose_objects_are_forbidden_is_deleted_again() {
    let cluster = Cluster::new();
    cluster.deny("create services");
    let kubernetes = open(&cluster);
    refusal(kubernetes.ensure(&spark(1), EPOCH).await, "permission denied");
    assert_eq!(cluster.names("pods"), Vec::<String>::new());
    assert!(all(&kubernetes).await.engines.is_empty());
}

#[tokio::test]
async fn the_deadline_of_a_gated_pod_is_measured_on_our_clock() {
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
        // A new master starts the measurement again.
        assert!(all(&open(&cluster)).await.engines[0].incomplete, "{created}");
    }
}

#[tokio::test]
async fn an_incomplete_pod_is_completed_by_the_next_ensure() {
    let cluster = Cluster::new();
    let (first, second) = (open(&cluster), open(&cluster));
    let spec = spark(1);
    cluster.fail("POST /api/v1/namespaces/rp-1--t-1/configmaps", Fault::Status(status(500, "", "no quorum")));
    let interrupted = first.ensure(&spec, EPOCH).await;
    assert!(interrupted.as_ref().is_err_and(Error::is_retryable), "{interrupted:?}");
    assert!(cluster.get("configmaps", NAMESPACE, spec.name.as_str()).is_none());
    eventually(&second, "it is listed as incomplete", |listing| listing.engines.iter().any(|engine| engine.incomplete))
        .await;
    let again = second.ensure(&spec, EPOCH).await.unwrap();
    assert!(!again.created);
    assert!(cluster.get("configmaps", NAMESPACE, spec.name.as_str()).is_some());
    eventually(&second, "it runs", |listing| listing.engines.iter().any(|engine| engine.phase == Phase::Running)).await;
}

/// A master may have died after the Secret, which it cannot read, or another one may complete the pod at the same time.
#[tokio::test]
async fn a_secret_that_exists_already_completes_a_pod() {
    let cluster = Cluster::new();
    let (first, second) = (open(&cluster), open(&cluster));
    let spec = datafusion(1);
    let patch = format!("PATCH /api/v1/namespaces/rp-1--t-1/pods/{}", spec.name);
    cluster.fail(&patch, Fault::Status(status(500, "", "no quorum")));
    let interrupted = first.ensure(&spec, EPOCH).await;
    assert!(interrupted.as_ref().is_err_and(Error::is_retryable), "{interrupted:?}");
    let secret = cluster.get("secrets", NAMESPACE, spec.name.as_str()).unwrap();
    eventually(&second, "it is listed as incomplete", |listing| listing.engines.iter().any(|engine| engine.incomplete))
        .await;
    assert!(!second.ensure(&spec, EPOCH).await.unwrap().created);
    assert_eq!(cluster.get("secrets", NAMESPACE, spec.name.as_str()).unwrap(), secret);
    eventually(&second, "it runs", |listing| listing.engines.iter().any(|engine| engine.phase == Phase::Running)).await;
    let reads = cluster.calls().into_iter().filter(|call| call.contains("/secrets") && call != SECRETS);
    assert_eq!(reads.collect::<Vec<_>>(), Vec::<String>::new(), "no Secret is read");
}

#[tokio::test]
async fn without_the_right_to_create_secrets_no_pod_is_left() {
    let cluster = Cluster::new();
    cluster.deny("create secrets");
    let kubernetes = open(&cluster);
    refusal(kubernetes.ensure(&datafusion(1), EPOCH).await, "permission denied");
    assert_eq!(cluster.names("pods"), Vec::<String>::new());
}

#[tokio::test]
async fn a_pod_that_is_never_completed_is_listed_as_ended_and_can_be_deleted() {
    let cluster = Cluster::new();
    let kubernetes = open(&cluster);
    let spec = spark(1);
    cluster.fail("POST /api/v1/namespaces/rp-1--t-1/services", Fault::Status(status(500, "", "no quorum")));
    kubernetes.ensure(&spec, EPOCH).await.unwrap_err();
    let listed = all(&kubernetes).await.engines.remove(0);
    assert_eq!((listed.phase, listed.incomplete), (Phase::Pending, true));
    cluster.advance(Duration::from_mins(2));
    // The watch may be late; an entry that it has not confirmed expires within these two minutes.
    let ended =
        |listing: &orchestrator::Listing| listing.engines.first().is_some_and(|engine| engine.phase == Phase::Ended);
    let engine = eventually(&kubernetes, "it is listed as ended", ended).await.engines.remove(0);
    assert_eq!(kubernetes.get(&spec.name, None).await.unwrap().unwrap().phase, Phase::Ended);
    kubernetes.delete(&spec.name, &engine.uid, Duration::ZERO, EPOCH).await.unwrap();
    assert_eq!(cluster.names("pods"), Vec::<String>::new());
}

#[tokio::test]
async fn after_a_lost_reply_the_same_call_finds_the_effect() {
    let cluster = Cluster::new();
    let kubernetes = open(&cluster);
    cluster.fail(PODS, Fault::LostReply(status(504, "Timeout", "request timed out")));
    let lost = kubernetes.ensure(&datafusion(1), EPOCH).await;
    assert!(lost.as_ref().is_err_and(Error::is_retryable), "{lost:?}");
    assert!(!kubernetes.ensure(&datafusion(1), EPOCH).await.unwrap().created);
    assert_eq!(cluster.names("pods").len(), 1);
}

#[tokio::test]
async fn a_silent_server_is_waited_for_with_a_limit() {
    let cluster = Cluster::new();
    let kubernetes = open_with(&cluster, Config { call_deadline: Duration::from_secs(1), ..config() });
    cluster.fail(PODS, Fault::Silence);
    let late = kubernetes.ensure(&datafusion(1), EPOCH).await;
    assert!(late.as_ref().is_err_and(Error::is_retryable), "{late:?}");
    assert!(late.unwrap_err().to_string().contains("no reply within 1 s"));
}

#[tokio::test]
async fn after_a_429_no_effect_is_sent_until_retry_after_is_over() {
    let cluster = Cluster::new();
    let kubernetes = open(&cluster);
    kubernetes.ensure(&datafusion(1), EPOCH).await.unwrap();
    let mut overloaded = status(429, "TooManyRequests", "please try again later");
    overloaded["details"] = json!({"retryAfterSeconds": 7});
    cluster.fail(PODS, Fault::Status(overloaded));
    assert!(kubernetes.ensure(&datafusion(2), EPOCH).await.unwrap_err().is_retryable());
    cluster.calls();
    let blocked = kubernetes.ensure(&datafusion(3), EPOCH).await.unwrap_err();
    assert!(blocked.is_retryable() && blocked.to_string().contains("asks to retry after 7 s"), "{blocked}");
    assert_eq!(cluster.calls(), Vec::<String>::new());
    assert_eq!(all(&kubernetes).await.engines.len(), 1, "lists continue");
    cluster.advance(Duration::from_secs(7));
    assert!(kubernetes.ensure(&datafusion(3), EPOCH).await.unwrap().created);
}

#[tokio::test]
async fn an_exceeded_quota_is_refused_and_one_being_counted_is_transient() {
    let cluster = Cluster::new();
    let kubernetes = open(&cluster);
    cluster.fail(PODS, Fault::Status(status(403, "Forbidden", "pods \"x\" is forbidden: exceeded quota: q")));
    refusal(kubernetes.ensure(&datafusion(1), EPOCH).await, "quota exceeded");
    cluster.fail(PODS, Fault::Status(status(409, "Conflict", "Operation cannot be fulfilled on resourcequotas \"q\"")));
    assert!(kubernetes.ensure(&datafusion(1), EPOCH).await.unwrap_err().is_retryable());
    assert!(kubernetes.ensure(&datafusion(1), EPOCH).await.unwrap().created);
}

#[tokio::test]
async fn a_foreign_pod_of_the_name_is_a_conflict_and_is_not_touched() {
    let cluster = Cluster::new();
    let kubernetes = open(&cluster);
    let spec = datafusion(1);
    let forged = json!({"metadata": {"name": spec.name.as_str(), "labels": spec.labels, "annotations":
        {"enginehouse.io/signature": "0".repeat(64)}}, "spec": {"containers": []}});
    cluster.put("pods", NAMESPACE, forged);
    let before = cluster.get("pods", NAMESPACE, spec.name.as_str());
    let conflict = kubernetes.ensure(&spec, EPOCH).await;
    assert!(matches!(&conflict, Err(Error::Conflict { reason, .. }) if reason.contains("foreign")), "{conflict:?}");
    let listing = eventually(&kubernetes, "it is listed", |listing| !listing.foreign.is_empty()).await;
    assert!(listing.engines.is_empty());
    assert_eq!(
        (listing.foreign[0].namespace.as_str(), listing.foreign[0].name.as_str()),
        (NAMESPACE, spec.name.as_str())
    );
    assert_eq!(kubernetes.get(&spec.name, None).await, Ok(None));
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
    refusal(theirs.ensure(&datafusion(2), EPOCH).await, "the selector of this installation");
    assert_eq!((all(&ours).await.engines.len(), all(&theirs).await.engines.len()), (1, 0));
    // Each has its own epoch.
    let mut spec = datafusion(3);
    spec.labels.insert("enginehouse.io/cluster".to_owned(), "other".to_owned());
    theirs.ensure(&spec, Epoch(1)).await.unwrap();
    assert_eq!(config().cluster, "eh");
}

#[tokio::test]
async fn an_unreadable_epoch_admits_no_effect() {
    let cluster = Cluster::new();
    let kubernetes = open(&cluster);
    cluster.put(
        "configmaps",
        "enginehouse",
        json!({"metadata": {"name": "enginehouse-epoch-eh"}, "data": {"epoch": "x"}}),
    );
    refusal(kubernetes.ensure(&datafusion(1), EPOCH).await, "invalid epoch");
    assert_eq!(cluster.names("pods"), Vec::<String>::new());
}
