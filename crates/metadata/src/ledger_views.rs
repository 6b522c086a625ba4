//! The read models of the ledger: for plans, and for the statements that show scopes and reservations.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt::Write as _;
use std::sync::Arc;

use model::demand::Demand;
use model::ledger::{Ledger, Registration, Reservation, Scope, ScopeKey, ScopeKind, State};
use model::name::{PoolName, TenantName};
use model::number::Incarnation;
use model::quota::Limit;
use model::resource::{Amount, Triple};
use model::slot::Slot;
use model::snapshot::EngineRecord;

use crate::backend::Mode;
use crate::error::Error;
use crate::ledger_rows;
use crate::ledger_sql as sql;
use crate::rows;
use crate::store::Store;
use crate::transaction::{Transaction, args};

/// The maximum number of reservations that [`Store::reservations`] returns.
pub const MAX_RESERVATIONS: u32 = 10_000;

/// A scope with what its reservations use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaScope {
    pub key: ScopeKey,
    pub scope: Scope,
    /// What its `used` reservations are charged, in the units of the scope: nominal sizes, once for each lineage; of a
    /// pool requests.
    pub used: Amount,
    /// The external requests that wait.
    pub waiting: u64,
    /// The measured capacity of a pool, or what a program offers of it, in requests; `None` if there is neither.
    pub capacity: Option<Triple<Limit>>,
    /// The capacity of a pool that a program has registered.
    pub registration: Option<Registration>,
    /// When that was last changed, in milliseconds since 1970.
    pub measured_at_ms: Option<i64>,
}

impl QuotaScope {
    /// What is held and not used yet.
    pub fn locked(&self) -> Amount {
        let held = self.scope.counter.held;
        Amount::from_fn(|component| held.get(component).saturating_sub(self.used.get(component)))
    }
}

/// The ledger in numbers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LedgerCounts {
    /// The requests that the last rounds of admission left in the queues of all pools.
    pub queued: i64,
    /// The reservations that have not ended, by state.
    pub reservations: BTreeMap<State, i64>,
    /// The differences that audits have corrected since the database was created. None is expected.
    pub drifts: i64,
}

/// Which reservations to read.
#[derive(Debug, Clone, Default)]
pub struct ReservationFilter {
    pub tenant: Option<TenantName>,
    pub pool: Option<PoolName>,
    pub user: Option<String>,
    /// Only what this user may see; `None`: everything.
    pub seen_by: Option<Viewer>,
    /// Whether also those that have ended.
    pub all: bool,
    /// At most [`MAX_RESERVATIONS`].
    pub limit: u32,
}

/// A user who sees its own reservations and those of its tenants.
#[derive(Debug, Clone, Default)]
pub struct Viewer {
    pub user: String,
    pub tenants: Vec<TenantName>,
}

impl Store {
    /// All scopes, in lock order.
    pub async fn quota_scopes(&self) -> Result<Vec<QuotaScope>, Error> {
        let mut tx = self.begin(Mode::Snapshot).await?;
        let scopes = quota_scopes(&mut tx).await;
        tx.leave(scopes).await
    }

    /// For SHOW MASTER.
    pub async fn ledger_counts(&self) -> Result<LedgerCounts, Error> {
        let mut tx = self.begin(Mode::Snapshot).await?;
        let counts = ledger_counts(&mut tx).await;
        tx.leave(counts).await
    }

    /// The newest reservations that match the filter, newest first.
    pub async fn reservations(&self, filter: &ReservationFilter) -> Result<Vec<Reservation>, Error> {
        let mut tx = self.begin(Mode::Snapshot).await?;
        let found = reservations(&mut tx, filter).await;
        tx.leave(found).await
    }
}

/// The ledger of a snapshot: the scopes of pools and of those that waiting requests, slots and engines of waiting users are
/// charged to; the charged and waiting reservations, and the ended ones of current engines and of engines that have not ended.
pub(crate) async fn planned(
    tx: &mut Transaction,
    (slots, engines): (&[Slot], &[EngineRecord]),
    demand: &[Demand],
) -> Result<Ledger, Error> {
    let mut reservations = read(tx, sql::RESERVATIONS_OPEN).await?;
    for statement in ended(slots, engines, &reservations) {
        reservations.extend(read(tx, statement).await?);
    }
    let mut scopes =
        tx.rows(sql::SCOPES_OF_POOLS, args![]).await?.iter().map(ledger_rows::scope).collect::<Result<Vec<_>, _>>()?;
    let mut principals: BTreeSet<ScopeKey> = BTreeSet::new();
    for started_for in slots.iter().filter_map(|slot| slot.started_for.as_ref()) {
        principals.extend([ScopeKey::user(&started_for.user), ScopeKey::creator(&started_for.creator)]);
    }
    for Demand { key, .. } in demand {
        if let Some(user) = &key.user {
            principals.extend([ScopeKey::user(user), ScopeKey::creator(&key.creator)]);
        }
    }
    for waiting in reservations.iter().filter(|reservation| reservation.state == State::Waiting) {
        principals.extend(waiting.request.scopes.policy().filter(|key| key.kind != ScopeKind::Tenant).cloned());
    }
    scopes.extend(tx.scopes(&principals).await?);
    Ok(Ledger::new(scopes.into_iter().map(|row| (row.key, row.scope)), reservations))
}

async fn read(tx: &mut Transaction, statement: &'static str) -> Result<Vec<Reservation>, Error> {
    tx.rows(statement, args![]).await?.iter().map(ledger_rows::planned).collect()
}

/// The statements that are needed to read the ended reservations: nearly always none. A row may be read by both.
fn ended(slots: &[Slot], engines: &[EngineRecord], open: &[Reservation]) -> Vec<&'static str> {
    let open: HashSet<&str> = open.iter().map(|reservation| &**reservation.id()).collect();
    let living: HashSet<Incarnation> =
        engines.iter().filter(|engine| engine.ended_at_ms.is_none()).map(|engine| engine.incarnation).collect();
    let mut statements = Vec::new();
    if slots.iter().any(|slot| !living.contains(&slot.incarnation)) {
        statements.push(sql::RESERVATIONS_ENDED_OF_CURRENT);
    }
    if engines.iter().any(|engine| engine.ended_at_ms.is_none() && !open.contains(engine.name.as_str())) {
        statements.push(sql::RESERVATIONS_ENDED_OF_LIVING);
    }
    statements
}

async fn quota_scopes(tx: &mut Transaction) -> Result<Vec<QuotaScope>, Error> {
    let (mut used, mut waiting) = (BTreeMap::new(), BTreeMap::new());
    let mut lineages: BTreeMap<Arc<str>, (Arc<model::ledger::Request>, Amount)> = BTreeMap::new();
    for reservation in read(tx, sql::RESERVATIONS_OPEN).await? {
        let request = &reservation.request;
        match reservation.state {
            State::Waiting => {
                for key in request.scopes.in_lock_order() {
                    *waiting.entry(key.clone()).or_insert(0) += 1;
                }
            }
            State::Used => {
                add(&mut used, request.scopes.pool(), reservation.amounts.requests());
                let (_, most) =
                    lineages.entry(Arc::clone(&request.lineage)).or_insert_with(|| (Arc::clone(request), Amount::ZERO));
                *most = most.maximum(reservation.amounts.nominal());
            }
            _ => {}
        }
    }
    for (request, most) in lineages.values() {
        for key in request.scopes.policy() {
            add(&mut used, key, most);
        }
    }
    let mut scopes = Vec::new();
    for row in tx.rows(sql::SCOPES, args![]).await? {
        let read = ledger_rows::scope(&row)?;
        scopes.push(QuotaScope {
            used: used.remove(&read.key).unwrap_or_default(),
            waiting: waiting.remove(&read.key).unwrap_or_default(),
            capacity: ledger_rows::capacity(&row)?,
            registration: ledger_rows::registration(&row)?,
            measured_at_ms: rows::int_or_none(&row, "measured_at_ms")?,
            key: read.key,
            scope: read.scope,
        });
    }
    Ok(scopes)
}

async fn ledger_counts(tx: &mut Transaction) -> Result<LedgerCounts, Error> {
    let mut counts = LedgerCounts::default();
    for row in tx.rows(sql::POOLS_QUEUED, args![]).await? {
        counts.queued = counts.queued.saturating_add(rows::int(&row, "queued")?);
    }
    for row in tx.rows(sql::RESERVATION_COUNTS, args![]).await? {
        let word = rows::text(&row, "state")?;
        let state = State::from_word(&word).ok_or_else(|| Error::Broken(format!("state: {word}").into()))?;
        counts.reservations.insert(state, rows::int(&row, "number")?);
    }
    if let Some(row) = tx.row(sql::DRIFTS, args![]).await? {
        counts.drifts = rows::int(&row, "drifts")?;
    }
    Ok(counts)
}

fn add(sums: &mut BTreeMap<ScopeKey, Amount>, key: &ScopeKey, amount: &Amount) {
    let sum = sums.entry(key.clone()).or_default();
    *sum = Amount::from_fn(|component| sum.get(component).saturating_add(amount.get(component)));
}

async fn reservations(tx: &mut Transaction, filter: &ReservationFilter) -> Result<Vec<Reservation>, Error> {
    let ReservationFilter { tenant, pool, user, seen_by, all, limit } = filter;
    let (mut text, mut values) = (sql::RESERVATIONS_ANY.to_owned(), args![]);
    if !all {
        text.push_str(" AND ended_at_ms IS NULL");
    }
    let columns = [
        ("tenant", tenant.as_ref().map(TenantName::as_str)),
        ("pool", pool.as_ref().map(PoolName::as_str)),
        ("usr", user.as_deref()),
    ];
    for (column, value) in columns {
        if let Some(value) = value {
            let _ = write!(text, " AND {column} = ?");
            values.push(value.into());
        }
    }
    if let Some(Viewer { user, tenants }) = seen_by {
        text.push_str(" AND (usr = ?");
        values.push(user.as_str().into());
        if !tenants.is_empty() {
            let _ = write!(text, " OR tenant IN ({})", vec!["?"; tenants.len()].join(", "));
            values.extend(tenants.iter().map(|tenant| tenant.as_str().into()));
        }
        text.push(')');
    }
    text.push_str(" ORDER BY asked_at_ms DESC, id LIMIT ?");
    values.push((*limit).min(MAX_RESERVATIONS).into());
    tx.rows_once(text, values).await?.iter().map(ledger_rows::reservation).collect()
}
