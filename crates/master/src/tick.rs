//! The tick: observe, settle, snapshot, plan, execute, finish. It takes no input and reads everything afresh.
//!
//! The order is fixed. What is observed is older than the snapshot, so that what a newer snapshot does not want is
//! never wanted again; an alteration's outcome is settled before the snapshot is read, so that the plan that finishes
//! it knows its commit.

mod reporting;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use coordination::Observation as Coordinated;
use futures::stream::{self, StreamExt};
use model::alteration::RequestId;
use model::engine_name::EngineName;
use model::log_throttle::{KeyedLogThrottle, LogThrottle};
use model::number::Epoch;
use model::observation::{ObservedNode, Report};
use parking_lot::Mutex;
use planner::{Compared, Desired, Memo, Plan, Pod, Status};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::doubt::Doubts;
use crate::execute::{self, Executed, Failing, Terms};
use crate::failpoints;
use crate::made_in::MadeIn;
use crate::recollection::Recollection;
use crate::settings::Settings;
use crate::settle::{self, Settled};
use crate::wait_log::WaitLog;
use crate::world::{Engines, Failure, FailureKind, World};

/// What engine agents last said, shared with whoever asks them.
#[derive(Debug, Default, Clone)]
pub struct Loads {
    said: Arc<Mutex<BTreeMap<EngineName, Status>>>,
    changed: Arc<Notify>,
}

impl Loads {
    /// What is known now; who did not answer is missing.
    pub fn said(&self) -> BTreeMap<EngineName, Status> {
        self.said.lock().clone()
    }

    /// Replaces what is known; wakes the master if that is something new.
    pub fn say(&self, said: BTreeMap<EngineName, Status>) {
        let mut known = self.said.lock();
        if *known != said {
            *known = said;
            self.changed.notify_one();
        }
    }

    /// Waits until something new was said.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }
}

/// How soon a tick follows one that saw an undecided alteration: its commit rings no bell that is sure to be heard.
const UNDECIDED_PAUSE: Duration = Duration::from_millis(200);

/// How long reading everything from ZooKeeper may take, in effect deadlines: it takes up to four requests for each engine.
const READING_DEADLINES: u32 = 6;

/// How long the orchestrator is asked for single names in one tick, in effect deadlines; about the others it was silent.
const ASK_DEADLINES: u32 = 2;

/// How a tick ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ticked {
    /// It did what could be done.
    Done {
        /// Whether something took effect, so that there may be more to do at once.
        progress: bool,
        /// When something is due, from now on.
        due: Option<Duration>,
    },
    /// It stopped: the master may have been deposed.
    Stopped(String),
}

/// A master with its epoch: what ticks.
#[derive(Debug)]
pub struct Driver {
    settings: Settings,
    epoch: Epoch,
    recollection: Recollection,
    doubts: Doubts,
    loads: Loads,
    addresses: BTreeMap<EngineName, String>,
    wait_log: WaitLog,
    failing: Failing,
    throttles: Throttles,
    memo: Memo,
    halt: CancellationToken,
}

/// The log throttles of failures that may recur in each tick.
#[derive(Debug, Default)]
struct Throttles {
    settling: LogThrottle,
    releasing: LogThrottle,
    unread: LogThrottle,
    asking: KeyedLogThrottle<EngineName>,
}

/// What was read before the snapshot.
struct Seen {
    coordinated: Coordinated,
    engines: Engines,
}

impl Driver {
    /// A driver that has just won its epoch.
    pub fn new(settings: Settings, epoch: Epoch, now: Duration, loads: Loads, halt: CancellationToken) -> Self {
        let recollection = Recollection::new(now + settings.session_timeout());
        Self {
            settings,
            epoch,
            recollection,
            doubts: Doubts::default(),
            loads,
            addresses: BTreeMap::new(),
            wait_log: WaitLog::default(),
            failing: Failing::default(),
            throttles: Throttles::default(),
            memo: Memo::default(),
            halt,
        }
    }

    /// The epoch that it acts under.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Takes a newer epoch.
    pub fn raised(&mut self, epoch: Epoch) {
        self.epoch = epoch;
    }

    /// The session was away for a while.
    pub fn registry_shaken(&mut self, now: Duration) {
        self.recollection.registry_shaken(now + self.settings.session_timeout());
    }

    /// Where the registered engines can be asked for their load.
    pub fn addresses(&self) -> BTreeMap<EngineName, String> {
        self.addresses.clone()
    }

    /// Looks at everything and does what is to be done.
    pub async fn tick(&mut self, world: &dyn World) -> Ticked {
        if !world.holds_lease() {
            return Ticked::Stopped("too long without an answer of ZooKeeper".to_owned());
        }
        match self.reconcile(world).await {
            Ok(ticked) => ticked,
            Err(failure) if failure.kind() == FailureKind::NotMaster => Ticked::Stopped(failure.to_string()),
            Err(failure) => {
                self.wait_log.hit(world.now(), &failure.to_string());
                Ticked::Done { progress: false, due: None }
            }
        }
    }

    async fn reconcile(&mut self, world: &dyn World) -> Result<Ticked, Failure> {
        let limit = self.settings.effect_deadline();
        // Each of its many requests has a deadline of its own.
        let reading = bounded(limit * READING_DEADLINES, world.coordinated());
        let (coordinated, engines) = tokio::join!(reading, bounded(limit, world.engines()));
        model::failpoint!(failpoints::OBSERVED);
        let coordinated = coordinated?;
        self.log_unread(world.now(), &coordinated);
        let settled = self.settle(world, &coordinated).await?;
        model::failpoint!(failpoints::SETTLED);
        let snapshot = bounded(limit, world.snapshot()).await?;
        if snapshot.master.epoch != self.epoch {
            return Err(Failure::Deposed(format!(
                "the epoch is {} of {}, ours is {}",
                snapshot.master.epoch, snapshot.master.holder, self.epoch
            )));
        }
        model::failpoint!(failpoints::SNAPSHOT_READ);
        let desired = Desired {
            snapshot,
            cluster: self.settings.cluster.clone(),
            defaults: self.settings.defaults.clone(),
            limits: self.settings.limits,
        };
        let engines = match engines {
            Ok(engines) => engines,
            Err(failure) => return self.without_engines(world, &desired, &coordinated, &failure, settled).await,
        };
        self.tell_unreadable(&engines);
        let loads = self.loads.said();
        let now = world.now();
        let mut observed = self.recollection.observe(now, &coordinated, &engines.pods, &loads, &desired.snapshot);
        if let Some(nodes) = &engines.nodes {
            observed.know_nodes(&desired.snapshot.catalog, nodes);
            self.tell_shared(&desired, nodes);
        }
        self.addresses = self.recollection.reachable(&observed);
        let compared = self.memo.compare(desired, observed);
        let mut compared = self.ask(world, compared).await;
        let plan = self.memo.plan(&mut compared);
        model::failpoint!(failpoints::PLANNED);
        let seen = Seen { coordinated, engines };
        let ticked = self.carry_out(world, compared.desired(), &seen, plan, settled).await;
        self.memo.keep(compared);
        ticked
    }

    async fn settle(&mut self, world: &dyn World, coordinated: &Coordinated) -> Result<Settled, Failure> {
        let settling = settle::settle(world, &self.settings, self.epoch, &mut self.recollection, coordinated);
        match bounded(self.settings.effect_deadline(), settling).await {
            // What can't be decided now stays undecided, and holds up nobody but the next alteration.
            Err(failure) if failure.kind() != FailureKind::NotMaster => {
                if let Some(times) = self.throttles.settling.hit(world.now()) {
                    tracing::info!(%failure, times, "the alteration is not settled yet");
                }
                Ok(Settled::Stands((failure.kind() != FailureKind::Stale).then(|| failure.to_string())))
            }
            other => {
                if let Some(times) = self.throttles.settling.clear() {
                    tracing::info!(times, "settling works again");
                }
                other
            }
        }
    }

    /// Asks the orchestrator by name for what should be there and is in no list, and for what is in the list and may be
    /// gone. What it gives no answer about, or not in time, is not taken for vanished.
    async fn ask(&mut self, world: &dyn World, compared: Compared) -> Compared {
        let limit = self.settings.effect_deadline();
        let doubted = self.doubts.questions(world.now(), self.settings.session_timeout(), compared.observed());
        let questions: Vec<_> = compared.questions().into_iter().chain(doubted).collect();
        if questions.is_empty() {
            return compared;
        }
        let made_in = MadeIn::new(compared.desired());
        let asked: Vec<_> = questions
            .into_iter()
            .map(|question| {
                let namespace = question.namespace.clone().or_else(|| made_in.of(&question.engine));
                async move {
                    let answer = bounded(limit, world.engine(&question.engine, namespace.as_deref())).await;
                    (question, answer)
                }
            })
            .collect();
        let answers = stream::iter(asked).buffer_unordered(self.settings.parallelism.max(1));
        let answers: Vec<_> = answers.take_until(sleep(limit * ASK_DEADLINES)).collect().await;
        let (mut found, mut vanished) = (BTreeMap::new(), BTreeSet::new());
        for (question, answer) in answers {
            if answer.is_ok()
                && let Some(times) = self.throttles.asking.clear(&question.engine)
            {
                tracing::info!(engine = %question.engine, times, "an answer about an engine at last");
            }
            match answer {
                Ok(Some(pod)) if pod.uid == question.uid => drop(found.insert(pod.uid.clone(), pod)),
                Ok(_) => drop(vanished.insert((question.engine, question.uid))),
                Err(failure) => {
                    if let Some(times) = self.throttles.asking.hit(question.engine.clone(), world.now()) {
                        tracing::info!(engine = %question.engine, %failure, times, "no answer about an engine");
                    }
                }
            }
        }
        if found.is_empty() && vanished.is_empty() {
            return compared;
        }
        let (desired, mut observed) = compared.into_parts();
        // What the list has of them is older than the answers.
        let is_older =
            |pod: &Pod| found.contains_key(&pod.uid) || vanished.contains(&(pod.name.clone(), pod.uid.clone()));
        observed.pods.retain(|pod| !is_older(pod));
        observed.pods.extend(found.into_values());
        observed.vanished = vanished;
        self.memo.compare(desired, observed)
    }

    async fn carry_out(
        &mut self,
        world: &dyn World,
        desired: &Desired,
        seen: &Seen,
        plan: Plan,
        settled: Settled,
    ) -> Result<Ticked, Failure> {
        let executed = self.execute(world, &seen.coordinated, &plan).await;
        self.remember(world.now(), &executed);
        model::failpoint!(failpoints::EXECUTED);
        if let Some(failure) = executed.stop {
            return Err(failure);
        }
        self.release_node(world, desired, &seen.coordinated, &executed).await?;
        let undecided = matches!(settled, Settled::Stands(Some(_)));
        let waits_for = match settled {
            Settled::Stands(Some(what)) => Some(what),
            _ => plan.waits_for,
        };
        self.report(world, desired, plan.report, waits_for, &seen.engines).await?;
        let now_ms = desired.snapshot.now_ms;
        let due = plan.waits.iter().filter_map(|wait| wait.until_ms).filter(|until_ms| *until_ms > now_ms).min();
        let mut due = due.map(|until_ms| Duration::from_millis((until_ms - now_ms) as u64));
        if undecided {
            due = Some(due.map_or(UNDECIDED_PAUSE, |due| due.min(UNDECIDED_PAUSE)));
        }
        Ok(Ticked::Done { progress: executed.applied > 0, due })
    }

    async fn execute(&self, world: &dyn World, coordinated: &Coordinated, plan: &Plan) -> Executed {
        let last_tried = |engine: &EngineName| self.recollection.not_made.last_tried(engine);
        let (settings, halt, failing) = (&self.settings, &self.halt, &self.failing);
        let terms = Terms { world, settings, halt, failing, last_tried: &last_tried };
        execute::execute(terms, self.epoch, coordinated, plan).await
    }

    fn remember(&mut self, now: Duration, executed: &Executed) {
        for engine in &executed.made {
            self.recollection.not_made.made(engine);
        }
        for failed in &executed.not_made {
            self.recollection.not_made.failed(failed.clone(), now);
        }
    }

    /// The node goes after the first tick that acted on its alteration, so that other alterations wait for one tick and not
    /// for the engines: what is still missing then is known from the row, with or without the node.
    async fn release_node(
        &mut self,
        world: &dyn World,
        desired: &Desired,
        coordinated: &Coordinated,
        executed: &Executed,
    ) -> Result<(), Failure> {
        let Some(node) = &coordinated.alter else { return Ok(()) };
        let snapshot = &desired.snapshot;
        let acted_on = |id: &RequestId| {
            let known = snapshot.alterations.iter().find(|it| it.id == *id);
            known.is_some_and(|it| it.generation <= snapshot.catalog.generation) || executed.finished.contains(id)
        };
        if node.is_debris() || !node.children.iter().all(|child| acted_on(&child.id)) {
            return Ok(());
        }
        match bounded(self.settings.effect_deadline(), settle::delete_node(world, node)).await {
            Err(failure) if failure.kind() != FailureKind::NotMaster => {
                if let Some(times) = self.throttles.releasing.hit(world.now()) {
                    tracing::info!(%failure, times, "alter node stands until the next tick");
                }
                Ok(())
            }
            other => {
                self.throttles.releasing = LogThrottle::default();
                other
            }
        }
    }

    /// Without the list of engines none can be made or ended. The alteration on its way still comes to an end, and the
    /// master says that it lives and why it waits.
    async fn without_engines(
        &mut self,
        world: &dyn World,
        desired: &Desired,
        coordinated: &Coordinated,
        failure: &Failure,
        settled: Settled,
    ) -> Result<Ticked, Failure> {
        let reason = format!("the orchestrator: {failure}");
        self.wait_log.hit(world.now(), &reason);
        let plan = planner::plan_without_engines(desired, &reason);
        let executed = self.execute(world, coordinated, &plan).await;
        if let Some(failure) = executed.stop {
            return Err(failure);
        }
        self.release_node(world, desired, coordinated, &executed).await?;
        let waits_for = match settled {
            Settled::Stands(Some(what)) => what,
            _ => plan.waits_for.unwrap_or(reason),
        };
        let mut report = Report {
            engines: plan.report.into_iter().map(Arc::unwrap_or_clone).collect(),
            waits_for: Some(waits_for),
            after_tick_ms: Some(desired.snapshot.master.last_tick_ms),
            ..Report::default()
        };
        // What these rows say is not what the next list is compared with: it is reported as a whole.
        self.recollection.reported(None);
        self.send(world, &mut report).await?;
        Ok(Ticked::Done { progress: executed.applied > 0, due: None })
    }

    fn tell_shared(&mut self, desired: &Desired, nodes: &[ObservedNode]) {
        for (node, one, other) in self.recollection.newly_shared(&desired.snapshot.catalog, nodes) {
            tracing::warn!(node, %one, %other, "a node is in two resource pools: NODE_LIST or NODE_SELECTOR of both mean it");
        }
    }

    fn log_unread(&mut self, now: Duration, coordinated: &Coordinated) {
        let (permits, drains) = (coordinated.unread.permits.len(), coordinated.unread.drains.len());
        if coordinated.unread.is_empty() {
            self.throttles.unread.clear();
        } else if let Some(times) = self.throttles.unread.hit(now) {
            let limit = coordination::MAX_CHILDREN;
            tracing::warn!(permits, drains, limit, times, "more permits or drain facts than are read in one tick");
        }
    }

    fn tell_unreadable(&mut self, engines: &Engines) {
        for (name, reason) in self.recollection.newly_unreadable(&engines.unreadable) {
            tracing::warn!(name, reason, "an engine of the orchestrator can't be read");
        }
    }
}

/// Ends a call that takes too long: its outcome is unknown.
async fn bounded<T>(limit: Duration, call: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let late = |_| Err(Failure::Unknown(format!("no answer within {} s", limit.as_secs_f32())));
    timeout(limit, call).await.unwrap_or_else(late)
}
