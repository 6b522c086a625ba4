//! EXPLAIN START ENGINE and EXPLAIN RESTART ENGINE: what the engine would ask of each limit that it is charged to, then every
//! decision until nothing is left to do. Changes nothing.
//!
//! Users see the amounts of their tenants, and of a pool only whether it is short; of the decisions they see those about
//! their tenant.

use hs2::{SqlType, Value};
use metadata::user_error;
use model::desired::lowest_free_ordinal;
use model::engine_name::EngineName;
use model::error::UserError;
use model::name::{PoolName, TenantName, UnitName};
use model::number::Incarnation;
use model::shared::Shared;
use model::slot::{Link, Origin, Replacement, Slot, StartedFor};
use planner::{DesiredState, ExplainedStart, ObservedState, Row, ScopeRow};

use super::explain::{Input, input};
use crate::metadata::answer::{Answer, number, text};
use crate::metadata::context::Context;

const COLUMNS: [(&str, SqlType); 11] = [
    ("scope", SqlType::String),
    ("resource", SqlType::String),
    ("asked", SqlType::String),
    ("left", SqlType::String),
    ("limit", SqlType::String),
    ("verdict", SqlType::String),
    ("step", SqlType::BigInt),
    ("decision", SqlType::String),
    ("engine", SqlType::String),
    ("slot", SqlType::String),
    ("because", SqlType::String),
];

pub(in crate::metadata) async fn start(
    context: &Context,
    (tenant, pool, unit): (&TenantName, &PoolName, &UnitName),
) -> Result<Answer, UserError> {
    let link = Link { tenant: tenant.clone(), pool: pool.clone(), unit: unit.clone() };
    let Input { desired, observed, .. } = input(context, |catalog| {
        context.require_right_in(catalog, tenant)?;
        let spec = metadata::linked(catalog, &link, &context.caller())?;
        metadata::owner_of_started(unit, spec, &context.subject).map(drop)
    })
    .await?;
    let owner =
        desired.snapshot.catalog.unit(unit).map(|spec| metadata::owner_of_started(unit, spec, &context.subject));
    let owner = owner.transpose()?.flatten();
    let of_link: Vec<Shared<Slot>> =
        desired.snapshot.slots.iter().filter(|slot| slot.key.link() == link).cloned().collect();
    let ordinal = lowest_free_ordinal(&link, &of_link);
    let unnumbered = Incarnation(0);
    let slot = Slot {
        key: model::slot::SlotKey { tenant: link.tenant, pool: link.pool, unit: link.unit, ordinal },
        incarnation: unnumbered,
        origin: Origin::Start,
        failures: 0,
        replacement: Replacement::StandIn,
        born: unnumbered,
        started_for: Some(StartedFor { user: context.subject.user.clone(), creator: context.creator.clone() }),
        owner,
        asked_at_ms: desired.snapshot.now_ms,
    };
    let explained =
        explained(desired, observed, move |desired, observed| Some(planner::explain_start(desired, observed, slot)));
    Ok(answer(context, tenant, explained.await?.unwrap_or_default()))
}

pub(in crate::metadata) async fn restart(
    context: &Context,
    (pool, engine): (&PoolName, &EngineName),
    replacement: Replacement,
) -> Result<Answer, UserError> {
    let detail = context.store().engine(engine).await.map_err(|error| error.user_error())?;
    let tenant = detail.as_ref().map(|detail| detail.record.slot.tenant.clone());
    let Input { desired, observed, .. } = input(context, |catalog| {
        user_error::unless_allowed_engine(catalog, &context.caller(), context.kind, (tenant.as_ref(), engine))
    })
    .await?;
    let Some(detail) = detail else { return Err(user_error::no_engine(engine)) };
    let key = detail.record.slot;
    if key.pool != *pool {
        return Err(user_error::engine_of_other_pool(engine, pool, &key.pool));
    }
    let tenant = key.tenant.clone();
    let found = explained(desired, observed, move |desired, observed| {
        planner::explain_restart(desired, observed, &key, replacement)
    });
    let Some(found) = found.await? else {
        context.log.line("the engine is no longer desired: RESTART would change nothing");
        return Ok(Answer::new(&COLUMNS));
    };
    Ok(answer(context, &tenant, found))
}

/// Computes it apart from the threads that serve other calls, because a large installation takes seconds.
async fn explained(
    desired: DesiredState,
    observed: ObservedState,
    explain: impl FnOnce(&DesiredState, &ObservedState) -> Option<ExplainedStart> + Send + 'static,
) -> Result<Option<ExplainedStart>, UserError> {
    let task = tokio::task::spawn_blocking(move || explain(&desired, &observed));
    task.await.map_err(|error| UserError::internal(format!("EXPLAIN did not finish: {error}")))
}

fn answer(context: &Context, tenant: &TenantName, explained: ExplainedStart) -> Answer {
    let sees_all = context.subject.may_in_any(context.kind);
    let mut answer = Answer::new(&COLUMNS);
    for scope in explained.scopes {
        answer.row(scope_values(scope, sees_all));
    }
    let of_tenant = format!("{tenant}/");
    for row in explained.rows.into_iter().filter(|row| sees_all || row.slot.starts_with(&of_tenant)) {
        answer.row(row_values(row));
    }
    answer
}

fn scope_values(row: ScopeRow, sees_all: bool) -> Vec<Value> {
    let is_policy = |scope: &str| ["tenant ", "user ", "creator "].iter().any(|kind| scope.starts_with(kind));
    let is_visible = sees_all || is_policy(&row.scope);
    let amount = |amount: String| if is_visible && !amount.is_empty() { text(amount) } else { Value::Null };
    let mut values = vec![text(row.scope), text(row.resource), text(row.asked), amount(row.left), amount(row.limit)];
    values.push(text(row.verdict.as_str()));
    values.resize(COLUMNS.len(), Value::Null);
    values
}

fn row_values(row: Row) -> Vec<Value> {
    let mut values = vec![Value::Null; 6];
    values.extend([number(row.step), text(row.decision), text(row.engine), text(row.slot), text(row.because)]);
    values
}
