//! SHOW TENANTS, RESOURCE POOLS, RESOURCE UNITS, and the two reverse look-ups.

use hs2::{SqlType, Value};
use metadata::user_error;
use model::alteration::ObjectKind;
use model::catalog::{Catalog, PoolSpec};
use model::change::selector_text;
use model::configuration::DEFAULT_NAMESPACE;
use model::error::UserError;
use model::name::{PoolName, TenantName, UnitName};

use super::quotas;
use super::visible::visible;
use crate::metadata::answer::{Answer, maybe, names, number, text};
use crate::metadata::context::Context;

pub(in crate::metadata) async fn show(
    context: &Context,
    kind: ObjectKind,
    like: Option<&str>,
) -> Result<Answer, UserError> {
    let catalog = context.store().catalog().await.map_err(|error| error.user_error())?;
    let visible = visible(context, &catalog);
    let matches = |name: &str| like.is_none_or(|pattern| ddl::like_matches(pattern, name));
    Ok(match kind {
        ObjectKind::Tenant => tenants(&catalog, visible.tenants.iter().filter(|name| matches(name.as_str()))),
        ObjectKind::ResourcePool => pools(&catalog, visible.pools.iter().filter(|name| matches(name.as_str()))),
        ObjectKind::ResourceUnit => {
            units(context, &catalog, visible.units.iter().filter(|name| matches(name.as_str())))
        }
        ObjectKind::ResourceQuota => quotas::show(context, None, like).await?,
    })
}

fn tenants<'a>(catalog: &Catalog, listed: impl Iterator<Item = &'a TenantName>) -> Answer {
    let mut answer = Answer::new(&[
        ("tenant", SqlType::String),
        ("resource_pools", SqlType::String),
        ("users", SqlType::String),
        ("admins", SqlType::String),
        ("default_unit", SqlType::String),
        ("comment", SqlType::String),
    ]);
    for (name, spec) in listed.filter_map(|name| Some((name, catalog.tenant(name)?))) {
        let default_unit = spec.default_unit.as_ref().map(ToString::to_string);
        answer.row(vec![
            text(name.as_str()),
            text(names(&spec.pools)),
            text(spec.users.join(", ")),
            maybe(spec.admins.as_ref().map(|admins| admins.join(", "))),
            maybe(default_unit),
            maybe(spec.comment.clone()),
        ]);
    }
    answer
}

fn pools<'a>(catalog: &Catalog, listed: impl Iterator<Item = &'a PoolName>) -> Answer {
    let mut answer = Answer::new(&[
        ("pool", SqlType::String),
        ("units", SqlType::String),
        ("namespace", SqlType::String),
        ("nodes", SqlType::String),
        ("queue_prefix", SqlType::String),
        ("image", SqlType::String),
        ("comment", SqlType::String),
    ]);
    for (name, spec) in listed.filter_map(|name| Some((name, catalog.pool(name)?))) {
        answer.row(vec![
            text(name.as_str()),
            text(names(&spec.units)),
            text(spec.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE)),
            text(nodes(spec)),
            maybe(spec.queue_prefix.clone()),
            maybe(spec.image.clone()),
            maybe(spec.comment.clone()),
        ]);
    }
    answer
}

/// The nodes of a pool as text: `any`, `none`, `node-1, node-2`, `any with zone=a`.
pub(super) fn nodes(spec: &PoolSpec) -> String {
    let listed = match spec.nodes.as_deref() {
        None => "any".to_owned(),
        Some([]) => return "none".to_owned(),
        Some(nodes) => nodes.join(", "),
    };
    if spec.node_selector.is_empty() { listed } else { format!("{listed} with {}", selector_text(&spec.node_selector)) }
}

fn units<'a>(context: &Context, catalog: &Catalog, listed: impl Iterator<Item = &'a UnitName>) -> Answer {
    let mut answer = Answer::new(&[
        ("unit", SqlType::String),
        ("engine_type", SqlType::String),
        ("driver_cpu", SqlType::String),
        ("driver_memory", SqlType::String),
        ("executor_cpu", SqlType::String),
        ("executor_memory", SqlType::String),
        ("min_executors", SqlType::BigInt),
        ("max_executors", SqlType::BigInt),
        ("min_engines", SqlType::BigInt),
        ("max_engines", SqlType::BigInt),
        ("properties", SqlType::String),
        ("comment", SqlType::String),
    ]);
    let secret_keys = &context.agent.settings.rules.secret_keys;
    for (name, spec) in listed.filter_map(|name| Some((name, catalog.unit(name)?))) {
        let properties: Vec<String> =
            spec.masked_properties(secret_keys).into_iter().map(|(key, value)| format!("{key}={value}")).collect();
        let mut row: Vec<Value> = vec![
            text(name.as_str()),
            text(spec.engine_type.as_str()),
            text(spec.driver_cpu.to_string()),
            text(spec.driver_memory.to_string()),
            text(spec.executor_cpu.to_string()),
            text(spec.executor_memory.to_string()),
        ];
        row.extend([spec.min_executors, spec.max_executors, spec.min_engines, spec.max_engines].map(number));
        row.extend([text(properties.join(", ")), maybe(spec.comment.clone())]);
        answer.row(row);
    }
    answer
}

/// SHOW RESOURCE UNIT … FOR POOL: the pools that offer the unit.
pub(in crate::metadata) async fn pools_of_unit(context: &Context, unit: &UnitName) -> Result<Answer, UserError> {
    let catalog = context.store().catalog().await.map_err(|error| error.user_error())?;
    let visible = visible(context, &catalog);
    if !visible.units.contains(unit) {
        context.require_right_in_any()?;
        return Err(user_error::no_unit(unit));
    }
    let mut answer = Answer::new(&[("unit", SqlType::String), ("pool", SqlType::String)]);
    for pool in catalog.pools_of_unit(unit).into_iter().filter(|pool| visible.pools.contains(*pool)) {
        answer.row(vec![text(unit.as_str()), text(pool.as_str())]);
    }
    Ok(answer)
}

/// SHOW RESOURCE POOL … FOR TENANT: the tenants that use the pool.
pub(in crate::metadata) async fn tenants_of_pool(context: &Context, pool: &PoolName) -> Result<Answer, UserError> {
    let catalog = context.store().catalog().await.map_err(|error| error.user_error())?;
    let visible = visible(context, &catalog);
    if !visible.pools.contains(pool) {
        context.require_right_in_any()?;
        return Err(user_error::no_pool(pool));
    }
    let mut answer = Answer::new(&[("pool", SqlType::String), ("tenant", SqlType::String)]);
    for tenant in catalog.tenants_of_pool(pool).into_iter().filter(|tenant| visible.tenants.contains(*tenant)) {
        answer.row(vec![text(pool.as_str()), text(tenant.as_str())]);
    }
    Ok(answer)
}
