//! SHOW CREATE: the statement that creates an object again.

use model::alteration::ObjectRef;
use model::catalog::{PoolSpec, TenantSpec, UnitSpec};
use model::change::{Object, ObjectPatch, PoolPatch, PropertiesPatch, Setting, TenantPatch, UnitPatch};
use model::secret::SecretKeys;

use crate::quote::quoted_name;
use crate::statement::printed_options;

/// The CREATE statement of the object, one option per line. It includes every number and no option without a value,
/// so it does not depend on the installation's defaults. Secret values are masked, and CREATE refuses the mask, so
/// they must be filled in before the text is run.
pub fn print_create(object: &Object, keys: &SecretKeys) -> String {
    let object = object.masked(keys);
    let ObjectRef { kind, name } = object.reference();
    let mut text = format!("CREATE {} {}", kind.keywords(), quoted_name(&name));
    let options = printed_options(&patch_of(object));
    if !options.is_empty() {
        text.push_str("\n  ");
        text.push_str(&options.join(",\n  "));
    }
    text
}

fn setting<T>(value: Option<T>) -> Setting<T> {
    value.map_or(Setting::Keep, Setting::Set)
}

fn patch_of(object: Object) -> ObjectPatch {
    match object {
        Object::Tenant { name, spec } => ObjectPatch::Tenant(name, tenant(spec)),
        Object::ResourcePool { name, spec } => ObjectPatch::ResourcePool(name, pool(spec)),
        Object::ResourceUnit { name, spec } => ObjectPatch::ResourceUnit(name, unit(spec)),
    }
}

fn tenant(spec: TenantSpec) -> TenantPatch {
    let TenantSpec { pools, users, admins, default_unit, comment } = spec;
    TenantPatch {
        pools: Some(pools),
        users: Some(users),
        admins: setting(admins),
        default_unit: setting(default_unit),
        comment: setting(comment),
    }
}

fn pool(spec: PoolSpec) -> PoolPatch {
    let PoolSpec { units, namespace, nodes, node_selector, cpu_overcommit, queue_prefix, image, comment } = spec;
    PoolPatch {
        units: Some(units),
        namespace: setting(namespace),
        nodes: setting(nodes),
        node_selector: setting((!node_selector.is_empty()).then_some(node_selector)),
        cpu_overcommit: setting(cpu_overcommit),
        queue_prefix: setting(queue_prefix),
        image: setting(image),
        comment: setting(comment),
    }
}

fn unit(spec: UnitSpec) -> UnitPatch {
    // Names every field, so that a new one cannot be forgotten here.
    let UnitSpec {
        engine_type,
        driver_cpu,
        driver_memory,
        executor_cpu,
        executor_memory,
        min_executors,
        max_executors,
        min_engines,
        max_engines,
        properties,
        // Recorded when the statement is executed.
        secrets: _,
        comment,
    } = spec;
    UnitPatch {
        engine_type: Some(engine_type),
        driver_cpu: Some(driver_cpu),
        driver_memory: Some(driver_memory),
        executor_cpu: Some(executor_cpu),
        executor_memory: Some(executor_memory),
        min_executors: Some(min_executors),
        max_executors: Some(max_executors),
        min_engines: Some(min_engines),
        max_engines: Some(max_engines),
        properties: PropertiesPatch {
            reset: false,
            set: properties.into_iter().map(|(key, value)| (key, Some(value))).collect(),
        },
        comment: setting(comment),
    }
}
