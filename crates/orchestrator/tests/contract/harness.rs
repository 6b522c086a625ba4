//! The harness of a case: an isolated orchestrator, programs with known behaviour, and faults from outside.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use model::clock::ManualClock;
use model::labels::{self, LabelMap};
use model::{EngineName, Epoch, Generation};
use orchestrator::kubernetes::{Config, Kubernetes, PodKey};
use orchestrator::{Error, Exit, Listing, ObservedInstance, Orchestrator, Spec};

/// The limit of every wait of a case.
pub const DEADLINE: Duration = Duration::from_secs(20);
/// A grace that no case waits for.
pub const LONG: Duration = Duration::from_hours(1);
/// The epoch of cases that do not depend on it.
pub const EPOCH: Epoch = Epoch(3);

/// What an engine does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// Runs until it is asked to end, then ends at once.
    Obedient,
    /// Has to be killed.
    Stubborn,
    /// Prints two lines, the second one `went wrong`, and ends at once with code 3.
    Fails,
}

/// One isolated implementation with the nodes `node-1` and `node-2` and a limit of six engines.
#[async_trait]
pub trait Harness: Send + Sync {
    /// Another instance over the same state. The clock of all of them moves only by [`Harness::advance`].
    fn instance(&self) -> Arc<dyn Orchestrator>;
    /// The locality of the engines.
    fn locality(&self) -> String {
        "rp-1--t-1".to_owned()
    }
    /// Prepares the program of the engine of that name; returns its command line and environment.
    fn program(&self, name: &EngineName, program: Program) -> (Vec<String>, BTreeMap<String, String>);
    /// Waits until the running engine behaves like its program.
    async fn wait_until_ready(&self, name: &EngineName);
    fn advance(&self, by: Duration);
    /// The time of the clock, in milliseconds since 1970.
    fn now_ms(&self) -> i64;
    /// Kills the engine's program from outside.
    fn kill(&self, engine: &ObservedInstance);
    /// Changes a label by hand.
    fn edit_label(&self, name: &EngineName, label: &str, value: &str);
    /// Removes all traces of the engine by hand.
    fn remove_by_hand(&self, engine: &ObservedInstance);
}

/// Marks the pods of one installation. Those of other tests have the same names.
struct Prefix(String);

impl PodKey for Prefix {
    fn sign(&self, pod: &str) -> String {
        format!("{} {pod}", self.0)
    }

    fn verifies(&self, pod: &str, signature: &str) -> bool {
        self.sign(pod) == signature
    }
}

/// An instance over pods of all namespaces, or of one.
pub fn pods(
    home: &str,
    namespace: Option<&str>,
    client: kube::Client,
    clock: Arc<ManualClock>,
) -> Arc<dyn Orchestrator> {
    let mut config = Config::new("test", home, "enginehouse:1");
    config.max_engines = 6;
    // The suite expects a lower epoch to be refused immediately.
    config.epoch_good_for = Duration::ZERO;
    config.namespaces = namespace.map(|name| vec![name.to_owned()]);
    // The suite creates engines of two installations.
    config.selector.remove(labels::CLUSTER);
    Arc::new(Kubernetes::open(client, config, Arc::new(Prefix(home.to_owned())), clock).unwrap())
}

/// The program of a pod; the simulated kubelets read it.
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

pub fn spec(harness: &dyn Harness, text: &str, program: Program) -> Spec {
    let name = name(text);
    let (argv, environment) = harness.program(&name, program);
    let mut labels = labels::selector("test");
    labels.insert(labels::NAME.to_owned(), name.to_string());
    labels.insert(labels::CONFIG.to_owned(), "0123456789abcdef".to_owned());
    Spec {
        labels,
        generation: Generation(12),
        annotations: BTreeMap::from([("note".to_owned(), "kept".to_owned())]),
        locality: harness.locality(),
        image: "engine:1".to_owned(),
        environment,
        grace: LONG,
        ..Spec::new(name, argv)
    }
}

pub async fn all(orchestrator: &Arc<dyn Orchestrator>) -> Listing {
    let listing = orchestrator.list(&LabelMap::new()).await.unwrap();
    assert!(listing.unreadable.is_empty(), "{:?}", listing.unreadable);
    listing
}

/// Lists after every wake-up until the condition holds.
pub async fn eventually(
    orchestrator: &Arc<dyn Orchestrator>,
    what: &str,
    holds: impl Fn(&Listing) -> bool + Send,
) -> Listing {
    let mut wake_ups = orchestrator.watch();
    let polling = async {
        loop {
            let listing = all(orchestrator).await;
            if holds(&listing) {
                return listing;
            }
            wake_ups.wait().await;
        }
    };
    match tokio::time::timeout(DEADLINE, polling).await {
        Ok(listing) => listing,
        Err(late) => panic!("{late} ({DEADLINE:?}): {what}; listed: {:?}", all(orchestrator).await),
    }
}

/// Creates an engine and waits until it is in the phase.
pub async fn create(
    harness: &dyn Harness,
    orchestrator: &Arc<dyn Orchestrator>,
    text: &str,
    program: Program,
    phase: model::engine_state::Phase,
) -> ObservedInstance {
    let spec = spec(harness, text, program);
    let ensured = orchestrator.ensure(&spec, EPOCH).await.unwrap();
    assert!(ensured.created);
    let reached = |listing: &Listing| listing.find(&spec.name).is_some_and(|engine| engine.phase == phase);
    let listing = eventually(orchestrator, &format!("{text} is {phase}"), reached).await;
    if program == Program::Stubborn {
        harness.wait_until_ready(&spec.name).await;
    }
    let engine = listing.find(&spec.name).unwrap().clone();
    assert_eq!(engine.uid, ensured.uid);
    engine
}

pub async fn gone(orchestrator: &Arc<dyn Orchestrator>, engine: &ObservedInstance) {
    eventually(orchestrator, &format!("{} is gone", engine.name), |listing| listing.find(&engine.name).is_none()).await;
    assert_eq!(orchestrator.get(&engine.name, None).await, Ok(None));
}

pub fn is_conflict<T: std::fmt::Debug>(result: Result<T, Error>, word: &str) {
    match result {
        Err(Error::Conflict { reason, .. }) if reason.contains(word) => {}
        other => panic!("no conflict about {word:?}: {other:?}"),
    }
}

pub fn refusal<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    match result {
        Err(Error::Refused { reason, .. } | Error::Limit { reason }) => reason,
        other => panic!("not refused: {other:?}"),
    }
}

pub fn exit_of(engine: &ObservedInstance) -> Exit {
    engine.exit.clone().unwrap_or_else(|| panic!("no exit: {engine:?}"))
}
