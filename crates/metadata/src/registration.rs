//! The registration of a pool's capacity by a program: register, renew, unregister.
//!
//! Each is one transaction under the catalog lock, which draws no number: registrations, measured capacities and alterations
//! never derive limits from a state that another one replaces. A registration changes the limits of its pool, and nothing that
//! the pool holds. The lease is compared with the database's clock.
//!
//! Each change has a row in the audit, and the row makes a repeat of its request change nothing, however late: it cannot
//! replace newer numbers, or open a pool that was closed since. A renewal has no row; it never opens a pool that is closed.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::catalog::{Catalog, DEFAULT_RESOURCE_KIND, PoolSpec};
use model::clock::utc;
use model::error::{ErrorKind, NO_POOL, POOL_NOT_REGISTERED, UserError};
use model::failpoint;
use model::ledger::{
    Change, End, Measured, Registration, RegistrationStatus, ScopeKey, ScopedChange, State, derive, offered,
};
use model::name::PoolName;
use model::quota::Capacity;
use model::resource::{Kind, Resource};
use model::text::cut;

use crate::audit_row::{AuditOutcome, AuditRow, MAX_AUDIT_STATEMENT_BYTES};
use crate::backend::Mode;
use crate::commit::{MAX_WORD_BYTES, other_statement, too_late};
use crate::error::Error;
use crate::failpoints;
use crate::ledger_limits::MAX_BATCH_SCOPES;
use crate::ledger_rows::{self, StoredCapacity};
use crate::ledger_sql as sql;
use crate::read;
use crate::request::Request;
use crate::rows::{self, to_json};
use crate::sql as statements;
use crate::store::Store;
use crate::transaction::{CommitPoints, Done, Transaction, args};
use crate::user_error;

/// The maximum number of reservations that a transaction ends.
const MAX_LOST: usize = 100;

const POINTS: CommitPoints = CommitPoints { before: failpoints::REGISTER_BEFORE, after: failpoints::REGISTER_AFTER };

/// The capacity that an instance of a program registers, or with which it replaces what it has registered.
#[derive(Debug, Clone)]
pub struct RegisterRequest {
    pub request: Request,
    pub pool: PoolName,
    /// The program.
    pub name: String,
    pub instance: String,
    /// The kind of the resources; `None`: `RESOURCE_KIND` of the pool.
    pub kind: Option<Kind>,
    pub capacity: Resource,
    pub protected: Option<Resource>,
    pub lease_ms: i64,
}

/// The end of a registration.
#[derive(Debug, Clone)]
pub struct UnregisterRequest {
    pub request: Request,
    pub pool: PoolName,
    /// Refused if another instance is registered; `None`: whichever is.
    pub instance: Option<String>,
    /// Whether the reservations of external holders in the pool end as lost.
    pub force: bool,
}

/// A registration as it was read.
struct Found {
    registration: Registration,
    until_ms: i64,
}

impl Found {
    const fn is_live(&self, now_ms: i64) -> bool {
        self.until_ms > now_ms
    }
}

/// What a transaction that ends a registration has done.
struct Closed {
    status: RegistrationStatus,
    /// When its request took effect.
    at_ms: i64,
}

impl Store {
    /// Registers a capacity, or replaces what the same instance has registered; the lease begins now. Refused while another
    /// instance is registered, and for a pool whose capacity is not registered by a program.
    pub async fn register(&self, register: &RegisterRequest) -> Result<RegistrationStatus, Error> {
        let mut attempt = 1;
        loop {
            let mut tx = self.begin_for_catalog().await?;
            let result = self.register_in(&mut tx, register).await;
            match tx.end(POINTS, result).await {
                Err(error) if error.is_retried(&mut attempt) => {}
                other => return other,
            }
        }
    }

    /// Extends the lease of the instance's registration, which must not have ended.
    pub async fn renew_registration(
        &self,
        pool: &PoolName,
        instance: &str,
        lease_ms: i64,
    ) -> Result<RegistrationStatus, Error> {
        let mut attempt = 1;
        loop {
            let mut tx = self.begin_for_catalog().await?;
            let result = renew(&mut tx, pool, instance, lease_ms).await;
            match tx.end(POINTS, result).await {
                Err(error) if error.is_retried(&mut attempt) => {}
                other => return other,
            }
        }
    }

    /// Ends a registration and closes the pool. Reservations stay until they are released; with `force`, those of external
    /// holders that were granted before end as lost, in further transactions: a repeat ends what an interrupted call left.
    pub async fn unregister(&self, unregister: &UnregisterRequest) -> Result<RegistrationStatus, Error> {
        let mut attempt = 1;
        let closed = loop {
            let mut tx = self.begin_for_catalog().await?;
            let result = self.unregister_in(&mut tx, unregister).await;
            match tx.end(POINTS, result).await {
                Err(error) if error.is_retried(&mut attempt) => {}
                other => break other?,
            }
        };
        if unregister.force {
            let reason =
                format!("its resource pool was unregistered by \"{}\"", unregister.request.caller.subject.user);
            while self.lose(&unregister.pool, closed.at_ms, &reason).await? > 0 {}
        }
        Ok(closed.status)
    }

    /// The registration of a pool at one moment.
    pub async fn registration(&self, pool: &PoolName) -> Result<RegistrationStatus, Error> {
        let mut tx = self.begin(Mode::Snapshot).await?;
        let status = status_of(&mut tx, pool).await;
        tx.leave(status).await
    }

    async fn register_in(
        &self,
        tx: &mut Transaction,
        register: &RegisterRequest,
    ) -> Result<Done<RegistrationStatus>, Error> {
        let RegisterRequest { request, pool, instance, .. } = register;
        tx.lock_catalog().await?;
        failpoint!(failpoints::REGISTER_LOCKED);
        if took_effect(tx, request).await?.is_some() {
            return status_of(tx, pool).await.map(Done::Same);
        }
        if self.is_past(request.deadline) {
            return Err(too_late().into());
        }
        let catalog = read::catalog(tx).await?;
        let spec = registered_pool(&catalog, pool)?;
        let now_ms = tx.now_ms().await?;
        match found(tx, pool).await? {
            Some(other) if other.is_live(now_ms) && other.registration.instance != *instance => {
                return Err(registered_by_another(pool, &other).into());
            }
            _ => {}
        }
        let of_pool = spec.resource_kind.unwrap_or(DEFAULT_RESOURCE_KIND);
        let kind = register.kind.unwrap_or(of_pool);
        let registration = Registration {
            name: register.name.clone(),
            instance: instance.clone(),
            user: request.caller.subject.user.clone(),
            kind,
            capacity: register.capacity.clone(),
            protected: register.protected.clone(),
            offered: offered(of_pool, kind, &register.capacity, register.protected.as_ref())?,
            lease_ms: register.lease_ms,
            registered_at_ms: now_ms,
        };
        let mut measured = tx.measured().await?;
        measured.insert(pool.clone(), registration.offered);
        limit_pool(tx, &catalog, &measured, pool).await?;
        failpoint!(failpoints::REGISTER_LIMITS);
        let until_ms = now_ms.saturating_add(register.lease_ms);
        write(tx, pool, &registration, until_ms).await?;
        audit(tx, request, pool, now_ms).await?;
        Ok(Done::Write(RegistrationStatus::new(pool.as_str(), &registration, until_ms, now_ms)))
    }

    async fn unregister_in(&self, tx: &mut Transaction, unregister: &UnregisterRequest) -> Result<Done<Closed>, Error> {
        let UnregisterRequest { request, pool, instance, force } = unregister;
        tx.lock_catalog().await?;
        failpoint!(failpoints::REGISTER_LOCKED);
        let status = RegistrationStatus::unregistered(pool.as_str());
        if let Some(at_ms) = took_effect(tx, request).await? {
            return Ok(Done::Same(Closed { status, at_ms }));
        }
        if self.is_past(request.deadline) {
            return Err(too_late().into());
        }
        let catalog = read::catalog(tx).await?;
        registered_pool(&catalog, pool)?;
        let now_ms = tx.now_ms().await?;
        let current = found(tx, pool).await?;
        if let (Some(found), Some(instance)) = (&current, instance)
            && found.is_live(now_ms)
            && found.registration.instance != *instance
        {
            return Err(registered_by_another(pool, found).into());
        }
        let closed = Closed { status, at_ms: now_ms };
        if current.is_none() && !force {
            return Ok(Done::Same(closed));
        }
        let mut measured = tx.measured().await?;
        measured.remove(pool);
        limit_pool(tx, &catalog, &measured, pool).await?;
        failpoint!(failpoints::REGISTER_LIMITS);
        tx.execute(sql::CAPACITY_FORGET, args![i64::MAX, pool.as_str()]).await?;
        audit(tx, request, pool, now_ms).await?;
        Ok(Done::Write(closed))
    }

    /// Ends reservations of external holders in the pool that were granted until then; returns how many have ended.
    async fn lose(&self, pool: &PoolName, until_ms: i64, reason: &str) -> Result<usize, Error> {
        let mut tx = self.begin(Mode::Snapshot).await?;
        let granted = tx.rows(sql::RESERVATIONS_GRANTED, args![pool.as_str(), until_ms, MAX_LOST as i64]).await;
        let granted = tx.leave(granted).await?;
        let mut scopes: BTreeSet<ScopeKey> = BTreeSet::new();
        let mut changes = Vec::new();
        for row in &granted {
            let reservation = ledger_rows::reservation(row)?;
            let of_one = reservation.request.scopes.clone();
            scopes.extend(of_one.in_lock_order().cloned());
            if scopes.len() > MAX_BATCH_SCOPES {
                break;
            }
            let end = End { id: Arc::clone(reservation.id()), state: State::Lost, reason: reason.into() };
            changes.push(ScopedChange { scopes: of_one, change: Change::End(end) });
        }
        if changes.is_empty() {
            return Ok(0);
        }
        let mut ended = 0;
        for decided in self.change(None, &changes).await? {
            match decided {
                Ok(_) => ended += 1,
                Err(refusal) => tracing::warn!(?refusal, "reservation of an unregistered resource pool cannot end"),
            }
        }
        Ok(ended)
    }
}

async fn renew(
    tx: &mut Transaction,
    pool: &PoolName,
    instance: &str,
    lease_ms: i64,
) -> Result<Done<RegistrationStatus>, Error> {
    tx.lock_catalog().await?;
    failpoint!(failpoints::REGISTER_LOCKED);
    registered_pool(&read::catalog(tx).await?, pool)?;
    let now_ms = tx.now_ms().await?;
    let found = found(tx, pool).await?.filter(|found| found.is_live(now_ms));
    let Some(Found { registration, .. }) = found.filter(|found| found.registration.instance == instance) else {
        return Err(not_registered(pool, instance).into());
    };
    let registration = Registration { lease_ms, ..registration };
    tx.lock_scopes(&[ScopeKey::pool(pool)].into()).await?;
    let until_ms = now_ms.saturating_add(lease_ms);
    write(tx, pool, &registration, until_ms).await?;
    Ok(Done::Write(RegistrationStatus::new(pool.as_str(), &registration, until_ms, now_ms)))
}

/// Gives the pool the limits that follow from its capacity, and opens or closes it.
async fn limit_pool(
    tx: &mut Transaction,
    catalog: &Catalog,
    measured: &Measured,
    pool: &PoolName,
) -> Result<(), Error> {
    let key = ScopeKey::pool(pool);
    let mut limits = derive(catalog, measured, &BTreeSet::new())?;
    limits.retain(|scope, _| *scope == key);
    tx.set_limits(&limits.into_iter().collect::<Vec<_>>()).await.map(drop)
}

/// Writes a registration into the row of its pool, which the transaction has locked.
async fn write(tx: &mut Transaction, pool: &PoolName, registration: &Registration, until_ms: i64) -> Result<(), Error> {
    let stored = to_json(&StoredCapacity::Registered { registered: Box::new(registration.clone()) })?;
    let args = args![stored, registration.registered_at_ms, until_ms, pool.as_str()];
    match tx.execute(sql::REGISTRATION_WRITE, args).await? {
        1 => Ok(()),
        _ => Err(Error::Broken(format!("resource pool \"{pool}\" has no scope").into())),
    }
}

/// The registration of the pool, which changes only under the catalog lock.
async fn found(tx: &mut Transaction, pool: &PoolName) -> Result<Option<Found>, Error> {
    let Some(row) = tx.row(sql::REGISTRATION, args![pool.as_str()]).await? else { return Ok(None) };
    let until_ms = rows::int(&row, "open_until_ms")?;
    Ok(ledger_rows::registration(&row)?.map(|registration| Found { registration, until_ms }))
}

async fn status_of(tx: &mut Transaction, pool: &PoolName) -> Result<RegistrationStatus, Error> {
    registered_pool(&read::catalog(tx).await?, pool)?;
    let now_ms = tx.now_ms().await?;
    let found = found(tx, pool).await?;
    let status = found.map(|found| RegistrationStatus::new(pool.as_str(), &found.registration, found.until_ms, now_ms));
    Ok(status.unwrap_or_else(|| RegistrationStatus::unregistered(pool.as_str())))
}

/// When the request took effect; `None` if it never did. An error if its id is that of another statement.
async fn took_effect(tx: &mut Transaction, request: &Request) -> Result<Option<i64>, Error> {
    let is_effect = |part| part == AuditOutcome::Committed.part();
    for row in tx.rows(statements::AUDIT_OF_REQUEST, args![request.id.as_str()]).await? {
        if !is_effect(rows::int(&row, "part")?) {
            continue;
        }
        let is_same = rows::text(&row, "user_name")? == cut(&request.caller.subject.user, MAX_WORD_BYTES)
            && rows::text(&row, "statement")? == cut(&request.statement, MAX_AUDIT_STATEMENT_BYTES);
        return if is_same { rows::int(&row, "at_ms").map(Some) } else { Err(other_statement(&request.id)) };
    }
    Ok(None)
}

async fn audit(tx: &mut Transaction, request: &Request, pool: &PoolName, at_ms: i64) -> Result<(), Error> {
    let row = AuditRow {
        request: request.id.clone(),
        at_ms,
        user: request.caller.subject.user.clone(),
        source: request.caller.source.clone(),
        statement: request.statement.clone(),
        object: Some(format!("resource pool \"{pool}\"")),
        tenant: None,
        outcome: AuditOutcome::Committed,
        sqlstate: None,
        generation: None,
    };
    if tx.audit(row).await? { Ok(()) } else { Err(other_statement(&request.id)) }
}

/// The pool, if a program registers its capacity.
fn registered_pool<'a>(catalog: &'a Catalog, pool: &PoolName) -> Result<&'a PoolSpec, UserError> {
    let spec = catalog.pool(pool).ok_or_else(|| user_error::no_pool(pool).with_error_code(NO_POOL))?;
    if spec.capacity == Some(Capacity::Registered) {
        return Ok(spec);
    }
    Err(UserError::new(ErrorKind::WrongState, format!("the capacity of resource pool \"{pool}\" is not registered"))
        .detail("No program can register it unless the pool has CAPACITY REGISTERED.")
        .hint(format!("An administrator can set it with ALTER RESOURCE POOL {pool} CAPACITY REGISTERED.")))
}

fn registered_by_another(pool: &PoolName, other: &Found) -> UserError {
    let Registration { name, instance, user, .. } = &other.registration;
    UserError::new(ErrorKind::WrongState, format!("resource pool \"{pool}\" is registered by another instance"))
        .detail(format!(
            "It is instance \"{instance}\" of \"{name}\", for user \"{user}\", until {}.",
            utc(other.until_ms)
        ))
        .hint("Unregister it first, or wait until its lease has ended.")
}

/// The error for an instance that is not registered, or not any more.
fn not_registered(pool: &PoolName, instance: &str) -> UserError {
    let message = format!("resource pool \"{pool}\" is not registered by instance \"{instance}\"");
    UserError::new(ErrorKind::WrongState, message)
        .detail("Its registration has ended or was replaced (POOL_NOT_REGISTERED, retryable).")
        .hint("Register the capacity again.")
        .with_error_code(POOL_NOT_REGISTERED)
}
