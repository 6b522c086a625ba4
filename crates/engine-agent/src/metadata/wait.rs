//! WAIT: waits until the engines of a statement are ready or gone, at most for a time; the log reports the progress.
//!
//! It waits for slots, not for names: an engine that fails is replaced under a new name. A wait for an engine of a pool
//! without nodes fails at once, and so does one for an engine that its limits can never admit. Cancelling ends only the wait. All waiting statements share one reading of the database
//! ([`OverviewPoller`](super::overview_poller::OverviewPoller)).

use std::time::Duration;

use metadata::{ObservedRow, Overview, user_error};
use model::alteration::{ObjectKind, ObjectRef};
use model::engine_name::EngineName;
use model::engine_state::Phase;
use model::error::{ErrorKind, UserError};
use model::ledger::never_fits;
use model::slot::{Slot, SlotKey};
use model::text::as_detail;

use super::context::{Context, canceled};
use super::settings::MAX_WAIT;
use super::show::engines::freshness;
use super::starting;

/// The state of a wait by one reading.
enum WaitState<T> {
    Done(T),
    Pending(String),
    Failed(UserError),
}

/// Waits until the slot's current engine is ready; returns its name.
pub(super) async fn ready(context: &Context, key: &SlotKey, patience: Duration) -> Result<EngineName, UserError> {
    until(context, patience, "the engine is not ready", |overview| match slot_of(overview, key) {
        None => WaitState::Failed(no_longer_desired(key)),
        Some(slot) => match not_ready(context, overview, slot) {
            Some(reason) => {
                waits_in_vain(context, overview, slot).map_or(WaitState::Pending(reason), WaitState::Failed)
            }
            None => WaitState::Done(slot.engine()),
        },
    })
    .await
}

/// Waits until the slot's current engine is ready and no older one is left; returns its name.
pub(super) async fn replaced(context: &Context, key: &SlotKey, patience: Duration) -> Result<EngineName, UserError> {
    until(context, patience, "the engine is not replaced", |overview| match slot_of(overview, key) {
        None => WaitState::Failed(no_longer_desired(key)),
        Some(slot) => match not_ready(context, overview, slot) {
            Some(reason) => {
                waits_in_vain(context, overview, slot).map_or(WaitState::Pending(reason), WaitState::Failed)
            }
            None => left_over(overview, |other| other == key)
                .map_or_else(|| WaitState::Done(slot.engine()), WaitState::Pending),
        },
    })
    .await
}

/// How the wait for the end of an engine ended.
pub(super) enum Gone {
    /// Nothing is left of it.
    Ended,
    /// Its machine has failed, and nothing of it can be ended before that returns; with what the master observed.
    Unreachable(String),
}

/// Waits until the engine is gone, what it was charged is returned, and the published usage of its nodes no longer has it: START
/// with NOWAIT decides by both. An unreachable engine ends when its machine returns, which may be never: the wait ends once it is
/// not charged any more.
pub(super) async fn gone(context: &Context, name: &EngineName, patience: Duration) -> Result<Gone, UserError> {
    until(context, patience, "the engine is not gone", |overview| {
        let mut engines = overview.snapshot.engines.iter();
        let living = engines.find(|engine| engine.name == *name && engine.ended_at_ms.is_none());
        if living.is_some_and(|engine| engine.uid.is_some()) && is_unreachable(overview, name) {
            WaitState::Done(Gone::Unreachable(observed_reason(overview, name)))
        } else if living.is_some() {
            WaitState::Pending(format!("engine \"{name}\" is still terminating: {}", observed_reason(overview, name)))
        } else if overview.snapshot.ledger.reservation(name.as_str()).is_some_and(|charged| charged.state.is_charged())
        {
            WaitState::Pending(format!("engine \"{name}\" has ended, and its reservation is still charged"))
        } else if is_listed(overview, name) {
            WaitState::Pending(format!("engine \"{name}\" has ended, and the usage of its nodes is still published"))
        } else {
            WaitState::Done(Gone::Ended)
        }
    })
    .await
}

/// Waits until every engine that the object affects is ready, and every other one of it is gone.
pub(super) async fn object(context: &Context, object: &ObjectRef, patience: Duration) -> Result<(), UserError> {
    let affects = |key: &SlotKey| match object.kind {
        ObjectKind::Tenant => key.tenant.as_str() == object.name,
        ObjectKind::ResourcePool => key.pool.as_str() == object.name,
        ObjectKind::ResourceUnit => key.unit.as_str() == object.name,
        // A quota affects no engine that exists.
        ObjectKind::ResourceQuota => false,
    };
    until(context, patience, "not all engines are ready", |overview| {
        let slots = overview.snapshot.slots.iter().filter(|slot| affects(&slot.key));
        let mut waiting = slots.filter_map(|slot| Some((slot, not_ready(context, overview, slot)?))).peekable();
        let waits = waiting.peek().map(|(_, reason)| reason.clone());
        if let Some(never) = waiting.find_map(|(slot, _)| waits_in_vain(context, overview, slot)) {
            return WaitState::Failed(never);
        }
        waits.or_else(|| left_over(overview, affects)).map_or(WaitState::Done(()), WaitState::Pending)
    })
    .await
}

async fn until<T>(
    context: &Context,
    patience: Duration,
    what: &str,
    evaluate: impl Fn(&Overview) -> WaitState<T>,
) -> Result<T, UserError> {
    let clock = &context.agent.clock;
    let end = clock.boottime() + patience;
    let poller = &context.agent.overviews;
    let _waiter = poller.waiter(&context.subject.user)?;
    loop {
        let reading = tokio::select! {
            reading = poller.next() => reading,
            () = context.cancelled.cancelled() => {
                return Err(canceled().detail("Only the wait was cancelled; the statement remains in effect."));
            }
        };
        let reason = match reading {
            Ok(overview) => match evaluate(&overview) {
                WaitState::Done(found) => return Ok(found),
                WaitState::Failed(error) => return Err(error),
                WaitState::Pending(reason) => reason,
            },
            Err(error) => format!("the metadata database does not respond: {error}"),
        };
        let now = clock.boottime();
        if now >= end {
            return Err(deadline_passed(patience, what, &reason));
        }
        if context.timeout.is_some_and(|timeout| now >= timeout) {
            return Err(timed_out(&reason));
        }
        context.log.line(reason);
    }
}

/// Rejects a WAIT that is longer than any may be, before the statement has taken effect.
pub(super) fn check(wait: Option<Duration>) -> Result<(), UserError> {
    match wait.filter(|wait| *wait > MAX_WAIT) {
        None => Ok(()),
        Some(wait) => Err(UserError::new(ErrorKind::InvalidValue, "the time after WAIT is too long").detail(format!(
            "It is {}, and the limit is {}.",
            model::span::print(wait),
            model::span::print(MAX_WAIT)
        ))),
    }
}

/// The error of a wait whose own time has passed.
fn deadline_passed(patience: Duration, what: &str, reason: &str) -> UserError {
    UserError::new(ErrorKind::Timeout, format!("{what} after {}", model::span::print(patience)))
        .detail(as_detail(reason))
        .hint("Only the wait has ended; the statement remains in effect. SHOW ENGINES reports its progress.")
}

/// The error of a wait that its client's or session's statement timeout ended.
fn timed_out(reason: &str) -> UserError {
    UserError::new(ErrorKind::Timeout, "canceling statement due to statement timeout")
        .detail(as_detail(reason))
        .hint("Only the wait has ended; the statement remains in effect. SHOW ENGINES reports its progress.")
}

/// The error if the pool of a slot without an engine has no nodes: the engine cannot start until an admin adds some.
fn without_nodes(context: &Context, overview: &Overview, slot: &Slot) -> Option<UserError> {
    let pool = &slot.key.pool;
    let needs_nodes = context.agent.settings.rules.defaults.instances.needs_nodes();
    let why = overview.snapshot.catalog.pool(pool)?.lacks_nodes(needs_nodes)?;
    // An engine that was created before can still become ready.
    if observed(overview, &slot.engine()).is_some_and(|row| row.engine.uid.is_some()) {
        return None;
    }
    let detail =
        format!("{} Engine \"{}\" is desired and waits until the pool has nodes.", as_detail(why), slot.engine());
    Some(user_error::pool_lacks_nodes(pool, why).detail(detail))
}

fn slot_of<'a>(overview: &'a Overview, key: &SlotKey) -> Option<&'a Slot> {
    overview.snapshot.slots.iter().find(|slot| slot.key == *key).map(AsRef::as_ref)
}

fn observed<'a>(overview: &'a Overview, name: &EngineName) -> Option<&'a ObservedRow> {
    overview.observed.iter().find(|row| row.engine.name == *name)
}

fn observed_reason(overview: &Overview, name: &EngineName) -> String {
    let observed = observed(overview, name);
    observed
        .and_then(|row| row.engine.reason.clone())
        .or_else(|| observed.map(|row| row.engine.phase.to_string()))
        .unwrap_or_else(|| "not observed by the master yet".to_owned())
}

/// The error if the slot's engine can never be granted with the current limits.
fn cannot_start(overview: &Overview, slot: &Slot) -> Option<UserError> {
    let observed = observed(overview, &slot.engine())?;
    let why = observed.engine.reason.as_deref().and_then(never_fits)?;
    let message = format!("engine \"{}\" cannot start", slot.engine());
    let hint = "The statement remains in effect: the engine starts when the limit has been raised.";
    Some(UserError::new(ErrorKind::LimitReached, message).detail(as_detail(why)).hint(hint))
}

/// The error if a slot without an engine waits for what only another statement can change.
fn waits_in_vain(context: &Context, overview: &Overview, slot: &Slot) -> Option<UserError> {
    without_nodes(context, overview, slot).or_else(|| cannot_start(overview, slot))
}

/// Why the slot's current engine is not ready; `None` if it is.
fn not_ready(context: &Context, overview: &Overview, slot: &Slot) -> Option<String> {
    let name = slot.engine();
    let observed = observed(overview, &name);
    if observed.is_some_and(|row| row.engine.registered && !row.engine.draining) {
        // It may have ended since it was observed.
        let outdated = freshness(context, overview).remark();
        return outdated.map(|remark| format!("engine \"{name}\" was ready; {remark}"));
    }
    let reason = format!("engine \"{name}\": {}", observed_reason(overview, &name));
    let (now_ms, limit) = (overview.snapshot.now_ms, context.agent.settings.start_deadline);
    let start = observed.and_then(|row| starting::progress(&row.engine, now_ms, limit, starting::LOG_STEP));
    Some(start.map_or_else(|| reason.clone(), |start| format!("{reason}; {start}")))
}

/// Whether the machine of an engine that has not ended has failed: then its charge ends before its instance.
fn is_unreachable(overview: &Overview, name: &EngineName) -> bool {
    is_listed(overview, name) && overview.snapshot.is_uncharged(name.as_str())
}

/// Whether the master last published that the engine has an instance that has not ended. It publishes the usage of nodes with it.
fn is_listed(overview: &Overview, name: &EngineName) -> bool {
    observed(overview, name).is_some_and(|row| row.engine.uid.is_some() && row.engine.phase != Phase::Ended)
}

/// Why an engine that is not the current one of a slot has not ended; `None` if there is no such engine. Nothing waits until the
/// machine of an unreachable one returns.
fn left_over(overview: &Overview, affects: impl Fn(&SlotKey) -> bool) -> Option<String> {
    let is_current = |name: &EngineName| overview.snapshot.slots.iter().any(|slot| slot.engine() == *name);
    let mut engines = overview.snapshot.engines.iter();
    let left = engines.find(|engine| {
        let has_instance = engine.ended_at_ms.is_none() && engine.uid.is_some();
        has_instance && affects(&engine.slot) && !is_current(&engine.name) && !is_unreachable(overview, &engine.name)
    })?;
    Some(format!("engine \"{}\" is still terminating: {}", left.name, observed_reason(overview, &left.name)))
}

fn no_longer_desired(key: &SlotKey) -> UserError {
    UserError::new(ErrorKind::WrongState, "the engine is no longer desired")
        .detail(format!("Its slot {key} was removed while the statement waited."))
}
