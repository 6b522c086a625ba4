//! Engines that are pods, at a real API server, beside a bare client of it:
//!
//! - **creates**: 1,000 engines that one ALTER asks for, made by a master as it is (embedded ZooKeeper, metadata agent with
//!   SQLite), beside a bare client that makes the same pods with as many calls at once as the master has chains. They take
//!   turns; the ratio is what the master leaves of the server's rate.
//! - **ticks**: 10,000 pods that the bare client has made; the first list, and steady ticks beside what a tick would cost
//!   that has no cache: the same list from the server, page by page.
//!
//! Nobody runs the pods: they stay pending. `tests/scenarios/measure_pods.py` starts the server and this
//! (`EH_TEST_KUBECONFIG` names the admin's kubeconfig); `creates` or `ticks` as an argument leaves the other out, and a number
//! is how many chains the master may have at once, and the bare client calls.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

#[allow(dead_code)]
#[path = "../../agent-api/tests/agent/mod.rs"]
mod agent;
#[path = "../tests/house/mod.rs"]
mod house;
#[allow(dead_code)]
mod site;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures::stream::{self, StreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use master::{Launch, Launcher, Settings};
use model::change::{Change, ObjectPatch, PoolPatch, Setting, UnitPatch};
use model::clock::SystemClock;
use model::credential::ClusterSecret;
use model::engine_type::EngineType;
use model::labels::LabelMap;
use model::observation::{MadeEngine, ObservedNode};
use model::{EngineName, Epoch, PoolName, UnitName, UserError};
use orchestrator::kubernetes::connect::connect;
use orchestrator::kubernetes::signature::Signer;
use orchestrator::kubernetes::{Config, Kubernetes, render};
use orchestrator::{Capacity, Deleted, Ensured, Error, Listing, Observed, Orchestrator, Spec, WakeUps};

use house::{House, eventually};
use site::{ENGINES, Site, print_ticks, spread};

/// Engines that one ALTER asks for.
const CREATES: usize = 1_000;
/// Times that master and bare client take turns.
const ROUNDS: usize = 5;
const TICKS: usize = 15;
/// Calls at once by which the 10,000 pods are made beforehand.
const AT_ONCE: usize = 16;
/// Pods in one page of a list, as in our watch.
const PAGE: u32 = 500;
const IMAGE: &str = "registry.example/enginehouse:1";
/// The namespace that every server has.
const HOME: &str = "default";
/// The longest that 1,000 creates may take.
const PATIENCE: Duration = Duration::from_mins(10);

#[tokio::main]
async fn main() -> ExitCode {
    let Some(kubeconfig) = std::env::var_os("EH_TEST_KUBECONFIG").map(PathBuf::from) else {
        eprintln!("EH_TEST_KUBECONFIG is not set: run tests/scenarios/measure_pods.py, which starts a server");
        return ExitCode::from(2);
    };
    let words: Vec<String> = std::env::args().skip(1).filter(|it| !it.starts_with('-')).collect();
    let numbers: Vec<usize> = words.iter().filter_map(|it| it.parse().ok()).collect();
    let wanted: Vec<&String> = words.iter().filter(|it| it.parse::<usize>().is_err()).collect();
    let is_wanted = |what: &str| wanted.is_empty() || wanted.iter().any(|it| *it == what);
    if is_wanted("creates") {
        let at_once = numbers.first().copied().unwrap_or(Settings::default().parallelism);
        creates(&kubeconfig, at_once).await;
    }
    if is_wanted("ticks") {
        ticks(&kubeconfig).await;
    }
    ExitCode::SUCCESS
}

/// A client with its library's defaults.
async fn bare(kubeconfig: &Path) -> kube::Client {
    let read = Kubeconfig::read_from(kubeconfig).unwrap();
    let config = kube::Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await.unwrap();
    kube::Client::try_from(config).unwrap()
}

fn secret() -> ClusterSecret {
    ClusterSecret::new(*b"a cluster secret").unwrap()
}

async fn open(kubeconfig: &Path, cluster: &str) -> Kubernetes {
    let way = connect(Some(kubeconfig), None).await.unwrap();
    Kubernetes::open(way.client, config(cluster), secret(), SystemClock::shared()).unwrap()
}

fn config(cluster: &str) -> Config {
    Config::new(cluster, HOME, IMAGE)
}

fn settings(cluster: &str) -> Settings {
    let mut settings = Settings { cluster: cluster.to_owned(), ..Settings::default() };
    settings.defaults.images.insert(EngineType::Datafusion, IMAGE.to_owned());
    settings
}

fn pod(spec: &Spec, cluster: &str, epoch: Epoch) -> Pod {
    render::engine(spec, &config(cluster), &Signer::new(secret(), cluster), epoch).unwrap().pod
}

/// Makes these pods, so many calls at once.
async fn make(client: &kube::Client, pods: &[Pod], at_once: usize) -> Duration {
    let begin = Instant::now();
    let calls: Vec<_> = pods
        .iter()
        .map(|pod| async move {
            let api = Api::<Pod>::namespaced(client.clone(), pod.metadata.namespace.as_deref().unwrap());
            api.create(&PostParams::default(), pod).await.unwrap()
        })
        .collect();
    let made = stream::iter(calls).buffer_unordered(at_once).map(|it| it.metadata.uid.unwrap()).count().await;
    assert_eq!(made, pods.len());
    begin.elapsed()
}

async fn clear(client: &kube::Client, namespace: &str) {
    let pods = Api::<Pod>::namespaced(client.clone(), namespace);
    pods.delete_collection(&DeleteParams::default().grace_period(0), &ListParams::default()).await.unwrap();
    eventually("the pods are gone", || async { pods.list_metadata(&one()).await.unwrap().items.is_empty() }).await;
}

fn one() -> ListParams {
    ListParams::default().limit(1)
}

async fn creates(kubeconfig: &Path, at_once: usize) {
    let client = bare(kubeconfig).await;
    println!("{CREATES} engines by one ALTER, {at_once} at once; pods in a second; the pods stay pending");
    let mut rounds = Vec::new();
    for round in 0..ROUNDS {
        let cluster = format!("creates-{round}");
        let (ours, whole, pods) = master_makes(kubeconfig, &cluster, at_once).await;
        let theirs = bare_makes(&client, &cluster, pods, at_once).await;
        println!(
            "  round {round}: master {ours:.1} (with plan and ALTER {whole:.1}), bare client {theirs:.1}, {:.1} %",
            100. * ours / theirs
        );
        rounds.push((ours, whole, theirs));
    }
    let print = |what: &str, of: &dyn Fn(&(f64, f64, f64)) -> f64| {
        let (least, middle, most) = spread(rounds.iter().map(of));
        println!("{what}: {least:.1} {middle:.1} {most:.1}");
    };
    print("the master", &|it| it.0);
    print("the master, from the committed ALTER on", &|it| it.1);
    print("the bare client", &|it| it.2);
    print("the master in percent of the bare client", &|it| 100. * it.0 / it.2);
    print("the same from the committed ALTER on", &|it| 100. * it.1 / it.2);
}

/// The rate of the creates alone and from the committed ALTER on, and specs like those of what was made.
async fn master_makes(kubeconfig: &Path, cluster: &str, at_once: usize) -> (f64, f64, Vec<Spec>) {
    let client = bare(kubeconfig).await;
    let house = House::founded(0).await;
    let patch = PoolPatch { namespace: Setting::Set(cluster.to_owned()), ..PoolPatch::default() };
    let pool = ObjectPatch::ResourcePool(PoolName::new("rp_1").unwrap(), patch);
    let record = house.commit(Change::Alter { if_exists: false, object: pool }).await;
    house.store.finish(Epoch(1), &record.id, record.generation).await.unwrap();
    let settings = Settings { parallelism: at_once, ..settings(cluster) };
    let counted = Arc::new(Counted::over(open(kubeconfig, cluster).await));
    let master = house.master_of(Arc::clone(&counted) as Arc<dyn Orchestrator>, Arc::new(Pods), settings);
    // The first one makes the namespace with what belongs to it.
    house.alter(engines(1)).await;
    counted.has_made(1).await;
    *counted.spans.lock().unwrap() = None;
    house.alter(engines(1 + CREATES)).await;
    let begin = Instant::now();
    counted.has_made(1 + CREATES).await;
    let (first, last) = counted.spans.lock().unwrap().unwrap();
    let specs = std::mem::take(&mut *counted.specs.lock().unwrap());
    master.shutdown().await;
    clear(&client, cluster).await;
    let rate = |time: Duration| CREATES as f64 / time.as_secs_f64();
    (rate(last - first), rate(last.saturating_duration_since(begin)), specs)
}

fn engines(count: usize) -> Change {
    let count = Some(u32::try_from(count).unwrap());
    let patch = UnitPatch { min_engines: count, max_engines: count, ..UnitPatch::default() };
    Change::Alter { if_exists: false, object: ObjectPatch::ResourceUnit(UnitName::new("uc_1").unwrap(), patch) }
}

/// The very same pods, in the same namespace, which is empty again.
async fn bare_makes(client: &kube::Client, cluster: &str, specs: Vec<Spec>, at_once: usize) -> f64 {
    let pods: Vec<Pod> = specs.iter().rev().take(CREATES).map(|spec| pod(spec, cluster, Epoch(2))).collect();
    assert_eq!(pods.len(), CREATES);
    let time = make(client, &pods, at_once).await;
    clear(client, cluster).await;
    CREATES as f64 / time.as_secs_f64()
}

/// What is made from a plan's launch, as the program does it for pods.
struct Pods;

impl Launcher for Pods {
    fn spec(&self, launch: &Launch<'_>) -> Result<Spec, UserError> {
        Ok(site::spec(launch.engine, launch.configuration, launch.generation))
    }
}

/// The orchestrator of pods, with a look at when it made which.
#[derive(Debug)]
struct Counted {
    pods: Kubernetes,
    made: AtomicUsize,
    /// When the first call began and the last one ended.
    spans: Mutex<Option<(Instant, Instant)>>,
    specs: Mutex<Vec<Spec>>,
}

impl Counted {
    fn over(pods: Kubernetes) -> Self {
        Self { pods, made: AtomicUsize::new(0), spans: Mutex::new(None), specs: Mutex::default() }
    }

    async fn has_made(&self, count: usize) {
        let making = async {
            while self.made.load(Ordering::SeqCst) < count {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, making).await.expect("all of them are made");
    }
}

#[async_trait]
impl Orchestrator for Counted {
    async fn list(&self, selector: &LabelMap) -> Result<Listing, Error> {
        self.pods.list(selector).await
    }

    async fn get(&self, name: &EngineName) -> Result<Option<Observed>, Error> {
        self.pods.get(name).await
    }

    async fn get_in(&self, name: &EngineName, namespace: &str) -> Result<Option<Observed>, Error> {
        self.pods.get_in(name, namespace).await
    }

    async fn ensure(&self, spec: &Spec, epoch: Epoch) -> Result<Ensured, Error> {
        let begin = Instant::now();
        let ensured = self.pods.ensure(spec, epoch).await?;
        self.specs.lock().unwrap().push(spec.clone());
        let mut spans = self.spans.lock().unwrap();
        let first = spans.map_or(begin, |(first, _)| first.min(begin));
        *spans = Some((first, Instant::now()));
        self.made.fetch_add(usize::from(ensured.created), Ordering::SeqCst);
        Ok(ensured)
    }

    async fn delete(&self, name: &EngineName, uid: &str, grace: Duration, epoch: Epoch) -> Result<Deleted, Error> {
        self.pods.delete(name, uid, grace, epoch).await
    }

    fn watch(&self) -> WakeUps {
        self.pods.watch()
    }

    async fn capacity(&self) -> Result<Capacity, Error> {
        self.pods.capacity().await
    }

    async fn nodes(&self) -> Result<Vec<ObservedNode>, Error> {
        Orchestrator::nodes(&self.pods).await
    }
}

async fn ticks(kubeconfig: &Path) {
    let cluster = "ticks";
    let client = bare(kubeconfig).await;
    let site = Site::founded(settings(cluster)).await;
    let snapshot = site.snapshot().await;
    let specs: Vec<Spec> = snapshot.slots.iter().map(|slot| site.spec(&snapshot, slot)).collect();
    let maker = open(kubeconfig, cluster).await;
    let mut namespaces = std::collections::BTreeSet::new();
    let (first, others): (Vec<&Spec>, Vec<&Spec>) = specs.iter().partition(|it| namespaces.insert(&it.namespace));
    for spec in first {
        // Which makes its namespace.
        maker.ensure(spec, site.epoch).await.unwrap();
    }
    drop(maker);
    let pods: Vec<Pod> = others.into_iter().map(|spec| pod(spec, cluster, site.epoch)).collect();
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
    let made = listing.engines.into_iter().map(|it| {
        let config = it.labels[model::labels::CONFIG].clone();
        MadeEngine { name: it.name, uid: it.uid, config }
    });
    site.made(made.collect()).await;
    let (mut driver, world) = site.driver(Arc::new(kubernetes)).await;
    let first = world.tick(&mut driver).await;
    println!("the first tick, which reports all of them: {:.1?}, of it the report {:.1?}", first.0, first.1.report);
    let (mut ticks, mut lists, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..TICKS {
        let tick = world.tick(&mut driver).await;
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
        match listed.metadata.continue_.filter(|it| !it.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => break,
        }
    }
    let time = begin.elapsed();
    assert_eq!(count, ENGINES);
    time
}
