//! The executor: runs a plan stage by stage, and the chains of a stage concurrently.
//!
//! A chain that a change of the ledger leads starts when that is written (`ledger`); it ends there if it was refused. Creates
//! are started in turns of the tenants, as far as their changes are written.
//!
//! A chain stops at its first failure, which affects no other chain. The next tick plans the rest again: there is no retry
//! here.

mod ledger;

use std::collections::{BTreeMap, VecDeque};
use std::pin::pin;
use std::time::Duration;

use coordination::Observation as Coordination;
use futures::stream::{self, FuturesUnordered, StreamExt};
use model::alteration::{AlterationProgress, RequestId};
use model::engine_name::EngineName;
use model::log_throttle::KeyedLogThrottle;
use model::number::Epoch;
use parking_lot::Mutex;
use planner::{Action, Chain, Decision, Plan, Row, Stage};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use self::ledger::{Leads, lead};
use crate::create_backoff::{CreateBackoff, FailedCreate, Fault};
use crate::ctx::{Applied, ControllerCtx, Effect, Expected, Failure, FailureKind, GuardedDecision};
use crate::settings::Settings;
use crate::turns::in_turns;

/// The time in which chains of one stage are started, in effect deadlines; the rest is left to the next tick, so that many
/// hanging creates cannot delay a drain for long.
const STAGE_DEADLINES: u32 = 2;

/// Concurrent chains of one stage for each concurrent call to the orchestrator: while some chains wait for it, others write
/// to ZooKeeper or the database in batches, so that the orchestrator is never idle.
const CHAINS_PER_CALL: usize = 16;

/// The result of a plan.
#[derive(Debug, Default)]
pub(crate) struct Executed {
    /// The number of applied decisions.
    pub applied: usize,
    /// Engines whose instances exist.
    pub created: Vec<EngineName>,
    pub failed_creates: Vec<FailedCreate>,
    /// Alterations that are no longer converging.
    pub finished: Vec<RequestId>,
    /// Chains that were not started, because their stage took too long.
    pub left: usize,
    /// By pool, how many requests were granted by the plan and have no reservation: they stay in the queue.
    pub ungranted: BTreeMap<String, i64>,
    /// Why the master must stop acting, if it must.
    pub stop: Option<Failure>,
}

impl Executed {
    pub fn merge(&mut self, other: Self) {
        self.applied += other.applied;
        self.created.extend(other.created);
        self.failed_creates.extend(other.failed_creates);
        self.finished.extend(other.finished);
        self.left += other.left;
        for (pool, requests) in other.ungranted {
            *self.ungranted.entry(pool).or_default() += requests;
        }
        self.stop = self.stop.take().or(other.stop);
    }
}

/// The executor of one term.
#[derive(Debug)]
pub(crate) struct Executor {
    /// The concurrent calls of one stage to the orchestrator.
    calls: usize,
    /// The time in which the chains of one stage are started.
    stage_time: Duration,
    /// Once cancelled, no further effect is started.
    shutdown: CancellationToken,
    /// The log throttles of failed decisions, by decision, engine and slot: each tick plans them again.
    failed: Mutex<KeyedLogThrottle<(String, String, String)>>,
}

impl Executor {
    pub fn new(settings: &Settings, shutdown: CancellationToken) -> Self {
        Self {
            calls: settings.parallelism.max(1),
            stage_time: settings.effect_deadline * STAGE_DEADLINES,
            shutdown,
            failed: Mutex::default(),
        }
    }

    /// Executes a plan.
    pub async fn execute_plan(
        &self,
        ctx: &dyn ControllerCtx,
        epoch: Epoch,
        nodes: &Coordination,
        plan: &Plan,
        backoff: &CreateBackoff,
    ) -> Executed {
        let mut executed = Executed::default();
        for stage in plan.chains.chunk_by(|one, other| one.stage == other.stage) {
            let until = ctx.clock() + self.stage_time;
            let expected = Expected { epoch, generation: plan.generation, nodes, created: None };
            let done = self.execute_stage(ctx, expected, stage, until, backoff).await;
            if let Some(chain) = stage.first().filter(|_| done.left > 0) {
                tracing::info!(stage = %chain.stage, chains = done.left, "left to the next tick: the stage took too long");
            }
            executed.merge(done);
            if executed.stop.is_some() {
                break;
            }
        }
        executed
    }

    /// Executes the chains of one stage. The first transaction of their leads is written before any of them starts, so that small
    /// plans keep their order; the transactions after it are written while chains run.
    async fn execute_stage(
        &self,
        ctx: &dyn ControllerCtx,
        expected: Expected<'_>,
        stage: &[Chain],
        until: Duration,
        backoff: &CreateBackoff,
    ) -> Executed {
        let mut done = Executed::default();
        let calls = Semaphore::new(self.calls);
        let most = self.calls.saturating_mul(CHAINS_PER_CALL);
        let leads = Leads::new(self, ctx, expected, stage, until);
        let mut written = pin!(stream::unfold(leads, Leads::write_next).fuse());
        let mut ready = VecDeque::new();
        let mut running = FuturesUnordered::new();
        let mut led = written.next().await;
        let mut added: Vec<&Chain> = stage.iter().filter(|chain| lead(chain).is_none()).collect();
        loop {
            if let Some(led) = led.take() {
                done.merge(led.executed);
                added.extend(led.granted);
            }
            if !added.is_empty() {
                added.extend(ready.drain(..));
                if stage.first().is_some_and(|chain| chain.stage == Stage::Create) {
                    added = in_turns(added, |engine| backoff.last_tried(engine));
                }
                ready.extend(added.drain(..));
            }
            while done.stop.is_none() && running.len() < most {
                let Some(chain) = ready.pop_front() else { break };
                running.push(self.run(ctx, &calls, expected, chain, until));
            }
            tokio::select! {
                // The order of what is ready at the same time is that of the plan.
                biased;
                next = written.next(), if !written.is_done() && done.stop.is_none() => led = next,
                Some(chain) = running.next() => done.merge(chain),
                else => return done,
            }
        }
    }

    /// Runs one chain without the change of the ledger that leads it, if it can be started until then.
    async fn run(
        &self,
        ctx: &dyn ControllerCtx,
        calls: &Semaphore,
        expected: Expected<'_>,
        chain: &Chain,
        until: Duration,
    ) -> Executed {
        let mut executed = Executed::default();
        let mut created: Option<String> = None;
        let decisions = &chain.decisions[usize::from(lead(chain).is_some())..];
        if decisions.is_empty() {
            return executed;
        }
        if ctx.clock() >= until {
            executed.left = 1;
            return executed;
        }
        for decision in decisions {
            let expected = Expected { created: created.as_deref(), ..expected };
            let Ok(_call) = turn(decision, calls, until.saturating_sub(ctx.clock())).await else {
                executed.left = 1;
                break;
            };
            if self.shutdown.is_cancelled() {
                executed.stop = Some(Failure::Lost("shutting down".to_owned()));
                break;
            }
            let begun = ctx.clock();
            match ctx.apply(Effect::Decision(GuardedDecision { decision, expected })).await {
                Ok(Applied::Declined) => {
                    self.log_declined(decision, ctx.clock());
                    break;
                }
                Ok(applied) => {
                    self.log_applied(decision, expected);
                    executed.applied += 1;
                    note(&mut executed, decision, &applied);
                    if let Applied::Created { uid } = applied {
                        created = Some(uid);
                    }
                }
                Err(failure) => {
                    let now = ctx.clock();
                    self.log_failed(decision, &failure, now);
                    fail(&mut executed, decision, failure, now.saturating_sub(begun));
                    break;
                }
            }
        }
        executed
    }

    fn log_applied(&self, decision: &Decision, expected: Expected<'_>) {
        let row = decision.row(0);
        let failed_before = {
            let mut failed = self.failed.lock();
            // An earlier rejection or refusal needs no line; the next one does.
            for how in ["rejected", "refused", "declined"] {
                failed.clear(&throttle_key(&row, how));
            }
            failed.clear(&throttle_key(&row, "failed"))
        };
        tracing::info!(
            epoch = expected.epoch.get(),
            generation = expected.generation.get(),
            decision = row.decision,
            engine = row.engine,
            slot = row.slot,
            because = row.because,
            failed = failed_before,
            "decision applied"
        );
    }

    fn log_declined(&self, decision: &Decision, now: Duration) {
        let row = decision.row(0);
        let Some(times) = self.failed.lock().hit(throttle_key(&row, "declined"), now) else { return };
        tracing::debug!(decision = row.decision, engine = row.engine, slot = row.slot, times, "decision declined");
    }

    fn log_failed(&self, decision: &Decision, failure: &Failure, now: Duration) {
        let row = decision.row(0);
        let how = match failure.kind() {
            FailureKind::Stale | FailureKind::NotMaster => "rejected",
            FailureKind::Refused | FailureKind::Away => "failed",
        };
        let key = throttle_key(&row, how);
        let Some(times) = self.failed.lock().hit(key, now) else { return };
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
}

/// Waits for a call slot if the decision needs the orchestrator; an error if none is free in time.
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

/// The chain is left to the next tick.
struct Left;

fn note(executed: &mut Executed, decision: &Decision, applied: &Applied) {
    match (applied, &decision.action, &decision.engine) {
        (Applied::Created { .. }, _, Some(engine)) => executed.created.push(engine.clone()),
        (Applied::Progress(progress), Action::Finish { id, .. }, _) if *progress != AlterationProgress::Converging => {
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
        let fault = match (failure.kind(), &failure) {
            (FailureKind::Away, _) => Fault::Orchestrator,
            (FailureKind::Refused, Failure::Refused(_)) => Fault::Engine,
            _ => Fault::Limit,
        };
        executed.failed_creates.push(FailedCreate { engine: engine.clone(), reason: failure.to_string(), fault, took });
    }
}

/// The throttle key of a decision that had no effect: each way of that is logged separately.
fn throttle_key(row: &Row, how: &str) -> (String, String, String) {
    (format!("{} {how}", row.decision), row.engine.clone(), row.slot.clone())
}
