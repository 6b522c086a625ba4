//! START, STOP and RESTART: one transaction each, then the bell, then if asked a wait.
//!
//! The transaction is repeated under its id as long as its outcome is not known: it takes effect once. A caller that
//! was told that nothing was done may say the statement again; one that was told that nobody knows has to look first.

use std::time::Duration;

use ddl::{Grace, Statement};
use hs2::SqlType;
use metadata::{EngineAnswer, Error, Request, RequestEffect, RestartRequest, StartRequest, StopRequest};
use model::engine_name::EngineName;
use model::error::{ErrorKind, UserError};
use model::name::{PoolName, TenantName, UnitName};
use model::slot::Link;
use tracing::{debug, info};

use super::answer::{Answer, text};
use super::context::Context;
use super::settings::{SETTLE_DEADLINE, SETTLE_POLL, UNAVAILABLE_PATIENCE};
use super::{failpoints, wait};

pub(super) async fn start(
    context: &Context,
    statement: &Statement,
    (tenant, pool, unit): (&TenantName, &PoolName, &UnitName),
    patience: Option<Duration>,
) -> Result<Answer, UserError> {
    let link = Link { tenant: tenant.clone(), pool: pool.clone(), unit: unit.clone() };
    let start = StartRequest { request: request(context, statement), link };
    let answer = until_known(context, || context.store().start(&start)).await?;
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
    let answer = until_known(context, || context.store().stop(&stop)).await?;
    finish(context, answer, patience).await
}

pub(super) async fn restart(
    context: &Context,
    statement: &Statement,
    (pool, engine): (&PoolName, &EngineName),
    grace: Grace,
    patience: Option<Duration>,
) -> Result<Answer, UserError> {
    let force = grace == Grace::Force;
    let grace = context.agent.grace(grace)?;
    let request = request(context, statement);
    let restart = RestartRequest { request, pool: pool.clone(), engine: engine.clone(), grace, force };
    let answer = until_known(context, || context.store().restart(&restart)).await?;
    finish(context, answer, patience).await
}

fn request(context: &Context, statement: &Statement) -> Request {
    Request {
        id: context.id.clone(),
        statement: statement.to_string(),
        caller: context.caller(),
        deadline: context.deadline,
    }
}

/// Repeats the transaction until it is known how it ended. Its id makes the repeat harmless.
async fn until_known<F>(context: &Context, attempt: impl Fn() -> F) -> Result<EngineAnswer, UserError>
where
    F: Future<Output = Result<EngineAnswer, Error>>,
{
    model::failpoint!(failpoints::REQUEST_CHECKED);
    let clock = &context.agent.clock;
    let since = clock.boottime();
    let mut in_the_dark = false;
    loop {
        // Before the attempt: one that was begun in time counts.
        let waited = clock.boottime().saturating_sub(since);
        let error = match attempt().await {
            Ok(answer) => {
                model::failpoint!(failpoints::REQUEST_COMMITTED);
                return Ok(answer);
            }
            Err(error) => error,
        };
        in_the_dark |= matches!(error, Error::OutcomeUnknown(_));
        if waited >= patience(&error, in_the_dark) {
            return Err(told(error, in_the_dark));
        }
        debug!(%error, in_the_dark, "a request is repeated under its id");
        if matches!(error, Error::Unavailable(_)) {
            context.log.line("the metadata database does not answer yet");
        }
        tokio::time::sleep(SETTLE_POLL).await;
    }
}

/// How long attempts that end so are repeated. Once one ended in the dark, only a transaction that looked its id up
/// first, and then answered or refused, says what became of that one.
fn patience(error: &Error, in_the_dark: bool) -> Duration {
    match error {
        Error::OutcomeUnknown(_) => SETTLE_DEADLINE,
        Error::Unavailable(_) | Error::Conflict(_) if in_the_dark => SETTLE_DEADLINE,
        Error::Unavailable(_) => UNAVAILABLE_PATIENCE,
        _ => Duration::ZERO,
    }
}

/// What the user is told in the end: after an attempt that ended in the dark, no other failure than a refusal is told
/// as if nothing had happened.
fn told(error: Error, in_the_dark: bool) -> UserError {
    match error {
        Error::Refused(refused) => refused,
        Error::OutcomeUnknown(reason) => unknown(&reason),
        other if in_the_dark => unknown(&other.to_string()),
        other => other.user_error(),
    }
}

fn unknown(reason: &str) -> UserError {
    let error = Error::OutcomeUnknown(reason.to_owned()).user_error();
    error.hint("SHOW ENGINES tells whether it was made; then say the statement again")
}

async fn finish(context: &Context, done: EngineAnswer, patience: Option<Duration>) -> Result<Answer, UserError> {
    info!(engine = %done.engine, effect = ?done.effect, user = context.user, "request took effect");
    ring(context).await;
    model::failpoint!(failpoints::REQUEST_RUNG);
    let mut state = match done.effect {
        RequestEffect::Started => "starting",
        RequestEffect::Stopped => "stopping",
        RequestEffect::Restarted | RequestEffect::InProgress => "restarting",
        RequestEffect::NoLongerWanted => "no longer wanted",
    };
    let mut engine = done.engine;
    if let Some(patience) = patience {
        // Who is ready may have another name than who was meant to be: one that failed was replaced meanwhile.
        (engine, state) = match done.effect {
            RequestEffect::Started => (wait::ready(context, &done.slot, patience).await?, "ready"),
            RequestEffect::Restarted | RequestEffect::InProgress => {
                (wait::replaced(context, &done.slot, patience).await?, "ready")
            }
            RequestEffect::Stopped | RequestEffect::NoLongerWanted => {
                wait::gone(context, &engine, patience).await?;
                (engine, "gone")
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

/// Wakes the master. A lost ring costs one tick interval, never correctness.
pub(super) async fn ring(context: &Context) {
    let rung = match context.agent.supervisor.session() {
        Ok(session) => coordination::bell::ring(&session).await,
        Err(error) => Err(error),
    };
    if let Err(error) = rung {
        debug!(%error, "the bell could not be rung, the master's next tick comes by itself");
    }
}

/// The error of a wait that was not over in time.
pub(super) fn not_in_time(patience: Duration, what: &str, reason: &str) -> UserError {
    UserError::new(ErrorKind::Timeout, format!("{what} after {}", model::span::print(patience)))
        .detail(reason.to_owned())
        .hint("the statement stands and is carried on; SHOW ENGINES tells how far it is")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_an_attempt_in_the_dark_no_failure_is_told_as_if_nothing_had_happened() {
        let refused = || Error::Refused(UserError::new(ErrorKind::WrongState, "no"));
        let unknown = || Error::OutcomeUnknown("the connection was lost".to_owned());
        let away = || Error::Unavailable("it does not answer".to_owned());
        let conflict = || Error::Conflict("another transaction came first".to_owned());
        for (error, in_the_dark, repeated_for, kind) in [
            (refused(), false, Duration::ZERO, ErrorKind::WrongState),
            (refused(), true, Duration::ZERO, ErrorKind::WrongState),
            (away(), false, UNAVAILABLE_PATIENCE, ErrorKind::Unavailable),
            (away(), true, SETTLE_DEADLINE, ErrorKind::OutcomeUnknown),
            (conflict(), false, Duration::ZERO, ErrorKind::Conflict),
            (conflict(), true, SETTLE_DEADLINE, ErrorKind::OutcomeUnknown),
            (unknown(), true, SETTLE_DEADLINE, ErrorKind::OutcomeUnknown),
            (Error::Broken("a row".to_owned()), true, Duration::ZERO, ErrorKind::OutcomeUnknown),
        ] {
            let shown = error.to_string();
            assert_eq!(patience(&error, in_the_dark), repeated_for, "{shown}");
            assert_eq!(told(error, in_the_dark).kind, kind, "{shown}");
        }
    }
}
