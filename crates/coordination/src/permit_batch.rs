//! Permits of many engines in one multi.
//!
//! A thousand engines that are made at once would cost a thousand multis, and as many events at everybody who watches the
//! permits. A multi is everything or nothing: where one of its engines is in the way of the others (its permit is there, or
//! is not as it was seen), nothing was written, and each is tried by itself, so that every engine has the answer that it would
//! have had alone. The guards are those of [`permits`]: the check of the lock's node, the version.

use model::EngineName;

use crate::document;
use crate::election::Lock;
use crate::error::{Error, ZkErrorKind};
use crate::failpoints;
use crate::permits::{self, Permit};
use crate::transaction::Transaction;

/// The most permits of one multi: with what stands below them they are well below its limits of operations and bytes.
pub const MOST: usize = 64;

/// A permit with the uid that it is to have.
#[derive(Debug, Clone)]
pub struct UidUpdate {
    /// Whose permit it is.
    pub engine: EngineName,
    /// What it is to say; its uid is not `None`.
    pub permit: Permit,
    /// The version that it was seen with; of one that was just made: 0.
    pub version: i32,
}

/// Makes permits as [`permits::create`] makes one; an answer for each.
pub async fn create(lock: &Lock, wanted: &[(EngineName, Permit)]) -> Vec<Result<(), Error>> {
    let mut answers = Vec::with_capacity(wanted.len());
    for some in wanted.chunks(MOST) {
        match all_or_nothing(some.len(), create_some(lock, some)).await {
            Some(answer) => answers.extend(some.iter().map(|_| answer.clone())),
            None => {
                for (engine, permit) in some {
                    answers.push(permits::create(lock, engine, permit).await);
                }
            }
        }
    }
    answers
}

async fn create_some(lock: &Lock, some: &[(EngineName, Permit)]) -> Result<(), Error> {
    let mut transaction = Transaction::under(lock);
    for (engine, permit) in some {
        transaction = permits::creation(transaction, lock.session(), engine, permit)?;
    }
    transaction.commit().await?;
    for _ in some {
        model::failpoint!(failpoints::PERMIT_CREATED);
    }
    Ok(())
}

/// Writes uids into permits that are as they were seen; an answer for each. One that is not is read, as
/// [`permits::record_uid`] does.
pub async fn record_uids(lock: &Lock, known: &[UidUpdate]) -> Vec<Result<(), Error>> {
    let mut answers = Vec::with_capacity(known.len());
    for some in known.chunks(MOST) {
        match all_or_nothing(some.len(), record_some(lock, some)).await {
            Some(answer) => answers.extend(some.iter().map(|_| answer.clone())),
            None => {
                for UidUpdate { engine, permit, .. } in some {
                    answers.push(permits::record_uid(lock, engine, permit.uid.as_deref().unwrap_or_default()).await);
                }
            }
        }
    }
    answers
}

async fn record_some(lock: &Lock, some: &[UidUpdate]) -> Result<(), Error> {
    let mut transaction = Transaction::under(lock);
    for UidUpdate { engine, permit, version } in some {
        let path = lock.session().layout().permit(engine);
        let data = document::write(&path, permit)?;
        transaction = transaction.set(path, data, *version);
    }
    transaction.commit().await?;
    for _ in some {
        model::failpoint!(failpoints::PERMIT_UID_SET);
    }
    Ok(())
}

/// What became of all; `None` if nothing did because of one of them, or there is but one: then each is to be tried alone.
async fn all_or_nothing(count: usize, multi: impl Future<Output = Result<(), Error>>) -> Option<Result<(), Error>> {
    if count == 1 {
        return None;
    }
    let answer = multi.await;
    let of_one =
        |error: &Error| matches!(error.kind(), ZkErrorKind::Conflict | ZkErrorKind::Denied | ZkErrorKind::Invalid);
    if answer.as_ref().is_err_and(of_one) { None } else { Some(answer) }
}
