//! What looks like an engine and was not made by this installation, and what the orchestrator may not do: for admins, who
//! can look after it. The master saw both, and does nothing about either.
//!
//! Whose it is follows from the namespace that it stands in. Its labels may say anything: whoever may make a pod there
//! chose them.

use ddl::EngineScope;
use hs2::Value;
use model::catalog::Catalog;
use model::configuration::{DEFAULT_NAMESPACE, namespace};
use model::name::PoolName;
use model::observation::{ClusterWarnings, ForeignEngine};
use model::snapshot::MasterRecord;

use crate::metadata::answer::text;
use crate::metadata::context::Context;

/// The word of SHOW ENGINES for it.
const STATE: &str = "foreign";

/// The rows of what stands in the namespaces of the scope; a scope of one unit has none, because nothing says which unit
/// it would belong to.
pub(super) fn rows(
    context: &Context,
    scope: &EngineScope,
    catalog: &Catalog,
    around: &ClusterWarnings,
) -> Vec<Vec<Value>> {
    if !context.agent.is_admin(&context.user) {
        return Vec::new();
    }
    of_scope(scope, catalog, around).into_iter().map(|(pool, foreign)| row(scope, pool, foreign)).collect()
}

fn of_scope<'a>(
    scope: &EngineScope,
    catalog: &'a Catalog,
    around: &'a ClusterWarnings,
) -> Vec<(&'a PoolName, &'a ForeignEngine)> {
    let (tenant, only) = match scope {
        EngineScope::Tenant(tenant) => (tenant, None),
        EngineScope::Pool(tenant, pool) => (tenant, Some(pool)),
        EngineScope::Unit(..) => return Vec::new(),
    };
    let pools = catalog.tenant(tenant).map(|it| it.pools.as_slice()).unwrap_or_default();
    let mut found = Vec::new();
    for name in pools.iter().filter(|pool| only.is_none_or(|only| only == *pool)) {
        let template = catalog.pool(name).and_then(|it| it.namespace.as_deref()).unwrap_or(DEFAULT_NAMESPACE);
        let here = namespace(template, tenant, name);
        found.extend(around.foreign.iter().filter(|it| it.namespace == here).map(|it| (name, it)));
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
        text(describe(foreign)),
    ]
}

fn describe(foreign: &ForeignEngine) -> String {
    let ForeignEngine { namespace, name, uid, reason } = foreign;
    format!("{namespace}/{name} (uid {uid}): {reason}; it is neither used nor touched")
}

/// Everything of it, in the log of the statement.
pub(super) fn tell(context: &Context, master: &MasterRecord) {
    if !context.agent.is_admin(&context.user) {
        return;
    }
    let around = &master.cluster_warnings;
    for foreign in &around.foreign {
        context.log.line(format!("warning: foreign: {}", describe(foreign)));
    }
    if around.foreign_count > around.foreign.len() {
        context.log.line(format!("warning: {} foreign ones in all", around.foreign_count));
    }
    tell_missing(context, master);
}

/// What the orchestrator may not do, in the log of the statement.
pub(super) fn tell_missing(context: &Context, master: &MasterRecord) {
    if let Some(missing) = missing(master).filter(|_| context.agent.is_admin(&context.user)) {
        context.log.line(format!("warning: {missing}"));
    }
}

/// What the orchestrator may not do, in one text.
pub(super) fn missing(master: &MasterRecord) -> Option<String> {
    let missing = &master.cluster_warnings.denied_permissions;
    (!missing.is_empty()).then(|| format!("the orchestrator lacks rights: {}", missing.join(", ")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn whose_it_is_follows_from_its_namespace_alone() {
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
        let around = ClusterWarnings::new(["shared", "rp-1--t-1", "elsewhere"].map(foreign).to_vec(), &[]);
        let found = |scope: &EngineScope| -> Vec<String> {
            of_scope(scope, &catalog, &around).iter().map(|(pool, it)| format!("{pool} {}", it.name)).collect()
        };
        let name = |text: &str| model::TenantName::new(text).unwrap();
        let pool = |text: &str| PoolName::new(text).unwrap();
        assert_eq!(found(&EngineScope::Tenant(name("t_1"))), ["rp_1 in-rp-1--t-1", "rp_2 in-shared"]);
        assert_eq!(found(&EngineScope::Tenant(name("t_2"))), ["rp_2 in-shared"]);
        assert_eq!(found(&EngineScope::Pool(name("t_1"), pool("rp_1"))), ["rp_1 in-rp-1--t-1"]);
        assert!(found(&EngineScope::Tenant(name("t_3"))).is_empty());
    }
}
