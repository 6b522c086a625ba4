//! Settling an alteration that is in doubt: reading its outcome, or aborting it.
//!
//! `outcome` only reads. `abort` is an insert that races with the commit for the primary key. It waits for an open commit for at
//! most [`StoreSettings::lock_timeout`](crate::StoreSettings).

use model::alteration::{Abort, AlterationRecord, Outcome, RequestId, Source};
use model::failpoint;
use model::number::Generation;

use crate::audit_row::{AuditOutcome, AuditRow};
use crate::backend::Mode;
use crate::commit;
use crate::error::Error;
use crate::failpoints;
use crate::read;
use crate::store::Store;
use crate::transaction::{CommitPoints, Done, Transaction};

const POINTS: CommitPoints = CommitPoints { before: failpoints::ABORT_INSERTED, after: failpoints::ABORT_AFTER };

/// The number of attempts if the row that won the race is gone when it is read. Only housekeeping deletes rows.
const ATTEMPTS: u32 = 3;

impl Store {
    /// The row of the alteration; `None` while it is in doubt.
    pub async fn outcome(&self, id: &RequestId) -> Result<Option<AlterationRecord>, Error> {
        let mut tx = self.begin(Mode::Snapshot).await?;
        let record = read::alteration(&mut tx, id).await;
        tx.leave(record).await
    }

    /// Aborts the alteration unless it has an outcome, and returns its row. [`Error::Unavailable`]: an open commit has not ended in
    /// time; the alteration is still in doubt.
    ///
    /// If the database rejects the content of the row, the insert is repeated without statement, object and names: the alteration
    /// must have an outcome whatever its alter node contains, or the node would never be deleted.
    pub async fn abort(&self, abort: &Abort) -> Result<AlterationRecord, Error> {
        self.abort_failed(abort, None).await
    }

    /// Like [`Store::abort`], for the agent whose statement failed: the audit names the SQLSTATE of its error.
    pub async fn abort_failed(&self, abort: &Abort, sqlstate: Option<&str>) -> Result<AlterationRecord, Error> {
        match self.abort_as(abort, sqlstate).await {
            Err(error @ (Error::Refused(_) | Error::Broken(_))) => {
                tracing::warn!(alteration = %abort.id, %error, "abort refused for its content; repeating it without");
                let bare = Abort {
                    object: None,
                    statement: String::new(),
                    requested_by: String::new(),
                    source: Source::default(),
                    reason: "the content of the alteration could not be stored".to_owned(),
                    ..abort.clone()
                };
                self.abort_as(&bare, sqlstate).await
            }
            other => other,
        }
    }

    async fn abort_as(&self, abort: &Abort, sqlstate: Option<&str>) -> Result<AlterationRecord, Error> {
        for _ in 0..ATTEMPTS {
            let mut tx = self.begin(Mode::Write).await?;
            let result = abort_in(&mut tx, abort, sqlstate).await;
            let inserted = match tx.end(POINTS, result).await {
                // The row that is read below shows whether this insert was committed.
                Err(Error::OutcomeUnknown(_)) => None,
                other => other?,
            };
            if let Some(record) = inserted {
                return Ok(record);
            }
            if let Some(record) = self.outcome(&abort.id).await? {
                return Ok(record);
            }
        }
        Err(Error::Unavailable(format!("alteration {} could not be settled", abort.id).into()))
    }
}

async fn abort_in(
    tx: &mut Transaction,
    abort: &Abort,
    sqlstate: Option<&str>,
) -> Result<Done<Option<AlterationRecord>>, Error> {
    let record = commit::fitted(AlterationRecord {
        id: abort.id.clone(),
        object: abort.object.clone(),
        base_generation: abort.base_generation,
        generation: Generation(0),
        statement: abort.statement.clone(),
        requested_by: abort.requested_by.clone(),
        requested_at_ms: abort.requested_at_ms,
        outcome: Outcome::Aborted,
        decided_by: abort.decided_by.clone(),
        decided_at_ms: tx.now_ms().await?,
        progress: None,
        reason: Some(abort.reason.clone()),
        finished_at_ms: None,
    });
    failpoint!(failpoints::ABORT_BEFORE);
    if !commit::insert(tx, &record).await? {
        return Ok(Done::Same(None));
    }
    // The abort of an id is audited once, also if housekeeping has deleted its alteration in between: no duplicate
    // key may fail the abort.
    if !tx.is_audited(&abort.id, &[AuditOutcome::Aborted]).await? {
        tx.audit(AuditRow::of_alteration(&record, &abort.source, sqlstate)).await?;
    }
    Ok(Done::Write(Some(record)))
}
