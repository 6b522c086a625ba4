//! The dispatcher: executes each kind of statement.

use ddl::Statement;
use model::error::UserError;
use model::slot::Replacement;

use super::answer::Answer;
use super::context::Context;
use super::{alter, audit, cancel, request, show, wait};

pub(super) async fn execute(context: &Context, statement: &Statement) -> Result<Answer, UserError> {
    let outcome = dispatch(context, statement).await;
    if let Err(error) = &outcome {
        audit::record_refusal(context, statement, error).await;
    }
    outcome
}

async fn dispatch(context: &Context, statement: &Statement) -> Result<Answer, UserError> {
    wait::check(statement.wait())?;
    match statement {
        Statement::ShowEngines(scope) => show::engines::show(context, scope).await,
        Statement::DescribeEngine { pool, engine } => show::engine::describe(context, pool, engine).await,
        Statement::StartEngine { tenant, pool, unit, nowait, wait } => {
            request::start(context, statement, (tenant, pool, unit), *nowait, *wait).await
        }
        Statement::RestartEngine { pool, engine, in_place, grace, wait } => {
            request::restart(context, statement, (pool, engine), (*in_place, *grace), *wait).await
        }
        Statement::StopEngine { pool, engine, grace, wait } => {
            request::stop(context, statement, (pool, engine), *grace, *wait).await
        }
        Statement::ShowObjects { kind, like } => show::objects::show(context, *kind, like.as_deref()).await,
        Statement::ShowQuotas { of, like } => show::quotas::show(context, Some(of), like.as_deref()).await,
        Statement::ShowPoolsOfUnit { unit } => show::objects::pools_of_unit(context, unit).await,
        Statement::ShowTenantsOfPool { pool } => show::objects::tenants_of_pool(context, pool).await,
        Statement::Describe(object) => show::object::describe(context, object).await,
        Statement::ShowCreate(object) => show::object::show_create(context, object).await,
        Statement::Change { change, in_place, wait } => {
            alter::alter(context, statement, change, replacement(*in_place), *wait).await
        }
        Statement::Explain { change, in_place } => {
            show::explain::explain(context, change, replacement(*in_place)).await
        }
        Statement::ExplainStart { tenant, pool, unit } => {
            show::explain_start::start(context, (tenant, pool, unit)).await
        }
        Statement::ExplainRestart { pool, engine, in_place } => {
            show::explain_start::restart(context, (pool, engine), replacement(*in_place)).await
        }
        Statement::ShowReservations { of, all, limit } => {
            show::reservations::show(context, of.as_ref(), *all, *limit).await
        }
        Statement::ShowDemand { tenant, limit } => show::demand::show(context, tenant.as_ref(), *limit).await,
        Statement::ShowEngineHistory { scope, limit } => show::engine_history::show(context, scope, *limit).await,
        Statement::DescribeReservation { id } => show::reservations::describe(context, id).await,
        Statement::CancelReservation { id } => cancel::cancel(context, statement, id).await,
        Statement::ShowAlterations { limit } => show::alterations::show(context, *limit).await,
        Statement::ShowAudit { scope, since, limit } => show::audit::show(context, scope, *since, *limit).await,
        Statement::ShowMaster => show::master::show(context).await,
    }
}

/// How a statement that does not use FORCE replaces engines.
const fn replacement(in_place: bool) -> Replacement {
    if in_place { Replacement::InPlace } else { Replacement::StandIn }
}
