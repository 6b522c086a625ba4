//! Engines that are pods, at a real API server, beside a bare client of it:
//!
//! - **creates**: 1,000 engines that one ALTER asks for, made by a master as it is (embedded ZooKeeper, metadata agent with
//!   SQLite), beside a bare client that makes the same engines with as many at once. They take turns; the ratio is what
//!   the master leaves of the server's rate.
//! - **quotas**: the same with a capacity and a quota, with the master without them and the bare client as peers.
//! - **ticks**: 10,000 pods created by the bare client; the first list, and steady ticks compared with a tick without
//!   a cache: the same list from the server, page by page.
//!
//! No kubelet runs the pods: they stay pending. `tests/scenarios/measure_pods.py` starts the server and this
//! (`EH_TEST_KUBECONFIG` names the admin's kubeconfig); `creates`, `quotas` or `ticks` as an argument leaves the others out; a number
//! says how many creates may be in flight, a second one how often master and bare client take turns.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

#[allow(dead_code)]
#[path = "../../agent-api/tests/agent/mod.rs"]
mod agent;
#[path = "../tests/cluster/mod.rs"]
mod cluster;
mod creates;
#[allow(dead_code)]
mod installation;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::stream::{self, StreamExt as _};
use k8s_openapi::api::core::v1::{Pod, Secret};
use keys::{KeyGeneration, MasterKeys, Root, SecretKey};
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use master::Settings;
use model::clock::SystemClock;
use model::engine_type::EngineType;
use model::observation::CreatedEngine;
use model::{Epoch, labels};
use orchestrator::kubernetes::connect::connect;
use orchestrator::kubernetes::names::GATE;
use orchestrator::kubernetes::render::EngineObjects;
use orchestrator::kubernetes::signature::Signer;
use orchestrator::kubernetes::{Config, Kubernetes, PodKey, render};
use orchestrator::{Orchestrator as _, Spec};
use serde_json::json;

use installation::{ENGINES, Installation, print_ticks, spread};

/// Times that master and bare client take turns.
const ROUNDS: usize = 9;
const TICKS: usize = 15;
/// Calls at once by which the 10,000 pods are made beforehand.
const AT_ONCE: usize = 16;
/// Pods in one page of a list, as in our watch.
const PAGE: u32 = 500;
const IMAGE: &str = "registry.example/enginehouse:1";
/// The namespace that every server has.
const HOME: &str = "default";

#[tokio::main]
async fn main() -> ExitCode {
    let Some(kubeconfig) = std::env::var_os("EH_TEST_KUBECONFIG").map(PathBuf::from) else {
        eprintln!("EH_TEST_KUBECONFIG is not set: run tests/scenarios/measure_pods.py, which starts a server");
        return ExitCode::from(2);
    };
    let words: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let numbers: Vec<usize> = words.iter().filter_map(|word| word.parse().ok()).collect();
    let wanted: Vec<&String> = words.iter().filter(|word| word.parse::<usize>().is_err()).collect();
    let is_wanted = |what: &str| wanted.is_empty() || wanted.iter().any(|word| *word == what);
    let at_once = numbers.first().copied().unwrap_or(Settings::default().parallelism);
    let rounds = numbers.get(1).copied().unwrap_or(ROUNDS);
    if is_wanted("creates") {
        creates::measure(&kubeconfig, at_once, rounds).await;
    }
    if is_wanted("quotas") {
        creates::measure_quotas(&kubeconfig, at_once, rounds).await;
    }
    if is_wanted("ticks") {
        Box::pin(ticks(&kubeconfig)).await;
    }
    ExitCode::SUCCESS
}

/// A client with its library's defaults.
async fn bare(kubeconfig: &Path) -> kube::Client {
    let read = Kubeconfig::read_from(kubeconfig).unwrap();
    let config = kube::Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await.unwrap();
    kube::Client::try_from(config).unwrap()
}

/// Marks pods with the key of a master.
struct Key(MasterKeys);

impl PodKey for Key {
    fn sign(&self, pod: &str) -> String {
        self.0.sign_pod(pod)
    }

    fn verifies(&self, pod: &str, signature: &str) -> bool {
        self.0.verifies_pod(pod, signature)
    }
}

fn key(cluster: &str) -> Arc<dyn PodKey> {
    let (root, first) = (Root::new(cluster, SecretKey::new([1; 32])), KeyGeneration::FIRST);
    Arc::new(Key(root.role_file(first, &[first], coordination::digest).unwrap().verified(cluster).unwrap()))
}

async fn open(kubeconfig: &Path, cluster: &str) -> Kubernetes {
    let way = connect(Some(kubeconfig), None).await.unwrap();
    Kubernetes::open(way.client, config(cluster), key(cluster), SystemClock::shared()).unwrap()
}

fn config(cluster: &str) -> Config {
    Config::new(cluster, HOME, IMAGE)
}

fn settings(cluster: &str) -> Settings {
    let mut settings = Settings { cluster: cluster.to_owned(), ..Settings::default() };
    settings.defaults.images.insert(EngineType::Datafusion, IMAGE.to_owned());
    settings
}

fn objects(spec: &Spec, cluster: &str, epoch: Epoch) -> EngineObjects {
    render::engine(spec, &config(cluster), &Signer::new(key(cluster)), epoch).unwrap()
}

/// Makes these engines, so many at once: the pod, its Secret, and then no gate any more.
async fn make(client: &kube::Client, engines: &[EngineObjects], at_once: usize) -> Duration {
    let begin = Instant::now();
    let calls: Vec<_> = engines
        .iter()
        .map(|EngineObjects { pod, owned }| async move {
            let namespace = pod.metadata.namespace.as_deref().unwrap();
            let pods = Api::<Pod>::namespaced(client.clone(), namespace);
            let secrets = Api::<Secret>::namespaced(client.clone(), namespace);
            let made = pods.create(&PostParams::default(), pod).await.unwrap();
            let (name, uid) = (made.metadata.name.unwrap(), made.metadata.uid.unwrap());
            secrets.create(&PostParams::default(), &owned.with_owner(&name, &uid).secret).await.unwrap();
            let open = json!({"spec": {"schedulingGates": [{"$patch": "delete", "name": GATE}]}});
            pods.patch(&name, &PatchParams::default(), &Patch::Strategic(&open)).await.unwrap()
        })
        .collect();
    let made = stream::iter(calls).buffer_unordered(at_once).count().await;
    assert_eq!(made, engines.len());
    begin.elapsed()
}

async fn ticks(kubeconfig: &Path) {
    let cluster = "ticks";
    let client = bare(kubeconfig).await;
    let installation = Installation::founded(settings(cluster)).await;
    let snapshot = installation.snapshot().await;
    let specs: Vec<Spec> = snapshot.slots.iter().map(|slot| installation.spec(&snapshot, slot)).collect();
    let maker = open(kubeconfig, cluster).await;
    let mut namespaces = std::collections::BTreeSet::new();
    let (first, others): (Vec<&Spec>, Vec<&Spec>) = specs.iter().partition(|spec| namespaces.insert(&spec.locality));
    for spec in first {
        // Which makes its namespace.
        maker.ensure(spec, installation.epoch).await.unwrap();
    }
    drop(maker);
    let pods: Vec<_> = others.into_iter().map(|spec| objects(spec, cluster, installation.epoch)).collect();
    let time = make(&client, &pods, AT_ONCE).await;
    println!(
        "{ENGINES} pods; made by a bare client, {AT_ONCE} at once: {:.1} in a second",
        pods.len() as f64 / time.as_secs_f64()
    );
    let begin = Instant::now();
    let kubernetes = open(kubeconfig, cluster).await;
    let listing = kubernetes.list(&config(cluster).selector).await.unwrap();
    println!("the first list of a new master: {:.1?}", begin.elapsed());
    assert_eq!((listing.engines.len(), listing.foreign.len(), listing.unreadable.len()), (ENGINES, 0, 0));
    let made = listing.engines.into_iter().map(|instance| {
        let config = instance.labels[labels::CONFIG].clone();
        CreatedEngine { name: instance.name.clone(), uid: instance.uid.clone(), config }
    });
    installation.made(made.collect()).await;
    let (mut reconciler, ctx) = installation.reconciler(Arc::new(kubernetes)).await;
    let first = ctx.tick(&mut reconciler).await;
    println!("the first tick, which reports all of them: {:.1?}, of it the report {:.1?}", first.0, first.1.report);
    let (mut ticks, mut lists, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..TICKS {
        let tick = ctx.tick(&mut reconciler).await;
        let list = bare_list(&client, cluster).await;
        ratios.push(list.as_secs_f64() / tick.0.as_secs_f64());
        ticks.push(tick);
        lists.push(list);
    }
    println!("a steady tick; least, middle, most of {TICKS}:");
    print_ticks(&ticks);
    let (least, middle, most) = spread(lists);
    println!("beside it, a bare client's list in pages of {PAGE}: {least:.1?} {middle:.1?} {most:.1?}");
    let (least, middle, most) = spread(ratios);
    println!("ticks in the time of one such list: {least:.1} {middle:.1} {most:.1}");
}

async fn bare_list(client: &kube::Client, cluster: &str) -> Duration {
    let selector = config(cluster).selector;
    let words: Vec<String> = selector.iter().map(|(label, value)| format!("{label}={value}")).collect();
    let all = Api::<Pod>::all(client.clone());
    let mut page = ListParams::default().labels(&words.join(",")).limit(PAGE);
    let (begin, mut count) = (Instant::now(), 0);
    loop {
        let listed = all.list(&page).await.unwrap();
        count += listed.items.len();
        match listed.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => break,
        }
    }
    let time = begin.elapsed();
    assert_eq!(count, ENGINES);
    time
}
