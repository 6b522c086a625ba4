//! What a case needs besides the trait: a place, programs that behave in known ways, and faults from outside.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use model::clock::ManualClock;
use model::credential::ClusterSecret;
use model::engine_type::ResourceRequests;
use model::labels::{self, LabelMap};
use model::{EngineName, Epoch, Generation};
use orchestrator::kubernetes::{Config, Kubernetes};
use orchestrator::{Error, Exit, Listing, LogPolicy, Observed, Orchestrator, PodWish, Spec};

/// The longest that a case waits for anything.
pub const DEADLINE: Duration = Duration::from_secs(20);
/// The grace of a delete that is not to be waited for.
pub const LONG: Duration = Duration::from_hours(1);
/// The epoch of cases that don't care.
pub const EPOCH: Epoch = Epoch(3);

/// What an engine does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// Runs until it is told to end, then ends at once.
    Obedient,
    /// Has to be killed.
    Stubborn,
    /// Prints two lines, the second one `went wrong`, and ends at once with code 3.
    Fails,
}

/// One implementation in a place of its own, with two nodes `node-1`, `node-2` and room for six engines.
#[async_trait]
pub trait Harness: Send + Sync {
    /// Another instance over the same place. The clock of all of them moves by [`Harness::advance`] only.
    fn instance(&self) -> Arc<dyn Orchestrator>;
    /// Where engines are, if they are in namespaces.
    fn namespace(&self) -> String {
        "rp-1--t-1".to_owned()
    }
    /// Prepares the program for the engine of that name; its command line and environment.
    fn program(&self, name: &EngineName, program: Program) -> (Vec<String>, BTreeMap<String, String>);
    /// Waits until the engine, which runs, behaves as its program says.
    async fn behaves(&self, name: &EngineName);
    /// Moves the clock.
    fn advance(&self, by: Duration);
    /// What the clock says, in milliseconds since 1970.
    fn now_ms(&self) -> i64;
    /// Kills the engine's program, as an outsider does.
    fn kill(&self, engine: &Observed);
    /// Changes a label by hand.
    fn edit_label(&self, name: &EngineName, label: &str, value: &str);
    /// Removes all traces of the engine by hand.
    fn remove_by_hand(&self, engine: &Observed);
}

/// An instance over pods, wherever the API server is: of all namespaces, or of one.
pub fn pods(
    home: &str,
    namespace: Option<&str>,
    client: kube::Client,
    clock: Arc<ManualClock>,
) -> Arc<dyn Orchestrator> {
    let mut config = Config::new("test", home, "enginehouse:1");
    config.max_engines = 6;
    // The suite asks at once whether a lower epoch is refused.
    config.epoch_good_for = Duration::ZERO;
    config.namespaces = namespace.map(|it| vec![it.to_owned()]);
    // The suite makes engines of two installations in one place.
    config.selector.remove(labels::CLUSTER);
    let secret = ClusterSecret::new(*b"0123456789abcdef").unwrap();
    Arc::new(Kubernetes::open(client, config, secret, clock).unwrap())
}

/// The program of a pod, which whoever plays the kubelets reads.
pub fn pod_program(program: Program) -> (Vec<String>, BTreeMap<String, String>) {
    let word = match program {
        Program::Obedient => "obedient",
        Program::Stubborn => "stubborn",
        Program::Fails => "fails",
    };
    (["/bin/engine", word].map(str::to_owned).to_vec(), BTreeMap::new())
}

pub fn name(text: &str) -> EngineName {
    EngineName::new(text).unwrap()
}

/// A spec of the engine of that name.
pub fn spec(harness: &dyn Harness, text: &str, program: Program) -> Spec {
    let name = name(text);
    let (argv, environment) = harness.program(&name, program);
    let mut labels = labels::selector("test");
    labels.insert(labels::NAME.to_owned(), name.to_string());
    labels.insert(labels::CONFIG.to_owned(), "0123456789abcdef".to_owned());
    Spec {
        name,
        labels,
        generation: Generation(12),
        annotations: BTreeMap::from([("note".to_owned(), "kept".to_owned())]),
        namespace: harness.namespace(),
        image: "engine:1".to_owned(),
        argv,
        files: Vec::new(),
        environment,
        requests: ResourceRequests {
            driver_cpu_millis: 1_000,
            driver_memory_bytes: 1 << 30,
            executor_cpu_millis: 0,
            executor_memory_bytes: 0,
            executors: 0,
        },
        nodes: None,
        grace: LONG,
        log: LogPolicy::default(),
        pod: PodWish::default(),
    }
}

pub async fn all(orchestrator: &Arc<dyn Orchestrator>) -> Listing {
    let listing = orchestrator.list(&LabelMap::new()).await.unwrap();
    assert!(listing.unreadable.is_empty(), "{:?}", listing.unreadable);
    listing
}

/// Looks after every wake-up until the condition holds.
pub async fn eventually(
    orchestrator: &Arc<dyn Orchestrator>,
    what: &str,
    holds: impl Fn(&Listing) -> bool + Send,
) -> Listing {
    let mut wake_ups = orchestrator.watch();
    let looking = async {
        loop {
            let listing = all(orchestrator).await;
            if holds(&listing) {
                return listing;
            }
            wake_ups.wait().await;
        }
    };
    match tokio::time::timeout(DEADLINE, looking).await {
        Ok(listing) => listing,
        Err(late) => panic!("{late} ({DEADLINE:?}): {what}; there is {:?}", all(orchestrator).await),
    }
}

/// Makes an engine and waits until it is in the phase; what is seen of it then.
pub async fn made(
    harness: &dyn Harness,
    orchestrator: &Arc<dyn Orchestrator>,
    text: &str,
    program: Program,
    phase: model::engine_state::Phase,
) -> Observed {
    let spec = spec(harness, text, program);
    let ensured = orchestrator.ensure(&spec, EPOCH).await.unwrap();
    assert!(ensured.created);
    let reached = |listing: &Listing| listing.find(&spec.name).is_some_and(|it| it.phase == phase);
    let listing = eventually(orchestrator, &format!("{text} is {phase}"), reached).await;
    if program == Program::Stubborn {
        harness.behaves(&spec.name).await;
    }
    let engine = listing.find(&spec.name).unwrap().clone();
    assert_eq!(engine.uid, ensured.uid);
    engine
}

pub async fn gone(orchestrator: &Arc<dyn Orchestrator>, engine: &Observed) {
    eventually(orchestrator, &format!("{} is gone", engine.name), |listing| listing.find(&engine.name).is_none()).await;
    assert_eq!(orchestrator.get(&engine.name).await, Ok(None));
}

pub fn is_conflict<T: std::fmt::Debug>(result: Result<T, Error>, word: &str) {
    match result {
        Err(Error::Conflict { reason, .. }) if reason.contains(word) => {}
        other => panic!("no conflict about {word:?}: {other:?}"),
    }
}

pub fn refusal<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    match result {
        Err(Error::Refused { reason }) => reason,
        other => panic!("not refused: {other:?}"),
    }
}

pub fn exit_of(engine: &Observed) -> Exit {
    engine.exit.clone().unwrap_or_else(|| panic!("no exit: {engine:?}"))
}
