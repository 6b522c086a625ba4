//! SHOW ENGINE HISTORY: the engines of a tenant that have ended, newest first, when and why.
//!
//! A row is written with the end of its engine and does not change after that. What an older version did not record is NULL.

use ddl::HistoryScope;
use hs2::{SqlType, Value};
use metadata::{HistoryFilter, user_error};
use model::clock::utc;
use model::end::EndWord;
use model::error::UserError;
use model::history::EndedRecord;
use model::resource::Amount;
use model::rights::StatementKind;
use model::slot::Origin;

use super::quota;
use crate::metadata::answer::{Answer, maybe, text};
use crate::metadata::context::Context;

/// The number of engines that are listed without LIMIT.
pub(in crate::metadata) const DEFAULT_HISTORY: u32 = 20;

const COLUMNS: [(&str, SqlType); 15] = [
    ("engine", SqlType::String),
    ("pool", SqlType::String),
    ("unit", SqlType::String),
    ("origin", SqlType::String),
    ("owner", SqlType::String),
    ("wanted", SqlType::String),
    ("reserved", SqlType::String),
    ("created", SqlType::String),
    ("registered", SqlType::String),
    ("ended", SqlType::String),
    ("word", SqlType::String),
    ("retryable", SqlType::Boolean),
    ("reason", SqlType::String),
    ("sessions_served", SqlType::BigInt),
    ("charge", SqlType::String),
];

pub(in crate::metadata) async fn show(
    context: &Context,
    scope: &HistoryScope,
    limit: Option<u32>,
) -> Result<Answer, UserError> {
    let catalog = context.store().catalog().await.map_err(|error| error.user_error())?;
    let tenant = scope.tenant();
    context.require_right_in(&catalog, tenant)?;
    if catalog.tenant(tenant).is_none() {
        return Err(user_error::no_tenant(tenant));
    }
    let sees_all = context.subject.may_in_any(StatementKind::ShowObjects);
    if let Some(pool) = scope.pool().filter(|pool| sees_all && catalog.pool(pool).is_none()) {
        return Err(user_error::no_pool(pool));
    }
    if let Some(unit) = scope.unit().filter(|unit| sees_all && catalog.unit(unit).is_none()) {
        return Err(user_error::no_unit(unit));
    }
    let filter = HistoryFilter {
        tenant: tenant.clone(),
        pool: scope.pool().cloned(),
        unit: scope.unit().cloned(),
        limit: limit.unwrap_or(DEFAULT_HISTORY),
    };
    let records = context.store().engine_history(&filter).await.map_err(|error| error.user_error())?;
    let mut answer = Answer::new(&COLUMNS);
    for record in records {
        answer.row(values(record));
    }
    Ok(answer)
}

fn values(record: EndedRecord) -> Vec<Value> {
    let at = |at_ms: Option<i64>| maybe(at_ms.map(utc));
    let charge = record.charge.map(|(cpu_m, memory)| quota::amounts(&Amount { cpu_m, memory, engines: 1 }));
    vec![
        text(record.name.as_str()),
        text(record.slot.pool.as_str()),
        text(record.slot.unit.as_str()),
        maybe(record.origin.map(Origin::as_str)),
        maybe(record.owner.map(|owner| owner.to_string())),
        at(Some(record.wanted_at_ms)),
        at(record.reserved_at_ms),
        at(record.created_at_ms),
        at(record.registered_at_ms),
        at(Some(record.ended_at_ms)),
        maybe(record.word.map(EndWord::as_str)),
        record.retryable.map_or(Value::Null, Value::Bool),
        // Its agent only reports that it was drained.
        maybe(record.ordered.or(record.reason)),
        record.sessions_served.map_or(Value::Null, Value::I64),
        maybe(charge),
    ]
}
