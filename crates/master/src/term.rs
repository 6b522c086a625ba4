//! A term: from winning the lock to losing it. Raises the epoch, then ticks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, Stream, StreamExt};
use model::engine_name::EngineName;
use model::log_throttle::LogThrottle;
use model::number::Epoch;
use planner::EngineLoad;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::ctx::{ControllerCtx, Failure};
use crate::failpoints;
use crate::master::CandidateState;
use crate::settings::Settings;
use crate::tick::{Loads, Reconciler, Ticked};
use crate::wait_log::WaitLog;

/// Between two ticks, at least: what comes in between is one wake-up.
const MIN_PAUSE: Duration = Duration::from_millis(50);
/// Between two tries to raise the epoch, and between two looks at a session that is away.
const RETRY_PAUSE: Duration = Duration::from_millis(250);
/// How long what is being done may go on once the master is told to end. Its successor must not wait for an agent or
/// an orchestrator that does not answer: what is broken off is refused where it lands, or seen by the next tick.
const RESIGN_PATIENCE: Duration = Duration::from_millis(100);
/// Engines that are asked for their load in one round at most; the others have their turn in the next ones.
const MAX_POLLED: usize = 2_000;
/// Engines that are asked at the same time: one that does not answer occupies its place for a status deadline.
const POLLED_AT_ONCE: usize = 64;
/// How long answers are collected before they are published, so that many are one wake-up of the master.
const COLLECTED: Duration = Duration::from_millis(250);

/// Acts as master until the lock is lost or `stop` is given. Says why it ended.
pub(crate) async fn serve(
    ctx: Arc<dyn ControllerCtx>,
    settings: &Settings,
    state: &watch::Sender<CandidateState>,
    stop: &CancellationToken,
) -> String {
    model::failpoint!(failpoints::LOCK_WON);
    let _ = state.send(CandidateState::Elected);
    let loads = Loads::default();
    let (addresses, asked) = watch::channel(BTreeMap::new());
    // It holds the ctx, and with it the lock: it must not outlive the term, however that ends.
    let polling = poll(Arc::clone(&ctx), settings.clone(), asked, loads.clone());
    let _polling = AbortOnDropHandle::new(tokio::spawn(polling));
    let patience = async {
        stop.cancelled().await;
        sleep(RESIGN_PATIENCE).await;
    };
    tokio::select! {
        biased;
        reason = act(&*ctx, settings, state, Load { loads, addresses: &addresses }, stop) => reason,
        () = patience => "it is shut down, what it waited for is broken off".to_owned(),
    }
}

/// How the loads of engines are asked for and kept.
struct Load<'a> {
    loads: Loads,
    addresses: &'a watch::Sender<BTreeMap<EngineName, String>>,
}

async fn act(
    ctx: &dyn ControllerCtx,
    settings: &Settings,
    state: &watch::Sender<CandidateState>,
    load: Load<'_>,
    stop: &CancellationToken,
) -> String {
    let Some(epoch) = raise(ctx, settings, stop).await else { return "the lock is lost".to_owned() };
    tracing::info!(epoch = epoch.get(), "epoch raised");
    let mut reconciler = Reconciler::new(settings.clone(), epoch, ctx.now(), load.loads.clone(), stop.clone());
    let mut ticks = 0_u64;
    let (mut stopped, mut unasked, mut refused) =
        (LogThrottle::default(), LogThrottle::default(), LogThrottle::default());
    loop {
        if stop.is_cancelled() {
            return "it is shut down".to_owned();
        }
        if ctx.session_expired() {
            return "the session is gone".to_owned();
        }
        if !ctx.holds_lease() {
            // Not master for now: whether still, the session decides.
            sleep(RETRY_PAUSE).await;
            reconciler.distrust_registry(ctx.now());
            continue;
        }
        match reconciler.tick(ctx).await {
            Ticked::Done { progress, due } => {
                ticks += 1;
                if let Some(times) = stopped.clear().filter(|times| *times > 1) {
                    tracing::info!(epoch = reconciler.epoch().get(), times, "ticks end again");
                }
                refused.clear();
                let _ = state.send(CandidateState::Acting { epoch: reconciler.epoch(), ticks });
                let reachable = reconciler.addresses();
                load.addresses.send_if_modified(|known| {
                    let changed = *known != reachable;
                    *known = reachable;
                    changed
                });
                tokio::select! {
                    () = pause(ctx, settings, progress, due) => {}
                    () = load.loads.changed() => {}
                    () = stop.cancelled() => {}
                }
            }
            Ticked::Stopped(reason) => {
                if let Some(times) = stopped.hit(ctx.now()) {
                    tracing::info!(epoch = reconciler.epoch().get(), reason, times, "tick stopped");
                }
                // Who is refused again and again must not be quick about it.
                sleep(RETRY_PAUSE).await;
                if ctx.holds_lease() && !stop.is_cancelled() {
                    let raised = look_again(ctx, settings, stop, &mut unasked).await;
                    match raised {
                        Some(epoch) => {
                            // Four times in each second until it is taken, if the database is behind the engines' place.
                            if let Some(times) = refused.hit(ctx.now()) {
                                tracing::info!(epoch = epoch.get(), times, "epoch raised again");
                            }
                            reconciler.raised(epoch);
                        }
                        None => return reason,
                    }
                }
            }
        }
    }
}

/// Waits for the next tick: a wake-up, the timer, or what is due before it.
async fn pause(ctx: &dyn ControllerCtx, settings: &Settings, progress: bool, due: Option<Duration>) {
    sleep(MIN_PAUSE).await;
    if progress {
        return;
    }
    let time = due.map_or(settings.tick(), |due| due.min(settings.tick()));
    let _ = timeout(time, ctx.woken()).await;
}

/// The epoch was refused, or another one was read: if the lock is still held, it is raised again.
async fn look_again(
    ctx: &dyn ControllerCtx,
    settings: &Settings,
    stop: &CancellationToken,
    unasked: &mut LogThrottle,
) -> Option<Epoch> {
    match ctx.still_held().await {
        Ok(true) => {
            unasked.clear();
            raise(ctx, settings, stop).await
        }
        Ok(false) => None,
        Err(failure) => {
            if let Some(times) = unasked.hit(ctx.now()) {
                tracing::info!(%failure, times, "can't ask for the lock");
            }
            if ctx.session_expired() { None } else { raise(ctx, settings, stop).await }
        }
    }
}

/// Raises the epoch in the database: the first thing that a master does. Tries until it succeeds or the lock is lost.
async fn raise(ctx: &dyn ControllerCtx, settings: &Settings, stop: &CancellationToken) -> Option<Epoch> {
    let mut wait_log = WaitLog::default();
    loop {
        if ctx.session_expired() || stop.is_cancelled() {
            return None;
        }
        if ctx.holds_lease() {
            match timeout(settings.effect_deadline(), raise_once(ctx)).await {
                Ok(Ok(epoch)) => {
                    model::failpoint!(failpoints::EPOCH_RAISED);
                    wait_log.clear(ctx.now());
                    return Some(epoch);
                }
                Ok(Err(Failure::Deposed(_))) => {
                    if matches!(ctx.still_held().await, Ok(false)) {
                        return None;
                    }
                }
                Ok(Err(failure)) => {
                    wait_log.hit(ctx.now(), &failure.to_string());
                }
                Err(_) => {
                    wait_log.hit(ctx.now(), "an answer about the epoch");
                }
            }
        }
        sleep(RETRY_PAUSE).await;
    }
}

async fn raise_once(ctx: &dyn ControllerCtx) -> Result<Epoch, Failure> {
    let read = ctx.master().await?;
    ctx.raise_epoch(read.epoch).await.map(|raised| raised.epoch)
}

/// Asks the registered engines for their load: all of them every `status_poll_ms`, one that is new or has another address at
/// once. Answers are published while others are still awaited; an engine that does not answer in time is unknown.
pub(crate) async fn poll(
    ctx: Arc<dyn ControllerCtx>,
    settings: Settings,
    mut asked: watch::Receiver<BTreeMap<EngineName, String>>,
    loads: Loads,
) {
    let limit = Duration::from_millis(settings.status_deadline_ms.max(1));
    let every = Duration::from_millis(settings.status_poll_ms.max(1));
    let (mut first, mut next_round) = (0_usize, Instant::now());
    let mut known: BTreeMap<EngineName, String> = BTreeMap::new();
    loop {
        let addresses = asked.borrow_and_update().clone();
        let mut statuses = loads.said();
        statuses.retain(|engine, _| addresses.contains_key(engine));
        loads.say(statuses);
        let is_new = |(engine, address): &(&EngineName, &String)| known.get(*engine) != Some(*address);
        let round: Vec<(&EngineName, &String)> = if Instant::now() >= next_round {
            next_round = Instant::now() + every;
            let turn = addresses.iter().cycle().skip(first).take(addresses.len().min(MAX_POLLED)).collect();
            first = if addresses.is_empty() { 0 } else { (first + MAX_POLLED) % addresses.len() };
            turn
        } else {
            addresses.iter().filter(is_new).take(MAX_POLLED).collect()
        };
        let asking = round.into_iter().map(|(engine, address)| {
            let (ctx, engine, address) = (Arc::clone(&ctx), engine.clone(), address.clone());
            async move {
                let answer = timeout(limit, ctx.status(&engine, &address)).await;
                (engine, answer.ok().and_then(Result::ok))
            }
        });
        let asking: Vec<_> = asking.collect();
        publish(stream::iter(asking).buffer_unordered(POLLED_AT_ONCE), &loads).await;
        known = addresses;
        // Many engines may register one after the other.
        sleep(RETRY_PAUSE).await;
        if let Ok(Err(_)) = timeout_at(next_round, asked.changed()).await {
            return;
        }
    }
}

/// Publishes answers as they come, some at a time.
async fn publish(answers: impl Stream<Item = (EngineName, Option<EngineLoad>)>, loads: &Loads) {
    let mut answers = std::pin::pin!(answers);
    let mut over = false;
    while !over {
        let mut some = Vec::new();
        let collecting = async {
            while let Some(answer) = answers.next().await {
                some.push(answer);
            }
        };
        over = timeout(COLLECTED, collecting).await.is_ok();
        let mut statuses = loads.said();
        for (engine, answer) in some {
            match answer {
                Some(status) => drop(statuses.insert(engine, status)),
                None => drop(statuses.remove(&engine)),
            }
        }
        loads.say(statuses);
    }
}
