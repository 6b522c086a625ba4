//! The texts of the refusals: which object, what is wrong, what to say instead. Also used before anything is written.

use model::catalog::Catalog;
use model::engine_name::EngineName;
use model::error::{ErrorKind, UserError};
use model::name::{PoolName, TenantName, UnitName};
use model::slot::Link;

use crate::caller::Caller;

/// The most names that a hint lists.
const MAX_NAMES_SHOWN: usize = 10;

fn undefined(what: &str, hint: &str) -> UserError {
    UserError::new(ErrorKind::UndefinedObject, format!("{what} does not exist")).hint(hint)
}

/// `tenant "t_1" does not exist`
pub fn no_tenant(tenant: &TenantName) -> UserError {
    undefined(&format!("tenant \"{tenant}\""), "SHOW TENANTS lists the tenants")
}

/// `resource pool "rp_1" does not exist`
pub fn no_pool(pool: &PoolName) -> UserError {
    undefined(&format!("resource pool \"{pool}\""), "SHOW RESOURCE POOLS lists the pools")
}

/// `resource unit "uc_1" does not exist`
pub fn no_unit(unit: &UnitName) -> UserError {
    undefined(&format!("resource unit \"{unit}\""), "SHOW RESOURCE UNITS lists the units")
}

/// `engine "x" does not exist`
pub fn no_engine(engine: &EngineName) -> UserError {
    undefined(&format!("engine \"{engine}\""), "SHOW ENGINES with the tenant's name lists the engines")
}

/// The engine is in another pool than the statement says.
pub fn engine_of_other_pool(engine: &EngineName, said: &PoolName, is: &PoolName) -> UserError {
    UserError::new(ErrorKind::UndefinedObject, format!("engine \"{engine}\" is not in resource pool \"{said}\""))
        .hint(format!("it is in resource pool {is}"))
}

fn names<T: AsRef<str>>(items: &[T]) -> String {
    let shown: Vec<String> = items.iter().take(MAX_NAMES_SHOWN).map(|it| format!("'{}'", it.as_ref())).collect();
    shown.join(", ")
}

/// The link between tenant and pool is missing.
pub fn tenant_lacks_pool(tenant: &TenantName, pool: &PoolName, has: &[PoolName]) -> UserError {
    let error =
        UserError::new(ErrorKind::WrongState, format!("tenant \"{tenant}\" does not use resource pool \"{pool}\""));
    let error =
        error.hint(format!("an admin adds the pool to the tenant's RESOURCE_POOL_LIST with ALTER TENANT {tenant}"));
    if has.is_empty() { error.detail("it uses no pool") } else { error.detail(format!("it uses {}", names(has))) }
}

/// The link between pool and unit is missing.
pub fn pool_lacks_unit(pool: &PoolName, unit: &UnitName, has: &[UnitName]) -> UserError {
    let error =
        UserError::new(ErrorKind::WrongState, format!("resource pool \"{pool}\" does not offer unit \"{unit}\""));
    let error = error.hint(format!("an admin adds the unit to the pool's UNIT_LIST with ALTER RESOURCE POOL {pool}"));
    if has.is_empty() { error.detail("it offers no unit") } else { error.detail(format!("it offers {}", names(has))) }
}

/// The pool has no node that an engine could be made on; `why` is what [`PoolSpec::lacks_nodes`] says.
///
/// [`PoolSpec::lacks_nodes`]: model::catalog::PoolSpec::lacks_nodes
pub fn pool_lacks_nodes(pool: &PoolName, why: &str) -> UserError {
    UserError::new(ErrorKind::WrongState, format!("resource pool \"{pool}\" has no nodes")).detail(why.to_owned()).hint(
        format!("an admin gives it some with ALTER RESOURCE POOL {pool} NODE_LIST ('…') or NODE_SELECTOR ('…'='…')"),
    )
}

/// START above `MAX_ENGINES`.
pub fn above_max(link: &Link, wished: usize, max: u32) -> UserError {
    let Link { tenant, pool, unit } = link;
    UserError::new(ErrorKind::LimitReached, format!("resource unit \"{unit}\" allows no more engines"))
        .detail(format!("tenant \"{tenant}\" has {wished} of it in resource pool \"{pool}\" and MAX_ENGINES is {max}"))
        .hint(format!("an admin raises it with ALTER RESOURCE UNIT {unit} MAX_ENGINES {}", wished + 1))
}

/// More engines in all than the configuration allows.
pub fn above_total(are: usize, would_be: usize, most: usize) -> UserError {
    UserError::new(ErrorKind::ProgramLimit, "too many engines")
        .detail(format!(
            "The statement would raise the number of engines of all tenants from {are} to {would_be}; \
             metadata_agent.max_engines is {most}."
        ))
        .hint("Lower MIN_ENGINES or drop what is not needed; an operator raises metadata_agent.max_engines.")
}

/// STOP below `MIN_ENGINES`.
pub fn below_min(link: &Link, engine: &EngineName, min: u32) -> UserError {
    let Link { tenant, pool, unit } = link;
    UserError::new(ErrorKind::LimitReached, format!("engine \"{engine}\" can't be stopped"))
        .detail(format!(
            "resource unit \"{unit}\" has MIN_ENGINES {min}, and tenant \"{tenant}\" has no more of it in resource pool \"{pool}\""
        ))
        .hint(format!(
            "RESTART ENGINE {pool} '{engine}' replaces it; an admin lowers the limit with ALTER RESOURCE UNIT {unit} MIN_ENGINES {}",
            min.saturating_sub(1)
        ))
}

/// STOP of the old name of an engine that was restarted.
pub fn stop_of_restarted(pool: &PoolName, engine: &EngineName, successor: &EngineName) -> UserError {
    UserError::new(ErrorKind::WrongState, format!("engine \"{engine}\" was restarted"))
        .detail(format!("its successor is \"{successor}\""))
        .hint(format!("STOP ENGINE {pool} '{successor}'"))
}

/// Refuses a user who is neither an admin nor listed in the tenant, without telling whether there is such a tenant.
pub fn unless_allowed(catalog: &Catalog, caller: &Caller, tenant: &TenantName) -> Result<(), UserError> {
    if caller.admin || is_listed(catalog, caller, tenant) {
        return Ok(());
    }
    Err(denied(format!("permission denied for tenant \"{tenant}\"")))
}

/// The same for an engine of the tenant; `None` if there is no such engine.
pub fn unless_allowed_engine(
    catalog: &Catalog,
    caller: &Caller,
    tenant: Option<&TenantName>,
    engine: &EngineName,
) -> Result<(), UserError> {
    if caller.admin || tenant.is_some_and(|tenant| is_listed(catalog, caller, tenant)) {
        return Ok(());
    }
    Err(denied(format!("permission denied for engine \"{engine}\"")))
}

fn is_listed(catalog: &Catalog, caller: &Caller, tenant: &TenantName) -> bool {
    catalog.tenant(tenant).is_some_and(|it| it.users.contains(&caller.user))
}

fn denied(message: String) -> UserError {
    UserError::new(ErrorKind::InsufficientPrivilege, message)
        .detail("only admins and users in the USER_LIST of the tenant may say this")
}
