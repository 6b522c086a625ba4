//! SHOW AUDIT: the control statements that were recorded, newest first.

use std::time::Duration;

use ddl::AuditScope;
use hs2::{SqlType, Value};
use metadata::{AuditFilter, AuditRow};
use model::clock::utc;
use model::error::UserError;

use crate::metadata::answer::{Answer, maybe, text};
use crate::metadata::context::Context;
use crate::metadata::settings::DEFAULT_AUDIT_ROWS;

const COLUMNS: [(&str, SqlType); 12] = [
    ("at", SqlType::String),
    ("user", SqlType::String),
    ("statement", SqlType::String),
    ("object", SqlType::String),
    ("outcome", SqlType::String),
    ("sqlstate", SqlType::String),
    ("generation", SqlType::BigInt),
    ("via", SqlType::String),
    ("method", SqlType::String),
    ("proxy", SqlType::String),
    ("client", SqlType::String),
    ("request", SqlType::String),
];

pub(in crate::metadata) async fn show(
    context: &Context,
    scope: &AuditScope,
    since: Option<Duration>,
    limit: Option<u32>,
) -> Result<Answer, UserError> {
    context.require_right()?;
    let (user, tenant) = match scope {
        AuditScope::All => (None, None),
        AuditScope::User(user) => (Some(user.clone()), None),
        AuditScope::Tenant(tenant) => (None, Some(tenant.clone())),
    };
    let filter = AuditFilter { user, tenant, since, limit: limit.unwrap_or(DEFAULT_AUDIT_ROWS) };
    let mut answer = Answer::new(&COLUMNS);
    for audited in context.store().audit(&filter).await.map_err(|error| error.user_error())? {
        answer.row(row(audited));
    }
    Ok(answer)
}

fn row(audited: AuditRow) -> Vec<Value> {
    let AuditRow { request, at_ms, user, source, statement, object, tenant: _, outcome, sqlstate, generation } =
        audited;
    vec![
        text(utc(at_ms)),
        text(user),
        text(statement),
        maybe(object),
        text(outcome.as_str()),
        maybe(sqlstate),
        generation.map_or(Value::Null, |generation| Value::I64(generation.get())),
        maybe(source.via),
        maybe(source.method),
        maybe(source.proxy),
        maybe(source.client),
        text(request.as_str()),
    ]
}
