//! The audit: one row for each control statement, written in the transaction of its effect.
//!
//! The parts of a request are its possible ends: an effect, a refusal and an abort. A request has one effect or one abort,
//! because its row in table `request` or `alteration` is inserted once. A refusal has a transaction of its own, and
//! may precede both: an attempt was refused, and a repeat under the same id was not. A refusal of another statement under
//! an id that has a row gets an id of its own, a digest of the refusal, so no use of ids keeps a refusal out of the audit.
//!
//! After COMMIT the transaction logs its row, with target `audit`. If the reply to COMMIT is lost, only the row exists.

use std::time::Duration;

use model::alteration::{RequestId, Source};
use model::millis;
use model::name::TenantName;
use model::number::Generation;
use model::text::cut;
use sha2::{Digest as _, Sha256};
use sqlx::any::AnyRow;

use crate::audit_row::{AuditOutcome, AuditRow, MAX_AUDIT_STATEMENT_BYTES};
use crate::backend::Mode;
use crate::caller::Caller;
use crate::commit::MAX_WORD_BYTES;
use crate::error::Error;
use crate::failpoints;
use crate::rows;
use crate::sql;
use crate::store::Store;
use crate::transaction::{Arg, CommitPoints, Done, Transaction, args};

/// The maximum number of rows that [`Store::audit`] returns.
pub const MAX_AUDIT_ROWS: u32 = 10_000;

/// Keeps the ids of further refusals apart from other digests.
const FURTHER_REFUSAL: &str = "enginehouse further refusal 1";

const POINTS: CommitPoints = CommitPoints { before: failpoints::REFUSAL_BEFORE, after: failpoints::REFUSAL_AFTER };

/// Which rows to read.
#[derive(Debug, Clone, Default)]
pub struct AuditFilter {
    pub user: Option<String>,
    pub tenant: Option<TenantName>,
    /// The maximum age.
    pub since: Option<Duration>,
    /// At most [`MAX_AUDIT_ROWS`].
    pub limit: u32,
}

/// A statement that was refused.
#[derive(Debug, Clone)]
pub struct Refusal {
    pub id: RequestId,
    pub caller: Caller,
    /// Secret values masked.
    pub statement: String,
    pub object: Option<String>,
    pub tenant: Option<TenantName>,
    pub sqlstate: String,
}

impl Transaction {
    /// Inserts the row, which is logged after COMMIT; false if the request has one.
    pub(crate) async fn audit(&mut self, row: AuditRow) -> Result<bool, Error> {
        self.audit_all(vec![row]).await
    }

    /// Inserts rows like [`Transaction::audit`]; false if one of the requests has one.
    pub(crate) async fn audit_all(&mut self, rows: Vec<AuditRow>) -> Result<bool, Error> {
        let inserted = self.insert_all_new(sql::AUDIT_INSERT, rows.iter().map(args).collect()).await?;
        if inserted {
            self.log_after_commit(rows);
        }
        Ok(inserted)
    }

    /// Whether the request has a row with one of these outcomes.
    pub(crate) async fn is_audited(&mut self, request: &RequestId, as_one_of: &[AuditOutcome]) -> Result<bool, Error> {
        for row in self.rows(sql::AUDIT_OF_REQUEST, args![request.as_str()]).await? {
            let part = rows::int(&row, "part")?;
            if as_one_of.iter().any(|outcome| outcome.part() == part) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Store {
    /// The newest rows that match the filter, newest first.
    pub async fn audit(&self, filter: &AuditFilter) -> Result<Vec<AuditRow>, Error> {
        let mut tx = self.begin(Mode::Snapshot).await?;
        let rows = read(&mut tx, filter).await;
        tx.leave(rows).await
    }

    /// Records a refusal, unless the statement has a row under this id: its effect, its abort or an earlier refusal.
    pub async fn record_refusal(&self, refusal: &Refusal) -> Result<(), Error> {
        // If a concurrent refusal takes the id, the second attempt finds it used.
        for _ in 0..2 {
            let mut tx = self.begin(Mode::Write).await?;
            let result = refuse(&mut tx, refusal).await;
            if tx.end(POINTS, result).await? {
                break;
            }
        }
        Ok(())
    }
}

impl Refusal {
    /// Whether a row of the same request is this user's and statement's.
    fn is_audited_by(&self, row: &AnyRow) -> Result<bool, Error> {
        let statement = cut(&self.statement, MAX_AUDIT_STATEMENT_BYTES);
        let user = cut(&self.caller.subject.user, MAX_WORD_BYTES);
        Ok(rows::text(row, "user_name")? == user && rows::text(row, "statement")? == statement)
    }

    /// The id of its row if the request has a row of another statement or user: the same for a repeat.
    fn further_id(&self) -> Result<RequestId, Error> {
        let mut digest = Sha256::new();
        for part in [FURTHER_REFUSAL, self.id.as_str(), &self.caller.subject.user, &self.statement] {
            // The length separates the parts.
            digest.update((part.len() as u64).to_be_bytes());
            digest.update(part.as_bytes());
        }
        let id = digest.finalize().iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"));
        RequestId::new(id).map_err(|error| Error::Broken(error.text().into()))
    }
}

/// False if a concurrent transaction inserted a row under the same id.
async fn refuse(tx: &mut Transaction, refusal: &Refusal) -> Result<Done<bool>, Error> {
    let of_request = tx.rows(sql::AUDIT_OF_REQUEST, args![refusal.id.as_str()]).await?;
    for row in &of_request {
        if refusal.is_audited_by(row)? {
            return Ok(Done::Same(true));
        }
    }
    let row = AuditRow {
        request: if of_request.is_empty() { refusal.id.clone() } else { refusal.further_id()? },
        at_ms: tx.now_ms().await?,
        user: refusal.caller.subject.user.clone(),
        source: refusal.caller.source.clone(),
        statement: refusal.statement.clone(),
        object: refusal.object.clone(),
        tenant: refusal.tenant.as_ref().map(ToString::to_string),
        outcome: AuditOutcome::Refused,
        sqlstate: Some(refusal.sqlstate.clone()),
        generation: None,
    };
    Ok(if tx.audit(row).await? { Done::Write(true) } else { Done::Same(!of_request.is_empty()) })
}

async fn read(tx: &mut Transaction, filter: &AuditFilter) -> Result<Vec<AuditRow>, Error> {
    let since_ms = match filter.since {
        Some(age) => tx.now_ms().await? - millis::from_duration(age),
        None => 0,
    };
    let (mut text, mut values) = (sql::AUDIT_ROWS.to_owned(), args![since_ms]);
    if let Some(user) = &filter.user {
        text.push_str(" AND user_name = ?");
        values.push(cut(user, MAX_WORD_BYTES).into());
    }
    if let Some(tenant) = &filter.tenant {
        text.push_str(" AND tenant = ?");
        values.push(tenant.as_str().into());
    }
    text.push_str(" ORDER BY at_ms DESC, request, part LIMIT ?");
    values.push(filter.limit.min(MAX_AUDIT_ROWS).into());
    tx.rows_once(text, values).await?.iter().map(decode).collect()
}

fn args(row: &AuditRow) -> Vec<Arg> {
    let word = |text: &Option<String>| Arg::from(text.as_deref().map(|text| cut(text, MAX_WORD_BYTES)));
    let Source { via, method, proxy, client } = &row.source;
    args![
        row.request.as_str(),
        row.outcome.part(),
        row.at_ms,
        cut(&row.user, MAX_WORD_BYTES),
        word(via),
        word(method),
        word(proxy),
        word(client),
        cut(&row.statement, MAX_AUDIT_STATEMENT_BYTES),
        word(&row.object),
        row.tenant.as_deref(),
        row.outcome.as_str(),
        row.sqlstate.as_deref(),
        row.generation.map(Generation::get),
    ]
}

fn decode(row: &AnyRow) -> Result<AuditRow, Error> {
    let outcome = rows::text(row, "outcome")?;
    let broken = |column: &str, reason: String| Error::Broken(format!("{column}: {reason}").into());
    Ok(AuditRow {
        request: RequestId::new(rows::text(row, "request")?).map_err(|error| broken("request", error.text()))?,
        at_ms: rows::int(row, "at_ms")?,
        user: rows::text(row, "user_name")?,
        source: Source {
            via: rows::text_or_none(row, "via")?,
            method: rows::text_or_none(row, "method")?,
            proxy: rows::text_or_none(row, "proxy")?,
            client: rows::text_or_none(row, "client")?,
        },
        statement: rows::text(row, "statement")?,
        object: rows::text_or_none(row, "object")?,
        tenant: rows::text_or_none(row, "tenant")?,
        outcome: AuditOutcome::from_word(&outcome).ok_or_else(|| broken("outcome", outcome))?,
        sqlstate: rows::text_or_none(row, "sql_state")?,
        generation: rows::int_or_none(row, "generation")?.map(Generation),
    })
}
