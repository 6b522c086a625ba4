//! The list of scopes with their quotas and what they hold.

use axum::response::Response;
use ddl::{QuotaFilter, Statement};
use model::alteration::ObjectKind;
use model::error::{ErrorKind, UserError};
use model::name::{PoolName, TenantName};
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

/// Whose quotas, and which rows of the list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct QuotasQuery {
    /// Only quotas of this tenant.
    tenant: Option<String>,
    /// Only quotas of tenants on this resource pool; excludes the other names.
    pool: Option<String>,
    /// Only the quota that applies to this user; excludes the other names.
    user: Option<String>,
    /// Only the quota that applies to this creator; excludes the other names.
    creator: Option<String>,
    /// Only names that match: `%` and `*` match any text, `_` one character.
    like: Option<String>,
    /// The most rows, 100 by default.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// The `next` of the page before.
    cursor: Option<String>,
}

const QUOTAS: &[Column] = &[
    ("scope", Type::String),
    ("quota", Type::String),
    ("resource", Type::String),
    ("guarantee", Type::String),
    ("borrow_limit", Type::String),
    ("limit", Type::String),
    ("locked", Type::String),
    ("used", Type::String),
    ("left", Type::String),
    ("queued", Type::Integer),
];

pub(super) fn operation() -> Operation {
    let about = About {
        id: "listQuotas",
        summary: "Lists what the scopes that the user may see are limited to, hold and have left (SHOW QUOTAS).",
        rows: Rows::Of(QUOTAS),
        success: &[(200, "The rows.")],
    };
    Operation::get("/api/v1/quotas", &about, show)
}

async fn show(call: Call, _: Names, query: QuotasQuery) -> Result<Response, ApiError> {
    let page = Page::new("quotas", query.limit, query.cursor.as_deref())?;
    let mut filters = Vec::new();
    filters.extend(query.tenant.map(TenantName::new).transpose()?.map(QuotaFilter::Tenant));
    filters.extend(query.pool.map(PoolName::new).transpose()?.map(QuotaFilter::Pool));
    filters.extend(query.user.map(QuotaFilter::User));
    filters.extend(query.creator.map(QuotaFilter::Creator));
    if filters.len() > 1 {
        return Err(UserError::new(ErrorKind::InvalidValue, "tenant, pool, user and creator exclude each other")
            .hint("Send one of them.")
            .into());
    }
    let statement = match filters.pop() {
        None => Statement::ShowObjects { kind: ObjectKind::ResourceQuota, like: query.like },
        Some(of) => Statement::ShowQuotas { of, like: query.like },
    };
    let mut collect = ByKey::new(&call.gateway.budget, page, &["scope", "resource"])?;
    let warnings = call.run(&statement, &mut collect).await?;
    let (rows, next) = collect.finish();
    Ok(json(rows, &warnings, next.as_deref()))
}
