//! What a master writes, each time under its epoch.
//!
//! Every transaction here locks the row of `master` where the epoch is the caller's and ends at once if no row
//! matched: a deposed master's write is refused in the transaction that would have made it. The catalog's lock, where
//! it is needed, comes second.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use model::alteration::{AlterationProgress, AlterationRecord, ObjectRef, Outcome, RequestId};
use model::failpoint;
use model::number::{Epoch, Generation, Incarnation};
use model::observation::{MAX_REASON_BYTES, cut};
use model::slot::{Renewal, SlotKey};
use model::snapshot::MasterRecord;

use crate::backend::Mode;
use crate::error::Error;
use crate::failpoints;
use crate::read;
use crate::rows::{self, SlotRow};
use crate::slot_batch::{self, Renewed};
use crate::slots::{self, Issue};
use crate::sql;
use crate::store::Store;
use crate::transaction::{CommitPoints, Done, Transaction, args};

/// The most slots that one call renews.
pub const MAX_RENEWALS: usize = 20_000;

pub(crate) const POINTS: CommitPoints =
    CommitPoints { before: failpoints::MASTER_BEFORE, after: failpoints::MASTER_AFTER };

/// Locks the master's row if the epoch is the caller's.
pub(crate) async fn lock(tx: &mut Transaction, epoch: Epoch) -> Result<(), Error> {
    if tx.execute(sql::MASTER_LOCK, args![epoch]).await? == 0 {
        return Err(Error::Deposed(Box::new(read::master(tx).await?)));
    }
    failpoint!(failpoints::MASTER_LOCKED);
    Ok(())
}

impl Store {
    /// The master's row.
    pub async fn master(&self) -> Result<MasterRecord, Error> {
        let mut tx = self.begin(Mode::Snapshot).await?;
        let master = read::master(&mut tx).await;
        tx.leave(master).await
    }

    /// The master's row, and the database's clock at the time of reading, by which its times were written.
    pub async fn master_now(&self) -> Result<(MasterRecord, i64), Error> {
        let mut tx = self.begin(Mode::Snapshot).await?;
        let read = match read::master(&mut tx).await {
            Ok(master) => tx.now_ms().await.map(|now_ms| (master, now_ms)),
            Err(error) => Err(error),
        };
        tx.leave(read).await
    }

    /// Raises the epoch from `read` by one for `holder`. A repeat by the same holder is a success; anything else that
    /// stands there is [`Error::Deposed`].
    pub async fn raise_epoch(&self, read: Epoch, holder: &str) -> Result<MasterRecord, Error> {
        let mut tx = self.begin(Mode::Write).await?;
        let result = raise(&mut tx, read, holder).await;
        tx.end(POINTS, result).await
    }

    /// The engines have followed: the alteration is converged. `plan` is the generation of the plan that says so; a
    /// plan older than the alteration is [`Error::Conflict`]. A repeat answers the progress that stands there.
    pub async fn finish(&self, epoch: Epoch, id: &RequestId, plan: Generation) -> Result<AlterationProgress, Error> {
        let mut tx = self.begin(Mode::Write).await?;
        let result = finish(&mut tx, epoch, id, plan).await;
        tx.end(POINTS, result).await
    }

    /// The deadline has passed: the alteration is stalled. Counted by the database from the decision on; before that,
    /// it stays converging, which is then the answer.
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

    /// A newer committed alteration of the same object took over; [`Error::Conflict`] if there is none.
    pub async fn superseded(&self, epoch: Epoch, id: &RequestId) -> Result<AlterationProgress, Error> {
        let mut tx = self.begin(Mode::Write).await?;
        let result = supersede(&mut tx, epoch, id).await;
        tx.end(POINTS, result).await
    }

    /// Gives a slot a new incarnation and issues its engine's name; [`Error::Conflict`] if the slot is gone or has
    /// another incarnation than the one observed.
    pub async fn new_incarnation(&self, epoch: Epoch, renewal: &Renewal) -> Result<Incarnation, Error> {
        let drawn = self.new_incarnations(epoch, std::slice::from_ref(renewal)).await?;
        let drawn = drawn.into_iter().next().ok_or_else(|| Error::Broken("a renewal has no answer".to_owned()))?;
        drawn.map_err(Error::Conflict)
    }

    /// The same for many slots, in one transaction: for each the incarnation, or why it has none. What is wrong with one
    /// affects no other.
    pub async fn new_incarnations(
        &self,
        epoch: Epoch,
        renewals: &[Renewal],
    ) -> Result<Vec<Result<Incarnation, String>>, Error> {
        if renewals.len() > MAX_RENEWALS {
            return Err(Error::Broken(format!("a call renews more than {MAX_RENEWALS} slots")));
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
        let last = tx.draw(renewals.len()).await?.get();
        let catalog = read::catalog(tx).await?;
        let rows = match renewals {
            [one] => read::slots_of(tx, &one.slot.link()).await?,
            _ => read::slots(tx).await?,
        };
        let known: HashMap<&SlotKey, &SlotRow> = rows.iter().map(|row| (&row.slot.key, row)).collect();
        let mut next = last - renewals.len() as i64;
        let mut renewed: BTreeMap<&SlotKey, Renewed<'_>> = BTreeMap::new();
        let mut answers = Vec::with_capacity(renewals.len());
        for renewal in renewals {
            next += 1;
            let row = known.get(&renewal.slot).copied();
            let drawn = renewed.get(&renewal.slot).map(|it| it.incarnation);
            let is = drawn.or_else(|| row.map(|row| row.slot.incarnation));
            if let Some(row) = row.filter(|_| is == Some(renewal.observed)) {
                let incarnation = Incarnation(next);
                renewed.insert(&renewal.slot, Renewed { row, incarnation, failures: renewal.failures });
                answers.push(Ok(incarnation));
            } else {
                let what = is.map_or_else(|| "is gone".to_owned(), |is| format!("has incarnation {is}"));
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
    let record = record.ok_or_else(|| Error::Conflict(format!("alteration {id} is not decided")))?;
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
        (record, AlterationProgress::Converging | AlterationProgress::Stalled) => {
            Err(Error::Conflict(format!("alteration {id} has generation {}, the plan only {plan}", record.generation)))
        }
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
    let latest = now_ms.saturating_sub(slots::grace_ms(after));
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
        return Err(Error::Conflict(format!("no newer alteration has taken over from {id}")));
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
