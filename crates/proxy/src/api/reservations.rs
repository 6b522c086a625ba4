//! Reservations: what programs that share a pool with engines request, confirm, renew and release.
//!
//! They are calls to a metadata agent and no statements, apart from CANCEL RESERVATION. The body of a request is checked here as far as it does not
//! depend on the catalog; the agent decides about rights, amounts and limits.

use std::time::Duration;

use agent_api::{HolderClaim, ReservationAnswer, ReservationCall, ReservationList, Reserve, Target};
use axum::body::Body;
use axum::response::Response;
use ddl::Statement;
use http::header::{CONTENT_TYPE, LOCATION};
use http::{HeaderValue, StatusCode};
use model::error::{ErrorKind, UserError};
use model::ledger::{ReservationStatus, State};
use model::name::{PoolName, TenantName};
use model::resource::Resource;
use model::{millis, span};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::openapi::schema::Type;
use utoipa::{IntoParams, ToSchema};

use super::collect::Whole;
use super::execution::Call;
use super::extract::Names;
use super::operation::{About, Column, JSON, Operation, Rows};
use super::page::Page;
use super::problem::ApiError;
use super::reservation_call::MAX_RESERVATION_WAIT;
use super::response::json;

/// The creator of programs that name none.
const DEFAULT_CREATOR: &str = "default";

/// A request for capacity of a resource pool.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct RequestReservation {
    tenant: String,
    /// The resource pool; excludes `queue`.
    pool: Option<String>,
    /// The queue whose resource pool is meant.
    queue: Option<String>,
    /// The user that is charged: the caller by default. Other users need a provider of resources or an admin.
    user: Option<String>,
    /// The client application that is charged.
    creator: Option<String>,
    /// What is requested, such as `{"type": "Load", "memory": "4G", "cpu": 2}`.
    #[schema(value_type = Object)]
    resource: Box<RawValue>,
    /// How long the request may wait in the queue, such as `10m`; by default it is refused if it cannot be granted.
    wait: Option<String>,
    /// The time to confirm, such as `5m`.
    ttl: Option<String>,
    /// The instance of the program.
    instance: String,
}

/// The reservation that a program uses.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ConfirmReservation {
    /// The user that is charged; the caller by default.
    user: Option<String>,
    /// The resource pool of the reservation.
    pool: String,
    /// What the program really uses, if that differs from what it requested.
    #[schema(value_type = Option<Object>)]
    resource: Option<Box<RawValue>>,
    /// The instance that uses it. No other one can renew or release it then.
    instance: String,
    /// For how long it is valid without a renewal, such as `10m`.
    lease: Option<String>,
}

/// The reservation whose lease is extended.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct RenewReservation {
    /// The user that is charged; the caller by default.
    user: Option<String>,
    /// The resource pool of the reservation.
    pool: String,
    /// The instance that confirmed it.
    instance: String,
    /// For how long it is valid from now on without a renewal, such as `10m`.
    lease: Option<String>,
}

/// The reservation that is no longer used.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ReleaseReservation {
    /// The user that is charged; the caller by default.
    user: Option<String>,
    /// The resource pool of the reservation.
    pool: String,
    /// The instance that confirmed it; any before that.
    instance: String,
}

/// How long to wait for another state.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct ReservationQuery {
    /// How long the response is held back while the state stays the same, such as `30s`, which is the maximum.
    wait: Option<String>,
    /// The state that the client knows; `waiting` by default.
    #[param(inline, value_type = Option<String>)]
    state: Option<State>,
}

/// Which reservations, and which rows of the list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct ReservationsQuery {
    /// Only those of this tenant.
    tenant: Option<String>,
    /// Only those on this resource pool.
    pool: Option<String>,
    /// Only those that are charged to this user.
    user: Option<String>,
    /// Only those in this state, or `all`; those that have not ended by default.
    state: Option<String>,
    /// The most rows, 100 by default.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// The `next` of the page before.
    cursor: Option<String>,
}

const RESERVATION: &[Column] = &[
    ("id", Type::String),
    ("state", Type::String),
    ("expires_at", Type::String),
    ("holder", Type::String),
    ("tenant", Type::String),
    ("pool", Type::String),
    ("user", Type::String),
    ("creator", Type::String),
    ("instance", Type::String),
    ("resource", Type::Object),
    ("cpu_m", Type::Integer),
    ("memory", Type::Integer),
    ("engines", Type::Integer),
    ("asked_at", Type::String),
    ("ended_at", Type::String),
    ("position", Type::Integer),
    ("reason", Type::String),
];

const AS_IT_IS: (u16, &str) = (200, "The reservation.");

pub(super) fn operations() -> Vec<Operation> {
    let about = |id, summary, success| About { id, summary, rows: Rows::One(RESERVATION), success };
    let list = About {
        id: "listReservations",
        summary: "Lists the reservations that the user may see.",
        rows: Rows::Of(RESERVATION),
        success: &[(200, "The rows.")],
    };
    let request = about(
        "requestReservation",
        "Requests capacity of a resource pool for a program that is no engine.",
        &[
            (201, "It is reserved. Location is its path."),
            (202, "It waits in the queue. Location is its path."),
            (200, "A repeat: the reservation of the key has ended."),
        ],
    );
    let get = about("getReservation", "Returns a reservation, or waits until its state changes.", &[AS_IT_IS]);
    let cancel = about("cancelReservation", "Ends the reservation of a program (CANCEL RESERVATION).", &[AS_IT_IS]);
    let confirm = about("confirmReservation", "Confirms that an instance uses the reservation.", &[AS_IT_IS]);
    let renew = about("renewReservation", "Extends the lease of a confirmed reservation.", &[AS_IT_IS]);
    let release = about("releaseReservation", "Ends a reservation, and returns its charge.", &[AS_IT_IS]);
    vec![
        Operation::get("/api/v1/reservations", &list, show),
        Operation::post("/api/v1/reservations", &request, reserve).requiring_key(),
        Operation::get("/api/v1/reservations/{reservation}", &get, read),
        Operation::delete("/api/v1/reservations/{reservation}", &cancel, cancel_reservation),
        Operation::post("/api/v1/reservations/{reservation}/confirm", &confirm, confirm_reservation),
        Operation::post("/api/v1/reservations/{reservation}/renew", &renew, renew_reservation),
        Operation::post("/api/v1/reservations/{reservation}/release", &release, release_reservation),
    ]
}

async fn reserve(call: Call, _: Names, body: RequestReservation) -> Result<Response, ApiError> {
    if !call.is_keyed {
        return Err(UserError::new(ErrorKind::Syntax, "missing Idempotency-Key")
            .detail("A request for a reservation may have to be repeated.")
            .hint("Send a new key with each new request, and the same key with each repeat.")
            .into());
    }
    let ask = Reserve::try_from(body)?;
    let reservation = one(call.reservation(ReservationCall::Reserve(Box::new(ask))).await?)?;
    let status = match reservation.state {
        State::Waiting => StatusCode::ACCEPTED,
        state if state.is_ended() => StatusCode::OK,
        _ => StatusCode::CREATED,
    };
    let mut response = object(&reservation)?;
    *response.status_mut() = status;
    if let Ok(path) = HeaderValue::from_str(&format!("/api/v1/reservations/{}", reservation.id)) {
        response.headers_mut().insert(LOCATION, path);
    }
    Ok(response)
}

impl TryFrom<RequestReservation> for Reserve {
    type Error = UserError;

    fn try_from(body: RequestReservation) -> Result<Self, UserError> {
        let target = match (body.pool, body.queue) {
            (Some(pool), None) => Target::Pool(PoolName::new(pool)?),
            (None, Some(queue)) => Target::Queue(queue),
            (None, None) | (Some(_), Some(_)) => {
                return Err(
                    UserError::new(ErrorKind::InvalidValue, "either pool or queue is needed").hint("Send one of them.")
                );
            }
        };
        Ok(Self {
            tenant: TenantName::new(body.tenant)?,
            target,
            user: body.user,
            creator: body.creator.unwrap_or_else(|| DEFAULT_CREATOR.to_owned()),
            resource: Resource::from_json(body.resource.get())?,
            wait_ms: milliseconds(body.wait.as_deref())?,
            ttl_ms: milliseconds(body.ttl.as_deref())?,
            instance: body.instance,
        })
    }
}

async fn read(call: Call, names: Names, query: ReservationQuery) -> Result<Response, ApiError> {
    let id = names.reservation()?.to_owned();
    let wait = query.wait.as_deref().map(span::parse).transpose()?.unwrap_or_default();
    if wait > MAX_RESERVATION_WAIT {
        return Err(UserError::new(ErrorKind::InvalidValue, "the time to wait is too long")
            .detail(format!("It is {}, and the limit is {}.", span::print(wait), span::print(MAX_RESERVATION_WAIT)))
            .hint("Repeat the request when it has returned.")
            .into());
    }
    Ok(object(&one(call.reservation_after(id, wait, query.state).await?)?)?)
}

async fn show(call: Call, _: Names, query: ReservationsQuery) -> Result<Response, ApiError> {
    let page = Page::new("reservations", query.limit, query.cursor.as_deref())?;
    let states = match query.state.as_deref() {
        None => Vec::new(),
        Some("all") => State::ALL.to_vec(),
        Some(word) => vec![State::from_word(word).ok_or_else(|| {
            let words = State::ALL.map(State::as_str).join(", ");
            UserError::new(ErrorKind::InvalidValue, format!("unrecognized state \"{word}\""))
                .detail(format!("The states are {words}, and all."))
        })?],
    };
    let list = ReservationList {
        tenant: query.tenant.map(TenantName::new).transpose()?,
        pool: query.pool.map(PoolName::new).transpose()?,
        user: query.user,
        states,
        after: page.after.clone().and_then(|key| key.into_iter().next()),
        limit: u32::try_from(page.limit).unwrap_or(u32::MAX),
    };
    let ReservationAnswer::Page { rows, has_more } = call.reservation(ReservationCall::List(list)).await? else {
        return Err(unexpected().into());
    };
    let next = rows.last().filter(|_| has_more).map(|last| page.cursor(&vec![last.id.to_string()]));
    let rows = rows.iter().map(text).collect::<Result<Vec<_>, _>>()?;
    let _guard = call.gateway.budget.acquire(rows.iter().map(String::len).sum())?;
    Ok(json(rows.iter().map(String::as_str), &[], next.as_deref()))
}

async fn cancel_reservation(call: Call, names: Names) -> Result<Response, ApiError> {
    let id = names.reservation()?.to_owned();
    let mut result = Whole::new(&call.gateway.budget, None)?;
    call.run(&Statement::CancelReservation { id: id.clone() }, &mut result).await?;
    Ok(object(&one(call.reservation_after(id, Duration::ZERO, None).await?)?)?)
}

async fn confirm_reservation(call: Call, names: Names, body: ConfirmReservation) -> Result<Response, ApiError> {
    let resource = body.resource.map(|resource| Resource::from_json(resource.get())).transpose()?;
    let lease_ms = milliseconds(body.lease.as_deref())?;
    let claim = claim(&names, body.user, body.pool, body.instance)?;
    Ok(object(&one(call.reservation(ReservationCall::Confirm { claim, resource, lease_ms }).await?)?)?)
}

async fn renew_reservation(call: Call, names: Names, body: RenewReservation) -> Result<Response, ApiError> {
    let lease_ms = milliseconds(body.lease.as_deref())?;
    let claim = claim(&names, body.user, body.pool, body.instance)?;
    Ok(object(&one(call.reservation(ReservationCall::Renew { claim, lease_ms }).await?)?)?)
}

async fn release_reservation(call: Call, names: Names, body: ReleaseReservation) -> Result<Response, ApiError> {
    let claim = claim(&names, body.user, body.pool, body.instance)?;
    Ok(object(&one(call.reservation(ReservationCall::Release { claim }).await?)?)?)
}

fn claim(names: &Names, user: Option<String>, pool: String, instance: String) -> Result<HolderClaim, UserError> {
    Ok(HolderClaim { id: names.reservation()?.to_owned(), user, pool, instance })
}

/// A time that a member names, in milliseconds.
pub(super) fn milliseconds(text: Option<&str>) -> Result<Option<i64>, UserError> {
    Ok(text.map(span::parse).transpose()?.map(|time: Duration| millis::from_duration(time)))
}

fn one(answer: ReservationAnswer) -> Result<ReservationStatus, UserError> {
    match answer {
        ReservationAnswer::One(reservation) => Ok(*reservation),
        ReservationAnswer::Page { .. } | ReservationAnswer::Registration(_) => Err(unexpected()),
    }
}

fn unexpected() -> UserError {
    UserError::internal("the metadata agent replied with another result")
}

fn text(value: &impl Serialize) -> Result<String, UserError> {
    serde_json::to_string(value).map_err(|error| UserError::internal(error.to_string()))
}

fn object(reservation: &ReservationStatus) -> Result<Response, UserError> {
    let mut response = Response::new(Body::from(text(reservation)?));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
    Ok(response)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn body(change: impl FnOnce(&mut serde_json::Value)) -> Result<Reserve, UserError> {
        let mut body = json!({
            "tenant": "t_1", "pool": "rp_1", "instance": "i-1",
            "resource": {"type": "Load", "memory": "4G", "cpu": 0.5}
        });
        change(&mut body);
        serde_json::from_str::<RequestReservation>(&body.to_string()).unwrap().try_into()
    }

    #[test]
    fn a_body_is_read_with_its_defaults() {
        let ask = body(|_| {}).unwrap();
        assert_eq!(ask.creator, DEFAULT_CREATOR);
        assert_eq!(ask.target, Target::Pool(PoolName::new("rp_1").unwrap()));
        assert_eq!(ask.resource, Resource::Load { memory: 4 << 30, cpu_m: 500 });
        assert_eq!((ask.user, ask.wait_ms, ask.ttl_ms), (None, None, None));
        let ask = body(|body| {
            body["wait"] = json!("10m");
            body["ttl"] = json!("90s");
            body["pool"] = json!(null);
            body["queue"] = json!("root.a");
        })
        .unwrap();
        assert_eq!((ask.wait_ms, ask.ttl_ms), (Some(600_000), Some(90_000)));
        assert_eq!(ask.target, Target::Queue("root.a".to_owned()));
    }

    #[test]
    fn bad_members_are_refused_with_22023() {
        let refused = |member: &str, value: serde_json::Value| {
            let error = body(|body| body[member] = value.clone()).unwrap_err();
            assert_eq!(error.sqlstate(), "22023", "{member} {value}: {}", error.text());
            error
        };
        let unknown = refused("resource", json!({"type": "Disk", "disk": 1}));
        assert_eq!(unknown.error_code(), model::error::KIND_UNKNOWN);
        refused("resource", json!({"type": "Memory", "memory": -1}));
        refused("resource", json!({"type": "Memory", "memory": 1_u64 << 60}));
        refused("resource", json!({"type": "Cpu"}));
        refused("resource", json!("4G"));
        refused("wait", json!("soon"));
        refused("queue", json!("root.a"));
        refused("pool", json!(null));
    }
}
