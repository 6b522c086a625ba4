//! Changes of external holders: those of one pool share transactions, each with its row in the audit.
//!
//! A task for each busy pool takes what its [queue](crate::holder_queue) has and runs it as one transaction. Each call has its
//! own result, and a refused one affects no other. If a batch fails after it has begun, whichever call is the reason, each
//! of its calls is run again in a transaction of its own: a repeat under the same key changes nothing, so also a COMMIT
//! in doubt is resolved for each call.
//!
//! A repeat changes nothing and is not audited again. A refusal changes nothing either, and is audited by
//! [`Store::record_refusal`](crate::Store::record_refusal).

use std::collections::BTreeSet;

use model::ledger::{Decided, Refusal, ScopeKey, ScopedChange};
use tokio::time::Instant;

use crate::audit_row::{AuditOutcome, AuditRow};
use crate::backend::Mode;
use crate::commit::other_statement;
use crate::error::{ATTEMPTS, Error};
use crate::holder_queue::{Answer, HolderCall, HolderQueues, HolderStatement, Queued};
use crate::ledger::{Decision, HOLDER_POINTS, decide_each};
use crate::reserve::is_principal;
use crate::store::Store;
use crate::transaction::{Done, Transaction};

/// The calls of a failed batch.
enum Failed {
    /// The transaction could not begin, which is no call's fault.
    NotBegun(Vec<Queued>, Error),
    Undecided(Vec<Queued>, Error),
}

impl Store {
    /// Changes one reservation for an external holder, and records the statement, if there is one, if that had an effect. Scopes of users
    /// and creators that do not exist are inserted before. A request id under which another statement took effect is
    /// refused. Concurrent calls for one pool share transactions.
    ///
    /// [`Error::Unavailable`] also if too many calls wait for the pool, or earlier ones have not ended within
    /// [`StoreSettings::lock_timeout`](crate::StoreSettings). A call that is cancelled while it waits, or whose deadline passes, is
    /// not sent. One that was sent ends with its batch, at the latest by the latest deadline of the calls in it.
    pub async fn change_for_holder(
        &self,
        change: &ScopedChange,
        statement: Option<&HolderStatement>,
    ) -> Result<Decided, Error> {
        let until = self.deadline();
        let call = HolderCall { change: change.clone(), statement: statement.cloned(), until };
        let (ticket, is_first) = self.holder_queues().push(call.clone())?;
        if is_first {
            // On a task of its own: a caller that is cancelled ends no transaction of others.
            tokio::spawn(run_queue(self.within(None), ticket.pool().clone()));
        }
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let patience = left.map_or(self.lock_timeout(), |left| left.min(self.lock_timeout()));
        match ticket.answer(patience).await {
            Answer::Decided(decided) => Ok(decided),
            Answer::Failed(error) => Err(error),
            Answer::Alone { doubt } => self.run_alone(call).await.map_err(|error| match (doubt, error) {
                // Whether the batch was committed is as unknown as before.
                (Some(cause), Error::Unavailable(_) | Error::Conflict(_)) => Error::OutcomeUnknown(cause),
                (_, error) => error,
            }),
        }
    }

    /// The number of holders' calls that wait for a transaction of their pool.
    pub fn queued_calls(&self) -> usize {
        self.holder_queues().waiting()
    }

    async fn run_alone(&self, call: HolderCall) -> Result<Decided, Error> {
        let _permit = self.holder_queues().alone(self.lock_timeout()).await?;
        let (queued, answer) = Queued::new(0, call);
        self.run_batch(vec![queued]).await;
        match answer.await {
            Ok(Answer::Decided(decided)) => Ok(decided),
            Ok(Answer::Failed(error)) => Err(error),
            Ok(Answer::Alone { .. }) | Err(_) => Err(Error::Broken("a change has no result".into())),
        }
    }

    /// Runs calls in one transaction, and in a second one those whose user or creator had no row.
    async fn run_batch(&self, batch: Vec<Queued>) {
        let missing = match self.run_once(batch, true).await {
            Ok(missing) if missing.is_empty() => return,
            Ok(missing) => missing,
            Err(failed) => return failed.answer(),
        };
        let scopes = missing.iter().flat_map(|queued| queued.call.change.scopes.policy()).cloned().collect();
        if let Err(error) = self.insert_principals(&scopes).await {
            return Failed::Undecided(missing, error).answer();
        }
        if let Err(failed) = self.run_once(missing, false).await {
            failed.answer();
        }
    }

    /// Answers all calls but, if they are to be returned, those whose user or creator has no row.
    async fn run_once(&self, mut batch: Vec<Queued>, returns_missing: bool) -> Result<Vec<Queued>, Failed> {
        let mut attempt = 1;
        loop {
            batch.retain(|queued| !queued.is_cancelled());
            if batch.is_empty() {
                return Ok(batch);
            }
            let mut tx = match self.begin(Mode::Write).await {
                Ok(tx) => tx,
                Err(error) => return Err(Failed::NotBegun(batch, error)),
            };
            let result = change_and_audit(&mut tx, &batch).await;
            let decided = match tx.end(HOLDER_POINTS, result).await {
                Ok(decided) => decided,
                // Contention, or a key that a concurrent transaction inserted, which the next attempt finds.
                Err(Error::Conflict(_)) if attempt < ATTEMPTS => {
                    attempt += 1;
                    continue;
                }
                Err(error) => return Err(Failed::Undecided(batch, error)),
            };
            let mut missing = Vec::new();
            for (queued, decided) in batch.into_iter().zip(decided) {
                match decided {
                    Err(Refusal::NoScope(key)) if is_principal(&key) && returns_missing => missing.push(queued),
                    decided => queued.answer(Answer::Decided(decided)),
                }
            }
            return Ok(missing);
        }
    }
}

impl Failed {
    fn answer(self) {
        let (calls, error) = match self {
            Self::NotBegun(calls, error) => {
                for queued in calls {
                    queued.answer(Answer::Failed(error.of_shared_call()));
                }
                return;
            }
            Self::Undecided(calls, error) => (calls, error),
        };
        if calls.len() > 1 {
            tracing::debug!(%error, calls = calls.len(), "batch failed; running its calls one by one");
            let doubt = match &error {
                Error::OutcomeUnknown(cause) => Some(cause.clone()),
                _ => None,
            };
            for queued in calls {
                queued.answer(Answer::Alone { doubt: doubt.clone() });
            }
        } else if let Some(queued) = calls.into_iter().next() {
            queued.answer(Answer::Failed(error));
        }
    }
}

/// Runs the transactions of a pool until no call waits.
async fn run_queue(store: Store, pool: ScopeKey) {
    let mut turn = Turn { queues: store.holder_queues(), pool, has_ended: false };
    while let Some(batch) = turn.next() {
        // The latest deadline: a call with an earlier one must not end the transaction of the others.
        let deadlines: Option<Vec<Instant>> = batch.iter().map(|queued| queued.call.until).collect();
        let latest = deadlines.and_then(|deadlines| deadlines.into_iter().max());
        store.within(latest).run_batch(batch).await;
        // Lets callers that were just answered send their next call with those that wait.
        tokio::task::yield_now().await;
    }
}

/// The right to run the transactions of a pool.
struct Turn<'a> {
    queues: &'a HolderQueues,
    pool: ScopeKey,
    has_ended: bool,
}

impl Turn<'_> {
    fn next(&mut self) -> Option<Vec<Queued>> {
        let batch = self.queues.next(&self.pool);
        self.has_ended = batch.is_none();
        batch
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.queues.abandon(&self.pool);
        }
    }
}

async fn change_and_audit(tx: &mut Transaction, calls: &[Queued]) -> Result<Done<Vec<Decided>>, Error> {
    let changes: Vec<ScopedChange> = calls.iter().map(|queued| queued.call.change.clone()).collect();
    let scopes: BTreeSet<ScopeKey> = changes.iter().flat_map(|change| change.scopes.in_lock_order()).cloned().collect();
    let (decisions, at, is_written) = decide_each(tx, None, &scopes, &changes).await?;
    if is_written {
        let rows = calls.iter().zip(&decisions).filter_map(|(queued, decision)| {
            let statement = queued.call.statement.as_ref().filter(|_| decision.is_changed)?;
            audit_row(statement, decision, at.now_ms)
        });
        let rows: Vec<AuditRow> = rows.collect();
        // Of several rows, the id that is used is not known; then each call is run alone.
        if let Some(request) = rows.first().map(|row| row.request.clone())
            && !tx.audit_all(rows).await?
        {
            return Err(other_statement(&request));
        }
    }
    let decided = decisions.into_iter().map(|decision| decision.decided).collect();
    Ok(if is_written { Done::Write(decided) } else { Done::Same(decided) })
}

fn audit_row(statement: &HolderStatement, decision: &Decision, at_ms: i64) -> Option<AuditRow> {
    let reservation = decision.decided.as_ref().ok()?;
    Some(AuditRow {
        request: statement.id.clone(),
        at_ms,
        user: statement.caller.subject.user.clone(),
        source: statement.caller.source.clone(),
        statement: statement.statement.clone(),
        object: Some(format!("reservation \"{}\"", reservation.id())),
        tenant: Some(reservation.request.scopes.tenant_name().to_owned()),
        outcome: AuditOutcome::Committed,
        sqlstate: None,
        generation: None,
    })
}
