//! The user errors of control statements. Metadata agents also use them before anything is written.

use model::catalog::{Catalog, TenantSpec};
use model::engine_name::EngineName;
use model::error::{ErrorKind, UserError};
use model::name::{PoolName, TenantName, UnitName};
use model::rights::StatementKind;
use model::slot::Link;
use model::text::as_detail;

use crate::caller::Caller;

/// The maximum number of names in a detail.
const MAX_NAMES_SHOWN: usize = 10;

fn undefined(what: &str, hint: &str) -> UserError {
    UserError::new(ErrorKind::UndefinedObject, format!("{what} does not exist")).hint(hint)
}

/// `tenant "t_1" does not exist`
pub fn no_tenant(tenant: &TenantName) -> UserError {
    undefined(&format!("tenant \"{tenant}\""), "SHOW TENANTS lists the tenants.")
}

/// `resource pool "rp_1" does not exist`
pub fn no_pool(pool: &PoolName) -> UserError {
    undefined(&format!("resource pool \"{pool}\""), "SHOW RESOURCE POOLS lists the pools.")
}

/// `resource unit "uc_1" does not exist`
pub fn no_unit(unit: &UnitName) -> UserError {
    undefined(&format!("resource unit \"{unit}\""), "SHOW RESOURCE UNITS lists the units.")
}

/// `engine "x" does not exist`
pub fn no_engine(engine: &EngineName) -> UserError {
    undefined(&format!("engine \"{engine}\""), "SHOW ENGINES with the name of the tenant lists the engines.")
}

/// The engine is in another pool than the one that the statement names.
pub fn engine_of_other_pool(engine: &EngineName, named: &PoolName, actual: &PoolName) -> UserError {
    UserError::new(ErrorKind::UndefinedObject, format!("engine \"{engine}\" is not in resource pool \"{named}\""))
        .hint(format!("It is in resource pool {actual}."))
}

fn names<T: AsRef<str>>(items: &[T]) -> String {
    let shown: Vec<String> = items.iter().take(MAX_NAMES_SHOWN).map(|name| format!("\"{}\"", name.as_ref())).collect();
    shown.join(", ")
}

/// The link between tenant and pool is missing.
pub fn tenant_lacks_pool(tenant: &TenantName, pool: &PoolName, has: &[PoolName]) -> UserError {
    let error =
        UserError::new(ErrorKind::WrongState, format!("tenant \"{tenant}\" does not use resource pool \"{pool}\""));
    let error = error.hint(format!(
        "An administrator can add the pool to RESOURCE_POOL_LIST of the tenant with ALTER TENANT {tenant}."
    ));
    if has.is_empty() { error.detail("It uses no pool.") } else { error.detail(format!("It uses {}.", names(has))) }
}

/// The link between pool and unit is missing.
pub fn pool_lacks_unit(pool: &PoolName, unit: &UnitName, has: &[UnitName]) -> UserError {
    let error =
        UserError::new(ErrorKind::WrongState, format!("resource pool \"{pool}\" does not offer unit \"{unit}\""));
    let error = error
        .hint(format!("An administrator can add the unit to UNIT_LIST of the pool with ALTER RESOURCE POOL {pool}."));
    if has.is_empty() { error.detail("It offers no unit.") } else { error.detail(format!("It offers {}.", names(has))) }
}

/// The pool has no node for engines; `reason` is the result of [`PoolSpec::lacks_nodes`].
///
/// [`PoolSpec::lacks_nodes`]: model::catalog::PoolSpec::lacks_nodes
pub fn pool_lacks_nodes(pool: &PoolName, reason: &str) -> UserError {
    UserError::new(ErrorKind::WrongState, format!("resource pool \"{pool}\" has no nodes"))
        .detail(as_detail(reason))
        .hint(format!(
            "An administrator can assign nodes with ALTER RESOURCE POOL {pool} NODE_LIST ('…') or NODE_SELECTOR ('…'='…')."
        ))
}

/// START above `MAX_ENGINES`.
pub fn above_max(link: &Link, desired: usize, max: u32) -> UserError {
    let Link { tenant, pool, unit } = link;
    UserError::new(ErrorKind::LimitReached, format!("resource unit \"{unit}\" allows no more engines"))
        .detail(format!(
            "Tenant \"{tenant}\" has {desired} engines of it in resource pool \"{pool}\", and MAX_ENGINES is {max}."
        ))
        .hint(format!(
            "An administrator can raise the limit with ALTER RESOURCE UNIT {unit} MAX_ENGINES {}.",
            desired + 1
        ))
}

/// START on a unit of which each session has an engine of its own.
pub fn shared_by_session(unit: &UnitName) -> UserError {
    UserError::new(
        ErrorKind::WrongState,
        format!("cannot start an engine of resource unit \"{unit}\" without a session"),
    )
    .detail("The unit is shared by session: each session has an engine of its own, which ends with it.")
    .hint("Connect, and run a statement: the session's engine is started.")
}

/// More engines in total than the configuration allows.
pub fn above_total(current: usize, after: usize, max: usize) -> UserError {
    UserError::new(ErrorKind::ProgramLimit, "too many engines")
        .detail(format!(
            "The statement would raise the number of engines of all tenants from {current} to {after}; \
             metadata_agent.max_engines is {max}."
        ))
        .hint("Lower MIN_ENGINES or drop unused objects; an operator can raise metadata_agent.max_engines.")
}

/// STOP below `MIN_ENGINES`.
pub fn below_min(link: &Link, engine: &EngineName, min: u32) -> UserError {
    let Link { tenant, pool, unit } = link;
    UserError::new(ErrorKind::LimitReached, format!("cannot stop engine \"{engine}\""))
        .detail(format!(
            "MIN_ENGINES of resource unit \"{unit}\" is {min}, and tenant \"{tenant}\" would have fewer engines in resource pool \"{pool}\"."
        ))
        .hint(format!(
            "Use RESTART ENGINE {pool} '{engine}' to replace it. An administrator can lower the limit with ALTER RESOURCE UNIT {unit} MIN_ENGINES {}.",
            min.saturating_sub(1)
        ))
}

/// STOP of the old name of an engine that was restarted.
pub fn stop_of_restarted(pool: &PoolName, engine: &EngineName, successor: &EngineName) -> UserError {
    UserError::new(ErrorKind::WrongState, format!("engine \"{engine}\" was restarted"))
        .detail(format!("Its successor is \"{successor}\"."))
        .hint(format!("Use STOP ENGINE {pool} '{successor}'."))
}

/// Denies a statement on a tenant to a user without the right, without revealing to others than the tenant's own users whether
/// it exists.
pub fn unless_allowed(
    catalog: &Catalog,
    caller: &Caller,
    statement: StatementKind,
    tenant: &TenantName,
) -> Result<(), UserError> {
    let spec = catalog.tenant(tenant);
    if caller.subject.may_in(statement, spec) {
        return Ok(());
    }
    Err(denied(format!("permission denied for tenant \"{tenant}\""), caller, statement, spec))
}

/// Like [`unless_allowed`] for an engine of the tenant; `None` if there is no such engine.
pub fn unless_allowed_engine(
    catalog: &Catalog,
    caller: &Caller,
    statement: StatementKind,
    (tenant, engine): (Option<&TenantName>, &EngineName),
) -> Result<(), UserError> {
    let spec = tenant.and_then(|tenant| catalog.tenant(tenant));
    if caller.subject.may_in(statement, spec) {
        return Ok(());
    }
    Err(denied(format!("permission denied for engine \"{engine}\""), caller, statement, spec))
}

fn denied(message: String, caller: &Caller, statement: StatementKind, tenant: Option<&TenantSpec>) -> UserError {
    let error = UserError::new(ErrorKind::InsufficientPrivilege, message).detail(statement.permitted_to());
    if tenant.is_some_and(|tenant| caller.subject.is_of(tenant) && tenant.admins.is_some()) {
        error.hint("The tenant has an ADMIN_LIST: ask one of its members, or ask an admin to add you.")
    } else {
        error
    }
}
