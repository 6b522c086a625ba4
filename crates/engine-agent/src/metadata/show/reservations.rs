//! SHOW RESERVATIONS and DESCRIBE RESERVATION: the charges of engines and of other programs, and the requests that wait for
//! one. The request of an engine has no reservation before it is granted: it is listed as *queued*.
//!
//! A user sees the reservations of the own tenants and those that are charged to the own name.

use std::collections::BTreeMap;

use ddl::ReservationFilter;
use hs2::{SqlType, Value};
use metadata::{Overview, Viewer, user_error};
use model::catalog::Catalog;
use model::clock::utc;
use model::engine_state::Phase;
use model::error::{ErrorKind, UserError};
use model::ledger::{Holder, Reservation, State, queue_position};
use model::name::TenantName;
use model::observation::ObservedEngine;
use model::rights::StatementKind;
use model::slot::Slot;

use super::engines::freshness;
use super::freshness::log_freshness;
use super::quota::{amounts, amounts_of};
use super::quotas::refuse_invisible_pool;
use crate::metadata::answer::{Answer, maybe, number, text};
use crate::metadata::context::Context;

/// The number of reservations that are listed without LIMIT.
const DEFAULT_ROWS: u32 = 1_000;

const COLUMNS: [(&str, SqlType); 12] = [
    ("id", SqlType::String),
    ("holder", SqlType::String),
    ("tenant", SqlType::String),
    ("pool", SqlType::String),
    ("user", SqlType::String),
    ("creator", SqlType::String),
    ("state", SqlType::String),
    ("charge", SqlType::String),
    ("since", SqlType::String),
    ("deadline", SqlType::String),
    ("position", SqlType::BigInt),
    ("reason", SqlType::String),
];

/// One row of SHOW RESERVATIONS.
struct Row {
    id: String,
    holder: String,
    tenant: String,
    pool: String,
    user: Option<String>,
    creator: Option<String>,
    state: String,
    charge: String,
    since_ms: Option<i64>,
    deadline_ms: Option<i64>,
    position: Option<u32>,
    reason: Option<String>,
}

pub(in crate::metadata) async fn show(
    context: &Context,
    of: Option<&ReservationFilter>,
    all: bool,
    limit: Option<u32>,
) -> Result<Answer, UserError> {
    let overview = context.store().overview(None).await.map_err(|error| error.user_error())?;
    let catalog = &overview.snapshot.catalog;
    if let Some(of) = of {
        refuse_invisible(context, catalog, of)?;
    }
    let viewer = viewer(context, catalog);
    let most = limit.unwrap_or(DEFAULT_ROWS) as usize;
    let filter = metadata::ReservationFilter {
        tenant: of.and_then(|of| if let ReservationFilter::Tenant(tenant) = of { Some(tenant.clone()) } else { None }),
        pool: of.and_then(|of| if let ReservationFilter::Pool(pool) = of { Some(pool.clone()) } else { None }),
        user: of.and_then(|of| if let ReservationFilter::User(user) = of { Some(user.clone()) } else { None }),
        seen_by: viewer.clone(),
        all,
        limit: limit.unwrap_or(DEFAULT_ROWS),
    };
    let found = context.store().reservations(&filter).await.map_err(|error| error.user_error())?;
    log_freshness(context, &freshness(context, &overview), &overview.snapshot.master).await;
    let engines = Engines::new(&overview);
    let queued = engines.queued().filter(|(slot, _)| is_seen(viewer.as_ref(), slot) && is_meant(of, slot));
    let mut rows: Vec<Row> = queued.map(|(slot, seen)| engines.queued_row(context, slot, seen)).collect();
    // The order in which they are granted, as far as it is known.
    rows.sort_by_key(|row| (row.pool.clone(), row.position.unwrap_or(u32::MAX), row.since_ms));
    rows.extend(found.iter().map(|reservation| engines.row(reservation)));
    if rows.len() > most {
        context.log.line(format!("{most} rows are shown; LIMIT shows more"));
        rows.truncate(most);
    }
    let mut answer = Answer::new(&COLUMNS);
    for row in rows {
        answer.row(row.values());
    }
    Ok(answer)
}

/// The restriction of what the caller sees; `None` for one who sees everything.
fn viewer(context: &Context, catalog: &Catalog) -> Option<Viewer> {
    let subject = &context.subject;
    (!subject.may_in_any(StatementKind::ShowReservations)).then(|| Viewer {
        user: subject.user.clone(),
        tenants: subject.tenants(catalog, StatementKind::ShowReservations).into_iter().cloned().collect(),
    })
}

/// Refuses a filter with a name that the caller may not see, or that does not exist.
fn refuse_invisible(context: &Context, catalog: &Catalog, of: &ReservationFilter) -> Result<(), UserError> {
    match of {
        ReservationFilter::Tenant(tenant) => {
            context.require_right_in(catalog, tenant)?;
            if catalog.tenants.contains_key(tenant) { Ok(()) } else { Err(user_error::no_tenant(tenant)) }
        }
        ReservationFilter::Pool(pool) => refuse_invisible_pool(context, catalog, pool),
        ReservationFilter::User(user) if *user == context.subject.user => Ok(()),
        ReservationFilter::User(_) => context.require_right_in_any(),
    }
}

fn is_seen(viewer: Option<&Viewer>, slot: &Slot) -> bool {
    viewer.is_none_or(|viewer| {
        let is_own = slot.started_for.as_ref().is_some_and(|started_for| started_for.user == viewer.user);
        is_own || viewer.tenants.contains(&slot.key.tenant)
    })
}

fn is_meant(of: Option<&ReservationFilter>, slot: &Slot) -> bool {
    match of {
        None => true,
        Some(ReservationFilter::Tenant(tenant)) => slot.key.tenant == *tenant,
        Some(ReservationFilter::Pool(pool)) => slot.key.pool == *pool,
        Some(ReservationFilter::User(user)) => {
            slot.started_for.as_ref().is_some_and(|started_for| started_for.user == *user)
        }
    }
}

/// The engines as the master last observed them, by name.
struct Engines<'a> {
    overview: &'a Overview,
    seen: BTreeMap<&'a str, &'a ObservedEngine>,
    /// The engines that are condemned and have not ended, with the reason.
    ending: BTreeMap<&'a str, &'a str>,
}

impl<'a> Engines<'a> {
    fn new(overview: &'a Overview) -> Self {
        let ending = overview.snapshot.engines.iter().filter(|record| record.ended_at_ms.is_none());
        Self {
            overview,
            seen: overview.observed.iter().map(|row| (row.engine.name.as_str(), &row.engine)).collect(),
            ending: ending.filter_map(|record| Some((record.name.as_str(), record.end_reason.as_deref()?))).collect(),
        }
    }

    /// The slots whose current engine waits for a reservation.
    fn queued(&self) -> impl Iterator<Item = (&'a Slot, &'a ObservedEngine)> {
        self.overview.snapshot.slots.iter().filter_map(|slot| {
            let seen = self.seen.get(slot.engine().as_str())?;
            queue_position(seen.reason.as_deref()?).map(|_| (slot.as_ref(), *seen))
        })
    }

    fn queued_row(&self, context: &Context, slot: &Slot, seen: &ObservedEngine) -> Row {
        let snapshot = &self.overview.snapshot;
        let record = snapshot.engines.iter().find(|record| record.name == seen.name);
        let defaults = &context.agent.settings.rules.defaults;
        let charge = amounts_of(&snapshot.catalog, &slot.key, defaults);
        Row {
            id: slot.engine().to_string(),
            holder: "engine".to_owned(),
            tenant: slot.key.tenant.to_string(),
            pool: slot.key.pool.to_string(),
            user: slot.started_for.as_ref().map(|started_for| started_for.user.clone()),
            creator: slot.started_for.as_ref().map(|started_for| started_for.creator.clone()),
            state: "queued".to_owned(),
            charge: charge.map(|charge| amounts(charge.nominal())).unwrap_or_default(),
            since_ms: record.map(|record| record.issued_at_ms),
            deadline_ms: None,
            position: seen.reason.as_deref().and_then(queue_position),
            reason: seen.reason.clone(),
        }
    }

    /// Whether its engine drains or terminates.
    fn terminates(&self, id: &str) -> bool {
        let seen = self.seen.get(id);
        self.ending.contains_key(id) || seen.is_some_and(|seen| seen.draining || seen.phase >= Phase::Terminating)
    }

    fn state(&self, reservation: &Reservation) -> String {
        let terminates = reservation.state.is_charged() && self.terminates(reservation.id());
        if terminates { format!("{}, terminating", reservation.state) } else { reservation.state.to_string() }
    }

    fn row(&self, reservation: &Reservation) -> Row {
        let Reservation { request, state, .. } = reservation;
        let why = |id: &str| self.ending.get(id).map(|reason| (*reason).to_owned());
        Row {
            id: request.id.to_string(),
            holder: if request.holder.is_external() { "external" } else { "engine" }.to_owned(),
            tenant: request.scopes.tenant_name().to_owned(),
            pool: request.scopes.pool_name().to_owned(),
            user: request.scopes.user_name().map(str::to_owned),
            creator: request.scopes.creator_name().map(str::to_owned),
            state: self.state(reservation),
            charge: amounts(reservation.amounts.nominal()),
            since_ms: match state {
                State::Waiting => Some(reservation.asked_at_ms),
                State::Locked => reservation.locked_at_ms,
                State::Used => reservation.used_at_ms,
                State::Released | State::Lost | State::Expired | State::Cancelled => reservation.ended_at_ms,
            },
            deadline_ms: reservation.deadline_ms.filter(|_| !state.is_ended()),
            position: None,
            reason: reservation.reason.as_deref().map(str::to_owned).or_else(|| why(reservation.id())),
        }
    }
}

impl Row {
    fn values(self) -> Vec<Value> {
        vec![
            text(self.id),
            text(self.holder),
            text(self.tenant),
            text(self.pool),
            maybe(self.user),
            maybe(self.creator),
            text(self.state),
            text(self.charge),
            maybe(self.since_ms.map(utc)),
            maybe(self.deadline_ms.map(utc)),
            self.position.map_or(Value::Null, number),
            maybe(self.reason),
        ]
    }

    fn properties(self) -> Vec<(&'static str, String)> {
        vec![
            ("reservation", self.id),
            ("holder", self.holder),
            ("tenant", self.tenant),
            ("pool", self.pool),
            ("user", self.user.unwrap_or_default()),
            ("creator", self.creator.unwrap_or_default()),
            ("state", self.state),
            ("charge", self.charge),
            ("since", self.since_ms.map(utc).unwrap_or_default()),
            ("deadline", self.deadline_ms.map(utc).unwrap_or_default()),
            ("position", self.position.map(|position| position.to_string()).unwrap_or_default()),
            ("reason", self.reason.unwrap_or_default()),
        ]
    }
}

pub(in crate::metadata) async fn describe(context: &Context, id: &str) -> Result<Answer, UserError> {
    let overview = context.store().overview(None).await.map_err(|error| error.user_error())?;
    let found = context.store().reservation(id).await.map_err(|error| error.user_error())?;
    let viewer = viewer(context, &overview.snapshot.catalog);
    let engines = Engines::new(&overview);
    let rows = match &found {
        Some(reservation) if sees(viewer.as_ref(), reservation) => {
            let mut rows = engines.row(reservation).properties();
            rows.extend(details(reservation));
            rows
        }
        Some(_) => return Err(unseen(id)),
        None => match engines.queued().find(|(slot, _)| slot.engine().as_str() == id) {
            Some((slot, seen)) if is_seen(viewer.as_ref(), slot) => {
                engines.queued_row(context, slot, seen).properties()
            }
            None if viewer.is_none() => return Err(absent(id)),
            _ => return Err(unseen(id)),
        },
    };
    log_freshness(context, &freshness(context, &overview), &overview.snapshot.master).await;
    Ok(Answer::properties(rows.into_iter().map(|(property, value)| (property.to_owned(), value))))
}

fn sees(viewer: Option<&Viewer>, reservation: &Reservation) -> bool {
    let scopes = &reservation.request.scopes;
    viewer.is_none_or(|viewer| {
        let is_of = |tenant: &TenantName| tenant.as_str() == scopes.tenant_name();
        scopes.user_name() == Some(viewer.user.as_str()) || viewer.tenants.iter().any(is_of)
    })
}

/// What a row of SHOW RESERVATIONS does not have.
fn details(reservation: &Reservation) -> Vec<(&'static str, String)> {
    let Reservation { request, .. } = reservation;
    let time = |ms: Option<i64>| ms.map(utc).unwrap_or_default();
    let mut rows = match &request.holder {
        Holder::Engine { unit, incarnation } => {
            vec![("unit", unit.to_string()), ("incarnation", incarnation.to_string())]
        }
        Holder::External { instance, .. } => vec![("instance", instance.to_string())],
    };
    rows.extend([
        ("asked", amounts(request.amounts.nominal())),
        ("charge of the pool", amounts(reservation.amounts.requests())),
        ("uid", reservation.uid.as_deref().unwrap_or_default().to_owned()),
        ("lineage", request.lineage.to_string()),
        ("asked at", utc(reservation.asked_at_ms)),
        ("locked at", time(reservation.locked_at_ms)),
        ("used at", time(reservation.used_at_ms)),
        ("ended at", time(reservation.ended_at_ms)),
        ("changed in epoch", reservation.epoch.to_string()),
    ]);
    rows
}

/// The error for a caller who sees every reservation.
pub(in crate::metadata) fn absent(id: &str) -> UserError {
    UserError::new(ErrorKind::UndefinedObject, format!("reservation \"{}\" does not exist", shown(id)))
        .hint("SHOW RESERVATIONS ALL lists them, also those that have ended.")
}

/// The error for a caller who may not see it, the same whether it exists or not.
fn unseen(id: &str) -> UserError {
    UserError::new(ErrorKind::InsufficientPrivilege, format!("permission denied for reservation \"{}\"", shown(id)))
        .detail("Users see their own reservations and those of their tenants.")
}

/// The most bytes of an id that an error repeats.
const MAX_SHOWN_BYTES: usize = 128;

pub(in crate::metadata) fn shown(id: &str) -> String {
    model::text::cut(id, MAX_SHOWN_BYTES).escape_debug().to_string()
}
