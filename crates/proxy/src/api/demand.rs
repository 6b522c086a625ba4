//! The sessions that wait for an engine.

use axum::response::Response;
use ddl::Statement;
use model::name::TenantName;
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa::openapi::schema::Type;

use super::collect::ByKey;
use super::execution::Call;
use super::extract::Names;
use super::operation::{About, Column, Operation, Rows};
use super::page::Page;
use super::problem::ApiError;
use super::response::json;

/// Whose sessions, and which rows of the list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct DemandQuery {
    /// Only sessions of this tenant.
    tenant: Option<String>,
    /// The most rows, 100 by default.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// The `next` of the page before.
    cursor: Option<String>,
}

const DEMAND: &[Column] = &[
    ("tenant", Type::String),
    ("pool", Type::String),
    ("unit", Type::String),
    ("engine_type", Type::String),
    ("creator", Type::String),
    ("owner", Type::String),
    ("waiting", Type::Integer),
    ("unmet", Type::Integer),
    ("since", Type::String),
    ("waits_for", Type::String),
    ("position", Type::Integer),
];
/// The age of a row is no part of it: rows come and go between two pages.
const KEY: &[&str] = &["tenant", "pool", "unit", "engine_type", "creator", "owner"];

pub(super) fn operation() -> Operation {
    let about = About {
        id: "listDemand",
        summary: "Lists the sessions that wait for an engine (SHOW DEMAND).",
        rows: Rows::Of(DEMAND),
        success: &[(200, "The rows.")],
    };
    Operation::get("/api/v1/demand", &about, show)
}

async fn show(call: Call, _: Names, query: DemandQuery) -> Result<Response, ApiError> {
    let page = Page::new("demand", query.limit, query.cursor.as_deref())?;
    let tenant = query.tenant.map(TenantName::new).transpose()?;
    let statement = Statement::ShowDemand { tenant, limit: Some(ddl::MAX_LIMIT) };
    let mut collect = ByKey::new(&call.gateway.budget, page, KEY)?;
    let warnings = call.run(&statement, &mut collect).await?;
    let (rows, next) = collect.finish();
    Ok(json(rows, &warnings, next.as_deref()))
}
