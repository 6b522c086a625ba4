//! The store with late, lost, repeated and contradictory events.

use std::time::Duration;

use model::EngineName;
use model::engine_state::Phase;
use model::labels::LabelMap;
use serde_json::{Value, json};

use super::executors::MAX_EXECUTORS;
use super::foreign::MAX_FOREIGN;
use super::*;
use crate::kubernetes::signature::{self, SIGNATURE_ANNOTATION};

const SECOND: Duration = Duration::from_secs(1);
const NOW: Duration = Duration::from_hours(1);

fn signer() -> Signer {
    signature::tests::signer("eh")
}

fn store() -> Store {
    Store::new(None, signer())
}

fn pod(name: &str, uid: &str, version: u64, status: &Value) -> TrimmedPod {
    TrimmedPod::from(whole_pod(name, uid, version, status))
}

fn whole_pod(name: &str, uid: &str, version: u64, status: &Value) -> Pod {
    let mut pod = json!({"metadata": {"name": name, "namespace": "n", "uid": uid, "resourceVersion": version.to_string(),
        "annotations": {SIGNATURE_ANNOTATION: signer().sign("n", name), "enginehouse.io/file-0": "secret"}},
        "spec": {"containers": [{"name": "engine-agent", "image": "i"}]}, "status": {"phase": "Pending"}});
    for (key, value) in status.as_object().unwrap() {
        pod["status"][key] = value.clone();
    }
    serde_json::from_value(pod).unwrap()
}

fn failed() -> Value {
    json!({"phase": "Failed"})
}

fn engines_at(store: &Store, now: Duration) -> Vec<(String, Phase)> {
    let listing = store.list(&LabelMap::new(), now, 0);
    listing.engines.into_iter().map(|engine| (engine.uid.clone(), engine.phase)).collect()
}

fn engines(store: &Store) -> Vec<(String, Phase)> {
    engines_at(store, NOW)
}

fn resync(store: &Store, pods: &[TrimmedPod]) {
    store.begin_resync(0);
    for pod in pods {
        store.apply_event(0, pod.clone());
    }
    store.finish_resync(0, NOW);
}

#[test]
fn an_older_version_never_replaces_a_newer_one() {
    let store = store();
    resync(&store, &[pod("a", "u1", 5, &failed())]);
    store.apply_event(0, pod("a", "u1", 4, &json!({})));
    store.apply_reply(whole_pod("a", "u1", 3, &json!({})), NOW);
    assert_eq!(engines(&store), [("u1".to_owned(), Phase::Ended)]);
    store.apply_event(0, pod("a", "u2", 6, &json!({})));
    assert_eq!(engines(&store), [("u2".to_owned(), Phase::Pending)]);
    store.apply_event(0, pod("a", "u1", 5, &failed()));
    assert_eq!(engines(&store), [("u2".to_owned(), Phase::Pending)], "an earlier pod of the name");
}

#[test]
fn a_late_event_does_not_restore_a_deleted_pod() {
    let store = store();
    resync(&store, &[pod("a", "u1", 5, &json!({}))]);
    store.remove("n", "a", "u1");
    store.apply_event(0, pod("a", "u1", 6, &json!({})));
    store.apply_reply(whole_pod("a", "u1", 7, &json!({})), NOW);
    resync(&store, &[pod("a", "u1", 6, &json!({}))]);
    assert_eq!(engines(&store), []);
}

#[test]
fn a_pod_that_left_the_watch_with_a_label_comes_back_with_a_newer_version() {
    let store = store();
    resync(&store, &[pod("a", "u1", 5, &json!({}))]);
    store.apply_delete(&pod("a", "u1", 6, &json!({})));
    store.apply_event(0, pod("a", "u1", 5, &json!({})));
    assert_eq!(engines(&store), []);
    store.apply_event(0, pod("a", "u1", 7, &json!({})));
    assert_eq!(engines(&store).len(), 1);
}

#[test]
fn foreign_pods_are_listed_separately_up_to_a_limit() {
    let store = store();
    store.begin_resync(0);
    for at in 0..MAX_FOREIGN + 5 {
        let mut foreign = pod(&format!("a-{at}"), &format!("u{at}"), 1, &json!({}));
        foreign.0.metadata.annotations = None;
        store.apply_event(0, foreign);
    }
    store.apply_event(0, pod("b", "ours", 1, &json!({})));
    store.finish_resync(0, NOW);
    let listing = store.list(&LabelMap::new(), NOW, 0);
    assert_eq!((listing.engines.len(), listing.foreign.len()), (1, MAX_FOREIGN));
    // An engine loses its signature and gets it back.
    let mut stripped = pod("b", "ours", 2, &json!({}));
    stripped.0.metadata.annotations = None;
    store.apply_event(0, stripped);
    assert_eq!((engines(&store), store.count_if_full(1)), (Vec::new(), None));
    store.apply_event(0, pod("b", "ours", 3, &json!({})));
    assert_eq!((engines(&store).len(), store.count_if_full(1), store.count_if_full(2)), (1, Some(1), None));
    resync(&store, &[]);
    assert_eq!(store.list(&LabelMap::new(), NOW, 0).foreign, []);
}

#[test]
fn the_deletion_of_an_earlier_pod_does_not_remove_a_later_one() {
    let store = store();
    resync(&store, &[pod("a", "u2", 6, &json!({}))]);
    store.apply_delete(&pod("a", "u1", 5, &json!({})));
    assert_eq!(engines(&store).len(), 1);
}

#[test]
fn only_a_complete_resync_removes_what_it_did_not_contain() {
    let store = store();
    resync(&store, &[pod("a", "u1", 1, &json!({})), pod("b", "u2", 2, &json!({}))]);
    store.begin_resync(0);
    store.apply_event(0, pod("b", "u2", 2, &json!({})));
    assert_eq!(engines(&store).len(), 2);
    store.finish_resync(0, NOW);
    assert_eq!(engines(&store), [("u2".to_owned(), Phase::Pending)]);
}

#[test]
fn a_resync_that_began_before_a_create_does_not_remove_it() {
    let store = store();
    resync(&store, &[]);
    store.begin_resync(0);
    store.apply_reply(whole_pod("a", "u1", 9, &json!({})), NOW);
    store.finish_resync(0, NOW);
    assert_eq!(engines(&store).len(), 1);
}

#[test]
fn an_entry_that_no_watch_confirms_expires_after_a_minute() {
    let store = store();
    resync(&store, &[]);
    store.apply_reply(whole_pod("a", "u1", 1, &json!({})), NOW);
    store.apply_reply(whole_pod("b", "u2", 2, &json!({})), NOW);
    // The same version again: it changes nothing, but confirms.
    store.apply_event(0, pod("b", "u2", 2, &json!({})));
    store.apply_reply(whole_pod("b", "u2", 3, &json!({})), NOW);
    assert_eq!(engines_at(&store, NOW + SECOND * 59).len(), 2);
    assert_eq!(engines_at(&store, NOW + SECOND * 60), [("u2".to_owned(), Phase::Pending)]);
}

#[test]
fn a_briefly_broken_watch_fails_no_listing() {
    let store = store();
    let error = Error::transient("no route");
    assert_eq!(store.state(NOW), StoreState::Filling);
    store.mark_broken(0, error.clone(), NOW);
    assert_eq!(store.state(NOW), StoreState::Broken(error.clone()), "never listed");
    resync(&store, &[]);
    store.mark_broken(0, error.clone(), NOW);
    store.mark_broken(0, error.clone(), NOW + SECOND * 10);
    assert_eq!(store.state(NOW + SECOND * 14), StoreState::Ready);
    assert_eq!(store.state(NOW + SECOND * 15), StoreState::Broken(error));
    resync(&store, &[]);
    assert_eq!(store.state(NOW + SECOND * 99), StoreState::Ready);
}

#[test]
fn a_warning_belongs_to_one_uid_and_is_dropped_with_it() {
    let store = store();
    let warning = || Warning { reason: "FailedScheduling".to_owned(), message: "no".to_owned(), count: 1, last_ms: 1 };
    resync(&store, &[pod("a", "u1", 1, &json!({}))]);
    store.add_warning("n", "a", "another", warning());
    assert_eq!(store.warnings("another"), []);
    store.add_warning("n", "a", "u1", warning());
    let name = EngineName::new("a").unwrap();
    assert_eq!(store.find(&name).unwrap().observed.reason.as_deref(), Some("no node can run it: no"));
    resync(&store, &[]);
    assert_eq!((store.warnings("u1"), store.find(&name)), (Vec::new(), None));
}

#[test]
fn files_and_most_of_the_spec_are_not_kept() {
    let store = store();
    resync(&store, &[pod("a", "u1", 1, &json!({}))]);
    let inner = store.lock();
    let text = serde_json::to_string(&inner.entries.values().next().unwrap().pod.0).unwrap();
    assert!(!text.contains("secret") && !text.contains("image"), "{text}");
}

#[test]
fn an_event_without_a_change_wakes_no_watcher() {
    let store = store();
    resync(&store, &[pod("a", "u1", 1, &json!({}))]);
    let mut wake_ups = store.watch();
    store.apply_event(0, pod("a", "u1", 2, &json!({})));
    let mut waiting = std::pin::pin!(wake_ups.wait());
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(Future::poll(waiting.as_mut(), &mut context).is_pending());
    store.apply_event(0, pod("a", "u1", 3, &failed()));
    assert!(Future::poll(waiting.as_mut(), &mut context).is_ready());
}

/// An executor of engine `a` on a node.
fn executor(name: &str, uid: &str, version: u64) -> TrimmedPod {
    let pod = json!({"metadata": {"name": name, "namespace": "n", "uid": uid, "resourceVersion": version.to_string(),
        "labels": {"enginehouse.io/role": "executor", "name": "a"}},
        "spec": {"nodeName": "node-1", "containers": [{"name": "spark-kubernetes-executor",
            "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "1Gi"}}}]},
        "status": {"phase": "Running"}});
    TrimmedPod::from(serde_json::from_value::<Pod>(pod).unwrap())
}

/// How many executors the only engine has, and the CPU that they may use.
fn executors(store: &Store) -> (u32, u64) {
    let engine = store.list(&LabelMap::new(), NOW, 0).engines.remove(0);
    let executors = &engine.pods.as_ref().unwrap().executors;
    (executors.count, executors.total.cpu_millis)
}

#[test]
fn an_older_version_of_an_executor_changes_nothing() {
    let store = store();
    resync(&store, &[pod("a", "u1", 5, &json!({})), executor("x", "u2", 7)]);
    assert_eq!(executors(&store), (1, 2_000));
    let mut ended = executor("x", "u2", 6);
    ended.0.status.get_or_insert_default().phase = Some("Failed".to_owned());
    store.apply_event(0, ended.clone());
    assert_eq!(executors(&store).0, 1);
    ended.0.metadata.resource_version = Some("8".to_owned());
    store.apply_event(0, ended);
    assert_eq!(executors(&store).0, 0);
    store.apply_event(0, executor("x", "u3", 9));
    store.apply_delete(&executor("x", "u2", 10));
    assert_eq!(executors(&store).0, 1, "the deletion of an earlier pod of the name");
    resync(&store, &[pod("a", "u1", 5, &json!({}))]);
    assert_eq!(executors(&store).0, 0);
}

#[test]
fn listings_share_an_engine_until_it_or_an_executor_changes() {
    let store = store();
    resync(&store, &[pod("a", "u1", 5, &json!({})), executor("x", "u2", 7)]);
    let list = || store.list(&LabelMap::new(), NOW, 0).engines.remove(0);
    let (first, again) = (list(), list());
    assert!(Shared::is_same(&first, &again) && first.pods.as_ref().unwrap().executors.count == 1);
    store.apply_event(0, executor("y", "u3", 8));
    let more = list();
    assert!(!Shared::is_same(&more, &again) && more.pods.as_ref().unwrap().executors.count == 2);
    store.apply_delete(&executor("y", "u3", 9));
    assert_eq!(list(), first);
    store.apply_event(0, pod("a", "u1", 10, &failed()));
    let ended = list();
    assert!(!Shared::is_same(&ended, &first) && ended.phase == Phase::Ended);
    assert!(Shared::is_same(&ended, &list()));
}

#[test]
fn a_pod_whose_role_is_changed_moves_between_engines_and_executors() {
    let store = store();
    resync(&store, &[pod("a", "u1", 5, &json!({})), pod("b", "u2", 6, &json!({}))]);
    let mut relabelled = executor("b", "u2", 7);
    relabelled.0.metadata.annotations = pod("b", "u2", 7, &json!({})).0.metadata.annotations;
    store.apply_event(0, relabelled);
    assert_eq!((engines(&store).len(), executors(&store).0), (1, 1));
    store.apply_event(0, pod("b", "u2", 6, &json!({})));
    assert_eq!(engines(&store).len(), 1, "an older version");
    store.apply_event(0, pod("b", "u2", 8, &json!({})));
    assert_eq!((engines(&store).len(), executors(&store).0), (2, 0));
    // A foreign pod.
    store.apply_event(0, executor("x", "u3", 9));
    let mut foreign = executor("x", "u3", 10);
    foreign.0.metadata.labels.get_or_insert_default().insert("enginehouse.io/role".to_owned(), "engine".to_owned());
    store.apply_event(0, foreign);
    let foreign = |store: &Store| store.list(&LabelMap::new(), NOW, 0).foreign.len();
    assert_eq!((executors(&store).0, foreign(&store)), (0, 1));
    store.apply_event(0, executor("x", "u3", 11));
    assert_eq!((executors(&store).0, foreign(&store)), (1, 0));
}

#[test]
fn executors_above_the_limit_are_not_counted() {
    let mut executors = Executors::default();
    let mut pod = executor("x", "u", 9);
    for number in 0..MAX_EXECUTORS {
        pod.0.metadata.name = Some(number.to_string());
        assert!(executors.apply(&pod));
    }
    let (last, another) = (pod, executor("another", "u", 9));
    assert!(!executors.apply(&another));
    assert_eq!(executors.on_nodes().count(), MAX_EXECUTORS);
    assert!(executors.remove(&last.key(), last.uid()) && executors.apply(&another), "one takes the place of another");
    assert_eq!(executors.on_nodes().count(), MAX_EXECUTORS);
}
