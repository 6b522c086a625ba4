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

use crate::create_backoff::{Failed, Fault};
use crate::ctx::{ControllerCtx, Effect, Expected, Failure, FailureKind};
use crate::failpoints;
use crate::settings::Settings;
use crate::turns::{LastTried, in_turns};

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
    pub create_backoff: Vec<Failed>,
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
        self.create_backoff.extend(other.create_backoff);
        self.finished.extend(other.finished);
        self.left += other.left;
        self.stop = self.stop.take().or(other.stop);
    }
}

/// Decisions that fail, by what, which engine and which slot: each tick makes them anew.
pub(crate) type Failing = Mutex<KeyedLogThrottle<(String, String, String)>>;

/// How effects are executed.
#[derive(Clone, Copy)]
pub(crate) struct Execution<'a> {
    /// What they are executed on.
    pub ctx: &'a dyn ControllerCtx,
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
pub(crate) async fn execute(execution: Execution<'_>, epoch: Epoch, seen: &Coordinated, plan: &Plan) -> Executed {
    let Execution { ctx, settings, .. } = execution;
    let mut executed = Executed::default();
    let at_once = settings.parallelism.max(1);
    let calls = Semaphore::new(at_once);
    for stage in plan.chains.chunk_by(|one, other| one.stage == other.stage) {
        let begun = ctx.now();
        let time = settings.effect_deadline() * STAGE_DEADLINES;
        let expected = Expected { epoch, generation: plan.generation, seen, made: None };
        // Collected first: a closure that borrows its argument makes a future that can't be sent between threads.
        let chains: Vec<_> = in_turns(stage, execution.last_tried)
            .into_iter()
            .map(|chain| run(execution, &calls, expected, chain, begun + time))
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

async fn run(
    execution: Execution<'_>,
    calls: &Semaphore,
    expected: Expected<'_>,
    chain: &Chain,
    until: Duration,
) -> Executed {
    let Execution { ctx, settings, halt, failing, .. } = execution;
    let limit = settings.effect_deadline();
    let mut executed = Executed::default();
    let mut made: Option<String> = None;
    if ctx.now() >= until {
        executed.left = 1;
        return executed;
    }
    for decision in &chain.decisions {
        let expected = Expected { made: made.as_deref(), ..expected };
        let Ok(_call) = turn(decision, calls, until.saturating_sub(ctx.now())).await else {
            executed.left = 1;
            break;
        };
        if halt.is_cancelled() {
            executed.stop = Some(Failure::Lost("it is shut down".to_owned()));
            break;
        }
        let begun = ctx.now();
        let result = if ctx.holds_lease() {
            if let Some(point) = failpoints::before(&decision.action) {
                model::failpoint!(point);
            }
            tokio::select! {
                biased;
                () = may_act_no_longer(ctx) => Err(lost()),
                result = timeout(limit, ctx.apply(decision, &expected)) => result
                    .unwrap_or_else(|_| Err(Failure::Unknown(format!("no answer within {} s", limit.as_secs_f32())))),
            }
        } else {
            Err(lost())
        };
        match result {
            Ok(effect) => {
                model::failpoint!(failpoints::after(&decision.action));
                log_applied(failing, decision, expected);
                executed.applied += 1;
                note(&mut executed, decision, &effect);
                if let Effect::Made { uid, .. } = effect {
                    made = Some(uid);
                }
            }
            Err(failure) => {
                log_failed(failing, decision, &failure, ctx.now());
                fail(&mut executed, decision, failure, ctx.now().saturating_sub(begun));
                break;
            }
        }
    }
    executed
}

/// Waits until another master may have taken over. An effect is several calls, and may take as long as its deadline: what it
/// has not sent by then is not sent.
async fn may_act_no_longer(ctx: &dyn ControllerCtx) {
    while ctx.holds_lease() {
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
        executed.create_backoff.push(Failed { engine: engine.clone(), reason: failure.to_string(), fault, took });
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

fn log_applied(failing: &Failing, decision: &Decision, expected: Expected<'_>) {
    let row = decision.row(0);
    let failed = {
        let mut failing = failing.lock();
        // That it was rejected before is not worth a word; when it is again, that is.
        failing.clear(&named(decision, FailureKind::Stale));
        failing.clear(&named(decision, FailureKind::Refused))
    };
    tracing::info!(
        epoch = expected.epoch.get(),
        generation = expected.generation.get(),
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
