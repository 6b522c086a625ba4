//! DESCRIBE and SHOW CREATE of a tenant, resource pool or resource unit.

use hs2::SqlType;
use model::alteration::ObjectRef;
use model::catalog::{Catalog, PoolSpec, TenantSpec, UnitSpec};
use model::change::Object;
use model::configuration::DEFAULT_NAMESPACE;
use model::error::UserError;
use model::name::{PoolName, UnitName};
use model::number::Generation;

use super::objects::nodes;
use crate::metadata::answer::{Answer, names, text};
use crate::metadata::context::Context;

async fn find(context: &Context, object: &ObjectRef) -> Result<(Catalog, Object, Generation), UserError> {
    context.require_admin()?;
    let catalog = context.store().catalog().await.map_err(|error| error.user_error())?;
    let (found, generation) = Object::find(&catalog, object)?.ok_or_else(|| object.undefined())?;
    let found = found.masked(&context.agent.settings.rules.secret_keys);
    Ok((catalog, found, generation))
}

pub(in crate::metadata) async fn show_create(context: &Context, object: &ObjectRef) -> Result<Answer, UserError> {
    let (_, found, _) = find(context, object).await?;
    let mut answer = Answer::new(&[("statement", SqlType::String)]);
    answer.row(vec![text(ddl::print_create(&found, &context.agent.settings.rules.secret_keys))]);
    Ok(answer)
}

pub(in crate::metadata) async fn describe(context: &Context, object: &ObjectRef) -> Result<Answer, UserError> {
    let (catalog, found, generation) = find(context, object).await?;
    let mut rows = match &found {
        Object::Tenant { name, spec } => {
            let mut rows = tenant(spec);
            rows.insert(0, ("tenant", name.to_string()));
            rows
        }
        Object::ResourcePool { name, spec } => pool(&catalog, name, spec),
        Object::ResourceUnit { name, spec } => unit(&catalog, name, spec),
    };
    rows.push(("generation", generation.to_string()));
    Ok(Answer::properties(rows.into_iter().map(|(property, value)| (property.to_owned(), value))))
}

type Rows = Vec<(&'static str, String)>;

fn tenant(spec: &TenantSpec) -> Rows {
    vec![
        ("resource pools", names(&spec.pools)),
        ("users", spec.users.join(", ")),
        ("comment", spec.comment.clone().unwrap_or_default()),
    ]
}

fn pool(catalog: &Catalog, name: &PoolName, spec: &PoolSpec) -> Rows {
    vec![
        ("resource pool", name.to_string()),
        ("units", names(&spec.units)),
        ("used by tenants", names(&catalog.tenants_of_pool(name))),
        ("namespace", spec.namespace.clone().unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned())),
        ("nodes", nodes(spec.nodes.as_deref())),
        ("image", spec.image.clone().unwrap_or_else(|| "the configuration's".to_owned())),
        ("comment", spec.comment.clone().unwrap_or_default()),
    ]
}

fn unit(catalog: &Catalog, name: &UnitName, spec: &UnitSpec) -> Rows {
    let properties: Vec<String> = spec.properties.iter().map(|(key, value)| format!("{key}={value}")).collect();
    vec![
        ("resource unit", name.to_string()),
        ("offered by pools", names(&catalog.pools_of_unit(name))),
        ("engine type", spec.engine_type.to_string()),
        ("driver cpu", spec.driver_cpu.to_string()),
        ("driver memory", spec.driver_memory.to_string()),
        ("executor cpu", spec.executor_cpu.to_string()),
        ("executor memory", spec.executor_memory.to_string()),
        ("executors", format!("{} to {}", spec.min_executors, spec.max_executors)),
        ("engines", format!("{} to {} for each tenant and pool", spec.min_engines, spec.max_engines)),
        ("properties", properties.join(", ")),
        ("comment", spec.comment.clone().unwrap_or_default()),
    ]
}
