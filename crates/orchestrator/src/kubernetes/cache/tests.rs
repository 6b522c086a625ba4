//! What the cache makes of late, lost, repeated and contradicting words.

use std::time::Duration;

use model::EngineName;
use model::credential::ClusterSecret;
use model::engine_state::Phase;
use model::labels::LabelMap;
use serde_json::{Value, json};

use super::*;
use crate::kubernetes::signature::SIGNATURE_ANNOTATION;

const SECOND: Duration = Duration::from_secs(1);
const NOW: Duration = Duration::from_hours(1);

fn signer() -> Signer {
    Signer::new(ClusterSecret::new(*b"0123456789abcdef").unwrap(), "eh")
}

fn cache() -> Cache {
    Cache::new(None, signer())
}

fn pod(name: &str, uid: &str, version: u64, change: &Value) -> Pod {
    let mut pod = json!({"metadata": {"name": name, "namespace": "n", "uid": uid, "resourceVersion": version.to_string(),
        "annotations": {SIGNATURE_ANNOTATION: signer().sign("n", name), "enginehouse.io/file-0": "secret"}},
        "spec": {"containers": [{"name": "engine-agent", "image": "i"}]}, "status": {"phase": "Pending"}});
    for (key, value) in change.as_object().unwrap() {
        pod["status"][key] = value.clone();
    }
    serde_json::from_value(pod).unwrap()
}

fn failed() -> Value {
    json!({"phase": "Failed"})
}

fn names_at(cache: &Cache, now: Duration) -> Vec<(String, Phase)> {
    let listing = cache.list(&LabelMap::new(), now, 0);
    listing.engines.into_iter().map(|it| (it.uid, it.phase)).collect()
}

fn names(cache: &Cache) -> Vec<(String, Phase)> {
    names_at(cache, NOW)
}

fn read(cache: &Cache, pods: &[Pod]) {
    cache.begin(0);
    for pod in pods {
        cache.told(0, pod.clone());
    }
    cache.done(0, NOW);
}

#[test]
fn an_older_version_never_takes_the_place_of_a_newer_one() {
    let cache = cache();
    read(&cache, &[pod("a", "u1", 5, &failed())]);
    cache.told(0, pod("a", "u1", 4, &json!({})));
    cache.wrote(pod("a", "u1", 3, &json!({})), NOW);
    assert_eq!(names(&cache), [("u1".to_owned(), Phase::Ended)]);
    cache.told(0, pod("a", "u2", 6, &json!({})));
    assert_eq!(names(&cache), [("u2".to_owned(), Phase::Pending)]);
    cache.told(0, pod("a", "u1", 5, &failed()));
    assert_eq!(names(&cache), [("u2".to_owned(), Phase::Pending)], "an earlier pod of the name");
}

#[test]
fn what_was_seen_to_go_is_not_brought_back_by_a_late_word() {
    let cache = cache();
    read(&cache, &[pod("a", "u1", 5, &json!({}))]);
    cache.gone("n", "a", "u1");
    cache.told(0, pod("a", "u1", 6, &json!({})));
    cache.wrote(pod("a", "u1", 7, &json!({})), NOW);
    read(&cache, &[pod("a", "u1", 6, &json!({}))]);
    assert_eq!(names(&cache), []);
}

#[test]
fn a_pod_that_left_the_watch_with_a_label_comes_back_with_a_newer_version() {
    let cache = cache();
    read(&cache, &[pod("a", "u1", 5, &json!({}))]);
    cache.removed(&pod("a", "u1", 6, &json!({})));
    cache.told(0, pod("a", "u1", 5, &json!({})));
    assert_eq!(names(&cache), []);
    cache.told(0, pod("a", "u1", 7, &json!({})));
    assert_eq!(names(&cache).len(), 1);
}

#[test]
fn what_is_foreign_is_listed_apart_and_there_is_a_limit() {
    let cache = cache();
    cache.begin(0);
    for at in 0..MAX_FOREIGN + 5 {
        let mut foreign = pod(&format!("a-{at}"), &format!("u{at}"), 1, &json!({}));
        foreign.metadata.annotations = None;
        cache.told(0, foreign);
    }
    cache.told(0, pod("b", "ours", 1, &json!({})));
    cache.done(0, NOW);
    let listing = cache.list(&LabelMap::new(), NOW, 0);
    assert_eq!((listing.engines.len(), listing.foreign.len()), (1, MAX_FOREIGN));
    // Somebody takes the signature of ours away, and gives it back.
    let mut stripped = pod("b", "ours", 2, &json!({}));
    stripped.metadata.annotations = None;
    cache.told(0, stripped);
    assert_eq!((names(&cache), cache.is_full(1)), (Vec::new(), None));
    cache.told(0, pod("b", "ours", 3, &json!({})));
    assert_eq!((names(&cache).len(), cache.is_full(1), cache.is_full(2)), (1, Some(1), None));
    read(&cache, &[]);
    assert_eq!(cache.list(&LabelMap::new(), NOW, 0).foreign, []);
}

#[test]
fn the_end_of_an_earlier_pod_says_nothing_about_the_later_one() {
    let cache = cache();
    read(&cache, &[pod("a", "u2", 6, &json!({}))]);
    cache.removed(&pod("a", "u1", 5, &json!({})));
    assert_eq!(names(&cache).len(), 1);
}

#[test]
fn a_reading_removes_what_it_did_not_contain_when_it_is_complete_and_not_before() {
    let cache = cache();
    read(&cache, &[pod("a", "u1", 1, &json!({})), pod("b", "u2", 2, &json!({}))]);
    cache.begin(0);
    cache.told(0, pod("b", "u2", 2, &json!({})));
    assert_eq!(names(&cache).len(), 2);
    cache.done(0, NOW);
    assert_eq!(names(&cache), [("u2".to_owned(), Phase::Pending)]);
}

#[test]
fn a_reading_that_began_before_a_create_does_not_remove_it() {
    let cache = cache();
    read(&cache, &[]);
    cache.begin(0);
    cache.wrote(pod("a", "u1", 9, &json!({})), NOW);
    cache.done(0, NOW);
    assert_eq!(names(&cache).len(), 1);
}

#[test]
fn what_no_watch_confirms_is_forgotten_after_a_minute_and_what_one_does_is_not() {
    let cache = cache();
    read(&cache, &[]);
    cache.wrote(pod("a", "u1", 1, &json!({})), NOW);
    cache.wrote(pod("b", "u2", 2, &json!({})), NOW);
    // The same version again: it tells nothing new, and confirms.
    cache.told(0, pod("b", "u2", 2, &json!({})));
    cache.wrote(pod("b", "u2", 3, &json!({})), NOW);
    assert_eq!(names_at(&cache, NOW + SECOND * 59).len(), 2);
    assert_eq!(names_at(&cache, NOW + SECOND * 60), [("u2".to_owned(), Phase::Pending)]);
}

#[test]
fn a_watch_that_is_broken_for_a_moment_is_forgiven() {
    let cache = cache();
    let error = Error::transient("no route");
    assert_eq!(cache.belief(NOW), Belief::Unfilled);
    cache.broke(0, error.clone(), NOW);
    assert_eq!(cache.belief(NOW), Belief::Broken(error.clone()), "nothing was ever read");
    read(&cache, &[]);
    cache.broke(0, error.clone(), NOW);
    cache.broke(0, error.clone(), NOW + SECOND * 10);
    assert_eq!(cache.belief(NOW + SECOND * 14), Belief::Complete);
    assert_eq!(cache.belief(NOW + SECOND * 15), Belief::Broken(error));
    read(&cache, &[]);
    assert_eq!(cache.belief(NOW + SECOND * 99), Belief::Complete);
}

#[test]
fn a_warning_belongs_to_one_uid_and_goes_with_it() {
    let cache = cache();
    let warning = || Warning { word: "FailedScheduling".to_owned(), message: "no".to_owned(), times: 1, last_ms: 1 };
    read(&cache, &[pod("a", "u1", 1, &json!({}))]);
    cache.warned("n", "a", "another", warning());
    assert_eq!(cache.warnings("another"), []);
    cache.warned("n", "a", "u1", warning());
    let name = EngineName::new("a").unwrap();
    assert_eq!(cache.find(&name).unwrap().observed.reason.as_deref(), Some("no node takes it: no"));
    read(&cache, &[]);
    assert_eq!((cache.warnings("u1"), cache.find(&name)), (Vec::new(), None));
}

#[test]
fn neither_files_nor_most_of_the_spec_are_kept() {
    let cache = cache();
    read(&cache, &[pod("a", "u1", 1, &json!({}))]);
    let inner = cache.lock();
    let text = serde_json::to_string(&inner.entries.values().next().unwrap().pod).unwrap();
    assert!(!text.contains("secret") && !text.contains("image"), "{text}");
}

#[test]
fn nobody_is_woken_for_what_changes_nothing() {
    let cache = cache();
    read(&cache, &[pod("a", "u1", 1, &json!({}))]);
    let mut wake_ups = cache.watch();
    cache.told(0, pod("a", "u1", 2, &json!({})));
    let mut waiting = std::pin::pin!(wake_ups.wait());
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(Future::poll(waiting.as_mut(), &mut context).is_pending());
    cache.told(0, pod("a", "u1", 3, &failed()));
    assert!(Future::poll(waiting.as_mut(), &mut context).is_ready());
}
