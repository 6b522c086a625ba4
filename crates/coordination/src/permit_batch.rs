//! Batched writes of permits: many engines in one multi.
//!
//! Creating a thousand engines would otherwise cost a thousand multis, and as many watch events at each process that watches
//! the permits. A multi is atomic: if one permit of a batch fails (it exists already, or its version is stale), nothing was
//! written, and every permit of the batch is written alone. So each engine has the result that it would have without batching.
//! The preconditions are those of [`permits`]: the check of the lock's node, and the version.

use model::EngineName;

use crate::document;
use crate::election::Lock;
use crate::error::{Error, ZkErrorKind};
use crate::failpoints;
use crate::permits::{self, Permit};
use crate::transaction::Transaction;

/// The maximum number of permits in a multi, which is well below the limits for operations and bytes.
pub const MAX_BATCH: usize = 64;

/// The write of a uid into a permit.
#[derive(Debug, Clone)]
pub struct UidUpdate {
    pub engine: EngineName,
    /// The new content; its uid is not `None`.
    pub permit: Permit,
    /// The version that was read; 0 for a permit that was just created.
    pub version: i32,
}

/// Creates permits like [`permits::create`]; one result for each.
pub async fn create(lock: &Lock, wanted: &[(EngineName, Permit)]) -> Vec<Result<(), Error>> {
    let mut results = Vec::with_capacity(wanted.len());
    for batch in wanted.chunks(MAX_BATCH) {
        match all_or_nothing(batch.len(), create_batch(lock, batch)).await {
            Some(result) => results.extend(batch.iter().map(|_| result.clone())),
            None => {
                for (engine, permit) in batch {
                    results.push(permits::create(lock, engine, permit).await);
                }
            }
        }
    }
    results
}

async fn create_batch(lock: &Lock, batch: &[(EngineName, Permit)]) -> Result<(), Error> {
    let mut transaction = Transaction::under(lock);
    for (engine, permit) in batch {
        transaction = permits::creation(transaction, lock.session(), engine, permit)?;
    }
    transaction.commit().await?;
    for _ in batch {
        model::failpoint!(failpoints::PERMIT_CREATED);
    }
    Ok(())
}

/// Writes uids into permits; one result for each. A permit whose version is stale is read again, like
/// [`permits::record_uid`].
pub async fn record_uids(lock: &Lock, updates: &[UidUpdate]) -> Vec<Result<(), Error>> {
    let mut results = Vec::with_capacity(updates.len());
    for batch in updates.chunks(MAX_BATCH) {
        match all_or_nothing(batch.len(), record_batch(lock, batch)).await {
            Some(result) => results.extend(batch.iter().map(|_| result.clone())),
            None => {
                for UidUpdate { engine, permit, .. } in batch {
                    results.push(permits::record_uid(lock, engine, permit.uid.as_deref().unwrap_or_default()).await);
                }
            }
        }
    }
    results
}

async fn record_batch(lock: &Lock, batch: &[UidUpdate]) -> Result<(), Error> {
    let mut transaction = Transaction::under(lock);
    for UidUpdate { engine, permit, version } in batch {
        let path = lock.session().layout().permit(engine);
        let data = document::write(&path, permit)?;
        transaction = transaction.set(path, data, *version);
    }
    transaction.commit().await?;
    for _ in batch {
        model::failpoint!(failpoints::PERMIT_UID_SET);
    }
    Ok(())
}

/// The result of the whole batch; `None` if each is to be written alone, because one of them failed or there is only one.
async fn all_or_nothing(count: usize, multi: impl Future<Output = Result<(), Error>>) -> Option<Result<(), Error>> {
    if count == 1 {
        return None;
    }
    let result = multi.await;
    let is_of_one =
        |error: &Error| matches!(error.kind(), ZkErrorKind::Conflict | ZkErrorKind::Denied | ZkErrorKind::Invalid);
    if result.as_ref().is_err_and(is_of_one) { None } else { Some(result) }
}
