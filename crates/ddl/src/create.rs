//! SHOW CREATE: the statement that creates an object again.

use model::alteration::ObjectRef;
use model::catalog::{ChargedExecutors, PoolSpec, TenantSpec, UnitSpec};
use model::change::{Object, ObjectPatch, PoolPatch, PropertiesPatch, QuotaPatch, Setting, TenantPatch, UnitPatch};
use model::engine_type::Executors;
use model::owner::SharedBy;
use model::quota::{DeclaredAmount, PrincipalQuota, QuotaScope, QuotaSpec, TenantQuota};
use model::run_as::RunAs;
use model::secret::SecretKeys;

use crate::quote::quoted_name;
use crate::statement::printed_options;

/// The CREATE statement of the object, one option per line. It includes every number that the installation's defaults
/// could change, and no option without a value. Secret values are masked, and CREATE refuses the mask, so they must be
/// filled in before the text is run.
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
        Object::ResourceQuota { name, spec } => ObjectPatch::ResourceQuota(name, quota(spec)),
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
    let PoolSpec {
        units,
        namespace,
        nodes,
        node_selector,
        cpu_overcommit,
        queue_prefix,
        image,
        capacity,
        protected,
        resource_kind,
        reclaim,
        comment,
    } = spec;
    PoolPatch {
        units: Some(units),
        namespace: setting(namespace),
        nodes: setting(nodes),
        node_selector: setting((!node_selector.is_empty()).then_some(node_selector)),
        cpu_overcommit: setting(cpu_overcommit),
        queue_prefix: setting(queue_prefix),
        image: setting(image),
        capacity: setting(capacity),
        protected: amount(protected),
        resource_kind: setting(resource_kind),
        reclaim: setting(reclaim),
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
        priority,
        charge,
        start_on_demand,
        sessions_per_engine,
        spare_engines,
        idle_timeout,
        shared_by,
        run_as,
        comment,
    } = spec;
    // CREATE refuses the options for executors if the type does.
    let has_executors = engine_type.resources().executors != Executors::Refused;
    UnitPatch {
        engine_type: Some(engine_type),
        driver_cpu: Some(driver_cpu),
        driver_memory: Some(driver_memory),
        executor_cpu: has_executors.then_some(executor_cpu),
        executor_memory: has_executors.then_some(executor_memory),
        min_executors: has_executors.then_some(min_executors),
        max_executors: has_executors.then_some(max_executors),
        min_engines: Some(min_engines),
        max_engines: Some(max_engines),
        properties: PropertiesPatch {
            reset: false,
            set: properties.into_iter().map(|(key, value)| (key, Some(value))).collect(),
        },
        // These defaults do not depend on the installation.
        priority: (priority != 0).then_some(priority),
        charge: (has_executors && charge != ChargedExecutors::default()).then_some(charge),
        start_on_demand: setting(start_on_demand),
        sessions_per_engine: setting(sessions_per_engine),
        spare_engines: (spare_engines != 0).then_some(spare_engines),
        idle_timeout: setting(idle_timeout),
        shared_by: (shared_by != SharedBy::default()).then_some(shared_by),
        run_as: (run_as != RunAs::default()).then_some(run_as),
        comment: setting(comment),
    }
}

fn quota(spec: QuotaSpec) -> QuotaPatch {
    let QuotaSpec { scope, comment } = spec;
    let patch = QuotaPatch { comment: setting(comment), ..QuotaPatch::default() };
    match scope {
        QuotaScope::Tenant(TenantQuota { tenant, pool, guarantee, borrow_limit, lend_limit, weight }) => QuotaPatch {
            tenant: Some(tenant),
            pool: Some(pool),
            guarantee: amount(guarantee),
            borrow_limit: Setting::Set(borrow_limit),
            lend_limit: Setting::Set(lend_limit),
            weight: Setting::Set(weight),
            ..patch
        },
        QuotaScope::User(PrincipalQuota { name, limit }) => {
            QuotaPatch { user: Some(name), limit: amount(limit), ..patch }
        }
        QuotaScope::Creator(PrincipalQuota { name, limit }) => {
            QuotaPatch { creator: Some(name), limit: amount(limit), ..patch }
        }
    }
}

/// An amount without a component is a default.
fn amount(amount: DeclaredAmount) -> Setting<DeclaredAmount> {
    setting((!amount.is_empty()).then_some(amount))
}
