//! Rows of scopes and reservations.

use std::sync::Arc;

use model::error::UserError;
use model::ledger::{
    Amounts, Counter, Guarantees, Holder, PoolRow, Registration, Request, Reservation, Role, Scope, ScopeKey,
    ScopeKind, Scopes, State, bound, limit_from,
};
use model::name::{PoolName, TenantName, UnitName};
use model::number::{Epoch, Incarnation};
use model::quota::Limit;
use model::resource::{Amount, Component, Resource, Triple};
use serde::{Deserialize, Serialize};
use sqlx::any::AnyRow;

use crate::error::Error;
use crate::rows::{int, int_or_none, text, text_or_none, to_json};
use crate::transaction::{Arg, args};

/// The guarantee of a component that has none.
const NO_GUARANTEE: i64 = -1;
const ENGINE: &str = "engine";
const EXTERNAL: &str = "external";

/// A scope as it was read.
#[derive(Debug, Clone)]
pub(crate) struct ScopeRow {
    pub(crate) key: ScopeKey,
    pub(crate) scope: Scope,
    pub(crate) version: i64,
}

fn broken(what: &str, found: impl std::fmt::Display) -> Error {
    Error::Broken(format!("{what}: {found}").into())
}

fn user(error: &UserError) -> Error {
    Error::Broken(error.text().into())
}

fn triple(row: &AnyRow, prefix: &str) -> Result<Amount, Error> {
    let read = |component: &str| int(row, &format!("{prefix}{component}"));
    Ok(Triple { cpu_m: read("cpu")?, memory: read("memory")?, engines: read("engines")? })
}

fn counter(row: &AnyRow, prefix: &str) -> Result<Counter, Error> {
    let limit = triple(row, &format!("{prefix}limit_"))?.map(limit_from);
    Ok(Counter { limit, held: triple(row, &format!("{prefix}held_"))? })
}

pub(crate) fn key(row: &AnyRow) -> Result<ScopeKey, Error> {
    let number = int(row, "kind")?;
    let kind = ScopeKind::from_number(number).ok_or_else(|| broken("kind", number))?;
    Ok(ScopeKey { kind, name: text(row, "name")?.into() })
}

/// The capacity of a pool that its statement does not state, as it is stored.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum StoredCapacity {
    Registered {
        registered: Box<Registration>,
    },
    /// In requests.
    Measured(Triple<Limit>),
}

fn stored_capacity(row: &AnyRow) -> Result<Option<StoredCapacity>, Error> {
    let json = text_or_none(row, "capacity")?;
    json.map(|json| serde_json::from_str(&json)).transpose().map_err(|error| broken("capacity", error))
}

/// The measured capacity of a pool, or what a program offers of it, in requests.
pub(crate) fn capacity(row: &AnyRow) -> Result<Option<Triple<Limit>>, Error> {
    Ok(stored_capacity(row)?.map(|stored| match stored {
        StoredCapacity::Registered { registered } => registered.offered,
        StoredCapacity::Measured(measured) => measured,
    }))
}

/// The capacity of a pool that a program has registered.
pub(crate) fn registration(row: &AnyRow) -> Result<Option<Registration>, Error> {
    Ok(stored_capacity(row)?.and_then(|stored| match stored {
        StoredCapacity::Registered { registered } => Some(*registered),
        StoredCapacity::Measured(_) => None,
    }))
}

pub(crate) fn scope(row: &AnyRow) -> Result<ScopeRow, Error> {
    let key = key(row)?;
    let kind = key.kind;
    let role = match kind {
        ScopeKind::User | ScopeKind::Creator => Role::Principal,
        ScopeKind::Tenant => Role::Tenant(Guarantees {
            amount: triple(row, "guarantee_")?.map(|amount| (amount != NO_GUARANTEE).then_some(amount)),
            exclusive: triple(row, "exclusive_")?,
        }),
        ScopeKind::Pool => Role::Pool(PoolRow {
            open_until_ms: int(row, "open_until_ms")?,
            counted_epoch: Epoch(int(row, "counted_epoch")?),
            queued: int(row, "queued")?,
            shared: counter(row, "shared_")?,
            unguaranteed: counter(row, "unguaranteed_")?,
        }),
    };
    Ok(ScopeRow {
        key,
        scope: Scope { is_open: int(row, "open")? != 0, counter: counter(row, "")?, role },
        version: int(row, "version")?,
    })
}

/// The values of [`SCOPE_WRITE`](crate::ledger_sql::SCOPE_WRITE), and of an insert.
pub(crate) fn scope_args(key: &ScopeKey, scope: &Scope, version: i64) -> Vec<Arg> {
    let (guarantees, pool) = match scope.role {
        Role::Principal => (Guarantees::NONE, PoolRow::UNLIMITED),
        Role::Tenant(guarantees) => (guarantees, PoolRow::UNLIMITED),
        Role::Pool(pool) => (Guarantees::NONE, pool),
    };
    let mut args = args![scope.is_open, pool.open_until_ms, pool.counted_epoch, pool.queued];
    let mut add = |amount: &Amount| args.extend(Component::ALL.map(|component| Arg::from(amount.get(component))));
    let limit = |limit: &Triple<Limit>| limit.map(bound);
    add(&limit(&scope.counter.limit));
    add(&scope.counter.held);
    add(&guarantees.amount.map(|amount| amount.unwrap_or(NO_GUARANTEE)));
    add(&guarantees.exclusive);
    for counter in [&pool.shared, &pool.unguaranteed] {
        add(&limit(&counter.limit));
        add(&counter.held);
    }
    args.extend(args![key.kind.number(), &*key.name, version]);
    args
}

fn amounts(row: &AnyRow, prefix: &str) -> Result<Amounts, Error> {
    let nominal = triple(row, prefix)?;
    let request_cpu_m = int(row, &format!("{prefix}request_cpu"))?;
    let amounts = Amounts::new(nominal, request_cpu_m, int(row, &format!("{prefix}request_memory"))?);
    amounts.ok_or_else(|| broken("an amount is out of range", prefix))
}

fn resource(row: &AnyRow, column: &str) -> Result<Option<Resource>, Error> {
    let json = text_or_none(row, column)?;
    json.map(|json| Resource::from_json(&json)).transpose().map_err(|error| user(&error))
}

fn scopes(row: &AnyRow) -> Result<Scopes, Error> {
    let tenant = TenantName::new(text(row, "tenant")?).map_err(|error| user(&error))?;
    let pool = PoolName::new(text(row, "pool")?).map_err(|error| user(&error))?;
    let (usr, creator) = (text(row, "usr")?, text(row, "creator")?);
    let charged = |name: &'_ str| (!name.is_empty()).then(|| name.to_owned());
    Ok(Scopes::new(&tenant, &pool, charged(&usr).as_deref(), charged(&creator).as_deref()))
}

fn state(row: &AnyRow) -> Result<State, Error> {
    let state = text(row, "state")?;
    State::from_word(&state).ok_or_else(|| broken("state", state))
}

fn holder(row: &AnyRow) -> Result<Holder, Error> {
    let holder = text(row, "holder")?;
    Ok(match holder.as_str() {
        ENGINE => Holder::Engine {
            unit: UnitName::new(text(row, "unit")?).map_err(|error| user(&error))?,
            incarnation: Incarnation(int(row, "incarnation")?),
        },
        EXTERNAL => Holder::External { key: text(row, "request_key")?.into(), instance: text(row, "instance")?.into() },
        _ => return Err(broken("holder", holder)),
    })
}

/// A reservation with what a plan reads of it, as a snapshot has it.
pub(crate) fn planned(row: &AnyRow) -> Result<Reservation, Error> {
    let amounts = amounts(row, "")?;
    let request = Request {
        id: text(row, "id")?.into(),
        holder: holder(row)?,
        lineage: text(row, "lineage")?.into(),
        scopes: scopes(row)?,
        amounts,
        asked: None,
        ttl_ms: int_or_none(row, "ttl_ms")?,
    };
    Ok(Reservation {
        request: Arc::new(request),
        state: state(row)?,
        amounts,
        actual: None,
        uid: text_or_none(row, "uid")?.map(Into::into),
        epoch: Epoch::default(),
        asked_at_ms: int(row, "asked_at_ms")?,
        locked_at_ms: None,
        used_at_ms: int_or_none(row, "used_at_ms")?,
        ended_at_ms: int_or_none(row, "ended_at_ms")?,
        deadline_ms: int_or_none(row, "deadline_ms")?,
        reason: None,
    })
}

pub(crate) fn reservation(row: &AnyRow) -> Result<Reservation, Error> {
    let id: Arc<str> = text(row, "id")?.into();
    let request = Request {
        id,
        holder: holder(row)?,
        lineage: text(row, "lineage")?.into(),
        scopes: scopes(row)?,
        amounts: amounts(row, "asked_")?,
        asked: resource(row, "asked")?,
        ttl_ms: int_or_none(row, "ttl_ms")?,
    };
    Ok(Reservation {
        request: Arc::new(request),
        state: state(row)?,
        amounts: amounts(row, "")?,
        actual: resource(row, "actual")?,
        uid: text_or_none(row, "uid")?.map(Into::into),
        epoch: Epoch(int(row, "epoch")?),
        asked_at_ms: int(row, "asked_at_ms")?,
        locked_at_ms: int_or_none(row, "locked_at_ms")?,
        used_at_ms: int_or_none(row, "used_at_ms")?,
        ended_at_ms: int_or_none(row, "ended_at_ms")?,
        deadline_ms: int_or_none(row, "deadline_ms")?,
        reason: text_or_none(row, "reason")?.map(Into::into),
    })
}

/// The values of an insert: what never changes, then what [`changing_args`] has.
pub(crate) fn reservation_args(reservation: &Reservation) -> Result<Vec<Arg>, Error> {
    let request = &reservation.request;
    let scopes = &request.scopes;
    let (holder, unit, incarnation, instance) = match &request.holder {
        Holder::Engine { unit, incarnation } => (ENGINE, Some(unit.as_str()), Some(incarnation.get()), None),
        Holder::External { instance, .. } => (EXTERNAL, None, None, Some(&**instance)),
    };
    let (nominal, requests) = (request.amounts.nominal(), request.amounts.requests());
    let mut args = args![&*request.id, &**request.key(), holder, &*request.lineage];
    args.extend(args![scopes.tenant_name(), scopes.pool_name(), unit, incarnation, instance]);
    args.extend(args![scopes.user_name().unwrap_or_default(), scopes.creator_name().unwrap_or_default()]);
    args.extend(args![json(request.asked.as_ref())?, nominal.cpu_m, nominal.memory, nominal.engines]);
    args.extend(args![requests.cpu_m, requests.memory, request.ttl_ms]);
    args.extend(changing_args(reservation)?);
    Ok(args)
}

/// The values of what an operation may change, in the order of
/// [`RESERVATIONS_WRITE`](crate::ledger_sql::RESERVATIONS_WRITE).
pub(crate) fn changing_args(reservation: &Reservation) -> Result<Vec<Arg>, Error> {
    let (nominal, requests) = (reservation.amounts.nominal(), reservation.amounts.requests());
    let mut args = args![reservation.state.as_str(), json(reservation.actual.as_ref())?];
    args.extend(args![nominal.cpu_m, nominal.memory, nominal.engines, requests.cpu_m, requests.memory]);
    args.extend(args![reservation.uid.as_deref(), reservation.epoch, reservation.asked_at_ms]);
    args.extend(args![reservation.locked_at_ms, reservation.used_at_ms, reservation.ended_at_ms]);
    args.extend(args![reservation.deadline_ms, reservation.reason.as_deref()]);
    Ok(args)
}

fn json(resource: Option<&Resource>) -> Result<Arg, Error> {
    Ok(Arg::Text(resource.map(to_json).transpose()?))
}
