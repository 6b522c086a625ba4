//! Deleting what nobody asks for any more: old requests, decided alterations, engines that ended long ago.
//!
//! Ids are kept longer than any deadline, so that no late repeat finds its row gone. A name of an engine is never
//! issued again after its row is gone, because the counter that it is made from never goes back.

use crate::backend::Mode;
use crate::error::Error;
use crate::failpoints;
use crate::rows;
use crate::sql;
use crate::store::Store;
use crate::transaction::{CommitPoints, Done, Transaction, args};

/// How long the rows of requests and alterations are kept, in milliseconds: 8 days.
pub const REQUEST_KEEP_MS: i64 = 8 * 24 * 3600 * 1000;
/// How long the rows of ended engines are kept, in milliseconds: 30 days.
pub const ENGINE_KEEP_MS: i64 = 30 * 24 * 3600 * 1000;
/// The most rows of each table that one transaction deletes: it holds the catalog's lock.
pub const MAX_DELETED: usize = 500;
/// The most transactions of one run: what is left then, the next run deletes.
pub const MAX_ROUNDS: usize = 1_000;

const POINTS: CommitPoints =
    CommitPoints { before: failpoints::HOUSEKEEPING_BEFORE, after: failpoints::HOUSEKEEPING_AFTER };

/// How many rows were deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeletedRows {
    /// Requests.
    pub requests: usize,
    /// Alterations.
    pub alterations: usize,
    /// Engines.
    pub engines: usize,
}

impl Store {
    /// Deletes all old rows, in transactions of at most [`MAX_DELETED`] rows of each table, between which others get the
    /// catalog's lock. To be called every hour or so by each metadata agent.
    pub async fn housekeep(&self) -> Result<DeletedRows, Error> {
        let mut all = DeletedRows::default();
        for _ in 0..MAX_ROUNDS {
            let mut tx = self.begin(Mode::Write).await?;
            let result = delete(&mut tx).await;
            let DeletedRows { requests, alterations, engines } = tx.end(POINTS, result).await?;
            all.requests += requests;
            all.alterations += alterations;
            all.engines += engines;
            if requests.max(alterations).max(engines) < MAX_DELETED {
                break;
            }
        }
        Ok(all)
    }
}

async fn delete(tx: &mut Transaction) -> Result<Done<DeletedRows>, Error> {
    // Rows of `engine` are written by commits too: in one order, behind one lock.
    tx.lock_catalog().await?;
    let now_ms = tx.now_ms().await?;
    let requests = delete_old(tx, sql::REQUESTS_OLD, sql::REQUESTS_DELETE, "id", now_ms - REQUEST_KEEP_MS).await?;
    let alterations =
        delete_old(tx, sql::ALTERATIONS_OLD, sql::ALTERATIONS_DELETE, "id", now_ms - REQUEST_KEEP_MS).await?;
    let engines = delete_old(tx, sql::ENGINES_OLD, sql::ENGINES_DELETE, "name", now_ms - ENGINE_KEEP_MS).await?;
    let deleted = DeletedRows { requests, alterations, engines };
    Ok(if deleted == DeletedRows::default() { Done::Same(deleted) } else { Done::Write(deleted) })
}

async fn delete_old(
    tx: &mut Transaction,
    find: &'static str,
    delete: &'static str,
    key: &str,
    before_ms: i64,
) -> Result<usize, Error> {
    let rows = tx.rows(find, args![before_ms, MAX_DELETED as i64]).await?;
    let mut keys = Vec::new();
    for row in &rows {
        keys.push(rows::text(row, key)?.into());
    }
    tx.execute_in(delete, &[], keys).await?;
    Ok(rows.len())
}
