//! The ledger's transactions: they lock scopes, read what they depend on, decide with [`model::ledger`] and write the
//! difference.
//!
//! Rows are locked in a fixed order: the row of the master, if it is a master's transaction, then scopes in the order
//! of [`ScopeKey`]: users, creators, tenants and pools, each by name. Every transaction that changes a reservation
//! locks all scopes of its holder, so their rows, the reservation and its lineage cannot change before COMMIT. All
//! locks precede the first SELECT, because that creates the snapshot of a transaction on `MariaDB`.
//!
//! A scope is written only with the version that its lock made: a value that was read before the lock would be refused,
//! not written. Nothing is charged without a reservation, nor the reverse, because both are one transaction.
//!
//! A stale caller: a deposed master changes nothing. A change names the scopes of its reservation; if it has others,
//! the change is refused. A repeat, however late, returns the reservation as it is.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::failpoint;
use model::ledger::{
    Change, Decided, Ledger, Moment, Refusal, Reservation, Role, Scope, ScopeKey, ScopeKind, ScopedChange, State,
};
use model::name::PoolName;
use model::number::Epoch;

use crate::backend::Mode;
use crate::batch::keys;
use crate::error::{ATTEMPTS, Error};
use crate::failpoints;
use crate::ledger_limits::{MAX_BATCH_SCOPES, MAX_CHANGES, MAX_WAITING_OF_POOL, MAX_WAITING_OF_TENANT};
use crate::ledger_rows::{self, ScopeRow};
use crate::ledger_sql as sql;
use crate::master;
use crate::read;
use crate::rows;
use crate::store::Store;
use crate::transaction::{Arg, CommitPoints, Done, Transaction, args};

const MASTER_POINTS: CommitPoints = CommitPoints { before: failpoints::LEDGER_BEFORE, after: failpoints::LEDGER_AFTER };
pub(crate) const HOLDER_POINTS: CommitPoints =
    CommitPoints { before: failpoints::RESERVE_BEFORE, after: failpoints::RESERVE_AFTER };

/// What a transaction has locked and read.
pub(crate) struct Loaded {
    pub(crate) ledger: Ledger,
    versions: BTreeMap<ScopeKey, i64>,
}

impl Store {
    /// Runs a batch of a master's changes in one transaction, in order, each with its own result: a refused one does
    /// not affect the others. At most [`MAX_CHANGES`] on at most [`MAX_BATCH_SCOPES`].
    pub async fn ledger(&self, epoch: Epoch, changes: &[ScopedChange]) -> Result<Vec<Decided>, Error> {
        self.change(Some(epoch), changes).await
    }

    /// Like [`Store::ledger`]; without an epoch for a program that registers a capacity.
    pub(crate) async fn change(&self, epoch: Option<Epoch>, changes: &[ScopedChange]) -> Result<Vec<Decided>, Error> {
        let scopes: BTreeSet<ScopeKey> =
            changes.iter().flat_map(|change| change.scopes.in_lock_order()).cloned().collect();
        if changes.len() > MAX_CHANGES || scopes.len() > MAX_BATCH_SCOPES {
            let limit = format!("a batch has more than {MAX_CHANGES} changes or {MAX_BATCH_SCOPES} scopes");
            return Err(Error::Broken(limit.into()));
        }
        let points = if epoch.is_some() { MASTER_POINTS } else { HOLDER_POINTS };
        let mut attempt = 1;
        loop {
            let mut tx = self.begin(Mode::Write).await?;
            let result = decide(&mut tx, epoch, &scopes, changes).await;
            match tx.end(points, result).await {
                Err(Error::Conflict(_)) if attempt < ATTEMPTS => attempt += 1,
                other => return other,
            }
        }
    }

    /// Records the requests that an admission round left in the queue of each pool, whose engines it has counted.
    pub async fn admitted(&self, epoch: Epoch, queued: &BTreeMap<PoolName, i64>) -> Result<(), Error> {
        let mut attempt = 1;
        loop {
            let mut tx = self.begin(Mode::Write).await?;
            let result = record_admission(&mut tx, epoch, queued).await;
            match tx.end(MASTER_POINTS, result).await {
                Err(error) if error.is_retried(&mut attempt) => {}
                other => return other,
            }
        }
    }

    /// Everything: for tests and diagnoses of small ledgers.
    pub async fn whole_ledger(&self) -> Result<Ledger, Error> {
        let mut tx = self.begin(Mode::Snapshot).await?;
        let ledger = read_all(&mut tx).await;
        tx.leave(ledger).await
    }

    /// A reservation as it was at one moment.
    pub async fn reservation(&self, id: &str) -> Result<Option<Reservation>, Error> {
        let mut tx = self.begin(Mode::Snapshot).await?;
        let read = tx.reservations_in(sql::RESERVATIONS_OF_IDS, vec![id.into()]).await;
        Ok(tx.leave(read).await?.into_iter().next())
    }

    /// The reservation of a request key as it was at one moment.
    pub async fn reservation_of_key(&self, key: &str) -> Result<Option<Reservation>, Error> {
        let mut tx = self.begin(Mode::Snapshot).await?;
        let read = tx.reservations_in(sql::RESERVATIONS_OF_KEYS, vec![key.into()]).await;
        Ok(tx.leave(read).await?.into_iter().next())
    }
}

async fn read_all(tx: &mut Transaction) -> Result<Ledger, Error> {
    let scopes = tx.rows(sql::SCOPES, args![]).await?.iter().map(ledger_rows::scope).collect::<Result<Vec<_>, _>>()?;
    let reservations = tx.rows(sql::RESERVATIONS, args![]).await?;
    let reservations = reservations.iter().map(ledger_rows::reservation).collect::<Result<Vec<_>, _>>()?;
    Ok(Ledger::new(scopes.into_iter().map(|row| (row.key, row.scope)), reservations))
}

async fn record_admission(
    tx: &mut Transaction,
    epoch: Epoch,
    queued: &BTreeMap<PoolName, i64>,
) -> Result<Done<()>, Error> {
    master::lock(tx, epoch).await?;
    let mut changed = 0;
    for (pool, queued) in queued {
        changed += tx.execute(sql::POOL_ADMISSION, args![*queued, epoch, pool.as_str(), *queued, epoch]).await?;
    }
    Ok(if changed > 0 { Done::Write(()) } else { Done::Same(()) })
}

/// The result of a change.
pub(crate) struct Decision {
    pub(crate) decided: Decided,
    /// Whether this change has changed its reservation: not if it was refused, or is a repeat.
    pub(crate) is_changed: bool,
}

/// Decides changes and writes their difference; with an epoch those of a master.
pub(crate) async fn decide(
    tx: &mut Transaction,
    epoch: Option<Epoch>,
    scopes: &BTreeSet<ScopeKey>,
    changes: &[ScopedChange],
) -> Result<Done<Vec<Decided>>, Error> {
    let (decisions, _, is_written) = decide_each(tx, epoch, scopes, changes).await?;
    let decided = decisions.into_iter().map(|decision| decision.decided).collect();
    Ok(if is_written { Done::Write(decided) } else { Done::Same(decided) })
}

/// Like [`decide`]; returns also the time of the changes, and whether anything was written.
pub(crate) async fn decide_each(
    tx: &mut Transaction,
    epoch: Option<Epoch>,
    scopes: &BTreeSet<ScopeKey>,
    changes: &[ScopedChange],
) -> Result<(Vec<Decision>, Moment, bool), Error> {
    if let Some(epoch) = epoch {
        master::lock(tx, epoch).await?;
    }
    let locked = tx.lock_scopes(scopes).await?;
    let (now_ms, master) = match epoch {
        Some(epoch) => (tx.now_ms().await?, epoch),
        None => read::now_and_epoch(tx).await?,
    };
    let at = Moment { now_ms, epoch: epoch.unwrap_or_default() };
    let loaded = tx.load_changes(&locked, changes).await?;
    let mut ledger = loaded.ledger.clone();
    let mut waiting = tx.waiting(changes).await?;
    let mut decisions = Vec::with_capacity(changes.len());
    for change in changes {
        let before = existing(&ledger, &change.change).cloned();
        let refusal = if epoch.is_none() { must_queue(&ledger, change, master) } else { None };
        let refusal = refusal.or_else(|| waiting.refuses(&ledger, change));
        let decided = refusal.map_or_else(|| apply(&mut ledger, change, at), Err);
        waiting.count(before.as_deref(), &decided);
        let after = decided.as_ref().ok();
        let is_changed = after.is_some_and(|after| !before.is_some_and(|before| Arc::ptr_eq(&before, after)));
        decisions.push(Decision { decided, is_changed });
    }
    let is_written = tx.write_ledger(&loaded, &ledger).await?;
    Ok((decisions, at, is_written))
}

/// The reservation that a change is about.
fn existing<'a>(ledger: &'a Ledger, change: &Change) -> Option<&'a Arc<Reservation>> {
    match change.request() {
        Some(request) => ledger.of_key(request),
        None => ledger.reservation(change.id()),
    }
}

/// The refusal of a holder's new request while others wait for its pool, or while the engines of the pool have not been
/// counted by the current master: what they use could be granted again.
fn must_queue(ledger: &Ledger, change: &ScopedChange, master: Epoch) -> Option<Refusal> {
    let Change::Reserve(request) = &change.change else { return None };
    let key = request.scopes.pool();
    let Role::Pool(pool) = ledger.scope(key)?.role else { return None };
    let is_new = ledger.of_key(request).is_none();
    (is_new && (pool.queued > 0 || pool.counted_epoch != master)).then(|| Refusal::MustQueue(key.clone()))
}

/// The requests that wait for tenants on pools, and for pools. Under the locks of the pools none is added.
#[derive(Debug, Default)]
struct Waiting(BTreeMap<ScopeKey, i64>);

impl Waiting {
    /// Why a new request cannot wait.
    fn refuses(&self, ledger: &Ledger, change: &ScopedChange) -> Option<Refusal> {
        let Change::Enqueue { request, .. } = &change.change else { return None };
        if ledger.of_key(request).is_some() {
            return None;
        }
        let limits = [(change.scopes.tenant(), MAX_WAITING_OF_TENANT), (change.scopes.pool(), MAX_WAITING_OF_POOL)];
        let full = limits.into_iter().find(|(key, limit)| self.0.get(*key).copied().unwrap_or(0) >= *limit);
        full.map(|(key, limit)| Refusal::QueueFull { scope: key.clone(), limit })
    }

    fn count(&mut self, before: Option<&Reservation>, outcome: &Decided) {
        let Ok(reservation) = outcome else { return };
        if reservation.state == State::Waiting && before.is_none() {
            let scopes = &reservation.request.scopes;
            for key in [scopes.tenant(), scopes.pool()] {
                *self.0.entry(key.clone()).or_default() += 1;
            }
        }
    }
}

/// Applies a change whose scopes are locked; refuses one whose reservation has others.
fn apply(ledger: &mut Ledger, ScopedChange { scopes, change }: &ScopedChange, at: Moment) -> Decided {
    let has_others = existing(ledger, change).is_some_and(|existing| existing.request.scopes != *scopes)
        || change.request().is_some_and(|request| request.scopes != *scopes);
    if has_others { Err(Refusal::OtherRequest(Arc::clone(change.id()))) } else { ledger.apply(change, at) }
}

impl Transaction {
    /// Locks the rows of scopes in order, and returns those that have one. A row that is inserted afterwards must not
    /// be used: it is not locked, and to lock it now would be out of order.
    pub(crate) async fn lock_scopes(&mut self, scopes: &BTreeSet<ScopeKey>) -> Result<BTreeSet<ScopeKey>, Error> {
        let mut locked = BTreeSet::new();
        for key in scopes {
            if self.execute(sql::SCOPE_LOCK, args![key.kind.number(), &*key.name]).await? == 1 {
                locked.insert(key.clone());
            }
        }
        failpoint!(failpoints::LEDGER_LOCKED);
        Ok(locked)
    }

    /// Reads scopes.
    pub(crate) async fn scopes(&mut self, keys: &BTreeSet<ScopeKey>) -> Result<Vec<ScopeRow>, Error> {
        let keys = keys.iter().map(|key| args![key.kind.number(), &*key.name]).collect();
        self.rows_in_tuples(sql::SCOPES_OF, keys).await?.iter().map(ledger_rows::scope).collect()
    }

    /// Counts the requests that wait for the pools of new ones.
    async fn waiting(&mut self, changes: &[ScopedChange]) -> Result<Waiting, Error> {
        let enqueued = changes.iter().filter(|change| matches!(change.change, Change::Enqueue { .. }));
        let pools: BTreeSet<&ScopeKey> = enqueued.map(|change| change.scopes.pool()).collect();
        let mut waiting = Waiting::default();
        for pool in pools {
            for row in self.rows(sql::RESERVATIONS_WAITING, args![&*pool.name]).await? {
                let (tenant, count) = (rows::text(&row, "tenant")?, rows::int(&row, "waiting")?);
                let tenant = ScopeKey { kind: ScopeKind::Tenant, name: format!("{tenant}/{}", pool.name).into() };
                waiting.0.insert(tenant, count);
                *waiting.0.entry(pool.clone()).or_default() += count;
            }
        }
        Ok(waiting)
    }

    /// Reads the reservations of all keys: `head` ends with the column and `IN`.
    pub(crate) async fn reservations_in(
        &mut self,
        head: &'static str,
        keys: Vec<Arg>,
    ) -> Result<Vec<Reservation>, Error> {
        self.rows_in(head, keys).await?.iter().map(ledger_rows::reservation).collect()
    }

    /// Reads what the changes depend on, after its locks: the scopes, the reservations, and the charged ones of their
    /// lineages.
    async fn load_changes(&mut self, scopes: &BTreeSet<ScopeKey>, changes: &[ScopedChange]) -> Result<Loaded, Error> {
        let (mut ids, mut request_keys, mut lineages) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for ScopedChange { change, .. } in changes {
            ids.insert(Arc::clone(change.id()));
            if let Some(request) = change.request() {
                // The only reservation of an external lineage is read by its key.
                if request.holder.is_external() {
                    request_keys.insert(Arc::clone(request.key()));
                } else {
                    lineages.insert(Arc::clone(&request.lineage));
                }
            }
            if let Change::Transfer { from, .. } = change {
                ids.insert(Arc::clone(from));
            }
        }
        let rows = self.scopes(scopes).await?;
        let of_keys = |keys_of: BTreeSet<Arc<str>>| keys(keys_of.iter().map(|key| &**key));
        let heads = [sql::RESERVATIONS_OF_IDS, sql::RESERVATIONS_OF_KEYS];
        let found = self.rows_in_either(heads, [of_keys(ids), of_keys(request_keys)]).await?;
        let mut reservations = found.iter().map(ledger_rows::reservation).collect::<Result<Vec<_>, _>>()?;
        let of_engines = reservations.iter().filter(|reservation| !reservation.request.holder.is_external());
        lineages.extend(of_engines.map(|reservation| Arc::clone(&reservation.request.lineage)));
        reservations.extend(self.reservations_in(sql::RESERVATIONS_OF_LINEAGES, of_keys(lineages)).await?);
        Ok(Loaded::new(rows, reservations))
    }

    /// Writes the difference between what was read and `after`; returns whether there is any. Scopes that are new are
    /// inserted.
    pub(crate) async fn write_ledger(&mut self, before: &Loaded, after: &Ledger) -> Result<bool, Error> {
        let (mut inserted, mut is_changed) = (Vec::new(), false);
        for (key, scope) in after.scopes() {
            match before.versions.get(key) {
                None => inserted.push(ledger_rows::scope_args(key, scope, 0)),
                Some(_) if before.ledger.scope(key) == Some(scope) => {}
                Some(version) => {
                    is_changed = true;
                    self.write_scope(key, scope, *version).await?;
                }
            }
        }
        is_changed |= !inserted.is_empty();
        self.insert_all(sql::SCOPES_INSERT, inserted).await?;
        let (mut new, mut changed) = (Vec::new(), Vec::new());
        for reservation in after.reservations() {
            match before.ledger.reservation(reservation.id()) {
                None => new.push(ledger_rows::reservation_args(reservation)?),
                Some(old) if Arc::ptr_eq(old, reservation) => {}
                Some(_) => {
                    let mut row = args![&**reservation.id()];
                    row.extend(ledger_rows::changing_args(reservation)?);
                    changed.push(row);
                }
            }
        }
        is_changed |= !new.is_empty() || !changed.is_empty();
        if !self.insert_all_new(sql::RESERVATIONS_INSERT, new).await? {
            return Err(Error::Conflict("a concurrent transaction inserted the same reservation".to_owned()));
        }
        let expected = changed.len() as u64;
        if self.update_each(&sql::RESERVATIONS_WRITE, &[], changed).await? != expected {
            return Err(Error::Conflict("a reservation was deleted concurrently".to_owned()));
        }
        Ok(is_changed)
    }

    async fn write_scope(&mut self, key: &ScopeKey, scope: &Scope, version: i64) -> Result<(), Error> {
        if self.execute(sql::SCOPE_WRITE, ledger_rows::scope_args(key, scope, version)).await? == 1 {
            Ok(())
        } else {
            tracing::debug!(scope = %key, "scope changed although it was locked");
            Err(Error::contention())
        }
    }
}

impl Loaded {
    pub(crate) fn new(rows: Vec<ScopeRow>, reservations: Vec<Reservation>) -> Self {
        let versions = rows.iter().map(|row| (row.key.clone(), row.version)).collect();
        // A reservation that was read twice is counted once: the second replaces the first.
        let ledger = Ledger::new(rows.into_iter().map(|row| (row.key, row.scope)), reservations);
        Self { ledger, versions }
    }
}
