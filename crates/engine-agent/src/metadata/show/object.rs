//! DESCRIBE and SHOW CREATE of a tenant, resource pool, resource unit or resource quota.

use std::fmt::{Display, Write as _};

use hs2::SqlType;
use metadata::QuotaScope;
use model::alteration::ObjectRef;
use model::capacity::{Amount, MAX_DIFFERENCE_PERCENT, PoolCapacity};
use model::catalog::{Catalog, DEFAULT_RESOURCE_KIND, PoolSpec, TenantSpec, UnitSpec};
use model::change::{Object, excess_capacity, excess_guarantees};
use model::charge::Charge;
use model::clock::utc;
use model::configuration::{DEFAULT_NAMESPACE, Defaults};
use model::engine_type::Executors;
use model::error::UserError;
use model::ledger::{Registration, Role, ScopeKey};
use model::name::{PoolName, UnitName};
use model::number::Generation;
use model::observation::ObservedNode;
use model::quota::Limit;
use model::resource::{Component, Triple};

use super::freshness::{Freshness, log_freshness};
use super::objects::nodes;
use super::quota::{amounts, described};
use crate::metadata::answer::{Answer, names, text};
use crate::metadata::context::Context;

/// The most nodes that are listed, and the most warnings of a kind.
const MAX_NODES_LISTED: usize = 20;

fn find(context: &Context, catalog: &Catalog, object: &ObjectRef) -> Result<(Object, Generation), UserError> {
    let (found, generation) = Object::find(catalog, object)?.ok_or_else(|| object.undefined())?;
    Ok((found.masked(&context.agent.settings.rules.secret_keys), generation))
}

pub(in crate::metadata) async fn show_create(context: &Context, object: &ObjectRef) -> Result<Answer, UserError> {
    context.require_right()?;
    let catalog = context.store().catalog().await.map_err(|error| error.user_error())?;
    let (found, _) = find(context, &catalog, object)?;
    let mut answer = Answer::new(&[("statement", SqlType::String)]);
    answer.row(vec![text(ddl::print_create(&found, &context.agent.settings.rules.secret_keys))]);
    Ok(answer)
}

pub(in crate::metadata) async fn describe(context: &Context, object: &ObjectRef) -> Result<Answer, UserError> {
    context.require_right()?;
    let place = context.store().node_overview().await.map_err(|error| error.user_error())?;
    let catalog = &place.catalog;
    let (found, generation) = find(context, catalog, object)?;
    let mut rows = match &found {
        Object::Tenant { name, spec } => {
            let mut rows = tenant(spec);
            rows.insert(0, ("tenant", name.to_string()));
            rows
        }
        Object::ResourcePool { name, spec } => {
            let scopes = context.store().quota_scopes().await.map_err(|error| error.user_error())?;
            let mut rows = pool(catalog, name, spec);
            rows.extend(held(name, &scopes, place.now_ms));
            let known = (!place.nodes.is_empty()).then(|| PoolCapacity::new(catalog, name, spec, &place.nodes).total());
            rows.extend(excess_guarantees(catalog, name, spec, known).map(|warning| ("warning", warning)));
            let excess = known.and_then(|nodes| excess_capacity(name, spec, nodes));
            rows.extend(excess.map(|warning| ("warning", warning)));
            if !place.nodes.is_empty() {
                let freshness = Freshness::new(&place.master, place.now_ms, context.agent.settings.tick_interval);
                log_freshness(context, &freshness, &place.master).await;
                rows.extend(capacity_rows(&PoolCapacity::new(catalog, name, spec, &place.nodes)));
            }
            rows
        }
        Object::ResourceUnit { name, spec } => unit(catalog, name, spec, &context.agent.settings.rules.defaults),
        Object::ResourceQuota { name, spec } => described(catalog, name, spec),
    };
    rows.push(("generation", generation.to_string()));
    Ok(Answer::properties(rows.into_iter().map(|(property, value)| (property.to_owned(), value))))
}

type Rows = Vec<(&'static str, String)>;

fn tenant(spec: &TenantSpec) -> Rows {
    vec![
        ("resource pools", names(&spec.pools)),
        ("users", spec.users.join(", ")),
        ("admins", spec.admins.as_ref().map_or_else(|| "the users".to_owned(), |admins| admins.join(", "))),
        ("default unit", spec.default_unit.as_ref().map(ToString::to_string).unwrap_or_default()),
        ("comment", spec.comment.clone().unwrap_or_default()),
    ]
}

fn pool(catalog: &Catalog, name: &PoolName, spec: &PoolSpec) -> Rows {
    vec![
        ("resource pool", name.to_string()),
        ("units", names(&spec.units)),
        ("used by tenants", names(&catalog.tenants_of_pool(name))),
        ("namespace", spec.namespace.clone().unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned())),
        ("nodes", nodes(spec)),
        ("cpu overcommit", format!("{} %", spec.cpu_overcommit.unwrap_or(100))),
        ("queue prefix", spec.queue_prefix.clone().unwrap_or_default()),
        ("image", spec.image.clone().unwrap_or_else(|| "the configured one".to_owned())),
        ("capacity", spec.capacity.as_ref().map_or_else(|| "unlimited".to_owned(), ToString::to_string)),
        ("protected", if spec.protected.is_empty() { "none".to_owned() } else { spec.protected.to_string() }),
        ("resource kind", spec.resource_kind.unwrap_or(DEFAULT_RESOURCE_KIND).to_string()),
        ("reclaim", spec.reclaim.unwrap_or_default().as_str().to_owned()),
        ("comment", spec.comment.clone().unwrap_or_default()),
    ]
}

/// What the ledger holds of the pool. Nothing before its first master has counted it.
fn held(name: &PoolName, scopes: &[QuotaScope], now_ms: i64) -> Rows {
    let key = ScopeKey::pool(name);
    let Some(scope) = scopes.iter().find(|scope| scope.key == key) else { return Vec::new() };
    let Role::Pool(pool) = scope.scope.role else { return Vec::new() };
    let of_pool = |tenant: &&QuotaScope| tenant.key.tenant_and_pool().is_some_and(|(_, of)| of == name.as_str());
    let guaranteed = scopes.iter().filter(of_pool).fold(Triple::all(0), |sum: Triple<i64>, tenant| {
        let guarantees = tenant.scope.guarantees();
        Triple::from_fn(|component| sum.get(component) + guarantees.amount.get(component).unwrap_or(0))
    });
    let left =
        Component::ALL.into_iter().filter_map(|component| Some(component.shown(scope.scope.counter.left(component)?)));
    let left: Vec<String> = left.collect();
    let mut rows = Vec::new();
    match &scope.registration {
        Some(registration) => rows.extend(registered(registration, pool.open_until_ms, now_ms)),
        None => rows.extend(scope.capacity.map(|measured| ("measured capacity", limits(&measured)))),
    }
    rows.extend([
        ("held", amounts(&scope.scope.counter.held)),
        ("left", if left.is_empty() { "unlimited".to_owned() } else { left.join(", ") }),
        ("guaranteed", amounts(&guaranteed)),
        ("queued", pool.queued.to_string()),
    ]);
    if !scope.scope.is_open {
        rows.push(("warning", "nothing is granted: its capacity is not known".to_owned()));
    } else if !scope.scope.admits_at(now_ms) {
        rows.push(("warning", "nothing is granted: the lease of its registered capacity has ended".to_owned()));
    }
    rows
}

/// Who has registered what, and until when.
fn registered(registration: &Registration, until_ms: i64, now_ms: i64) -> Rows {
    let Registration { name, instance, user, offered, protected, registered_at_ms, .. } = registration;
    let mut rows = vec![
        ("registered capacity", limits(offered)),
        ("registered by", format!("{name}, instance {instance}, user {user}")),
        ("registered at", utc(*registered_at_ms)),
        (if until_ms > now_ms { "registered until" } else { "lease ended at" }, utc(until_ms)),
    ];
    let protected = protected.as_ref().and_then(|protected| protected.to_json().ok());
    rows.extend(protected.map(|protected| ("kept by it", protected)));
    rows
}

/// The limited components.
fn limits(limits: &Triple<Limit>) -> String {
    let limited = Component::ALL.into_iter().filter_map(|component| match limits.get(component) {
        Limit::Of(limit) => Some(component.shown(limit)),
        Limit::Unlimited => None,
    });
    let limited: Vec<String> = limited.collect();
    if limited.is_empty() { "unlimited".to_owned() } else { limited.join(", ") }
}

/// Capacity of the pool's nodes, with warnings for the admin. No rows if the orchestrator reports no nodes.
fn capacity_rows(capacity: &PoolCapacity<'_>) -> Rows {
    let open = capacity.nodes.iter().filter(|node| node.open).count();
    let named: Vec<&str> = capacity.nodes.iter().take(MAX_NODES_LISTED).map(|node| node.name.as_str()).collect();
    let mut there = named.join(", ");
    if let more @ 1.. = capacity.nodes.len() - named.len() {
        let _ = write!(there, " and {more} more");
    }
    let mut rows = vec![
        ("nodes that are there", there),
        ("nodes that take engines", format!("{open} of {}", capacity.nodes.len())),
        ("capacity of its nodes", capacity.total().to_string()),
        ("used by engines", capacity.used().to_string()),
        (
            "largest engine that fits",
            capacity
                .largest_fit()
                .map_or_else(|| "none".to_owned(), |(amount, node)| format!("{amount} on node {node}")),
        ),
    ];
    rows.extend(warnings(capacity).into_iter().map(|warning| ("warning", warning)));
    rows
}

fn warnings(capacity: &PoolCapacity<'_>) -> Vec<String> {
    let mut warnings = Vec::new();
    if let Some((small, large)) = capacity.uneven() {
        let size = |node: &ObservedNode| Amount { cpu_millis: node.cpu_millis, memory_bytes: node.memory_bytes };
        warnings.push(format!(
            "its nodes differ by more than {MAX_DIFFERENCE_PERCENT} %: {} has {}, {} has {}",
            small.name,
            size(small),
            large.name,
            size(large)
        ));
    }
    let missing = capacity.missing.iter().take(MAX_NODES_LISTED);
    warnings.extend(missing.map(|node| format!("node \"{node}\" of its NODE_LIST does not exist")));
    let shared = capacity.shared.iter().take(MAX_NODES_LISTED);
    warnings.extend(shared.map(|(node, pool)| format!("node \"{node}\" is also in resource pool \"{pool}\"")));
    warnings
}

/// The effective value of an option, and whether it is the installation's.
fn or_default(is_set: bool, effective: &dyn Display) -> String {
    if is_set { effective.to_string() } else { format!("{effective}, by default") }
}

fn unit(catalog: &Catalog, name: &UnitName, spec: &UnitSpec, defaults: &Defaults) -> Rows {
    let properties: Vec<String> = spec.properties.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let mut rows = vec![
        ("resource unit", name.to_string()),
        ("offered by pools", names(&catalog.pools_of_unit(name))),
        ("engine type", spec.engine_type.to_string()),
        ("driver cpu", spec.driver_cpu.to_string()),
        ("driver memory", spec.driver_memory.to_string()),
    ];
    if spec.engine_type.resources().executors != Executors::Refused {
        rows.extend([
            ("executor cpu", spec.executor_cpu.to_string()),
            ("executor memory", spec.executor_memory.to_string()),
            ("executors", format!("{} to {}", spec.min_executors, spec.max_executors)),
            ("charge", spec.charge.as_str().to_owned()),
        ]);
    }
    rows.extend([
        ("charge per engine", Charge::of_unit(spec, defaults.instances).to_string()),
        ("priority", spec.priority.to_string()),
        ("engines", format!("{} to {} for each tenant and pool", spec.min_engines, spec.max_engines)),
        ("start on demand", or_default(spec.start_on_demand.is_some(), &spec.starts_on_demand(defaults))),
        (
            "sessions per engine",
            spec.sessions_per_engine.map_or_else(|| "unlimited".to_owned(), |sessions| sessions.to_string()),
        ),
        ("spare engines", spec.spare_engines.to_string()),
        ("idle timeout", or_default(spec.idle_timeout.is_some(), &spec.idle_timeout(defaults))),
        ("shared by", spec.shared_by.to_string()),
        ("run as", spec.run_as.to_string()),
        ("properties", properties.join(", ")),
        ("comment", spec.comment.clone().unwrap_or_default()),
    ]);
    rows
}
