//! The engines that have ended, newest first.

use axum::response::Response;
use ddl::{HistoryScope, Statement};
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa::openapi::schema::Type;

use super::alterations::rows_to_read;
use super::collect::AsShown;
use super::execution::Call;
use super::extract::Names;
use super::link_scope::LinkScope;
use super::operation::{About, Column, Operation, Rows};
use super::page::Page;
use super::problem::ApiError;
use super::response::json;

/// Whose engines, and which rows of the list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct HistoryQuery {
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

const HISTORY: &[Column] = &[
    ("engine", Type::String),
    ("pool", Type::String),
    ("unit", Type::String),
    ("origin", Type::String),
    ("owner", Type::String),
    ("wanted", Type::String),
    ("reserved", Type::String),
    ("created", Type::String),
    ("registered", Type::String),
    ("ended", Type::String),
    ("word", Type::String),
    ("retryable", Type::Boolean),
    ("reason", Type::String),
    ("sessions_served", Type::Integer),
    ("charge", Type::String),
];

pub(super) fn operation() -> Operation {
    let about = About {
        id: "listEngineHistory",
        summary: "Lists the engines of a tenant that have ended, newest first (SHOW ENGINE HISTORY).",
        rows: Rows::Of(HISTORY),
        success: &[(200, "The rows.")],
    };
    Operation::get("/api/v1/engines/history", &about, show)
}

async fn show(call: Call, _: Names, query: HistoryQuery) -> Result<Response, ApiError> {
    let page = Page::new("engine history", query.limit, query.cursor.as_deref())?;
    let scope = match LinkScope::new(query.tenant, query.pool, query.unit)? {
        LinkScope::Tenant(tenant) => HistoryScope::Tenant(tenant),
        LinkScope::Pool(tenant, pool) => HistoryScope::Pool(tenant, pool),
        LinkScope::Unit(tenant, pool, unit) => HistoryScope::Unit(tenant, pool, unit),
    };
    let statement = Statement::ShowEngineHistory { scope, limit: Some(rows_to_read(&page)) };
    let mut collect = AsShown::new(&call.gateway.budget, page, &["engine"])?;
    let warnings = call.run(&statement, &mut collect).await?;
    let (rows, next) = collect.finish()?;
    Ok(json(rows, &warnings, next.as_deref()))
}
