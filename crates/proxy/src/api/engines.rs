//! Engines: the list, a description, and START, RESTART and STOP.

use std::time::Duration;

use axum::response::Response;
use ddl::{EngineScope, Grace, Statement};
use http::header::LOCATION;
use http::{HeaderValue, StatusCode};
use model::error::{ErrorKind, UserError};
use model::name::{PoolName, TenantName, UnitName};
use model::span;
use serde::Deserialize;
use utoipa::openapi::schema::Type;
use utoipa::{IntoParams, ToSchema};

use super::collect::{ByKey, Whole};
use super::execution::Call;
use super::extract::{Names, NoParameters};
use super::link_scope::LinkScope;
use super::objects::{PROPERTIES, run_whole};
use super::operation::{About, Column, Operation, Rows};
use super::page::Page;
use super::problem::ApiError;
use super::response::{json, whole};

/// Whose engines, and which rows of the list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct EnginesQuery {
    /// Engines of this tenant.
    tenant: String,
    /// Only those in this resource pool.
    pool: Option<String>,
    /// Only those of this resource unit; needs `pool`.
    unit: Option<String>,
    /// The most rows, 100 by default.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// The `next` of the page before.
    cursor: Option<String>,
}

/// An engine to be started.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct StartEngine {
    tenant: String,
    pool: String,
    unit: String,
    /// How long to wait until the engine is ready, such as `30s`; not at all by default. At most `10m`.
    wait: Option<String>,
}

/// How an engine is replaced.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct RestartEngine {
    /// The grace period of running statements of the old engine, such as `10m`.
    within: Option<String>,
    /// End the old engine and its running statements immediately.
    #[serde(default)]
    force: bool,
    /// Start the new engine when the old one is gone, and not before.
    #[serde(default)]
    in_place: bool,
    /// How long to wait until the engine is replaced, such as `30s`; not at all by default. At most `10m`.
    wait: Option<String>,
}

/// How an engine is ended.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct EndEngine {
    /// The grace period of running statements, such as `10m`.
    within: Option<String>,
    /// End running statements immediately.
    #[serde(default)]
    force: bool,
    /// How long to wait until the engine is gone, such as `30s`; not at all by default. At most `10m`.
    wait: Option<String>,
}

const ENGINES: &[Column] = &[
    ("tenant", Type::String),
    ("pool", Type::String),
    ("unit", Type::String),
    ("engine", Type::String),
    ("state", Type::String),
    ("config", Type::String),
    ("current", Type::Boolean),
    ("origin", Type::String),
    ("owner", Type::String),
    ("sessions", Type::Integer),
    ("seats", Type::Integer),
    ("running", Type::Integer),
    ("address", Type::String),
    ("started_at", Type::String),
    ("reason", Type::String),
];
const OUTCOME: &[Column] = &[
    ("engine", Type::String),
    ("state", Type::String),
    ("tenant", Type::String),
    ("pool", Type::String),
    ("unit", Type::String),
];
/// Engines of one name in several pools are foreign ones.
const KEY: &[&str] = &["pool", "engine"];

const CREATED: (u16, &str) = (201, "The engine is ready. Location is its path.");
const ACCEPTED: (u16, &str) = (202, "The statement took effect. Location is the path of the engine.");
const DONE: (u16, &str) = (200, "The engine is gone, or replaced by the one at Location.");

pub(super) fn operations() -> Vec<Operation> {
    let list = About {
        id: "listEngines",
        summary: "Lists the engines of a tenant (SHOW ENGINES).",
        rows: Rows::Of(ENGINES),
        success: &[(200, "The rows.")],
    };
    let describe = About {
        id: "describeEngine",
        summary: "Describes an engine (DESCRIBE ENGINE).",
        rows: Rows::Of(PROPERTIES),
        success: &[(200, "The rows.")],
    };
    let start = About {
        id: "startEngine",
        summary: "Starts an engine (START ENGINE).",
        rows: Rows::Of(OUTCOME),
        success: &[CREATED, ACCEPTED],
    };
    let restart = About {
        id: "restartEngine",
        summary: "Replaces an engine by a new one (RESTART ENGINE).",
        rows: Rows::Of(OUTCOME),
        success: &[DONE, ACCEPTED],
    };
    let stop = About {
        id: "stopEngine",
        summary: "Drains an engine and removes its slot (STOP ENGINE).",
        rows: Rows::Of(OUTCOME),
        success: &[DONE, ACCEPTED],
    };
    vec![
        Operation::get("/api/v1/engines", &list, show),
        Operation::post("/api/v1/engines", &start, start_engine),
        Operation::get(
            "/api/v1/engines/{pool}/{engine}",
            &describe,
            |call, names: Names, _: NoParameters| async move {
                run_whole(&call, Statement::DescribeEngine { pool: names.pool()?, engine: names.engine()? }).await
            },
        ),
        Operation::post(
            "/api/v1/engines/{pool}/{engine}/restart",
            &restart,
            |call, names: Names, body: RestartEngine| async move {
                let RestartEngine { within, force, in_place, wait } = body;
                if force && in_place {
                    return Err(exclude_each_other("force", "in_place").into());
                }
                let grace = grace(within.as_deref(), force)?;
                let (pool, engine, wait) = (names.pool()?, names.engine()?, duration(wait.as_deref())?);
                let statement = Statement::RestartEngine { pool, engine, in_place, grace, wait };
                change(&call, &statement, StatusCode::OK).await
            },
        ),
        Operation::post(
            "/api/v1/engines/{pool}/{engine}/stop",
            &stop,
            |call, names: Names, body: EndEngine| async move {
                let grace = grace(body.within.as_deref(), body.force)?;
                let (pool, engine, wait) = (names.pool()?, names.engine()?, duration(body.wait.as_deref())?);
                change(&call, &Statement::StopEngine { pool, engine, grace, wait }, StatusCode::OK).await
            },
        ),
    ]
}

async fn show(call: Call, _: Names, query: EnginesQuery) -> Result<Response, ApiError> {
    let page = Page::new("engines", query.limit, query.cursor.as_deref())?;
    let scope = match LinkScope::new(query.tenant, query.pool, query.unit)? {
        LinkScope::Tenant(tenant) => EngineScope::Tenant(tenant),
        LinkScope::Pool(tenant, pool) => EngineScope::Pool(tenant, pool),
        LinkScope::Unit(tenant, pool, unit) => EngineScope::Unit(tenant, pool, unit),
    };
    let mut collect = ByKey::new(&call.gateway.budget, page, KEY)?;
    let warnings = call.run(&Statement::ShowEngines(scope), &mut collect).await?;
    let (rows, next) = collect.finish();
    Ok(json(rows, &warnings, next.as_deref()))
}

async fn start_engine(call: Call, _: Names, body: StartEngine) -> Result<Response, ApiError> {
    let statement = Statement::StartEngine {
        tenant: TenantName::new(body.tenant)?,
        pool: PoolName::new(body.pool)?,
        unit: UnitName::new(body.unit)?,
        nowait: false,
        wait: duration(body.wait.as_deref())?,
    };
    change(&call, &statement, StatusCode::CREATED).await
}

/// Runs a statement about one engine; `done` is the status after its WAIT.
async fn change(call: &Call, statement: &Statement, done: StatusCode) -> Result<Response, ApiError> {
    let mut result = Whole::new(&call.gateway.budget, None)?;
    let warnings = call.run(statement, &mut result).await?;
    let mut response = whole(&result, &warnings);
    *response.status_mut() = if statement.wait().is_some() { done } else { StatusCode::ACCEPTED };
    let path = result.text("pool").zip(result.text("engine"));
    // Names have no character that a path would need to escape.
    let location = path.map(|(pool, engine)| format!("/api/v1/engines/{pool}/{engine}"));
    if let Some(location) = location.and_then(|path| HeaderValue::from_str(&path).ok()) {
        response.headers_mut().insert(LOCATION, location);
    }
    Ok(response)
}

fn duration(text: Option<&str>) -> Result<Option<Duration>, UserError> {
    text.map(span::parse).transpose()
}

fn grace(within: Option<&str>, force: bool) -> Result<Grace, UserError> {
    match (duration(within)?, force) {
        (None, false) => Ok(Grace::Default),
        (Some(within), false) => Ok(Grace::Within(within)),
        (None, true) => Ok(Grace::Force),
        (Some(_), true) => Err(exclude_each_other("within", "force")),
    }
}

fn exclude_each_other(one: &str, other: &str) -> UserError {
    UserError::new(ErrorKind::InvalidValue, format!("{one} and {other} exclude each other")).hint("Send one of them.")
}
