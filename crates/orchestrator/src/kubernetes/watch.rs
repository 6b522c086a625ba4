//! The reflectors: the watches that fill the store, one of pods and one of their warnings for each scope, and one of nodes.
//!
//! A watch is `kube`'s: it lists, watches from there, resumes from its bookmark when the server ends it, and lists again
//! after 410. It is restarted with a list (a resync) after every error and every ten minutes, because an event that was lost
//! is never repeated and only a list recovers it. The failure of a watch is logged when it begins, once a minute, and when it
//! is over.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Event as WarningEvent, Node};
use kube::Resource;
use kube::api::Api;
use kube::runtime::watcher::{self, Event, watcher};
use model::cause::chain;
use model::labels::{LabelMap, ROLE, ROLE_ENGINE, ROLE_EXECUTOR};
use model::log_throttle::LogThrottle;
use serde::de::DeserializeOwned;
use tokio::task::JoinHandle;

use super::cluster::Cluster;
use super::error::CallError;
use super::read::Warning;
use super::trimmed::TrimmedPod;
use crate::Error;

/// How long the server keeps a watch open. A connection that dies silently is noticed ten seconds later.
pub(super) const WATCH_SECONDS: u32 = 55;
/// The interval between two resyncs.
pub const RESYNC_INTERVAL: Duration = Duration::from_mins(10);
/// How much longer the interval of each further watch is, so that many do not list at the same moment.
const RESYNC_STAGGER: Duration = Duration::from_secs(7);
/// The number of watches after which the stagger starts again from zero.
const RESYNC_GROUPS: usize = 60;
/// The page size of a list.
const PAGE_SIZE: u32 = 500;
/// The delay after the first error of a watch, doubled with each further one.
const MIN_BACKOFF: Duration = Duration::from_millis(200);
const MAX_BACKOFF: Duration = Duration::from_secs(10);
/// The field selector of warnings about pods.
const WARNINGS_OF_PODS: &str = "type=Warning,involvedObject.kind=Pod";

/// The consumer of a watch.
trait Sink<K>: Send + 'static {
    fn begin_resync(&self) {}
    fn apply(&self, object: K);
    fn delete(&self, object: K);
    fn finish_resync(&self) {}
    fn mark_broken(&self, error: Error);
}

/// Starts all watches.
pub(super) fn start(cluster: &Arc<Cluster>) -> Vec<JoinHandle<()>> {
    let namespaces: Vec<Option<String>> = match &cluster.config.namespaces {
        None => vec![None],
        Some(listed) => listed.iter().cloned().map(Some).collect(),
    };
    let mut tasks = Vec::new();
    for (scope, namespace) in namespaces.into_iter().enumerate() {
        let labelled = watcher::Config::default().labels(&with_executors(&cluster.config.selector));
        let pods = api::<TrimmedPod>(cluster, namespace.as_deref());
        let pod_sink = PodSink { cluster: Arc::clone(cluster), scope };
        tasks.push(spawn(cluster, ("pods", scope), pods, labelled, pod_sink, std::future::ready(())));
        let warnings = watcher::Config::default().fields(WARNINGS_OF_PODS);
        let events = api::<WarningEvent>(cluster, namespace.as_deref());
        let warning_sink = WarningSink { cluster: Arc::clone(cluster) };
        // Warnings about unknown pods are dropped, so the pods come first.
        let synced = wait_until_synced(Arc::clone(cluster), scope);
        tasks.push(spawn(cluster, ("events", scope), events, warnings, warning_sink, synced));
    }
    let all = Api::<Node>::all(cluster.client.clone());
    let node_sink = NodeSink { cluster: Arc::clone(cluster) };
    let everything = watcher::Config::default();
    tasks.push(spawn(cluster, ("nodes", 0), all, everything, node_sink, std::future::ready(())));
    tasks
}

/// Waits until the pods of the scope have been listed.
async fn wait_until_synced(cluster: Arc<Cluster>, scope: usize) {
    let mut wake_ups = cluster.store.watch();
    while !cluster.store.is_synced(scope) {
        wake_ups.wait().await;
    }
}

fn api<K>(cluster: &Cluster, namespace: Option<&str>) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
{
    match namespace {
        None => Api::all(cluster.client.clone()),
        Some(namespace) => Api::namespaced(cluster.client.clone(), namespace),
    }
}

/// The label selector of the pods with these labels. Of those with the role of an engine also the executors, which have all other
/// labels of their engine.
fn with_executors(labels: &LabelMap) -> String {
    let requirement = |(label, value): (&String, &String)| match (label.as_str(), value.as_str()) {
        (ROLE, ROLE_ENGINE) => format!("{ROLE} in ({ROLE_ENGINE},{ROLE_EXECUTOR})"),
        (label, value) => format!("{label}={value}"),
    };
    labels.iter().map(requirement).collect::<Vec<_>>().join(",")
}

fn spawn<K>(
    cluster: &Arc<Cluster>,
    (resource, number): (&'static str, usize),
    api: Api<K>,
    config: watcher::Config,
    sink: impl Sink<K> + Sync,
    ready: impl Future<Output = ()> + Send + 'static,
) -> JoinHandle<()>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let clock = Arc::clone(&cluster.clock);
    let config = config.timeout(WATCH_SECONDS).page_size(PAGE_SIZE);
    let resync_after = RESYNC_INTERVAL + RESYNC_STAGGER * (number % RESYNC_GROUPS) as u32;
    tokio::spawn(async move {
        ready.await;
        let (mut throttle, mut backoff) = (LogThrottle::default(), MIN_BACKOFF);
        loop {
            let error = follow(&api, &config, resync_after, &sink, &mut || {
                backoff = MIN_BACKOFF;
                if throttle.clear().is_some() {
                    tracing::info!(resource, "watch works again");
                }
            })
            .await;
            let Some(error) = error else { continue };
            let error = call_error(error).into_error(&format!("watch {resource}"));
            if let Some(times) = throttle.hit(clock.boottime()) {
                tracing::warn!(resource, error = %chain(&error), times, "watch failed");
            }
            sink.mark_broken(error);
            tokio::time::sleep(backoff).await;
            backoff = (backoff * 2).min(MAX_BACKOFF);
        }
    })
}

/// Runs one watch until it fails (with the error) or a resync is due.
async fn follow<K>(
    api: &Api<K>,
    config: &watcher::Config,
    resync_after: Duration,
    sink: &impl Sink<K>,
    on_synced: &mut (impl FnMut() + Send),
) -> Option<watcher::Error>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let mut events = watcher(api.clone(), config.clone()).boxed();
    let resync = tokio::time::sleep(resync_after);
    tokio::pin!(resync);
    loop {
        let event = tokio::select! {
            event = events.next() => event?,
            () = &mut resync => return None,
        };
        match event {
            Ok(Event::Init) => sink.begin_resync(),
            Ok(Event::InitApply(object) | Event::Apply(object)) => sink.apply(object),
            Ok(Event::Delete(object)) => sink.delete(object),
            Ok(Event::InitDone) => {
                sink.finish_resync();
                on_synced();
            }
            Err(error) => return Some(error),
        }
    }
}

fn call_error(error: watcher::Error) -> CallError {
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => CallError::from(error),
        watcher::Error::WatchError(status) => CallError::from_status(&status),
        error @ watcher::Error::NoResourceVersion => CallError::Client(error.into()),
    }
}

struct PodSink {
    cluster: Arc<Cluster>,
    scope: usize,
}

impl Sink<TrimmedPod> for PodSink {
    fn begin_resync(&self) {
        self.cluster.store.begin_resync(self.scope);
    }
    fn apply(&self, pod: TrimmedPod) {
        self.cluster.store.apply_event(self.scope, pod);
    }
    fn delete(&self, pod: TrimmedPod) {
        self.cluster.store.apply_delete(&pod);
    }
    fn finish_resync(&self) {
        self.cluster.store.finish_resync(self.scope, self.cluster.clock.boottime());
    }
    fn mark_broken(&self, error: Error) {
        self.cluster.store.mark_broken(self.scope, error, self.cluster.clock.boottime());
    }
}

/// Without warnings, a listing only lacks explanations; so its failure breaks nothing.
struct WarningSink {
    cluster: Arc<Cluster>,
}

impl Sink<WarningEvent> for WarningSink {
    fn apply(&self, event: WarningEvent) {
        let Some(warning) = Warning::from_event(&event) else { return };
        let pod = event.involved_object;
        if let (Some(namespace), Some(name), Some(uid)) = (pod.namespace, pod.name, pod.uid) {
            self.cluster.store.add_warning(&namespace, &name, &uid, warning);
        }
    }
    fn delete(&self, _: WarningEvent) {}
    fn mark_broken(&self, _: Error) {}
}

struct NodeSink {
    cluster: Arc<Cluster>,
}

impl Sink<Node> for NodeSink {
    fn begin_resync(&self) {
        self.cluster.store.with_nodes(|nodes| (nodes.begin_resync(), false));
    }
    fn apply(&self, node: Node) {
        self.cluster.store.with_nodes(|nodes| ((), nodes.apply(&node)));
    }
    fn delete(&self, node: Node) {
        self.cluster.store.with_nodes(|nodes| ((), nodes.delete(&node)));
    }
    fn finish_resync(&self) {
        self.cluster.store.with_nodes(|nodes| ((), nodes.finish_resync()));
    }
    fn mark_broken(&self, _: Error) {
        self.cluster.store.with_nodes(|nodes| (nodes.mark_broken(), true));
    }
}
