//! Any control statement as text: what changes objects, what explains a change, and everything that has a resource too.

use axum::response::Response;
use ddl::Statement;
use http::StatusCode;
use model::alteration::{ObjectKind, ObjectRef};
use model::error::{ErrorKind, UserError};
use serde::Deserialize;
use utoipa::ToSchema;

use super::collect::Whole;
use super::execution::Call;
use super::extract::Names;
use super::operation::{About, Operation, Rows};
use super::problem::ApiError;
use super::response::whole;

/// One control statement.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct RunStatement {
    /// Such as `ALTER TENANT t_1 COMMENT 'etl'`.
    statement: String,
}

pub(super) fn operation() -> Operation {
    let about = About {
        id: "runStatement",
        summary: "Runs any one statement of the control language.",
        rows: Rows::OfStatement,
        success: &[(200, "The result of the statement.")],
    };
    Operation::post("/api/v1/statements", &about, run)
}

async fn run(call: Call, _: Names, RunStatement { statement: text }: RunStatement) -> Result<Response, ApiError> {
    if ddl::sniff(&text).is_none() {
        return Err(not_a_control_statement(&text).into());
    }
    let statement = ddl::parse(&text).map_err(UserError::from).map_err(|error| match error.kind {
        // A statement that is too long stays so.
        ErrorKind::ProgramLimit => ApiError::with_status(StatusCode::UNPROCESSABLE_ENTITY, error),
        _ => error.into(),
    })?;
    let pages = match offer(&statement) {
        Offer::Pages(path) => Some(format!("GET {path} returns the same, in pages.")),
        Offer::Resource(_) | Offer::TextOnly => None,
    };
    let mut result = Whole::new(&call.gateway.budget, pages)?;
    let warnings = call.run(&statement, &mut result).await?;
    Ok(whole(&result, &warnings))
}

fn not_a_control_statement(text: &str) -> UserError {
    let error = UserError::new(ErrorKind::NotSupported, "not a statement of the control language");
    match ddl::near_miss(text) {
        Some(meant) => error.hint(meant),
        None => error.hint("Engines run SQL in HiveServer2 sessions only: over JDBC, or with \"enginehouse sql\"."),
    }
}

/// How REST offers a statement, apart from `POST /api/v1/statements`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Offer {
    /// A list with pages at this path.
    Pages(&'static str),
    /// A resource at this path, with one response.
    Resource(&'static str),
    /// Nothing else.
    TextOnly,
}

/// The decision about each statement: a new one does not compile without.
const fn offer(statement: &Statement) -> Offer {
    match statement {
        Statement::ShowEngines(_) => Offer::Pages("/api/v1/engines"),
        Statement::ShowObjects { kind: ObjectKind::Tenant, .. } => Offer::Pages("/api/v1/tenants"),
        Statement::ShowObjects { kind: ObjectKind::ResourcePool, .. } => Offer::Pages("/api/v1/pools"),
        Statement::ShowObjects { kind: ObjectKind::ResourceUnit, .. } => Offer::Pages("/api/v1/units"),
        Statement::ShowObjects { kind: ObjectKind::ResourceQuota, .. } | Statement::ShowQuotas { .. } => {
            Offer::Pages("/api/v1/quotas")
        }
        Statement::ShowAlterations { .. } => Offer::Pages("/api/v1/alterations"),
        Statement::ShowAudit { .. } => Offer::Pages("/api/v1/audit"),
        Statement::StartEngine { .. } => Offer::Resource("/api/v1/engines"),
        Statement::DescribeEngine { .. } => Offer::Resource("/api/v1/engines/{pool}/{engine}"),
        Statement::RestartEngine { .. } => Offer::Resource("/api/v1/engines/{pool}/{engine}/restart"),
        Statement::StopEngine { .. } => Offer::Resource("/api/v1/engines/{pool}/{engine}/stop"),
        Statement::ShowPoolsOfUnit { .. } => Offer::Resource("/api/v1/units/{unit}/pools"),
        Statement::ShowTenantsOfPool { .. } => Offer::Resource("/api/v1/pools/{pool}/tenants"),
        Statement::Describe(ObjectRef { kind, .. }) => Offer::Resource(match kind {
            ObjectKind::Tenant => "/api/v1/tenants/{tenant}",
            ObjectKind::ResourcePool => "/api/v1/pools/{pool}",
            ObjectKind::ResourceUnit => "/api/v1/units/{unit}",
            ObjectKind::ResourceQuota => "/api/v1/quotas/{quota}",
        }),
        Statement::ShowCreate(ObjectRef { kind, .. }) => Offer::Resource(match kind {
            ObjectKind::Tenant => "/api/v1/tenants/{tenant}/definition",
            ObjectKind::ResourcePool => "/api/v1/pools/{pool}/definition",
            ObjectKind::ResourceUnit => "/api/v1/units/{unit}/definition",
            ObjectKind::ResourceQuota => "/api/v1/quotas/{quota}/definition",
        }),
        Statement::ShowReservations { .. } => Offer::Pages("/api/v1/reservations"),
        Statement::DescribeReservation { .. } | Statement::CancelReservation { .. } => {
            Offer::Resource("/api/v1/reservations/{reservation}")
        }
        Statement::ShowDemand { .. } => Offer::Pages("/api/v1/demand"),
        Statement::ShowEngineHistory { .. } => Offer::Pages("/api/v1/engines/history"),
        Statement::ShowMaster => Offer::Resource("/api/v1/master"),
        Statement::Change { .. }
        | Statement::Explain { .. }
        | Statement::ExplainStart { .. }
        | Statement::ExplainRestart { .. } => Offer::TextOnly,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use std::collections::BTreeSet;

    use super::*;
    use crate::api::routes;

    #[test]
    fn each_resource_of_a_statement_has_a_route_and_each_route_a_statement() {
        let offered = [
            "SHOW ENGINES t_1",
            "START ENGINE t_1 rp_1 uc_1",
            "RESTART ENGINE rp_1 'e'",
            "STOP ENGINE rp_1 'e'",
            "DESCRIBE ENGINE rp_1 'e'",
            "SHOW TENANTS",
            "SHOW RESOURCE POOLS",
            "SHOW RESOURCE UNITS",
            "SHOW RESOURCE UNIT uc_1 FOR POOL",
            "SHOW RESOURCE POOL rp_1 FOR TENANT",
            "DESCRIBE TENANT t_1",
            "DESCRIBE RESOURCE POOL rp_1",
            "DESCRIBE RESOURCE UNIT uc_1",
            "SHOW QUOTAS",
            "SHOW QUOTAS TENANT t_1",
            "DESCRIBE RESOURCE QUOTA q_1",
            "SHOW CREATE RESOURCE QUOTA q_1",
            "SHOW CREATE TENANT t_1",
            "SHOW CREATE RESOURCE POOL rp_1",
            "SHOW CREATE RESOURCE UNIT uc_1",
            "SHOW ALTERATIONS",
            "SHOW AUDIT",
            "SHOW RESERVATIONS",
            "SHOW DEMAND TENANT t_1",
            "SHOW ENGINE HISTORY t_1",
            "DESCRIBE RESERVATION 'r'",
            "CANCEL RESERVATION 'r'",
            "SHOW MASTER",
        ];
        let offered: BTreeSet<&str> = offered
            .into_iter()
            .map(|text| match offer(&ddl::parse(text).unwrap()) {
                Offer::Pages(path) | Offer::Resource(path) => path,
                Offer::TextOnly => panic!("{text}"),
            })
            .collect();
        let mut routed: BTreeSet<&str> = routes::operations().iter().map(|operation| operation.path).collect();
        assert!(routed.remove("/api/v1/openapi.json") && routed.remove("/api/v1/statements"));
        // Calls of holders and of providers are no statements.
        routed
            .retain(|path| !path.starts_with("/api/v1/reservations/{reservation}/") && !path.contains("/registration"));
        assert_eq!(offered, routed);
        for text in ["DROP TENANT t_1", "EXPLAIN DROP TENANT t_1"] {
            assert_eq!(offer(&ddl::parse(text).unwrap()), Offer::TextOnly);
        }
    }

    #[test]
    fn other_sql_is_refused_with_what_was_probably_meant() {
        let error = not_a_control_statement("SELECT 1");
        assert_eq!(error.sqlstate(), "0A000");
        assert!(error.hint.unwrap().contains("HiveServer2"));
        assert!(not_a_control_statement("SHOW ENGINS t_1").hint.unwrap().contains("ENGINES"));
    }
}
