//! Executing a plan: stage by stage, the chains of a stage beside each other, each effect guarded and bounded.
//!
//! A chain stops at its first failure and takes no other along. What is left is planned anew by the next tick: there
//! is no retry here.

use std::time::Duration;

use coordination::Observation as Coordinated;
use futures::stream::{self, StreamExt};
use model::alteration::{AlterationProgress, RequestId};
use model::engine_name::EngineName;
use model::log_throttle::KeyedLogThrottle;
use model::number::Epoch;
use parking_lot::Mutex;
use planner::{Action, Chain, Decision, Plan};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::failpoints;
use crate::not_made::{Failed, Fault};
use crate::settings::Settings;
use crate::turns::{LastTried, in_turns};
use crate::world::{Effect, Failure, FailureKind, Ground, World};

/// How long the chains of one stage may be begun, in effect deadlines; what was not begun by then is left to the next
/// tick, so that many hanging creates can't hold a drain for long.
const STAGE_DEADLINES: u32 = 2;

/// Chains of one stage on their way for each call that may be at the orchestrator: while some of them are there, others are
/// at ZooKeeper or the database, many of them in one request, and the orchestrator waits for nobody.
const CHAINS_PER_CALL: usize = 16;

/// How often an effect on its way looks whether the lock may be lost.
const LOCK_POLL: Duration = Duration::from_millis(50);

/// What became of a plan.
#[derive(Debug, Default)]
pub(crate) struct Executed {
    /// How many decisions took effect.
    pub applied: usize,
    /// Engines whose pods are there.
    pub made: Vec<EngineName>,
    /// Creates that failed.
    pub not_made: Vec<Failed>,
    /// Alterations that are no longer converging.
    pub finished: Vec<RequestId>,
    /// Chains that were not begun, because their stage took too long.
    pub left: usize,
    /// Why the master has to stop acting, if it has to.
    pub stop: Option<Failure>,
}

impl Executed {
    fn merge(&mut self, other: Self) {
        self.applied += other.applied;
        self.made.extend(other.made);
        self.not_made.extend(other.not_made);
        self.finished.extend(other.finished);
        self.left += other.left;
        self.stop = self.stop.take().or(other.stop);
    }
}

/// Decisions that fail, by what, which engine and which slot: each tick makes them anew.
pub(crate) type Failing = Mutex<KeyedLogThrottle<(String, String, String)>>;

/// How effects are executed.
#[derive(Clone, Copy)]
pub(crate) struct Terms<'a> {
    /// What they are executed on.
    pub world: &'a dyn World,
    /// Limits and parallelism.
    pub settings: &'a Settings,
    /// When given, no further effect is begun.
    pub halt: &'a CancellationToken,
    /// What was told of decisions that failed.
    pub failing: &'a Failing,
    /// When creates were last tried: their turns.
    pub last_tried: LastTried<'a>,
}

/// Executes a plan.
pub(crate) async fn execute(terms: Terms<'_>, epoch: Epoch, seen: &Coordinated, plan: &Plan) -> Executed {
    let Terms { world, settings, .. } = terms;
    let mut executed = Executed::default();
    let at_once = settings.parallelism.max(1);
    let calls = Semaphore::new(at_once);
    for stage in plan.chains.chunk_by(|one, other| one.stage == other.stage) {
        let begun = world.now();
        let time = settings.effect_deadline() * STAGE_DEADLINES;
        let ground = Ground { epoch, generation: plan.generation, seen, made: None };
        // Collected first: a closure that borrows its argument makes a future that can't be sent between threads.
        let chains: Vec<_> = in_turns(stage, terms.last_tried)
            .into_iter()
            .map(|chain| run(terms, &calls, ground, chain, begun + time))
            .collect();
        let mut running = stream::iter(chains).buffer_unordered(at_once.saturating_mul(CHAINS_PER_CALL));
        let mut done = Executed::default();
        while let Some(chain) = running.next().await {
            done.merge(chain);
        }
        if let Some(chain) = stage.first().filter(|_| done.left > 0) {
            tracing::info!(stage = ?chain.stage, chains = done.left, "left to the next tick: the stage took too long");
        }
        executed.merge(done);
        if executed.stop.is_some() {
            break;
        }
    }
    executed
}

async fn run(terms: Terms<'_>, calls: &Semaphore, ground: Ground<'_>, chain: &Chain, until: Duration) -> Executed {
    let Terms { world, settings, halt, failing, .. } = terms;
    let limit = settings.effect_deadline();
    let mut executed = Executed::default();
    let mut made: Option<String> = None;
    if world.now() >= until {
        executed.left = 1;
        return executed;
    }
    for decision in &chain.decisions {
        let ground = Ground { made: made.as_deref(), ..ground };
        let Ok(_call) = turn(decision, calls, until.saturating_sub(world.now())).await else {
            executed.left = 1;
            break;
        };
        if halt.is_cancelled() {
            executed.stop = Some(Failure::Lost("it is shut down".to_owned()));
            break;
        }
        let begun = world.now();
        let result = if world.holds_lease() {
            if let Some(point) = failpoints::before(&decision.action) {
                model::failpoint!(point);
            }
            tokio::select! {
                biased;
                () = may_act_no_longer(world) => Err(lost()),
                result = timeout(limit, world.apply(decision, &ground)) => result
                    .unwrap_or_else(|_| Err(Failure::Unknown(format!("no answer within {} s", limit.as_secs_f32())))),
            }
        } else {
            Err(lost())
        };
        match result {
            Ok(effect) => {
                model::failpoint!(failpoints::after(&decision.action));
                log_applied(failing, decision, ground);
                executed.applied += 1;
                note(&mut executed, decision, &effect);
                if let Effect::Made { uid, .. } = effect {
                    made = Some(uid);
                }
            }
            Err(failure) => {
                log_failed(failing, decision, &failure, world.now());
                fail(&mut executed, decision, failure, world.now().saturating_sub(begun));
                break;
            }
        }
    }
    executed
}

/// Waits until another master may have taken over. An effect is several calls, and may take as long as its deadline: what it
/// has not sent by then is not sent.
async fn may_act_no_longer(world: &dyn World) {
    while world.holds_lease() {
        sleep(LOCK_POLL).await;
    }
}

fn lost() -> Failure {
    Failure::Lost("too long without an answer of ZooKeeper".to_owned())
}

/// Waits until the decision may go to the orchestrator, if it goes there; an error if that is not in time.
async fn turn<'a>(
    decision: &Decision,
    calls: &'a Semaphore,
    patience: Duration,
) -> Result<Option<SemaphorePermit<'a>>, Left> {
    if !matches!(decision.action, Action::CreateEngine(_) | Action::DeleteEngine { .. }) {
        return Ok(None);
    }
    match timeout(patience, calls.acquire()).await {
        Ok(Ok(call)) => Ok(Some(call)),
        _ => Err(Left),
    }
}

/// It is left to the next tick.
struct Left;

fn note(executed: &mut Executed, decision: &Decision, effect: &Effect) {
    match (effect, &decision.action, &decision.engine) {
        (Effect::Made { .. }, _, Some(engine)) => executed.made.push(engine.clone()),
        (Effect::Progress(progress), Action::Finish { id, .. }, _) if *progress != AlterationProgress::Converging => {
            executed.finished.push(id.clone());
        }
        _ => {}
    }
}

fn fail(executed: &mut Executed, decision: &Decision, failure: Failure, took: Duration) {
    if failure.kind() == FailureKind::NotMaster {
        executed.stop = Some(failure);
        return;
    }
    if let (Action::CreateEngine(_), Some(engine)) = (&decision.action, &decision.engine) {
        let fault = match failure.kind() {
            FailureKind::Away => Fault::Orchestrator,
            _ => Fault::Engine,
        };
        executed.not_made.push(Failed { engine: engine.clone(), reason: failure.to_string(), fault, took });
    }
}

/// The throttle key of a decision: a rejection and a failure are logged separately.
fn named(decision: &Decision, kind: FailureKind) -> (String, String, String) {
    let row = decision.row(0);
    let how = match kind {
        FailureKind::Stale | FailureKind::NotMaster => "rejected",
        FailureKind::Refused | FailureKind::Away => "failed",
    };
    (format!("{} {how}", row.decision), row.engine, row.slot)
}

fn log_applied(failing: &Failing, decision: &Decision, ground: Ground<'_>) {
    let row = decision.row(0);
    let failed = {
        let mut failing = failing.lock();
        // That it was rejected before is not worth a word; when it is again, that is.
        failing.clear(&named(decision, FailureKind::Stale));
        failing.clear(&named(decision, FailureKind::Refused))
    };
    tracing::info!(
        epoch = ground.epoch.get(),
        generation = ground.generation.get(),
        decision = row.decision,
        engine = row.engine,
        slot = row.slot,
        because = row.because,
        failed,
        "decision applied"
    );
}

fn log_failed(failing: &Failing, decision: &Decision, failure: &Failure, now: Duration) {
    let row = decision.row(0);
    let key = named(decision, failure.kind());
    let told = failing.lock().hit(key, now);
    let Some(times) = told else { return };
    let (decision, engine, slot) = (row.decision, row.engine, row.slot);
    match failure.kind() {
        FailureKind::Stale | FailureKind::NotMaster => {
            tracing::info!(decision, engine, slot, %failure, times, "decision rejected");
        }
        FailureKind::Refused | FailureKind::Away => {
            tracing::warn!(decision, engine, slot, %failure, times, "decision failed");
        }
    }
}
