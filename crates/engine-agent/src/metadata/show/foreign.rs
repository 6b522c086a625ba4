//! Cluster warnings for users who see the installation: foreign objects that look like engines, and permissions that the
//! orchestrator lacks. The master reports both and acts on neither.
//!
//! A foreign object is assigned to a pool by its namespace only. Its labels are not trusted: the creator of a pod chooses
//! them.

use ddl::EngineScope;
use hs2::Value;
use model::catalog::Catalog;
use model::configuration::{DEFAULT_NAMESPACE, namespace};
use model::name::PoolName;
use model::observation::{ClusterWarnings, ForeignEngine};
use model::snapshot::MasterRecord;

use crate::metadata::answer::text;
use crate::metadata::context::Context;

/// Its state in SHOW ENGINES.
const STATE: &str = "foreign";

/// The rows of foreign objects in the namespaces of the scope; none for a scope of one unit, because their unit is unknown.
pub(super) fn rows(
    context: &Context,
    scope: &EngineScope,
    catalog: &Catalog,
    warnings: &ClusterWarnings,
) -> Vec<Vec<Value>> {
    if !context.subject.sees_installation() {
        return Vec::new();
    }
    of_scope(scope, catalog, warnings).into_iter().map(|(pool, foreign)| row(scope, pool, foreign)).collect()
}

fn of_scope<'a>(
    scope: &EngineScope,
    catalog: &'a Catalog,
    warnings: &'a ClusterWarnings,
) -> Vec<(&'a PoolName, &'a ForeignEngine)> {
    let (tenant, only) = match scope {
        EngineScope::Tenant(tenant) => (tenant, None),
        EngineScope::Pool(tenant, pool) => (tenant, Some(pool)),
        EngineScope::Unit(..) => return Vec::new(),
    };
    let pools = catalog.tenant(tenant).map(|spec| spec.pools.as_slice()).unwrap_or_default();
    let mut found = Vec::new();
    for name in pools.iter().filter(|pool| only.is_none_or(|only| only == *pool)) {
        let template = catalog.pool(name).and_then(|spec| spec.namespace.as_deref()).unwrap_or(DEFAULT_NAMESPACE);
        let here = namespace(template, tenant, name);
        found
            .extend(warnings.foreign.iter().filter(|foreign| foreign.namespace == here).map(|foreign| (name, foreign)));
    }
    found
}

fn row(scope: &EngineScope, pool: &PoolName, foreign: &ForeignEngine) -> Vec<Value> {
    let (EngineScope::Tenant(tenant) | EngineScope::Pool(tenant, _) | EngineScope::Unit(tenant, ..)) = scope;
    vec![
        text(tenant.as_str()),
        text(pool.as_str()),
        Value::Null,
        text(foreign.name.as_str()),
        text(STATE),
        Value::Null,
        Value::Bool(false),
        Value::Null,
        Value::Null,
        Value::Null,
        Value::Null,
        Value::Null,
        Value::Null,
        Value::Null,
        text(describe(foreign)),
    ]
}

fn describe(foreign: &ForeignEngine) -> String {
    let ForeignEngine { namespace, name, uid, reason } = foreign;
    format!("{namespace}/{name} (uid {uid}): {reason}; it is neither used nor touched")
}

/// Logs all cluster warnings in the log of the statement.
pub(super) fn log_warnings(context: &Context, master: &MasterRecord) {
    if !context.subject.sees_installation() {
        return;
    }
    let warnings = &master.cluster_warnings;
    for foreign in &warnings.foreign {
        context.log.line(format!("warning: foreign: {}", describe(foreign)));
    }
    if warnings.foreign_count > warnings.foreign.len() {
        context.log.line(format!("warning: {} foreign objects in total", warnings.foreign_count));
    }
    log_missing(context, master);
}

/// Logs the permissions that the orchestrator lacks.
pub(super) fn log_missing(context: &Context, master: &MasterRecord) {
    if let Some(missing) = missing(master).filter(|_| context.subject.sees_installation()) {
        context.log.line(format!("warning: {missing}"));
    }
}

/// The permissions that the orchestrator lacks, as text.
pub(super) fn missing(master: &MasterRecord) -> Option<String> {
    let missing = &master.cluster_warnings.denied_permissions;
    (!missing.is_empty()).then(|| format!("the orchestrator lacks permissions: {}", missing.join(", ")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn a_foreign_object_is_assigned_by_its_namespace_alone() {
        let pool = |namespace: Option<&str>| {
            json!({"spec": {"units": [], "namespace": namespace, "nodes": null,
            "image": null, "comment": null}, "generation": 1})
        };
        let tenant = |pools: &[&str]| json!({"spec": {"pools": pools, "users": [], "comment": null}, "generation": 1});
        let catalog: Catalog = serde_json::from_value(json!({"generation": 1, "units": {},
            "pools": {"rp_1": pool(None), "rp_2": pool(Some("shared"))},
            "tenants": {"t_1": tenant(&["rp_1", "rp_2"]), "t_2": tenant(&["rp_2"])}}))
        .unwrap();
        let foreign = |namespace: &str| ForeignEngine {
            namespace: namespace.to_owned(),
            name: format!("in-{namespace}"),
            uid: "u".to_owned(),
            reason: "r".to_owned(),
        };
        let warnings = ClusterWarnings::new(["shared", "rp-1--t-1", "elsewhere"].map(foreign).to_vec(), &[]);
        let found = |scope: &EngineScope| -> Vec<String> {
            of_scope(scope, &catalog, &warnings)
                .iter()
                .map(|(pool, foreign)| format!("{pool} {}", foreign.name))
                .collect()
        };
        let name = |text: &str| model::TenantName::new(text).unwrap();
        let pool = |text: &str| PoolName::new(text).unwrap();
        assert_eq!(found(&EngineScope::Tenant(name("t_1"))), ["rp_1 in-rp-1--t-1", "rp_2 in-shared"]);
        assert_eq!(found(&EngineScope::Tenant(name("t_2"))), ["rp_2 in-shared"]);
        assert_eq!(found(&EngineScope::Pool(name("t_1"), pool("rp_1"))), ["rp_1 in-rp-1--t-1"]);
        assert!(found(&EngineScope::Tenant(name("t_3"))).is_empty());
    }
}
