//! The write path of an alteration: check, make the alter node, commit, and settle what failed.
//!
//! The node is the visible mutex and the crash record; the database decides. What was validated before the node was
//! made serves only to refuse early: the transaction reads and validates everything again. Nobody is told that
//! nothing changed before `abort` of the id has returned *aborted*, early refusals included: an earlier try under the
//! same id, at another agent, may have been committed.

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
use model::number::Generation;
use tracing::{Instrument, info, info_span, warn};

use super::answer::{Answer, text};
use super::context::{Context, canceled};
use super::settings::{SETTLE_DEADLINE, SETTLE_POLL};
use super::{failpoints, request, wait};

/// Why a try did not commit.
enum Failed {
    /// Nothing was or will be written by this try; an earlier one under the same id is not excluded.
    Refused(UserError),
    /// The id was aborted, by the master or by an earlier try: final.
    Aborted(Box<AlterationRecord>),
}

impl From<UserError> for Failed {
    fn from(error: UserError) -> Self {
        Self::Refused(error)
    }
}

pub(super) async fn alter(
    context: &Context,
    statement: &Statement,
    change: &Change,
    wait: Option<Duration>,
) -> Result<Answer, UserError> {
    let span = info_span!("alteration", id = %context.id);
    let committed = commit(context, statement, change).instrument(span).await?;
    let object = change.object();
    let state = match &committed.note {
        Some(note) => {
            context.log.line(note.clone());
            note.clone()
        }
        None => progress(&committed.record),
    };
    // Said again, what changes nothing waits for the engines all the same.
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

fn progress(record: &AlterationRecord) -> String {
    record.progress.map_or_else(|| record.outcome.as_str().to_owned(), |it| format!("committed, {}", it.as_str()))
}

async fn commit(context: &Context, statement: &Statement, change: &Change) -> Result<Committed, UserError> {
    // The one refusal without an abort: an admin's statement is never sent under another user's id, and a stranger
    // must not write rows.
    context.require_admin()?;
    let masked = ddl::masked_text(statement, &context.agent.settings.rules.secret_keys);
    let mut draft =
        Draft { object: change.object(), base: Generation(0), statement: masked, at: context.agent.clock.wall_ms() };
    match try_commit(context, change, &mut draft).await {
        Ok(committed) => {
            model::failpoint!(failpoints::ALTER_COMMITTED);
            info!(object = %draft.object, generation = %committed.record.generation, "alteration committed");
            // The master's watch fired when the node was made, before there was anything to do.
            request::ring(context).await;
            Ok(committed)
        }
        Err(Failed::Aborted(record)) => Err(aborted(&record)),
        Err(Failed::Refused(error)) => settle(context, &draft, error).await,
    }
}

/// What is known of the alteration when it has to be aborted.
struct Draft {
    object: ObjectRef,
    base: Generation,
    statement: String,
    at: i64,
}

impl Draft {
    /// Whether the row of the same id is of this statement: an id that was used twice must not answer for both.
    fn is_what(&self, record: &AlterationRecord) -> bool {
        record.object.as_ref() == Some(&self.object) && record.statement == self.statement
    }
}

async fn try_commit(context: &Context, change: &Change, draft: &mut Draft) -> Result<Committed, Failed> {
    if context.store().outcome(&context.id).await.map_err(|error| error.user_error())?.is_some() {
        // Decided already: the transaction finds the row and answers what the first try did. It needs no node.
        return transact(context, change, draft, None).await;
    }
    model::failpoint!(failpoints::ALTER_CHECKED);
    let base = make_node(context, change, draft).await?;
    model::failpoint!(failpoints::ALTER_NODE_MADE);
    transact(context, change, draft, base).await
}

async fn transact(
    context: &Context,
    change: &Change,
    draft: &Draft,
    base: Option<Generation>,
) -> Result<Committed, Failed> {
    let request = CommitRequest {
        id: context.id.clone(),
        change: change.clone(),
        base,
        statement: draft.statement.clone(),
        requested_by: context.user.clone(),
        requested_at_ms: draft.at,
        agent: context.agent.id.clone(),
        grace: context.agent.settings.drain_grace,
        deadline: context.deadline,
    };
    match context.store().commit(&request).await {
        Ok(committed) => Ok(committed),
        Err(Error::Aborted(record)) => Err(Failed::Aborted(record)),
        Err(error) => Err(Failed::Refused(error.user_error())),
    }
}

/// Makes the alter node, waiting for the alteration before it. `None` if the statement changes nothing and needs none.
async fn make_node(context: &Context, change: &Change, draft: &mut Draft) -> Result<Option<Generation>, Failed> {
    let agent = &context.agent;
    let clock = &agent.clock;
    let begun = clock.boottime();
    let patience = agent.settings.alter_wait.min(context.deadline.saturating_sub(begun));
    loop {
        // The old object has to be in the node from its creation, so the catalog is read before each try.
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
            context.user.clone(),
            agent.id.clone(),
            draft.at,
        );
        let taken = match alter_node::create(&session, &node).await {
            Ok(CreateOutcome::Created | CreateOutcome::AlreadyOwn) => return Ok(Some(base)),
            Ok(CreateOutcome::Taken(other)) => other,
            Err(error) => return Err(Failed::Refused(error.user(&draft.object.to_string()))),
        };
        let left = (begun + patience).saturating_sub(clock.boottime());
        if left.is_zero() {
            return Err(Failed::Refused(busy(context, &taken, patience)));
        }
        context.log.line(format!("waiting for {}", who(&taken)));
        wait_for_turn(context, &session, &draft.object, left).await?;
    }
}

async fn wait_for_turn(context: &Context, session: &Session, object: &ObjectRef, left: Duration) -> Result<(), Failed> {
    tokio::select! {
        // Whether it went or the time is over, the next try tells.
        absent = alter_node::wait_absent(session, left) => {
            absent.map(|_| ()).map_err(|error| Failed::Refused(error.user(&object.to_string())))
        }
        () = context.cancelled.cancelled() => Err(Failed::Refused(canceled())),
    }
}

fn who(node: &AlterNode) -> String {
    match &node.content {
        Ok(other) => format!(
            "the alteration of {} by \"{}\", said at {} ({})",
            other.object,
            other.by,
            utc(other.requested_at_ms),
            other.id
        ),
        Err(_) => format!("an alteration since {}", utc(node.ctime_ms)),
    }
}

/// An alteration blocks others until it is decided and one tick has acted on it.
fn busy(context: &Context, node: &AlterNode, waited: Duration) -> UserError {
    let settings = &context.agent.settings;
    let at_most = settings.alter_grace + settings.tick_interval;
    let until_ms = node.ctime_ms.saturating_add(i64::try_from(at_most.as_millis()).unwrap_or(i64::MAX));
    let hint = if until_ms > context.agent.clock.wall_ms() {
        format!(
            "Retry the statement; while a master acts, the other one is out of the way at {} at the latest.",
            utc(until_ms)
        )
    } else {
        "Run \"enginehouse doctor\": no master acts on the other alteration.".to_owned()
    };
    UserError::new(ErrorKind::LockNotAvailable, "another alteration is on its way")
        .detail(format!("{}; waited {}", who(node), model::span::print(waited)))
        .hint(hint)
}

/// Turns a failed try into an answer: the id is aborted first, and if a commit came before that, it stands.
async fn settle(context: &Context, draft: &Draft, error: UserError) -> Result<Committed, UserError> {
    model::failpoint!(failpoints::ALTER_BEFORE_ABORT);
    let abort = Abort {
        id: context.id.clone(),
        object: Some(draft.object.clone()),
        base_generation: draft.base,
        statement: draft.statement.clone(),
        requested_by: context.user.clone(),
        requested_at_ms: draft.at,
        decided_by: context.agent.id.clone(),
        reason: why(&error),
    };
    let clock = &context.agent.clock;
    let until = clock.boottime() + SETTLE_DEADLINE;
    let mut throttle = LogThrottle::default();
    let unknown = loop {
        let answer = context.store().abort(&abort).await;
        if answer.is_ok()
            && let Some(times) = throttle.clear()
        {
            info!(times, "the outcome of the alteration is settled");
        }
        match answer {
            // An earlier try, or this one whose answer was lost, was committed first: it stands.
            Ok(record) if record.outcome == Outcome::Committed && draft.is_what(&record) => {
                let note = record.note().map(str::to_owned);
                return Ok(Committed { record, note, first: false });
            }
            Ok(record) => {
                model::failpoint!(failpoints::ALTER_ABORTED);
                // That its node may have been written is no longer a doubt about what was said.
                let is_settled = error.kind == ErrorKind::OutcomeUnknown && record.outcome == Outcome::Aborted;
                return Err(if is_settled { aborted(&record) } else { error });
            }
            Err(unknown) if clock.boottime() >= until => break unknown,
            Err(unknown) => {
                if let Some(times) = throttle.hit(clock.boottime()) {
                    warn!(%unknown, times, "the outcome of an alteration can't be settled yet");
                }
                tokio::time::sleep(SETTLE_POLL).await;
            }
        }
    };
    Err(UserError::new(ErrorKind::OutcomeUnknown, "it is not known whether the statement took effect")
        .detail(format!("{}; then the metadata database did not answer: {unknown}", error.message))
        .hint(format!("SHOW ALTERATIONS tells what became of {}; the master settles it", context.id)))
}

/// Why the id is aborted, for its row: once it is aborted nothing is unknown any more.
fn why(error: &UserError) -> String {
    match &error.detail {
        Some(lost) if error.kind == ErrorKind::OutcomeUnknown => format!("an answer was lost: {lost}"),
        _ => error.message.clone(),
    }
}

fn aborted(record: &AlterationRecord) -> UserError {
    let reason = record.reason.clone().unwrap_or_else(|| "it was given up".to_owned());
    UserError::new(ErrorKind::Conflict, "the alteration was aborted, nothing changed")
        .detail(format!("{reason} ({})", record.id))
        .hint("say the statement again")
}
