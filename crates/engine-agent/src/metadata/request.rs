//! START, STOP and RESTART ENGINE: a transaction, the bell, and an optional wait.
//!
//! The transaction is repeated under its id while its outcome is unknown, so it takes effect once. After an error that
//! rules out an effect, the caller may retry; after *outcome unknown* it must check first.

use std::time::Duration;

use ddl::{Grace, Statement};
use hs2::SqlType;
use metadata::{EngineAnswer, Error, Request, RequestEffect, RestartRequest, StartRequest, StopRequest};
use model::cause::Cause;
use model::demand::DemandKey;
use model::engine_name::EngineName;
use model::error::UserError;
use model::name::{PoolName, TenantName, UnitName};
use model::slot::{Link, Replacement, SlotKey};
use model::text::as_fragment;
use tracing::{debug, info};

use super::answer::{Answer, text};
use super::context::Context;
use super::failpoints;
use super::settings::{SETTLE_DEADLINE, SETTLE_POLL, UNAVAILABLE_PATIENCE};
use super::wait::{self, Gone};

pub(super) async fn start(
    context: &Context,
    statement: &Statement,
    (tenant, pool, unit): (&TenantName, &PoolName, &UnitName),
    nowait: bool,
    patience: Option<Duration>,
) -> Result<Answer, UserError> {
    let link = Link { tenant: tenant.clone(), pool: pool.clone(), unit: unit.clone() };
    let start = StartRequest {
        request: request(context, statement),
        link,
        creator: context.creator.clone(),
        nowait,
        reservation_ttl: context.agent.settings.plan_limits.reservation_ttl,
    };
    let answer = until_decided(context, || context.store().start(&start)).await?;
    finish(context, answer, patience).await
}

pub(super) async fn stop(
    context: &Context,
    statement: &Statement,
    (pool, engine): (&PoolName, &EngineName),
    grace: Grace,
    patience: Option<Duration>,
) -> Result<Answer, UserError> {
    let grace = context.agent.grace(grace)?;
    let request = request(context, statement);
    let stop = StopRequest { request, pool: pool.clone(), engine: engine.clone(), grace };
    let answer = until_decided(context, || context.store().stop(&stop)).await?;
    finish(context, answer, patience).await
}

pub(super) async fn restart(
    context: &Context,
    statement: &Statement,
    (pool, engine): (&PoolName, &EngineName),
    (in_place, grace): (bool, Grace),
    patience: Option<Duration>,
) -> Result<Answer, UserError> {
    let replacement = match grace {
        Grace::Force => Replacement::Force,
        Grace::Default | Grace::Within(_) if in_place => Replacement::InPlace,
        Grace::Default | Grace::Within(_) => Replacement::StandIn,
    };
    let grace = context.agent.grace(grace)?;
    let request = request(context, statement);
    let restart = RestartRequest { request, pool: pool.clone(), engine: engine.clone(), grace, replacement };
    let answer = until_decided(context, || context.store().restart(&restart)).await?;
    if let Some(line) = how_replaced(&restart, &answer) {
        context.log.line(line);
    }
    finish(context, answer, patience).await
}

/// What the log says of a STOP while sessions wait that another engine of the link would serve.
async fn demanded(context: &Context, stopped: &SlotKey) -> Option<String> {
    // The engine is stopped: that this cannot be read is no error of the statement.
    let demand = context.store().demand().await.ok()?;
    let matches = |key: &DemandKey| {
        key.tenant == stopped.tenant
            && key.pool.as_ref().is_none_or(|pool| *pool == stopped.pool)
            && key.unit.as_ref().is_none_or(|unit| *unit == stopped.unit)
    };
    let waiting: u64 = demand.iter().filter(|demand| matches(&demand.key)).map(|demand| demand.waiting).sum();
    let sessions = match waiting {
        0 => return None,
        1 => "1 session waits".to_owned(),
        waiting => format!("{waiting} sessions wait"),
    };
    let catalog = context.store().catalog().await.ok()?;
    let unit = &stopped.unit;
    if !catalog.unit(unit)?.starts_on_demand(&context.agent.settings.rules.defaults) {
        return None;
    }
    Some(format!(
        "{sessions} for an engine, and resource unit \"{unit}\" starts engines on demand: another one may start at once"
    ))
}

/// What the log says of a RESTART that is not the ordinary one.
fn how_replaced(restart: &RestartRequest, answer: &EngineAnswer) -> Option<String> {
    let (old, new) = (&restart.engine, &answer.engine);
    match (answer.effect, restart.replacement) {
        (RequestEffect::Restarted, Replacement::InPlace) => {
            Some(format!("engine \"{new}\" starts when engine \"{old}\" is gone, which ends in its turn"))
        }
        (RequestEffect::InProgress, Replacement::InPlace | Replacement::Force) => Some(format!(
            "engine \"{old}\" was restarted before, and this statement changed nothing: to change how engine \"{new}\" \
             replaces it, restart engine \"{new}\""
        )),
        _ => None,
    }
}

pub(super) fn request(context: &Context, statement: &Statement) -> Request {
    Request {
        id: context.id.clone(),
        statement: statement.to_string(),
        caller: context.caller(),
        deadline: context.deadline,
    }
}

/// Repeats the transaction until its outcome is known. It is idempotent by its id.
async fn until_decided<F>(context: &Context, attempt: impl Fn() -> F) -> Result<EngineAnswer, UserError>
where
    F: Future<Output = Result<EngineAnswer, Error>>,
{
    model::failpoint!(failpoints::REQUEST_CHECKED);
    let clock = &context.agent.clock;
    let since = clock.boottime();
    let mut in_doubt = false;
    loop {
        // Measured before the attempt: one that began in time counts.
        let waited = clock.boottime().saturating_sub(since);
        let error = match attempt().await {
            Ok(answer) => {
                model::failpoint!(failpoints::REQUEST_COMMITTED);
                return Ok(answer);
            }
            Err(error) => error,
        };
        in_doubt |= matches!(error, Error::OutcomeUnknown(_));
        if waited >= patience(&error, in_doubt) {
            return Err(final_error(error, in_doubt));
        }
        debug!(%error, in_doubt, "repeating a request under its id");
        if matches!(error, Error::Unavailable(_) | Error::LockTimeout(_)) {
            context.log.line("the metadata database does not respond yet");
        }
        tokio::time::sleep(SETTLE_POLL).await;
    }
}

/// How long attempts with this error are repeated. Once the outcome of one is in doubt, only a transaction that has looked
/// up the id and then succeeded or refused decides it.
fn patience(error: &Error, in_doubt: bool) -> Duration {
    match error {
        Error::OutcomeUnknown(_) => SETTLE_DEADLINE,
        Error::Unavailable(_) | Error::LockTimeout(_) | Error::Conflict(_) if in_doubt => SETTLE_DEADLINE,
        Error::Unavailable(_) | Error::LockTimeout(_) => UNAVAILABLE_PATIENCE,
        _ => Duration::ZERO,
    }
}

/// The error for the user. Once an outcome is in doubt, only a refusal may imply that nothing happened.
fn final_error(error: Error, in_doubt: bool) -> UserError {
    match error {
        Error::Refused(refused) => refused,
        Error::OutcomeUnknown(cause) => unknown(cause),
        other if in_doubt => unknown(other.into()),
        other => other.user_error(),
    }
}

fn unknown(cause: Cause) -> UserError {
    let error = Error::OutcomeUnknown(cause).user_error();
    error.hint("Check with SHOW ENGINES whether it took effect before retrying.")
}

async fn finish(context: &Context, done: EngineAnswer, patience: Option<Duration>) -> Result<Answer, UserError> {
    info!(engine = %done.engine, effect = %done.effect, user = context.subject.user, "request took effect");
    ring(context).await;
    model::failpoint!(failpoints::REQUEST_RUNG);
    if done.effect == RequestEffect::Stopped
        && let Some(line) = demanded(context, &done.slot).await
    {
        context.log.line(line);
    }
    let mut state = match done.effect {
        RequestEffect::Started if done.short.is_some() => "queued",
        RequestEffect::Started => "starting",
        RequestEffect::Stopped => "stopping",
        RequestEffect::Restarted | RequestEffect::InProgress => "restarting",
        RequestEffect::NoLongerWanted => "no longer wanted",
    };
    if let Some(short) = &done.short {
        context.log.line(format!("queued: {}", as_fragment(short)));
    }
    let mut engine = done.engine;
    if let Some(patience) = patience {
        // The engine that became ready may not be the one first created: a failed engine is replaced.
        (engine, state) = match done.effect {
            RequestEffect::Started => (wait::ready(context, &done.slot, patience).await?, "ready"),
            RequestEffect::Restarted | RequestEffect::InProgress => {
                (wait::replaced(context, &done.slot, patience).await?, "ready")
            }
            RequestEffect::Stopped | RequestEffect::NoLongerWanted => {
                let state = match wait::gone(context, &engine, patience).await? {
                    Gone::Ended => "gone",
                    Gone::Unreachable(observed) => {
                        context.log.line(format!(
                            "warning: engine \"{engine}\" is unreachable, and ends when its node returns: {observed}"
                        ));
                        "unreachable"
                    }
                };
                (engine, state)
            }
        };
    }
    let mut answer = Answer::new(&[
        ("engine", SqlType::String),
        ("state", SqlType::String),
        ("tenant", SqlType::String),
        ("pool", SqlType::String),
        ("unit", SqlType::String),
    ]);
    answer.row(vec![
        text(engine.as_str()),
        text(state),
        text(done.slot.tenant.as_str()),
        text(done.slot.pool.as_str()),
        text(done.slot.unit.as_str()),
    ]);
    Ok(answer)
}

/// Wakes the master.
pub(super) async fn ring(context: &Context) {
    context.agent.ring().await;
}

#[cfg(test)]
mod tests {
    use model::error::ErrorKind;

    use super::*;

    #[test]
    fn an_attempt_in_doubt_is_never_reported_as_without_effect() {
        let refused = || Error::Refused(UserError::new(ErrorKind::WrongState, "no"));
        let unknown = || Error::OutcomeUnknown("the connection was lost".into());
        let away = || Error::Unavailable("it does not answer".into());
        let conflict = || Error::Conflict("another transaction came first".to_owned());
        for (error, in_doubt, repeated_for, kind) in [
            (refused(), false, Duration::ZERO, ErrorKind::WrongState),
            (refused(), true, Duration::ZERO, ErrorKind::WrongState),
            (away(), false, UNAVAILABLE_PATIENCE, ErrorKind::Unavailable),
            (away(), true, SETTLE_DEADLINE, ErrorKind::OutcomeUnknown),
            (conflict(), false, Duration::ZERO, ErrorKind::Conflict),
            (conflict(), true, SETTLE_DEADLINE, ErrorKind::OutcomeUnknown),
            (unknown(), true, SETTLE_DEADLINE, ErrorKind::OutcomeUnknown),
            (Error::Broken("a row".into()), true, Duration::ZERO, ErrorKind::OutcomeUnknown),
        ] {
            let shown = error.to_string();
            assert_eq!(patience(&error, in_doubt), repeated_for, "{shown}");
            assert_eq!(final_error(error, in_doubt).kind, kind, "{shown}");
        }
    }
}
