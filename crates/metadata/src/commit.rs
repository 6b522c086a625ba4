//! The commit of an alteration: one transaction that changes the object, its slots and the limits that follow from it, and
//! writes the outcome.
//!
//! It races with `abort` for the primary key of table `alteration`. Earlier validation by the caller is not trusted: everything
//! is read again under the catalog lock, and a caller whose object has changed is refused.

use std::time::Duration;

use model::alteration::{AlterationProgress, AlterationRecord, ObjectKind, ObjectRef, Outcome, RequestId, Source};
use model::change::{Applied, Change, Object, ObjectPatch, Rules};
use model::desired;
use model::error::{ErrorKind, UserError};
use model::failpoint;
use model::name::MAX_NAME_BYTES;
use model::number::Generation;
use model::slot::Replacement;
use model::text::cut;

use crate::audit_row::AuditRow;
use crate::catalog_lock::Drawn;
use crate::error::Error;
use crate::failpoints;
use crate::limits;
use crate::read;
use crate::rows::to_json;
use crate::slot_batch;
use crate::slots::Issue;
use crate::sql;
use crate::store::Store;
use crate::transaction::{Arg, CommitPoints, Done, Transaction, args};
use crate::user_error;

const POINTS: CommitPoints = CommitPoints { before: failpoints::COMMIT_BEFORE, after: failpoints::COMMIT_AFTER };

/// The maximum length of a stored name of a user, agent or machine, in bytes; longer ones are truncated.
pub(crate) const MAX_WORD_BYTES: usize = 255;

/// An alteration to be committed.
#[derive(Debug, Clone)]
pub struct CommitRequest {
    /// The same with every retry.
    pub id: RequestId,
    pub change: Change,
    /// The generation of the previous object according to the alter node; 0 for CREATE. `None` if no alter node was created,
    /// because the statement seemed to change nothing (IF EXISTS, IF NOT EXISTS).
    pub base: Option<Generation>,
    /// The statement, secret values masked.
    pub statement: String,
    pub requested_by: String,
    pub source: Source,
    /// In milliseconds since 1970.
    pub requested_at_ms: i64,
    /// The id of this metadata agent.
    pub agent: String,
    /// How the engines whose configuration changes are replaced: with stand-ins or in place.
    pub replacement: Replacement,
    /// How long running statements of engines that are no longer desired may continue.
    pub grace: Duration,
    /// When it is refused, on the boot clock, which includes suspend time.
    pub deadline: Duration,
}

/// The answer of the first call, and of every repeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    pub record: AlterationRecord,
    /// Why nothing changed, with IF EXISTS or IF NOT EXISTS. Such an alteration is converged at once.
    pub note: Option<String>,
    /// Whether this call committed it.
    pub first: bool,
}

impl Store {
    /// Commits an alteration; idempotent.
    ///
    /// [`Error::Refused`], [`Error::Conflict`] and [`Error::Unavailable`] mean that *this call* changed nothing. The client may be
    /// notified of that only after [`Store::abort`] has returned *aborted*.
    pub async fn commit(&self, request: &CommitRequest) -> Result<Committed, Error> {
        let mut attempt = 1;
        let committed = loop {
            let mut tx = self.begin_for_catalog().await?;
            let result = self.commit_in(&mut tx, request).await;
            match tx.end(POINTS, result).await {
                Err(error) if error.is_retried(&mut attempt) => {}
                other => break other?,
            }
        };
        match committed {
            Attempt::Answered(committed) => Ok(*committed),
            // `abort` inserted the row first and has committed it: our insert waited for that.
            Attempt::Lost => match self.outcome(&request.id).await? {
                Some(record) => answer_of(record, request, false),
                None => Err(Error::Conflict("row of the alteration has vanished".to_owned())),
            },
        }
    }

    async fn commit_in(&self, tx: &mut Transaction, request: &CommitRequest) -> Result<Done<Attempt>, Error> {
        let Drawn { last: first, at_ms: now_ms } = tx.lock_catalog_and_draw().await?;
        failpoint!(failpoints::COMMIT_LOCKED);
        if let Some(record) = read::alteration(tx, &request.id).await? {
            if self.has_other_secrets(tx, &record, &request.change).await? {
                return Err(Error::OtherSecrets(request.id.clone()));
            }
            return answer_of(record, request, false)
                .map(|committed| Done::Same(Attempt::Answered(Box::new(committed))));
        }
        if self.is_past(request.deadline) {
            return Err(too_late().into());
        }
        let catalog = read::opened_catalog(tx, self.rules()).await?;
        let (base, after) = match request.change.apply(&catalog, self.rules())? {
            Applied::Nothing { note } => return nothing(tx, request, (first, now_ms), note).await,
            Applied::Object { base, after, .. } => (base, after),
        };
        if request.base != Some(base) {
            return Err(moved(&request.change.object()));
        }
        let reference = request.change.object();
        let new_catalog = catalog.with(&reference, after.as_ref(), first);
        let slots = read::slots(tx).await?;
        let changes = desired::derive(&catalog, &new_catalog, &slots, &self.rules().defaults);
        let would_be = slots.len() + changes.add.len() - changes.delete.len();
        if would_be > self.rules().max_engines && would_be > slots.len() {
            return Err(user_error::above_total(slots.len(), would_be, self.rules().max_engines).into());
        }
        failpoint!(failpoints::COMMIT_VALIDATED);

        let drawn = changes.add.len() + changes.renew.len();
        let last = if drawn == 0 { first } else { tx.draw(drawn).await?.last };
        let record = record(request, base, last, now_ms, None);
        if !insert(tx, &record).await? {
            return Ok(Done::Same(Attempt::Lost));
        }
        audit(tx, &record, &request.source).await?;
        failpoint!(failpoints::COMMIT_DECIDED);
        supersede_open(tx, &record, now_ms).await?;
        write_object(tx, &reference, sealed(after, self.rules())?.as_ref(), base, first).await?;
        failpoint!(failpoints::COMMIT_OBJECT);
        let issue = Issue { catalog: &new_catalog, defaults: &self.rules().defaults, now_ms };
        slot_batch::write(tx, &issue, &slots, &changes, first, (request.replacement, request.grace)).await?;
        failpoint!(failpoints::COMMIT_SLOTS);
        // Last, because the rows of pools are contended.
        limits::alter(tx, &reference, &catalog, &new_catalog).await?;
        failpoint!(failpoints::COMMIT_LIMITS);
        if self.is_past(request.deadline) {
            return Err(too_late().into());
        }
        Ok(Done::Write(Attempt::Answered(Box::new(Committed { record, note: None, first: true }))))
    }
}

impl Store {
    /// Whether a change sets other secret values than the alteration of the same id has written, as far as they are still there: until
    /// the unit is altered again, and if the values can be opened. Texts of statements have them masked.
    async fn has_other_secrets(
        &self,
        tx: &mut Transaction,
        record: &AlterationRecord,
        change: &Change,
    ) -> Result<bool, Error> {
        let (Change::Create { object, .. } | Change::Alter { object, .. }) = change else { return Ok(false) };
        let ObjectPatch::ResourceUnit(name, patch) = object else { return Ok(false) };
        if patch.properties.set.is_empty() {
            return Ok(false);
        }
        let catalog = read::opened_catalog(tx, self.rules()).await?;
        let written = catalog.units.get(name).filter(|unit| {
            // The rows of the alteration have the generations that it has drawn.
            record.outcome == Outcome::Committed
                && unit.generation > record.base_generation
                && unit.generation <= record.generation
        });
        Ok(written
            .is_some_and(|unit| patch.properties.sets_other_secrets(&unit.spec.properties, &self.rules().secret_keys)))
    }
}

#[derive(Debug)]
enum Attempt {
    Answered(Box<Committed>),
    Lost,
}

/// The error for a statement that reached its transaction after its deadline.
pub(crate) fn too_late() -> UserError {
    UserError::new(ErrorKind::Timeout, "deadline exceeded before commit").detail("Nothing was changed.")
}

fn moved(reference: &ObjectRef) -> Error {
    Error::Conflict(format!("{reference} was changed concurrently"))
}

/// The answer to a repeat, from the row of its id.
fn answer_of(record: AlterationRecord, request: &CommitRequest, first: bool) -> Result<Committed, Error> {
    if record.outcome == Outcome::Aborted {
        return Err(Error::Aborted(Box::new(record)));
    }
    if record.object != Some(request.change.object()) || record.statement != request.statement {
        return Err(other_statement(&request.id));
    }
    let note = record.note().map(str::to_owned);
    Ok(Committed { record, note, first })
}

/// The error for an id that was used for another statement.
pub(crate) fn other_statement(id: &RequestId) -> Error {
    UserError::new(ErrorKind::InvalidValue, format!("request id {id} is already used by another statement"))
        .hint("Each statement needs an id of its own.")
        .into()
}

/// Records a statement that changes nothing, so that its repeat changes nothing either.
async fn nothing(
    tx: &mut Transaction,
    request: &CommitRequest,
    (generation, now_ms): (Generation, i64),
    note: String,
) -> Result<Done<Attempt>, Error> {
    let base = request.base.unwrap_or(Generation(0));
    let record = record(request, base, generation, now_ms, Some(&note));
    if !insert(tx, &record).await? {
        return Ok(Done::Same(Attempt::Lost));
    }
    audit(tx, &record, &request.source).await?;
    Ok(Done::Write(Attempt::Answered(Box::new(Committed { record, note: Some(note), first: true }))))
}

fn record(
    request: &CommitRequest,
    base: Generation,
    generation: Generation,
    now_ms: i64,
    note: Option<&str>,
) -> AlterationRecord {
    fitted(AlterationRecord {
        id: request.id.clone(),
        object: Some(request.change.object()),
        base_generation: base,
        generation,
        statement: request.statement.clone(),
        requested_by: request.requested_by.clone(),
        requested_at_ms: request.requested_at_ms,
        outcome: Outcome::Committed,
        decided_by: request.agent.clone(),
        decided_at_ms: now_ms,
        progress: Some(if note.is_none() { AlterationProgress::Converging } else { AlterationProgress::Converged }),
        reason: note.map(str::to_owned),
        finished_at_ms: note.map(|_| now_ms),
    })
}

/// Truncates the record to what its row can hold.
pub(crate) fn fitted(mut record: AlterationRecord) -> AlterationRecord {
    record.requested_by = cut(&record.requested_by, MAX_WORD_BYTES).to_owned();
    record.decided_by = cut(&record.decided_by, MAX_WORD_BYTES).to_owned();
    // An invalid name comes from an alter node that no agent wrote.
    record.object = record.object.filter(|object| object.name.len() <= MAX_NAME_BYTES);
    record
}

/// Inserts the row of an alteration; false if there is one.
pub(crate) async fn insert(tx: &mut Transaction, record: &AlterationRecord) -> Result<bool, Error> {
    let object = record.object.as_ref();
    let args = args![
        record.id.as_str(),
        object.map(|object| object.kind.as_str()),
        object.map(|object| object.name.as_str()),
        record.base_generation,
        record.generation,
        record.statement.as_str(),
        record.requested_by.as_str(),
        record.requested_at_ms,
        record.outcome.as_str(),
        record.decided_by.as_str(),
        record.decided_at_ms,
        record.progress.map(AlterationProgress::as_str),
        record.reason.as_deref(),
        record.finished_at_ms,
    ];
    tx.insert(sql::ALTERATION_INSERT, args).await
}

/// Audits a committed alteration. An id of which the audit has an effect was used by an earlier statement.
async fn audit(tx: &mut Transaction, record: &AlterationRecord, source: &Source) -> Result<(), Error> {
    let inserted = tx.audit(AuditRow::of_alteration(record, source, None)).await?;
    if inserted { Ok(()) } else { Err(other_statement(&record.id)) }
}

/// Supersedes the open alterations of the same object: their state will never be desired again.
async fn supersede_open(tx: &mut Transaction, by: &AlterationRecord, now_ms: i64) -> Result<(), Error> {
    for open in read::open_alterations(tx).await? {
        if open.object == by.object && open.id != by.id {
            tx.execute(sql::ALTERATION_SUPERSEDE, args![now_ms, open.id.as_str()]).await?;
        }
    }
    Ok(())
}

/// The object as its row has it, with secret values sealed.
fn sealed(after: Option<Object>, rules: &Rules) -> Result<Option<Object>, Error> {
    match after {
        Some(Object::ResourceUnit { name, spec }) => {
            let spec = rules.sealing.seal(&name, &spec)?;
            Ok(Some(Object::ResourceUnit { name, spec }))
        }
        other => Ok(other),
    }
}

async fn write_object(
    tx: &mut Transaction,
    reference: &ObjectRef,
    after: Option<&Object>,
    base: Generation,
    generation: Generation,
) -> Result<(), Error> {
    let [insert, update, delete] = match reference.kind {
        ObjectKind::Tenant => [sql::TENANT_INSERT, sql::TENANT_UPDATE, sql::TENANT_DELETE],
        ObjectKind::ResourcePool => [sql::POOL_INSERT, sql::POOL_UPDATE, sql::POOL_DELETE],
        ObjectKind::ResourceUnit => [sql::UNIT_INSERT, sql::UNIT_UPDATE, sql::UNIT_DELETE],
        ObjectKind::ResourceQuota => [sql::QUOTA_INSERT, sql::QUOTA_UPDATE, sql::QUOTA_DELETE],
    };
    let name: Arg = reference.name.as_str().into();
    let Some(after) = after else {
        let matched = tx.execute(delete, vec![name, base.into()]).await?;
        return if matched == 1 { Ok(()) } else { Err(moved(reference)) };
    };
    let spec = match after {
        Object::Tenant { spec, .. } => to_json(spec)?,
        Object::ResourcePool { spec, .. } => to_json(spec)?,
        Object::ResourceUnit { spec, .. } => to_json(spec)?,
        Object::ResourceQuota { spec, .. } => to_json(spec)?,
    };
    let mut args = vec![spec.into(), generation.into(), name];
    let written = if base == Generation(0) {
        tx.insert(insert, args).await?
    } else {
        args.push(base.into());
        tx.execute(update, args).await? == 1
    };
    if written { Ok(()) } else { Err(moved(reference)) }
}
