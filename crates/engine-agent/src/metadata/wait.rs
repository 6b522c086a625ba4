//! WAIT: until the engines concerned are ready or gone, or the time is over; the log tells what happens meanwhile.
//!
//! It waits for slots, not for names: an engine that fails and is replaced under a new name is still what was asked
//! for. Nobody waits for an engine of a pool without nodes: that it has none is the answer. Cancelling ends the wait and
//! nothing else. All who wait share one reading ([`Looks`](super::looks::Looks)).

use std::time::Duration;

use metadata::{ObservedRow, Overview, user_error};
use model::alteration::{ObjectKind, ObjectRef};
use model::engine_name::EngineName;
use model::error::{ErrorKind, UserError};
use model::slot::{Slot, SlotKey};

use super::context::{Context, canceled};
use super::request::not_in_time;
use super::settings::MAX_WAIT;
use super::show::engines::freshness;
use super::starting;

/// What one look says.
enum Look<T> {
    Over(T),
    NotYet(String),
    Never(UserError),
}

/// Until the slot's present engine is ready: its name.
pub(super) async fn ready(context: &Context, key: &SlotKey, patience: Duration) -> Result<EngineName, UserError> {
    until(context, patience, "the engine is not ready", |overview| match slot_of(overview, key) {
        None => Look::Never(no_longer_wanted(key)),
        Some(slot) => match not_ready(context, overview, slot) {
            Some(reason) => nowhere(context, overview, slot).map_or(Look::NotYet(reason), Look::Never),
            None => Look::Over(slot.engine()),
        },
    })
    .await
}

/// Until the slot's present engine is ready and no older one is left: its name.
pub(super) async fn replaced(context: &Context, key: &SlotKey, patience: Duration) -> Result<EngineName, UserError> {
    until(context, patience, "the engine is not replaced", |overview| match slot_of(overview, key) {
        None => Look::Never(no_longer_wanted(key)),
        Some(slot) => match not_ready(context, overview, slot) {
            Some(reason) => nowhere(context, overview, slot).map_or(Look::NotYet(reason), Look::Never),
            None => left_over(overview, |it| it == key).map_or_else(|| Look::Over(slot.engine()), Look::NotYet),
        },
    })
    .await
}

/// Until the engine is gone.
pub(super) async fn gone(context: &Context, name: &EngineName, patience: Duration) -> Result<(), UserError> {
    until(context, patience, "the engine is not gone", |overview| {
        let lives = overview.snapshot.engines.iter().any(|it| it.name == *name && it.ended_at_ms.is_none());
        if lives {
            Look::NotYet(format!("engine \"{name}\" still ends: {}", seen_reason(overview, name)))
        } else {
            Look::Over(())
        }
    })
    .await
}

/// Until every engine that the object reaches is ready, and every other one there gone.
pub(super) async fn object(context: &Context, object: &ObjectRef, patience: Duration) -> Result<(), UserError> {
    let reaches = |key: &SlotKey| match object.kind {
        ObjectKind::Tenant => key.tenant.as_str() == object.name,
        ObjectKind::ResourcePool => key.pool.as_str() == object.name,
        ObjectKind::ResourceUnit => key.unit.as_str() == object.name,
    };
    until(context, patience, "not all engines are ready", |overview| {
        let slots = overview.snapshot.slots.iter().filter(|slot| reaches(&slot.key));
        let mut waiting = slots.filter_map(|slot| Some((slot, not_ready(context, overview, slot)?))).peekable();
        let waits = waiting.peek().map(|(_, reason)| reason.clone());
        if let Some(never) = waiting.find_map(|(slot, _)| nowhere(context, overview, slot)) {
            return Look::Never(never);
        }
        waits.or_else(|| left_over(overview, reaches)).map_or(Look::Over(()), Look::NotYet)
    })
    .await
}

async fn until<T>(
    context: &Context,
    patience: Duration,
    what: &str,
    look: impl Fn(&Overview) -> Look<T>,
) -> Result<T, UserError> {
    let clock = &context.agent.clock;
    let end = clock.boottime() + patience;
    let looks = &context.agent.looks;
    let _waiter = looks.waiter(&context.user)?;
    loop {
        let seen = tokio::select! {
            seen = looks.next() => seen,
            () = context.cancelled.cancelled() => {
                return Err(canceled().detail("only the waiting was: what was said stands"));
            }
        };
        let reason = match seen {
            Ok(overview) => match look(&overview) {
                Look::Over(found) => return Ok(found),
                Look::Never(error) => return Err(error),
                Look::NotYet(reason) => reason,
            },
            Err(error) => format!("the metadata database does not answer: {error}"),
        };
        let now = clock.boottime();
        if now >= end {
            return Err(not_in_time(patience, what, &reason));
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
            "It is {} and may be {}.",
            model::span::print(wait),
            model::span::print(MAX_WAIT)
        ))),
    }
}

/// The error of a wait that its client's or session's statement timeout ended.
fn timed_out(reason: &str) -> UserError {
    UserError::new(ErrorKind::Timeout, "canceling statement due to statement timeout")
        .detail(reason.to_owned())
        .hint("Only the wait has ended: the statement stands and is carried on. SHOW ENGINES reports its progress.")
}

/// The pool of a slot whose engine is not there has no nodes: nothing to wait for before somebody gives it some.
fn nowhere(context: &Context, overview: &Overview, slot: &Slot) -> Option<UserError> {
    let pool = &slot.key.pool;
    let needs_nodes = context.agent.settings.rules.defaults.needs_nodes;
    let why = overview.snapshot.catalog.pool(pool)?.lacks_nodes(needs_nodes)?;
    // One that was made before can still get ready: it lives on.
    if seen(overview, &slot.engine()).is_some_and(|it| it.engine.uid.is_some()) {
        return None;
    }
    let error = user_error::pool_lacks_nodes(pool, why);
    Some(error.detail(format!("{why}; engine \"{}\" is wished for and waits until it has some", slot.engine())))
}

fn slot_of<'a>(overview: &'a Overview, key: &SlotKey) -> Option<&'a Slot> {
    overview.snapshot.slots.iter().find(|slot| slot.key == *key)
}

fn seen<'a>(overview: &'a Overview, name: &EngineName) -> Option<&'a ObservedRow> {
    overview.observed.iter().find(|it| it.engine.name == *name)
}

fn seen_reason(overview: &Overview, name: &EngineName) -> String {
    let seen = seen(overview, name);
    seen.and_then(|it| it.engine.reason.clone())
        .or_else(|| seen.map(|it| it.engine.phase.to_string()))
        .unwrap_or_else(|| "not seen by the master yet".to_owned())
}

/// Why the slot's present engine is not ready; `None` when it is.
fn not_ready(context: &Context, overview: &Overview, slot: &Slot) -> Option<String> {
    let name = slot.engine();
    let seen = seen(overview, &name);
    if seen.is_some_and(|it| it.engine.registered && !it.engine.draining) {
        // It may have ended since it was observed.
        let outdated = freshness(context, overview).remark();
        return outdated.map(|remark| format!("engine \"{name}\" was ready; {remark}"));
    }
    let reason = format!("engine \"{name}\": {}", seen_reason(overview, &name));
    let (now_ms, limit) = (overview.snapshot.now_ms, context.agent.settings.start_deadline);
    let start = seen.and_then(|it| starting::progress(&it.engine, now_ms, limit, starting::LOG_STEP));
    Some(start.map_or_else(|| reason.clone(), |start| format!("{reason}; {start}")))
}

/// An engine there that is no slot's present one and has not ended; `None` when there is none.
fn left_over(overview: &Overview, reaches: impl Fn(&SlotKey) -> bool) -> Option<String> {
    let is_present = |name: &EngineName| overview.snapshot.slots.iter().any(|slot| slot.engine() == *name);
    let mut engines = overview.snapshot.engines.iter();
    let left = engines
        .find(|it| it.ended_at_ms.is_none() && it.uid.is_some() && reaches(&it.slot) && !is_present(&it.name))?;
    Some(format!("engine \"{}\" still ends: {}", left.name, seen_reason(overview, &left.name)))
}

fn no_longer_wanted(key: &SlotKey) -> UserError {
    UserError::new(ErrorKind::WrongState, "the engine is no longer wanted")
        .detail(format!("its slot {key} was taken away while the statement waited"))
}
