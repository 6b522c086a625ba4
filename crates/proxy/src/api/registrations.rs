//! The registration of a pool's capacity by a program that provides it.
//!
//! They are calls to a metadata agent and no statements, as those about reservations. The agent decides about rights, kinds and
//! amounts.

use agent_api::{Register, RegistrationCall, ReservationAnswer, ReservationCall};
use axum::body::Body;
use axum::response::Response;
use http::HeaderValue;
use http::header::CONTENT_TYPE;
use model::error::UserError;
use model::ledger::RegistrationStatus;
use model::resource::Resource;
use serde::Deserialize;
use serde_json::value::RawValue;
use utoipa::openapi::schema::Type;
use utoipa::{IntoParams, ToSchema};

use super::execution::Call;
use super::extract::{Names, NoParameters};
use super::operation::{About, Column, JSON, Operation, Rows};
use super::problem::ApiError;
use super::reservations::milliseconds;

const PATH: &str = "/api/v1/pools/{pool}/registration";

/// The capacity of a resource pool that a program provides.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct RegisterCapacity {
    /// The program.
    name: String,
    /// The instance of the program. No other one can register until it has unregistered or its lease has ended.
    instance: String,
    /// What the pool has, such as `{"type": "Load", "memory": "64G", "cpu": 42}`. A component that its kind does not have is
    /// unlimited.
    #[schema(value_type = Object)]
    capacity: Box<RawValue>,
    /// What of it is kept for others, nothing by default.
    #[schema(value_type = Option<Object>)]
    protected: Option<Box<RawValue>>,
    /// The kind of both, that of the pool by default. It must be promotable to `RESOURCE_KIND` of the pool.
    kind: Option<String>,
    /// For how long it is valid without a renewal, such as `10m`.
    lease: Option<String>,
}

/// The registration whose lease is extended.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct RenewRegistration {
    /// The instance that is registered.
    instance: String,
    /// For how long it is valid from now on without a renewal, such as `10m`.
    lease: Option<String>,
}

/// Which registration ends, and how.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct UnregisterQuery {
    /// The instance that is registered; the request is refused if it is another one.
    instance: Option<String>,
    /// Whether the reservations of programs in the pool end as lost. By default they stay until they are released.
    #[serde(default)]
    #[param(required = false)]
    force: bool,
}

const REGISTRATION: &[Column] = &[
    ("pool", Type::String),
    ("state", Type::String),
    ("name", Type::String),
    ("instance", Type::String),
    ("user", Type::String),
    ("kind", Type::String),
    ("capacity", Type::Object),
    ("protected", Type::Object),
    ("registered_at", Type::String),
    ("expires_at", Type::String),
];

pub(super) fn operations() -> Vec<Operation> {
    let about = |id, summary| About {
        id,
        summary,
        rows: Rows::One(REGISTRATION),
        success: &[(200, "The registration as it is afterwards.")],
    };
    let get = about("getRegistration", "Returns the registered capacity of a resource pool.");
    let register =
        about("registerCapacity", "Registers the capacity of a resource pool, or replaces what is registered.");
    let renew = about("renewRegistration", "Extends the lease of a registered capacity.");
    let unregister = about("unregisterCapacity", "Ends the registration, and closes the resource pool.");
    vec![
        Operation::get(PATH, &get, read),
        Operation::put(PATH, &register, register_capacity),
        Operation::delete_as(PATH, &unregister, unregister_capacity),
        Operation::post("/api/v1/pools/{pool}/registration/renew", &renew, renew_registration),
    ]
}

async fn read(call: Call, names: Names, _: NoParameters) -> Result<Response, ApiError> {
    answered(&call, &names, RegistrationCall::Get).await
}

async fn register_capacity(call: Call, names: Names, body: RegisterCapacity) -> Result<Response, ApiError> {
    answered(&call, &names, RegistrationCall::Register(Box::new(body.try_into()?))).await
}

async fn renew_registration(call: Call, names: Names, body: RenewRegistration) -> Result<Response, ApiError> {
    let lease_ms = milliseconds(body.lease.as_deref())?;
    answered(&call, &names, RegistrationCall::Renew { instance: body.instance, lease_ms }).await
}

async fn unregister_capacity(call: Call, names: Names, query: UnregisterQuery) -> Result<Response, ApiError> {
    let UnregisterQuery { instance, force } = query;
    answered(&call, &names, RegistrationCall::Unregister { instance, force }).await
}

impl TryFrom<RegisterCapacity> for Register {
    type Error = UserError;

    fn try_from(body: RegisterCapacity) -> Result<Self, UserError> {
        Ok(Self {
            name: body.name,
            instance: body.instance,
            capacity: Resource::from_json(body.capacity.get())?,
            protected: body.protected.map(|protected| Resource::from_json(protected.get())).transpose()?,
            kind: body.kind.map(|kind| kind.parse()).transpose()?,
            lease_ms: milliseconds(body.lease.as_deref())?,
        })
    }
}

async fn answered(call: &Call, names: &Names, of_pool: RegistrationCall) -> Result<Response, ApiError> {
    let pool = names.pool()?;
    let answer = call.reservation(ReservationCall::Registration { pool, call: of_pool }).await?;
    let ReservationAnswer::Registration(status) = answer else {
        return Err(UserError::internal("the metadata agent replied with another result").into());
    };
    Ok(object(&status)?)
}

fn object(status: &RegistrationStatus) -> Result<Response, UserError> {
    let text = serde_json::to_string(status).map_err(|error| UserError::internal(error.to_string()))?;
    let mut response = Response::new(Body::from(text));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
    Ok(response)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use model::error::KIND_UNKNOWN;
    use model::resource::Kind;
    use serde_json::{Value, json};

    use super::*;

    fn body(member: &str, value: Value) -> Result<Register, UserError> {
        let mut body =
            json!({"name": "yarn", "instance": "i-1", "capacity": {"type": "Load", "memory": "4G", "cpu": 2}});
        body[member] = value;
        serde_json::from_str::<RegisterCapacity>(&body.to_string()).unwrap().try_into()
    }

    #[test]
    fn a_body_is_read_and_bad_members_are_refused_with_22023() {
        let register = body("lease", json!("90s")).unwrap();
        assert_eq!(register.capacity, Resource::Load { memory: 4 << 30, cpu_m: 2_000 });
        assert_eq!((register.protected, register.kind, register.lease_ms), (None, None, Some(90_000)));
        assert_eq!(body("kind", json!("Load")).unwrap().kind, Some(Kind::Load));
        for (member, value) in [
            ("capacity", json!({"type": "Cpu", "cpu": -1})),
            ("protected", json!("1G")),
            ("kind", json!("Disk")),
            ("lease", json!("soon")),
        ] {
            let error = body(member, value).unwrap_err();
            assert_eq!(error.sqlstate(), "22023", "{member}: {}", error.text());
            assert!(member != "kind" || error.error_code() == KIND_UNKNOWN);
        }
    }
}
