//! The audit, newest first.

use axum::response::Response;
use ddl::{AuditScope, Statement};
use model::error::{ErrorKind, UserError};
use model::name::TenantName;
use model::span;
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa::openapi::schema::Type;

use super::alterations::rows_to_read;
use super::collect::AsShown;
use super::execution::Call;
use super::extract::Names;
use super::operation::{About, Column, Operation, Rows};
use super::page::Page;
use super::problem::ApiError;
use super::response::json;

/// Whose rows, and which of them.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct AuditQuery {
    /// Only statements of this user.
    user: Option<String>,
    /// Only statements about this tenant and its engines; not with `user`.
    tenant: Option<String>,
    /// The maximum age, such as `1d`.
    since: Option<String>,
    /// The most rows, 100 by default.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// The `next` of the page before.
    cursor: Option<String>,
}

const AUDIT: &[Column] = &[
    ("at", Type::String),
    ("user", Type::String),
    ("statement", Type::String),
    ("object", Type::String),
    ("outcome", Type::String),
    ("sqlstate", Type::String),
    ("generation", Type::Integer),
    ("via", Type::String),
    ("method", Type::String),
    ("proxy", Type::String),
    ("client", Type::String),
    ("request", Type::String),
];

pub(super) fn operation() -> Operation {
    let about = About {
        id: "listAudit",
        summary: "Lists rows of the audit, newest first (SHOW AUDIT).",
        rows: Rows::Of(AUDIT),
        success: &[(200, "The rows.")],
    };
    Operation::get("/api/v1/audit", &about, show)
}

async fn show(call: Call, _: Names, query: AuditQuery) -> Result<Response, ApiError> {
    let page = Page::new("audit", query.limit, query.cursor.as_deref())?;
    let scope = match (query.user, query.tenant) {
        (None, None) => AuditScope::All,
        (Some(user), None) => AuditScope::User(user),
        (None, Some(tenant)) => AuditScope::Tenant(TenantName::new(tenant)?),
        (Some(_), Some(_)) => {
            return Err(UserError::new(ErrorKind::InvalidValue, "user and tenant exclude each other")
                .hint("Send one of them.")
                .into());
        }
    };
    let since = query.since.as_deref().map(span::parse).transpose()?;
    let statement = Statement::ShowAudit { scope, since, limit: Some(rows_to_read(&page)) };
    // A request may have several rows: it was refused, and its repeat was not.
    let mut collect = AsShown::new(&call.gateway.budget, page, &["request", "outcome"])?;
    let warnings = call.run(&statement, &mut collect).await?;
    let (rows, next) = collect.finish()?;
    Ok(json(rows, &warnings, next.as_deref()))
}
