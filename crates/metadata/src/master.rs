//! The writes of a master, fenced by its epoch.
//!
//! Every transaction here first locks the row of `master` with the caller's epoch, and ends at once if no row matches: the write
//! of a deposed master is rejected in its own transaction. The catalog lock comes second where it is needed.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use model::alteration::{AlterationProgress, AlterationRecord, ObjectRef, Outcome, RequestId};
use model::failpoint;
use model::millis;
use model::number::{Epoch, Generation, Incarnation};
use model::observation::MAX_REASON_BYTES;
use model::slot::{Renewal, Slot, SlotKey};
use model::snapshot::MasterRecord;
use model::text::cut;

use crate::backend::Mode;
use crate::error::Error;
use crate::failpoints;
use crate::read;
use crate::rows;
use crate::slot_batch::{self, Renewed};
use crate::slots::Issue;
use crate::sql;
use crate::store::Store;
use crate::transaction::{CommitPoints, Done, Transaction, args};

/// The maximum number of slots that a call renews.
pub const MAX_RENEWALS: usize = 20_000;

pub(crate) const POINTS: CommitPoints =
    CommitPoints { before: failpoints::MASTER_BEFORE, after: failpoints::MASTER_AFTER };

/// Checks the fence: locks the row of the master if it has the caller's epoch.
pub(crate) async fn lock(tx: &mut Transaction, epoch: Epoch) -> Result<(), Error> {
    if tx.execute(sql::MASTER_LOCK, args![epoch]).await? == 0 {
        return Err(Error::Deposed(Box::new(read::master(tx).await?)));
    }
    failpoint!(failpoints::MASTER_LOCKED);
    Ok(())
}

impl Store {
    pub async fn master(&self) -> Result<MasterRecord, Error> {
        let mut tx = self.begin(Mode::Snapshot).await?;
        let master = read::master(&mut tx).await;
        tx.leave(master).await
    }

    /// The row of the master, and the database's clock at the same time.
    pub async fn master_now(&self) -> Result<(MasterRecord, i64), Error> {
        let mut tx = self.begin(Mode::Snapshot).await?;
        let read = match read::master(&mut tx).await {
            Ok(master) => tx.now_ms().await.map(|now_ms| (master, now_ms)),
            Err(error) => Err(error),
        };
        tx.leave(read).await
    }

    /// Raises the epoch from `read` by one for `holder`. Idempotent for the same holder; [`Error::Deposed`] if the epoch has
    /// changed otherwise. Scopes that are missing are inserted in a transaction of their own, before the master acts.
    pub async fn raise_epoch(&self, read: Epoch, holder: &str) -> Result<MasterRecord, Error> {
        let mut tx = self.begin(Mode::Write).await?;
        let result = raise(&mut tx, read, holder).await;
        let record = tx.end(POINTS, result).await?;
        self.insert_missing_scopes(record.epoch).await?;
        Ok(record)
    }

    /// Records that the engines have followed: the alteration is converged. `plan` is the generation of the plan; a plan older
    /// than the alteration is [`Error::Conflict`]. Returns the recorded progress.
    pub async fn finish(&self, epoch: Epoch, id: &RequestId, plan: Generation) -> Result<AlterationProgress, Error> {
        let mut tx = self.begin(Mode::Write).await?;
        let result = finish(&mut tx, epoch, id, plan).await;
        tx.end(POINTS, result).await
    }

    /// Records that the alteration is stalled, if the database's clock agrees that `after` has passed since its decision. Returns
    /// the recorded progress.
    pub async fn stalled(
        &self,
        epoch: Epoch,
        id: &RequestId,
        after: Duration,
        reason: &str,
    ) -> Result<AlterationProgress, Error> {
        let mut tx = self.begin(Mode::Write).await?;
        let result = stall(&mut tx, epoch, id, after, reason).await;
        tx.end(POINTS, result).await
    }

    /// Records that a newer committed alteration of the object superseded this one; [`Error::Conflict`] if there is none.
    pub async fn superseded(&self, epoch: Epoch, id: &RequestId) -> Result<AlterationProgress, Error> {
        let mut tx = self.begin(Mode::Write).await?;
        let result = supersede(&mut tx, epoch, id).await;
        tx.end(POINTS, result).await
    }

    /// Gives a slot a new incarnation and issues the name of its engine; [`Error::Conflict`] if the slot is gone or its incarnation
    /// is not the observed one.
    pub async fn new_incarnation(&self, epoch: Epoch, renewal: &Renewal) -> Result<Incarnation, Error> {
        let drawn = self.new_incarnations(epoch, std::slice::from_ref(renewal)).await?;
        let drawn = drawn.into_iter().next().ok_or_else(|| Error::Broken("a renewal has no result".into()))?;
        drawn.map_err(Error::Conflict)
    }

    /// Like [`Store::new_incarnation`] for many slots in one transaction: for each the incarnation, or why it has none. A failure
    /// of one does not affect the others.
    pub async fn new_incarnations(
        &self,
        epoch: Epoch,
        renewals: &[Renewal],
    ) -> Result<Vec<Result<Incarnation, String>>, Error> {
        if renewals.len() > MAX_RENEWALS {
            return Err(Error::Broken(format!("a call renews more than {MAX_RENEWALS} slots").into()));
        }
        let mut tx = self.begin(Mode::Write).await?;
        let result = self.renew_in(&mut tx, epoch, renewals).await;
        tx.end(POINTS, result).await
    }

    async fn renew_in(
        &self,
        tx: &mut Transaction,
        epoch: Epoch,
        renewals: &[Renewal],
    ) -> Result<Done<Vec<Result<Incarnation, String>>>, Error> {
        lock(tx, epoch).await?;
        let last = tx.draw(renewals.len()).await?.last.get();
        let catalog = read::catalog(tx).await?;
        let rows = match renewals {
            [one] => read::slots_of(tx, &one.slot.link()).await?,
            _ => read::slots(tx).await?,
        };
        let by_key: HashMap<&SlotKey, &Slot> = rows.iter().map(|slot| (&slot.key, slot)).collect();
        let mut next = last - renewals.len() as i64;
        let mut renewed: BTreeMap<&SlotKey, Renewed<'_>> = BTreeMap::new();
        let mut answers = Vec::with_capacity(renewals.len());
        for renewal in renewals {
            next += 1;
            let slot = by_key.get(&renewal.slot).copied();
            let drawn = renewed.get(&renewal.slot).map(|renewed| renewed.incarnation);
            let current = drawn.or_else(|| slot.map(|slot| slot.incarnation));
            if let Some(slot) = slot.filter(|_| current == Some(renewal.observed)) {
                let incarnation = Incarnation(next);
                let earlier = renewed.get(&renewal.slot).and_then(|renewed| renewed.condemn);
                let condemn = renewal.condemn.as_deref().or(earlier);
                renewed.insert(
                    &renewal.slot,
                    Renewed {
                        slot,
                        incarnation,
                        failures: renewal.failures,
                        replacement: renewal.replacement,
                        condemn,
                        ends: renewal.ends.as_ref(),
                    },
                );
                answers.push(Ok(incarnation));
            } else {
                let what = current.map_or_else(|| "is gone".to_owned(), |current| format!("has incarnation {current}"));
                answers.push(Err(format!("slot {} {what}, not {}", renewal.slot, renewal.observed)));
            }
        }
        if renewed.is_empty() {
            return Ok(Done::Same(answers));
        }
        let issue = Issue { catalog: &catalog, defaults: &self.rules().defaults, now_ms: tx.now_ms().await? };
        slot_batch::renew(tx, &issue, &renewed.into_values().collect::<Vec<_>>()).await?;
        Ok(Done::Write(answers))
    }
}

async fn raise(tx: &mut Transaction, read: Epoch, holder: &str) -> Result<Done<MasterRecord>, Error> {
    let now_ms = tx.now_ms().await?;
    let raised = tx.execute(sql::MASTER_RAISE, args![read.next(), holder, now_ms, read]).await?;
    let record = read::master(tx).await?;
    if raised == 1 {
        Ok(Done::Write(record))
    } else if record.epoch == read.next() && record.holder == holder {
        Ok(Done::Same(record))
    } else {
        Err(Error::Deposed(Box::new(record)))
    }
}

async fn committed(tx: &mut Transaction, id: &RequestId) -> Result<(AlterationRecord, AlterationProgress), Error> {
    let record = read::alteration(tx, id).await?;
    let record = record.ok_or_else(|| Error::Conflict(format!("alteration {id} is in doubt")))?;
    match record.progress {
        Some(progress) if record.outcome == Outcome::Committed => Ok((record, progress)),
        _ => Err(Error::Conflict(format!("alteration {id} was aborted"))),
    }
}

async fn finish(
    tx: &mut Transaction,
    epoch: Epoch,
    id: &RequestId,
    plan: Generation,
) -> Result<Done<AlterationProgress>, Error> {
    lock(tx, epoch).await?;
    let now_ms = tx.now_ms().await?;
    if tx.execute(sql::ALTERATION_FINISH, args![now_ms, id.as_str(), plan]).await? == 1 {
        return Ok(Done::Write(AlterationProgress::Converged));
    }
    match committed(tx, id).await? {
        (record, AlterationProgress::Converging | AlterationProgress::Stalled) => Err(Error::Conflict(format!(
            "alteration {id} has generation {}, newer than {plan} of the plan",
            record.generation
        ))),
        (_, progress) => Ok(Done::Same(progress)),
    }
}

async fn stall(
    tx: &mut Transaction,
    epoch: Epoch,
    id: &RequestId,
    after: Duration,
    reason: &str,
) -> Result<Done<AlterationProgress>, Error> {
    lock(tx, epoch).await?;
    let now_ms = tx.now_ms().await?;
    let latest = now_ms.saturating_sub(millis::from_duration(after));
    let args = args![cut(reason, MAX_REASON_BYTES), now_ms, id.as_str(), latest];
    if tx.execute(sql::ALTERATION_STALL, args).await? == 1 {
        return Ok(Done::Write(AlterationProgress::Stalled));
    }
    Ok(Done::Same(committed(tx, id).await?.1))
}

async fn supersede(tx: &mut Transaction, epoch: Epoch, id: &RequestId) -> Result<Done<AlterationProgress>, Error> {
    lock(tx, epoch).await?;
    let (record, progress) = committed(tx, id).await?;
    if !matches!(progress, AlterationProgress::Converging | AlterationProgress::Stalled) {
        return Ok(Done::Same(progress));
    }
    let newer = match &record.object {
        Some(object) => newer(tx, object, record.generation).await?,
        None => 0,
    };
    if newer == 0 {
        return Err(Error::Conflict(format!("no newer alteration supersedes {id}")));
    }
    let now_ms = tx.now_ms().await?;
    tx.execute(sql::ALTERATION_SUPERSEDE, args![now_ms, id.as_str()]).await?;
    Ok(Done::Write(AlterationProgress::Superseded))
}

async fn newer(tx: &mut Transaction, object: &ObjectRef, than: Generation) -> Result<i64, Error> {
    let args = args![object.kind.as_str(), object.name.as_str(), than];
    match tx.row(sql::ALTERATIONS_NEWER, args).await? {
        Some(row) => rows::int(&row, "newer"),
        None => Ok(0),
    }
}
