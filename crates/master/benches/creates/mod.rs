//! 1,000 engines by one ALTER, in alternating rounds with a bare client that creates the same pods.
//!
//! Both create objects with the same names in the same existing, empty namespace, with the same maximum of creates in flight.
//! The order changes from round to round, and the machine rests before each turn, so that no side pays for the other's
//! leftover work. The first round is a warm-up and is not counted.

mod quotas;
mod usage;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{Api, DeleteParams, ListParams};
use master::{Launch, Launcher, Settings};
use model::change::{Change, ObjectPatch, PoolPatch, Setting, UnitPatch};
use model::labels::LabelMap;
use model::observation::ObservedNode;
use model::{EngineName, Epoch, PoolName, UnitName, UserError};
use orchestrator::kubernetes::Kubernetes;
use orchestrator::kubernetes::render::EngineObjects;
use orchestrator::{Deleted, Ensured, Error, Listing, ObservedInstance, Orchestrator, Spec, WakeUps};
use parking_lot::Mutex;

use crate::cluster::{Cluster, eventually};
use crate::installation::{self, spread};
use crate::{bare, make, objects, open, settings};
use quotas::Limited;
pub use quotas::measure_quotas;
use usage::Usage;

/// Engines that one ALTER asks for.
const CREATES: usize = 1_000;
/// The share of the bare client's rate that the master is to reach, counted from the committed ALTER on.
const TARGET_PERCENT: f64 = 90.;
/// The installation, and the namespace of its engines.
const CLUSTER: &str = "creates";
/// The longest that 1,000 creates may take.
const PATIENCE: Duration = Duration::from_mins(10);
/// For how long the machine is left alone before each turn: the server's controllers and its garbage collection have ended.
const REST: Duration = Duration::from_secs(4);

/// What one turn came to.
struct Turn {
    /// Pods in a second, from when the first create began to when the last one was answered.
    rate: f64,
    /// The same from the committed ALTER on, which is what counts; for the bare client the same as `rate`.
    whole: f64,
    cost: Usage,
}

pub async fn measure(kubeconfig: &Path, at_once: usize, rounds: usize) {
    let client = bare(kubeconfig).await;
    println!("{CREATES} engines by one ALTER, {at_once} creates at once; pods in a second; the pods stay pending");
    let (_, specs) = master_makes(kubeconfig, &client, at_once, Limited::No).await;
    let pods: Vec<_> = specs.iter().map(|spec| objects(spec, CLUSTER, Epoch(2))).collect();
    bare_makes(kubeconfig, &client, &pods, at_once).await;
    let mut turns = Vec::new();
    for round in 0..rounds {
        let (ours, theirs) = if round % 2 == 0 {
            let ours = master_makes(kubeconfig, &client, at_once, Limited::No).await.0;
            (ours, bare_makes(kubeconfig, &client, &pods, at_once).await)
        } else {
            let theirs = bare_makes(kubeconfig, &client, &pods, at_once).await;
            (master_makes(kubeconfig, &client, at_once, Limited::No).await.0, theirs)
        };
        println!(
            "  round {round}: master {:.1} from the committed ALTER on ({:.1} from its first create on), bare client {:.1}, {:.1} %",
            ours.whole,
            ours.rate,
            theirs.rate,
            100. * ours.whole / theirs.rate
        );
        for (who, turn) in [("master", &ours), ("bare client", &theirs)] {
            let Usage { machine, ours, server, requests } = &turn.cost;
            println!(
                "    {who}: {machine:.2} s of processors, {ours:.2} s here, {server:.2} s the API server; {requests:?}"
            );
        }
        turns.push((ours, theirs));
    }
    let print = |what: &str, of: &dyn Fn(&(Turn, Turn)) -> f64| {
        let (least, middle, most) = spread(turns.iter().map(of));
        println!("{what}: {least:.2} {middle:.2} {most:.2}");
    };
    print("the master, from the committed ALTER on", &|pair| pair.0.whole);
    print("the master, from its first create on", &|pair| pair.0.rate);
    print("the bare client", &|pair| pair.1.rate);
    let ratio = |pair: &(Turn, Turn)| 100. * pair.0.whole / pair.1.rate;
    print("the master from the ALTER on, in percent of the bare client", &ratio);
    print("the same from its first create on", &|pair| 100. * pair.0.rate / pair.1.rate);
    let reached = turns.iter().filter(|pair| ratio(pair) >= TARGET_PERCENT).count();
    println!("rounds that reach the target of {TARGET_PERCENT} %: {reached} of {}", turns.len());
    for (whose, of) in [("the master's", ours as fn(&(Turn, Turn)) -> &Usage), ("the bare client's", theirs)] {
        print(&format!("seconds of processors in {whose} turn"), &|pair| of(pair).machine);
        print(&format!("of them in {whose} process"), &|pair| of(pair).ours);
        print("of them in the API server", &|pair| of(pair).server);
    }
    print("readings of the epoch for each create", &|pair| pair.0.cost.of("GET configmaps") as f64 / CREATES as f64);
}

fn ours(turns: &(Turn, Turn)) -> &Usage {
    &turns.0.cost
}

fn theirs(turns: &(Turn, Turn)) -> &Usage {
    &turns.1.cost
}

fn rate(time: Duration) -> f64 {
    CREATES as f64 / time.as_secs_f64()
}

async fn master_makes(kubeconfig: &Path, client: &kube::Client, at_once: usize, limited: Limited) -> (Turn, Vec<Spec>) {
    let cluster = Cluster::founded(0).await;
    let patch = PoolPatch { namespace: Setting::Set(CLUSTER.to_owned()), ..PoolPatch::default() };
    let object = ObjectPatch::ResourcePool(PoolName::new("rp_1").unwrap(), patch);
    let namespace = Change::Alter { if_exists: false, object };
    for change in std::iter::once(namespace).chain(limited.changes()) {
        let record = cluster.commit(change).await;
        cluster.store.finish(Epoch(1), &record.id, record.generation).await.unwrap();
    }
    let settings = Settings { parallelism: at_once, ..settings(CLUSTER) };
    let counted = Arc::new(Counted::over(open(kubeconfig, CLUSTER).await));
    let master = cluster.master_of(Arc::clone(&counted) as Arc<dyn Orchestrator>, Arc::new(Pods), settings);
    // The first one makes the namespace with what belongs to it, unless it is there.
    cluster.alter(engines(1)).await;
    counted.has_made(1).await;
    tokio::time::sleep(REST).await;
    counted.forget();
    let before = Usage::now(client).await;
    cluster.alter(engines(1 + CREATES)).await;
    let begin = Instant::now();
    counted.has_made(CREATES).await;
    let (first, last) = counted.spans.lock().unwrap();
    let cost = Usage::now(client).await - before;
    let specs = std::mem::take(&mut *counted.specs.lock());
    master.shutdown().await;
    clear(client).await;
    (Turn { rate: rate(last - first), whole: rate(last.saturating_duration_since(begin)), cost }, specs)
}

fn engines(count: usize) -> Change {
    let count = Some(u32::try_from(count).unwrap());
    let patch = UnitPatch { min_engines: count, max_engines: count, ..UnitPatch::default() };
    Change::Alter { if_exists: false, object: ObjectPatch::ResourceUnit(UnitName::new("uc_1").unwrap(), patch) }
}

/// The very same engines, in the same namespace, which is empty again.
async fn bare_makes(kubeconfig: &Path, client: &kube::Client, pods: &[EngineObjects], at_once: usize) -> Turn {
    assert_eq!(pods.len(), CREATES);
    // New connections, as a master has, and warm ones.
    let maker = bare(kubeconfig).await;
    make(&maker, &pods[..1], at_once).await;
    clear(client).await;
    tokio::time::sleep(REST).await;
    let before = Usage::now(client).await;
    let time = make(&maker, pods, at_once).await;
    let cost = Usage::now(client).await - before;
    clear(client).await;
    Turn { rate: rate(time), whole: rate(time), cost }
}

async fn clear(client: &kube::Client) {
    let pods = Api::<Pod>::namespaced(client.clone(), CLUSTER);
    pods.delete_collection(&DeleteParams::default().grace_period(0), &ListParams::default()).await.unwrap();
    // The garbage collector would take its time, and the next turn has the same names.
    let secrets = Api::<Secret>::namespaced(client.clone(), CLUSTER);
    secrets.delete_collection(&DeleteParams::default(), &ListParams::default()).await.unwrap();
    let one = || ListParams::default().limit(1);
    eventually("the pods are gone", || async { pods.list_metadata(&one()).await.unwrap().items.is_empty() }).await;
    eventually("the Secrets are gone", || async { secrets.list_metadata(&one()).await.unwrap().items.is_empty() })
        .await;
}

/// What is made from a plan's launch, as the program does it for pods.
struct Pods;

impl Launcher for Pods {
    fn spec(&self, launch: &Launch<'_>) -> Result<Spec, UserError> {
        Ok(installation::spec(launch.engine, launch.configuration, launch.generation))
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

    fn forget(&self) {
        self.made.store(0, Ordering::SeqCst);
        *self.spans.lock() = None;
        self.specs.lock().clear();
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

    async fn get(&self, name: &EngineName, locality: Option<&str>) -> Result<Option<ObservedInstance>, Error> {
        self.pods.get(name, locality).await
    }

    async fn ensure(&self, spec: &Spec, epoch: Epoch) -> Result<Ensured, Error> {
        let begin = Instant::now();
        let ensured = self.pods.ensure(spec, epoch).await?;
        self.specs.lock().push(spec.clone());
        let mut spans = self.spans.lock();
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

    async fn nodes(&self) -> Result<Vec<ObservedNode>, Error> {
        Orchestrator::nodes(&self.pods).await
    }
}
