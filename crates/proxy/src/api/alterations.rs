//! Alterations, newest first.

use axum::response::Response;
use ddl::Statement;
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa::openapi::schema::Type;

use super::collect::AsShown;
use super::execution::Call;
use super::extract::Names;
use super::operation::{About, Column, Operation, Rows};
use super::page::{MAX_LIMIT, Page};
use super::problem::ApiError;
use super::response::json;

/// Which rows of the list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct AlterationsQuery {
    /// The most rows, 100 by default.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// The `next` of the page before.
    cursor: Option<String>,
}

const ALTERATIONS: &[Column] = &[
    ("id", Type::String),
    ("object", Type::String),
    ("statement", Type::String),
    ("by", Type::String),
    ("outcome", Type::String),
    ("progress", Type::String),
    ("since", Type::String),
    ("waits_for", Type::String),
    ("reason", Type::String),
];

/// The rows that a page needs: its own and one more, or all that lead to its cursor.
pub(super) fn rows_to_read(page: &Page) -> u32 {
    if page.after.is_some() { ddl::MAX_LIMIT } else { (page.limit.min(MAX_LIMIT) + 1) as u32 }
}

pub(super) fn operation() -> Operation {
    let about = About {
        id: "listAlterations",
        summary: "Lists alterations, newest first (SHOW ALTERATIONS).",
        rows: Rows::Of(ALTERATIONS),
        success: &[(200, "The rows.")],
    };
    Operation::get("/api/v1/alterations", &about, show)
}

async fn show(call: Call, _: Names, query: AlterationsQuery) -> Result<Response, ApiError> {
    let page = Page::new("alterations", query.limit, query.cursor.as_deref())?;
    let statement = Statement::ShowAlterations { limit: Some(rows_to_read(&page)) };
    let mut collect = AsShown::new(&call.gateway.budget, page, &["id"])?;
    let warnings = call.run(&statement, &mut collect).await?;
    let (rows, next) = collect.finish()?;
    Ok(json(rows, &warnings, next.as_deref()))
}
