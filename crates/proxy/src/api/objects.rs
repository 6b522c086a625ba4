//! Tenants, resource pools, units and quotas: lists, descriptions, definitions, and which objects use them. The list of
//! quotas has parameters of its own.

use axum::response::Response;
use ddl::Statement;
use model::alteration::{ObjectKind, ObjectRef};
use model::error::UserError;
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa::openapi::schema::Type;

use super::collect::{ByKey, Whole};
use super::execution::Call;
use super::extract::{Names, NoParameters};
use super::operation::{About, Column, Operation, Rows};
use super::page::Page;
use super::problem::ApiError;
use super::response::{json, whole};

/// Which rows of a list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct ListQuery {
    /// Only names that match: `%` and `*` match any text, `_` one character.
    like: Option<String>,
    /// The most rows, 100 by default.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// The `next` of the page before.
    cursor: Option<String>,
}

/// The columns of every DESCRIBE.
pub(super) const PROPERTIES: &[Column] = &[("property", Type::String), ("value", Type::String)];
const DEFINITION: &[Column] = &[("statement", Type::String)];

/// A list of all objects of a kind.
struct Listing {
    kind: ObjectKind,
    columns: &'static [Column],
    /// The column with the name.
    key: &'static [&'static str],
    /// The word for the list in cursors.
    resource: &'static str,
}

const TENANTS: Listing = Listing {
    kind: ObjectKind::Tenant,
    columns: &[
        ("tenant", Type::String),
        ("resource_pools", Type::String),
        ("users", Type::String),
        ("admins", Type::String),
        ("default_unit", Type::String),
        ("comment", Type::String),
    ],
    key: &["tenant"],
    resource: "tenants",
};

const POOLS: Listing = Listing {
    kind: ObjectKind::ResourcePool,
    columns: &[
        ("pool", Type::String),
        ("units", Type::String),
        ("namespace", Type::String),
        ("nodes", Type::String),
        ("queue_prefix", Type::String),
        ("image", Type::String),
        ("comment", Type::String),
    ],
    key: &["pool"],
    resource: "pools",
};

const UNITS: Listing = Listing {
    kind: ObjectKind::ResourceUnit,
    columns: &[
        ("unit", Type::String),
        ("engine_type", Type::String),
        ("driver_cpu", Type::String),
        ("driver_memory", Type::String),
        ("executor_cpu", Type::String),
        ("executor_memory", Type::String),
        ("min_executors", Type::Integer),
        ("max_executors", Type::Integer),
        ("min_engines", Type::Integer),
        ("max_engines", Type::Integer),
        ("properties", Type::String),
        ("comment", Type::String),
    ],
    key: &["unit"],
    resource: "units",
};

fn named(kind: ObjectKind, names: &Names) -> Result<ObjectRef, UserError> {
    let name = match kind {
        ObjectKind::Tenant => names.tenant()?.to_string(),
        ObjectKind::ResourcePool => names.pool()?.to_string(),
        ObjectKind::ResourceUnit => names.unit()?.to_string(),
        ObjectKind::ResourceQuota => names.quota()?.to_string(),
    };
    Ok(ObjectRef { kind, name })
}

const OK: &[(u16, &str)] = &[(200, "The rows.")];

pub(super) fn operations() -> Vec<Operation> {
    use ObjectKind::{ResourcePool, ResourceQuota, ResourceUnit, Tenant};
    vec![
        list(&TENANTS, "/api/v1/tenants", "listTenants", "Lists the tenants that the user may see (SHOW TENANTS)."),
        list(
            &POOLS,
            "/api/v1/pools",
            "listPools",
            "Lists the resource pools that the user may see (SHOW RESOURCE POOLS).",
        ),
        list(
            &UNITS,
            "/api/v1/units",
            "listUnits",
            "Lists the resource units that the user may see (SHOW RESOURCE UNITS).",
        ),
        describe(Tenant, "/api/v1/tenants/{tenant}", "describeTenant", "Describes a tenant (DESCRIBE TENANT)."),
        describe(
            ResourcePool,
            "/api/v1/pools/{pool}",
            "describePool",
            "Describes a resource pool (DESCRIBE RESOURCE POOL).",
        ),
        describe(
            ResourceUnit,
            "/api/v1/units/{unit}",
            "describeUnit",
            "Describes a resource unit (DESCRIBE RESOURCE UNIT).",
        ),
        describe(
            ResourceQuota,
            "/api/v1/quotas/{quota}",
            "describeQuota",
            "Describes a resource quota (DESCRIBE RESOURCE QUOTA).",
        ),
        definition(
            Tenant,
            "/api/v1/tenants/{tenant}/definition",
            "getTenantDefinition",
            "Returns the statement that creates the tenant (SHOW CREATE TENANT).",
        ),
        definition(
            ResourcePool,
            "/api/v1/pools/{pool}/definition",
            "getPoolDefinition",
            "Returns the statement that creates the resource pool (SHOW CREATE RESOURCE POOL).",
        ),
        definition(
            ResourceUnit,
            "/api/v1/units/{unit}/definition",
            "getUnitDefinition",
            "Returns the statement that creates the resource unit (SHOW CREATE RESOURCE UNIT).",
        ),
        definition(
            ResourceQuota,
            "/api/v1/quotas/{quota}/definition",
            "getQuotaDefinition",
            "Returns the statement that creates the resource quota (SHOW CREATE RESOURCE QUOTA).",
        ),
        tenants_of_pool(),
        pools_of_unit(),
    ]
}

fn list(of: &'static Listing, path: &'static str, id: &'static str, summary: &'static str) -> Operation {
    let about = About { id, summary, rows: Rows::Of(of.columns), success: OK };
    Operation::get(path, &about, move |call: Call, _, ListQuery { like, limit, cursor }| async move {
        let page = Page::new(of.resource, limit, cursor.as_deref())?;
        let mut collect = ByKey::new(&call.gateway.budget, page, of.key)?;
        let warnings = call.run(&Statement::ShowObjects { kind: of.kind, like }, &mut collect).await?;
        let (rows, next) = collect.finish();
        Ok(json(rows, &warnings, next.as_deref()))
    })
}

fn describe(kind: ObjectKind, path: &'static str, id: &'static str, summary: &'static str) -> Operation {
    let about = About { id, summary, rows: Rows::Of(PROPERTIES), success: OK };
    Operation::get(path, &about, move |call, names: Names, _: NoParameters| async move {
        run_whole(&call, Statement::Describe(named(kind, &names)?)).await
    })
}

fn definition(kind: ObjectKind, path: &'static str, id: &'static str, summary: &'static str) -> Operation {
    let about = About { id, summary, rows: Rows::Of(DEFINITION), success: OK };
    Operation::get(path, &about, move |call, names: Names, _: NoParameters| async move {
        run_whole(&call, Statement::ShowCreate(named(kind, &names)?)).await
    })
}

fn tenants_of_pool() -> Operation {
    let about = About {
        id: "listTenantsOfPool",
        summary: "Lists the tenants that use the resource pool (SHOW RESOURCE POOL … FOR TENANT).",
        rows: Rows::Of(&[("pool", Type::String), ("tenant", Type::String)]),
        success: OK,
    };
    Operation::get("/api/v1/pools/{pool}/tenants", &about, |call, names: Names, _: NoParameters| async move {
        run_whole(&call, Statement::ShowTenantsOfPool { pool: names.pool()? }).await
    })
}

fn pools_of_unit() -> Operation {
    let about = About {
        id: "listPoolsOfUnit",
        summary: "Lists the resource pools that offer the resource unit (SHOW RESOURCE UNIT … FOR POOL).",
        rows: Rows::Of(&[("unit", Type::String), ("pool", Type::String)]),
        success: OK,
    };
    Operation::get("/api/v1/units/{unit}/pools", &about, |call, names: Names, _: NoParameters| async move {
        run_whole(&call, Statement::ShowPoolsOfUnit { unit: names.unit()? }).await
    })
}

/// Runs a statement whose result has no pages.
pub(super) async fn run_whole(call: &Call, statement: Statement) -> Result<Response, ApiError> {
    let mut collect = Whole::new(&call.gateway.budget, None)?;
    let warnings = call.run(&statement, &mut collect).await?;
    Ok(whole(&collect, &warnings))
}
