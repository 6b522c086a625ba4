//! The write path of an alteration: check, create the alter node, commit, and settle a failure.
//!
//! The node is the visible mutex and the crash record; the database decides. Validation before the node is created only
//! refuses early: the transaction reads and validates everything again. *Nothing changed* is reported only after `abort` of
//! the id has returned *aborted*, also for early refusals: an earlier attempt under the same id, at another agent, may have
//! been committed.

use std::time::Duration;

use coordination::alter_node::{self, Alteration, CreateOutcome};
use coordination::{AlterNode, Session};
use ddl::Statement;
use hs2::SqlType;
use metadata::{CommitRequest, Committed, Error};
use model::alteration::{Abort, AlterationRecord, ObjectRef, Outcome};
use model::change::{Applied, Change};
use model::clock::utc;
use model::error::{ErrorKind, UserError};
use model::log_throttle::LogThrottle;
use model::millis;
use model::number::Generation;
use model::slot::Replacement;
use tracing::{Instrument, debug, info, info_span, warn};

use super::answer::{Answer, text};
use super::context::{Context, canceled};
use super::settings::{SETTLE_DEADLINE, SETTLE_POLL};
use super::{failpoints, request, wait};

/// Why an attempt did not commit.
enum CommitFailure {
    /// This attempt has written and will write nothing; an earlier one under the same id may have.
    Refused(UserError),
    /// The id was committed by a statement whose text is the same, with other secret values.
    OtherSecrets(UserError),
    /// The id was aborted, by the master or an earlier attempt: final.
    Aborted(Box<AlterationRecord>),
}

impl From<UserError> for CommitFailure {
    fn from(error: UserError) -> Self {
        Self::Refused(error)
    }
}

pub(super) async fn alter(
    context: &Context,
    statement: &Statement,
    change: &Change,
    replacement: Replacement,
    wait: Option<Duration>,
) -> Result<Answer, UserError> {
    let span = info_span!("alteration", id = %context.id);
    let committed = commit(context, statement, change, replacement).instrument(span).await?;
    let object = change.object();
    if committed.note.is_none() {
        log_warnings(context, change).await;
        if replacement == Replacement::InPlace {
            context.log.line("engines whose configuration changes end before their replacements start, in turns");
        }
    }
    let state = match &committed.note {
        Some(note) => {
            context.log.line(note.clone());
            note.clone()
        }
        None => progress(&committed.record),
    };
    // A repeated statement that changes nothing still waits for the engines.
    let state = match wait {
        Some(patience) => {
            wait::object(context, &object, patience).await?;
            if committed.note.is_none() { "done".to_owned() } else { state }
        }
        None => state,
    };
    let mut answer =
        Answer::new(&[("alteration", SqlType::String), ("object", SqlType::String), ("state", SqlType::String)]);
    answer.row(vec![text(context.id.as_str()), text(object.to_string()), text(state)]);
    Ok(answer)
}

/// Logs what a committed change does not do, as far as the database responds.
async fn log_warnings(context: &Context, change: &Change) {
    if !change.concerns_quotas() {
        return;
    }
    match context.store().catalog().await {
        Ok(catalog) => {
            for warning in change.warnings(&catalog) {
                context.log.line(format!("warning: {warning}"));
            }
        }
        Err(error) => debug!(%error, "could not read the catalog for warnings"),
    }
}

fn progress(record: &AlterationRecord) -> String {
    record
        .progress
        .map_or_else(|| record.outcome.as_str().to_owned(), |progress| format!("committed, {}", progress.as_str()))
}

async fn commit(
    context: &Context,
    statement: &Statement,
    change: &Change,
    replacement: Replacement,
) -> Result<Committed, UserError> {
    // The only refusal without an abort: a permitted statement is never sent under another user's id, and other users
    // must not write rows.
    context.require_right()?;
    let masked = ddl::masked_text(statement, &context.agent.settings.rules.secret_keys);
    let at = context.agent.clock.wall_ms();
    let object = change.object();
    let mut draft = Draft { object, base: Generation(0), statement: masked, has_other_secrets: false, replacement, at };
    match try_commit(context, change, &mut draft).await {
        Ok(committed) => {
            model::failpoint!(failpoints::ALTER_COMMITTED);
            info!(object = %draft.object, generation = %committed.record.generation, "alteration committed");
            // The master's watch fired when the node was created, before there was anything to do.
            request::ring(context).await;
            Ok(committed)
        }
        Err(CommitFailure::Aborted(record)) => Err(aborted(&record)),
        Err(CommitFailure::Refused(error)) => settle(context, &draft, error).await,
        Err(CommitFailure::OtherSecrets(error)) => {
            draft.has_other_secrets = true;
            settle(context, &draft, error).await
        }
    }
}

/// The alteration as it is committed, or aborted if it fails.
struct Draft {
    object: ObjectRef,
    base: Generation,
    statement: String,
    /// Not those of the statement that was committed under its id.
    has_other_secrets: bool,
    replacement: Replacement,
    at: i64,
}

impl Draft {
    /// Whether the row of the same id is of this statement: an id that was used twice must not stand for both.
    fn is_recorded_in(&self, record: &AlterationRecord) -> bool {
        !self.has_other_secrets && record.object.as_ref() == Some(&self.object) && record.statement == self.statement
    }
}

async fn try_commit(context: &Context, change: &Change, draft: &mut Draft) -> Result<Committed, CommitFailure> {
    if context.store().outcome(&context.id).await.map_err(|error| error.user_error())?.is_some() {
        // Decided already: the transaction finds the row and returns what the first attempt did. It needs no node.
        return transact(context, change, draft, None).await;
    }
    model::failpoint!(failpoints::ALTER_CHECKED);
    let base = create_node(context, change, draft).await?;
    model::failpoint!(failpoints::ALTER_NODE_MADE);
    transact(context, change, draft, base).await
}

async fn transact(
    context: &Context,
    change: &Change,
    draft: &Draft,
    base: Option<Generation>,
) -> Result<Committed, CommitFailure> {
    let request = CommitRequest {
        id: context.id.clone(),
        change: change.clone(),
        base,
        statement: draft.statement.clone(),
        requested_by: context.subject.user.clone(),
        source: context.source.clone(),
        requested_at_ms: draft.at,
        agent: context.agent.id.clone(),
        replacement: draft.replacement,
        grace: context.agent.settings.drain_grace,
        deadline: context.deadline,
    };
    match context.store().commit(&request).await {
        Ok(committed) => Ok(committed),
        Err(Error::Aborted(record)) => Err(CommitFailure::Aborted(record)),
        Err(error @ Error::OtherSecrets(_)) => Err(CommitFailure::OtherSecrets(error.user_error())),
        Err(error) => Err(CommitFailure::Refused(error.user_error())),
    }
}

/// Creates the alter node after the alteration before it has ended. `None` if the statement changes nothing.
async fn create_node(
    context: &Context,
    change: &Change,
    draft: &mut Draft,
) -> Result<Option<Generation>, CommitFailure> {
    let agent = &context.agent;
    let clock = &agent.clock;
    let begun = clock.boottime();
    let patience = agent.settings.alter_wait.min(context.deadline.saturating_sub(begun));
    loop {
        // The node contains the old object from its creation, so the catalog is read before each attempt.
        let catalog = context.store().catalog().await.map_err(|error| error.user_error())?;
        let (base, before) = match change.apply(&catalog, &agent.settings.rules)? {
            Applied::Nothing { .. } => return Ok(None),
            Applied::Object { base, before, .. } => (base, before),
        };
        draft.base = base;
        let session = agent.zookeeper(&draft.object.to_string())?;
        let node = Alteration::new(
            context.id.clone(),
            draft.object.clone(),
            base,
            before.as_ref(),
            &agent.settings.rules.secret_keys,
            draft.statement.clone(),
            context.subject.user.clone(),
            agent.id.clone(),
            draft.at,
        )
        .with_source(context.source.clone());
        let taken = match alter_node::create(&session, &node).await {
            Ok(CreateOutcome::Created | CreateOutcome::AlreadyOwn) => return Ok(Some(base)),
            Ok(CreateOutcome::Taken(other)) => other,
            Err(error) => return Err(CommitFailure::Refused(error.user(&draft.object.to_string()))),
        };
        let left = (begun + patience).saturating_sub(clock.boottime());
        if left.is_zero() {
            return Err(CommitFailure::Refused(busy(context, &taken, patience)));
        }
        context.log.line(format!("waiting for {}", describe(&taken)));
        wait_for_turn(context, &session, &draft.object, left).await?;
    }
}

async fn wait_for_turn(
    context: &Context,
    session: &Session,
    object: &ObjectRef,
    left: Duration,
) -> Result<(), CommitFailure> {
    tokio::select! {
        // The next attempt finds out whether the node was deleted.
        absent = alter_node::wait_absent(session, left) => {
            absent.map(|_| ()).map_err(|error| CommitFailure::Refused(error.user(&object.to_string())))
        }
        () = context.cancelled.cancelled() => Err(CommitFailure::Refused(canceled())),
    }
}

fn describe(node: &AlterNode) -> String {
    match &node.content {
        Ok(other) => format!(
            "the alteration of {} by \"{}\", requested at {} ({})",
            other.object,
            other.by,
            utc(other.requested_at_ms),
            other.id
        ),
        Err(_) => format!("an alteration since {}", utc(node.ctime_ms)),
    }
}

/// The error of an alteration that waited too long for another. Each blocks others until it is decided and one tick has
/// acted on it.
fn busy(context: &Context, node: &AlterNode, waited: Duration) -> UserError {
    let settings = &context.agent.settings;
    let at_most = settings.alter_grace + settings.tick_interval;
    let until_ms = node.ctime_ms.saturating_add(millis::from_duration(at_most));
    let hint = if until_ms > context.agent.clock.wall_ms() {
        format!(
            "Retry the statement; while a master acts, the other alteration ends at {} at the latest.",
            utc(until_ms)
        )
    } else {
        "Run \"enginehouse doctor\": no master acts on the other alteration.".to_owned()
    };
    UserError::new(ErrorKind::LockNotAvailable, "another alteration is in progress")
        .detail(format!("Waited {} for {}.", model::span::print(waited), describe(node)))
        .hint(hint)
}

/// Settles a failed attempt: aborts the id, unless a commit came first, which stands.
async fn settle(context: &Context, draft: &Draft, error: UserError) -> Result<Committed, UserError> {
    model::failpoint!(failpoints::ALTER_BEFORE_ABORT);
    let abort = Abort {
        id: context.id.clone(),
        object: Some(draft.object.clone()),
        base_generation: draft.base,
        statement: draft.statement.clone(),
        requested_by: context.subject.user.clone(),
        source: context.source.clone(),
        requested_at_ms: draft.at,
        decided_by: context.agent.id.clone(),
        reason: abort_reason(&error),
    };
    let clock = &context.agent.clock;
    let until = clock.boottime() + SETTLE_DEADLINE;
    let mut throttle = LogThrottle::default();
    let unknown = loop {
        let answer = context.store().abort_failed(&abort, Some(error.sqlstate())).await;
        if answer.is_ok()
            && let Some(times) = throttle.clear()
        {
            info!(times, "alteration settled");
        }
        match answer {
            // An earlier attempt, or this one without its reply, was committed first: it stands.
            Ok(record) if record.outcome == Outcome::Committed && draft.is_recorded_in(&record) => {
                let note = record.note().map(str::to_owned);
                return Ok(Committed { record, note, first: false });
            }
            Ok(record) => {
                model::failpoint!(failpoints::ALTER_ABORTED);
                // The database has the outcome, so it no longer matters whether the node was written.
                let is_settled = error.kind == ErrorKind::OutcomeUnknown && record.outcome == Outcome::Aborted;
                return Err(if is_settled { aborted(&record) } else { error });
            }
            Err(unknown) if clock.boottime() >= until => break unknown,
            Err(unknown) => {
                if let Some(times) = throttle.hit(clock.boottime()) {
                    warn!(%unknown, times, "could not settle an alteration yet");
                }
                tokio::time::sleep(SETTLE_POLL).await;
            }
        }
    };
    Err(UserError::new(ErrorKind::OutcomeUnknown, "outcome of the statement is unknown")
        .detail(format!("First: {}. Then the metadata database did not respond: {unknown}.", error.message))
        .hint(format!("See SHOW ALTERATIONS for the outcome of {}; the master settles it.", context.id)))
}

/// The reason of the abort, for its row.
fn abort_reason(error: &UserError) -> String {
    match &error.detail {
        Some(lost) if error.kind == ErrorKind::OutcomeUnknown => format!("a reply was lost: {lost}"),
        _ => error.message.clone(),
    }
}

fn aborted(record: &AlterationRecord) -> UserError {
    let reason = record.reason.clone().unwrap_or_else(|| "it was abandoned".to_owned());
    UserError::new(ErrorKind::Conflict, "alteration was aborted; nothing changed")
        .detail(format!("Alteration {}: {reason}.", record.id))
        .hint("Retry the statement.")
}
