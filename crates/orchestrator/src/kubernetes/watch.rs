//! The tasks that keep the cache: one watch of pods and one of their warnings for each scope, one of nodes.
//!
//! A watch is `kube`'s: it lists, watches from there, goes on from its bookmark when the server ends it, and lists again
//! after 410. It is begun anew, with a list, after every error and every ten minutes: an event that was lost on the way is
//! never repeated, so only a list heals it. What a watch can't do is told once, once a minute, and when it is over.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Event as Occurrence, Node};
use kube::Resource;
use kube::api::Api;
use kube::runtime::watcher::{self, Event, watcher};
use model::labels::LabelMap;
use model::log_throttle::LogThrottle;
use serde::de::DeserializeOwned;
use tokio::task::JoinHandle;

use super::answer::Failure;
use super::lean::Lean;
use super::place::Place;
use super::read::Warning;
use crate::Error;

/// How long the server keeps a watch open: a connection that died silently is noticed five seconds after.
pub(super) const WATCH_SECONDS: u32 = 55;
/// How often everything is read anew.
pub const RELIST: Duration = Duration::from_mins(10);
/// How much later the next watch does so, so that many don't list at the same moment.
const RELIST_APART: Duration = Duration::from_secs(7);
/// After how many watches the lateness begins again from nothing.
const RELIST_GROUPS: usize = 60;
/// Objects in one answer of a list.
const PAGE: u32 = 500;
/// The pause after the first error of a watch, doubled with each further one.
const PAUSE_FIRST: Duration = Duration::from_millis(200);
/// The longest pause.
const PAUSE_MOST: Duration = Duration::from_secs(10);
/// Warnings about pods and nothing else: the server chooses.
const WARNINGS_OF_PODS: &str = "type=Warning,involvedObject.kind=Pod";

/// What a watch does with what it is told.
trait Keep<K>: Send + 'static {
    fn begin(&self) {}
    fn told(&self, object: K);
    fn removed(&self, object: K);
    fn done(&self) {}
    fn broke(&self, error: Error);
}

/// Starts all watches.
pub(super) fn start(place: &Arc<Place>) -> Vec<JoinHandle<()>> {
    let namespaces: Vec<Option<String>> = match &place.config.namespaces {
        None => vec![None],
        Some(listed) => listed.iter().cloned().map(Some).collect(),
    };
    let mut tasks = Vec::new();
    for (scope, namespace) in namespaces.into_iter().enumerate() {
        let labelled = watcher::Config::default().labels(&selector(&place.config.selector));
        let of_pods = Pods { place: Arc::clone(place), scope };
        tasks.push(spawn(place, ("pods", scope), api::<Lean>(place, namespace.as_deref()), labelled, of_pods, now()));
        let warnings = watcher::Config::default().fields(WARNINGS_OF_PODS);
        let keeper = Warnings { place: Arc::clone(place) };
        let events = api::<Occurrence>(place, namespace.as_deref());
        // What is warned of a pod that is not known is not kept.
        tasks.push(spawn(place, ("events", scope), events, warnings, keeper, filled(Arc::clone(place), scope)));
    }
    let nodes = OfNodes { place: Arc::clone(place) };
    let all = Api::<Node>::all(place.client.clone());
    tasks.push(spawn(place, ("nodes", 0), all, watcher::Config::default(), nodes, now()));
    tasks
}

fn now() -> std::future::Ready<()> {
    std::future::ready(())
}

/// Waits until the pods of the scope were read.
async fn filled(place: Arc<Place>, scope: usize) {
    let mut wake_ups = place.cache.watch();
    while !place.cache.is_filled(scope) {
        wake_ups.wait().await;
    }
}

fn api<K>(place: &Place, namespace: Option<&str>) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
{
    match namespace {
        None => Api::all(place.client.clone()),
        Some(namespace) => Api::namespaced(place.client.clone(), namespace),
    }
}

/// Labels as a selector: all of them must have these values.
pub(super) fn selector(labels: &LabelMap) -> String {
    labels.iter().map(|(label, value)| format!("{label}={value}")).collect::<Vec<_>>().join(",")
}

fn spawn<K>(
    place: &Arc<Place>,
    (what, number): (&'static str, usize),
    api: Api<K>,
    config: watcher::Config,
    keeper: impl Keep<K> + Sync,
    ready: impl Future<Output = ()> + Send + 'static,
) -> JoinHandle<()>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let clock = Arc::clone(&place.clock);
    let config = config.timeout(WATCH_SECONDS).page_size(PAGE);
    let relist = RELIST + RELIST_APART * (number % RELIST_GROUPS) as u32;
    tokio::spawn(async move {
        ready.await;
        let (mut throttle, mut pause) = (LogThrottle::default(), PAUSE_FIRST);
        loop {
            let error = follow(&api, &config, relist, &keeper, &mut || {
                pause = PAUSE_FIRST;
                if throttle.clear().is_some() {
                    tracing::info!(what, "the watch works again");
                }
            })
            .await;
            let Some(error) = error else { continue };
            let failure = failure(&error);
            let error = failure.into_error(&format!("watch {what}"));
            if let Some(times) = throttle.hit(clock.boottime()) {
                tracing::warn!(what, %error, times, "the watch is broken");
            }
            keeper.broke(error);
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MOST);
        }
    })
}

/// One watch, until it fails (with the error) or is old.
async fn follow<K>(
    api: &Api<K>,
    config: &watcher::Config,
    relist: Duration,
    keeper: &impl Keep<K>,
    read: &mut (impl FnMut() + Send),
) -> Option<watcher::Error>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let mut events = watcher(api.clone(), config.clone()).boxed();
    let old = tokio::time::sleep(relist);
    tokio::pin!(old);
    loop {
        let event = tokio::select! {
            event = events.next() => event?,
            () = &mut old => return None,
        };
        match event {
            Ok(Event::Init) => keeper.begin(),
            Ok(Event::InitApply(object) | Event::Apply(object)) => keeper.told(object),
            Ok(Event::Delete(object)) => keeper.removed(object),
            Ok(Event::InitDone) => {
                keeper.done();
                read();
            }
            Err(error) => return Some(error),
        }
    }
}

fn failure(error: &watcher::Error) -> Failure {
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => Failure::of(error),
        watcher::Error::WatchError(status) => Failure::of_status(status),
        watcher::Error::NoResourceVersion => Failure::Passing(error.to_string()),
    }
}

struct Pods {
    place: Arc<Place>,
    scope: usize,
}

impl Keep<Lean> for Pods {
    fn begin(&self) {
        self.place.cache.begin(self.scope);
    }
    fn told(&self, object: Lean) {
        self.place.cache.told(self.scope, object.0);
    }
    fn removed(&self, object: Lean) {
        self.place.cache.removed(&object.0);
    }
    fn done(&self) {
        self.place.cache.done(self.scope, self.place.clock.boottime());
    }
    fn broke(&self, error: Error) {
        self.place.cache.broke(self.scope, error, self.place.clock.boottime());
    }
}

/// Without warnings a listing lacks words, nothing else.
struct Warnings {
    place: Arc<Place>,
}

impl Keep<Occurrence> for Warnings {
    fn told(&self, object: Occurrence) {
        let Some(warning) = Warning::of(&object) else { return };
        let about = object.involved_object;
        if let (Some(namespace), Some(name), Some(uid)) = (about.namespace, about.name, about.uid) {
            self.place.cache.warned(&namespace, &name, &uid, warning);
        }
    }
    fn removed(&self, _: Occurrence) {}
    fn broke(&self, _: Error) {}
}

struct OfNodes {
    place: Arc<Place>,
}

impl Keep<Node> for OfNodes {
    fn begin(&self) {
        self.place.cache.with_nodes(|nodes| (nodes.begin(), false));
    }
    fn told(&self, object: Node) {
        self.place.cache.with_nodes(|nodes| ((), nodes.told(&object)));
    }
    fn removed(&self, object: Node) {
        self.place.cache.with_nodes(|nodes| ((), nodes.removed(&object)));
    }
    fn done(&self) {
        self.place.cache.with_nodes(|nodes| ((), nodes.done()));
    }
    fn broke(&self, _: Error) {
        self.place.cache.with_nodes(|nodes| (nodes.broke(), true));
    }
}
