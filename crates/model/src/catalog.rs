//! The catalog: tenants, resource pools, resource units and resource quotas.
//!
//! A [`Catalog`] is one consistent reading of all of them. Specs hold what the statements set; the configuration of
//! an engine that follows from them (image, namespace) is computed in [`crate::configuration`].

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::engine_type::EngineType;
use crate::error::{ErrorKind, UserError};
use crate::fingerprint::{SecretProperties, StoredProperties};
use crate::labels::LabelMap;
use crate::name::{PoolName, QuotaName, TenantName, UnitName};
use crate::number::Generation;
use crate::on_demand::{IdleTimeout, MAX_SESSIONS_PER_ENGINE};
use crate::owner::SharedBy;
use crate::quantity::{Cpu, Memory};
use crate::quota::{Capacity, DeclaredAmount, QuotaSpec, QuotaSubject, Reclaim};
use crate::resource::Kind;
use crate::run_as::RunAs;
use crate::secret::SecretKeys;
use crate::slot::Link;

/// The most names that one list (pools of a tenant, units or nodes of a pool, users) may hold.
pub const MAX_LIST: usize = 1_000;
/// The most engines of one (tenant, pool, unit).
pub const MAX_ENGINES_LIMIT: u32 = 10_000;
/// The most executors of one engine.
pub const MAX_EXECUTORS_LIMIT: u32 = 100_000;
/// The longest comment, in bytes.
pub const MAX_COMMENT_BYTES: usize = 4_096;
/// The most properties of one unit.
pub const MAX_PROPERTIES: usize = 1_000;

/// The template of an engine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitSpec {
    pub engine_type: EngineType,
    /// CPU of the driver.
    pub driver_cpu: Cpu,
    /// Memory of the driver.
    pub driver_memory: Memory,
    /// CPU of each executor.
    pub executor_cpu: Cpu,
    /// Memory of each executor.
    pub executor_memory: Memory,
    /// The executors that an idle engine keeps.
    pub min_executors: u32,
    pub max_executors: u32,
    /// The engines that always run, for each tenant and pool.
    pub min_engines: u32,
    /// The most engines, for each tenant and pool.
    pub max_engines: u32,
    /// Engine properties, passed to the engine.
    pub properties: BTreeMap<String, String>,
    /// The keys of secret properties. `None` if there are none, or in a row written by a program before schema
    /// version 6.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secrets: Option<SecretProperties>,
    /// The order in which engines of one tenant and pool are admitted: higher ones first. In [`PRIORITIES`].
    #[serde(default, skip_serializing_if = "is_default")]
    pub priority: i32,
    /// The executors that an engine is charged for.
    #[serde(default, skip_serializing_if = "is_default")]
    pub charge: ChargedExecutors,
    /// Whether sessions that wait start engines. `None` is the installation's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_on_demand: Option<bool>,
    /// The most sessions of one engine, from 1 to [`MAX_SESSIONS_PER_ENGINE`]. `None` is UNLIMITED: only the limit of the
    /// agent applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sessions_per_engine: Option<u32>,
    /// The idle engines that are kept ready while others are in use.
    #[serde(default, skip_serializing_if = "is_default")]
    pub spare_engines: u32,
    /// When an idle engine on demand is released. `None` is the installation's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_timeout: Option<IdleTimeout>,
    /// Who shares its engines. Part of their configuration.
    #[serde(default, skip_serializing_if = "is_default")]
    pub shared_by: SharedBy,
    /// As whom its engines run. Part of their configuration.
    #[serde(default, skip_serializing_if = "is_default")]
    pub run_as: RunAs,
    pub comment: Option<String>,
}

/// The range of `PRIORITY`.
pub const PRIORITIES: std::ops::RangeInclusive<i32> = -100..=100;

/// The executors that an engine is charged for, whatever number of them runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChargedExecutors {
    /// `MAX_EXECUTORS`: what the pods of the engine can request at most.
    #[default]
    Max,
    /// `MIN_EXECUTORS`: executors that are added later are not charged.
    Min,
}

impl ChargedExecutors {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Max => "max",
            Self::Min => "min",
        }
    }
}

impl FromStr for ChargedExecutors {
    type Err = UserError;

    fn from_str(text: &str) -> Result<Self, UserError> {
        [Self::Max, Self::Min].into_iter().find(|charged| charged.as_str().eq_ignore_ascii_case(text)).ok_or_else(
            || {
                UserError::new(ErrorKind::InvalidValue, format!("invalid value \"{text}\""))
                    .detail("It is 'max' or 'min': an engine is charged for MAX_EXECUTORS or MIN_EXECUTORS.")
            },
        )
    }
}

pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl UnitSpec {
    /// The number of executors that an engine is charged for, if its type has any.
    pub const fn charged_executors(&self) -> u32 {
        match self.charge {
            ChargedExecutors::Max => self.max_executors,
            ChargedExecutors::Min => self.min_executors,
        }
    }

    /// The seats of one engine: the sessions that it may have at the same time.
    pub fn seats(&self) -> u32 {
        self.sessions_per_engine.unwrap_or(MAX_SESSIONS_PER_ENGINE)
    }

    /// The properties that a change starts from.
    pub fn stored_properties(&self) -> StoredProperties<'_> {
        StoredProperties { properties: &self.properties, secrets: self.secrets.as_ref() }
    }

    /// The properties with secret values masked: of keys that name a secret, and of keys that were recorded as
    /// secret.
    pub fn masked_properties(&self, words: &SecretKeys) -> BTreeMap<String, String> {
        let recorded = self.secrets.as_ref().map(|secrets| &secrets.keys);
        words.mask_also(&self.properties, |key| recorded.is_some_and(|keys| keys.contains(key)))
    }
}

/// Where engines run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PoolSpec {
    /// The units that the pool offers, in the order of the statement.
    pub units: Vec<UnitName>,
    /// The namespace template; `None` is [`crate::configuration::DEFAULT_NAMESPACE`].
    pub namespace: Option<String>,
    /// The nodes that engines may run on; `None` is any node, an empty list is no node.
    pub nodes: Option<Vec<String>>,
    /// Labels that a node must also have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// The CPU that may be requested for each 100 that exist; `None` is 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_overcommit: Option<u32>,
    /// Sessions that name this queue, or one below it, are bound to engines of this pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_prefix: Option<String>,
    /// The image of the pool's engines; `None` is the configured one.
    pub image: Option<String>,
    /// `None` is unlimited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Capacity>,
    /// The part of the capacity that no engine is granted. A component that is not named is 0.
    #[serde(default, skip_serializing_if = "DeclaredAmount::is_empty")]
    pub protected: DeclaredAmount,
    /// The kind of the resources that are requested of the pool; `None` is [`DEFAULT_RESOURCE_KIND`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_kind: Option<Kind>,
    /// `None` is the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reclaim: Option<Reclaim>,
    pub comment: Option<String>,
}

/// The resource kind of pools that set none. Loads and the resources of engines are promoted to it.
pub const DEFAULT_RESOURCE_KIND: Kind = Kind::DriverAndExecutor;

/// The users who share engines, and where the engines run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TenantSpec {
    /// The pools that the tenant may use, in the order of the statement.
    pub pools: Vec<PoolName>,
    /// Users, and groups after `@`.
    pub users: Vec<String>,
    /// Who may start, stop and restart engines: users, and groups after `@`. `None` is `users`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admins: Option<Vec<String>>,
    /// The unit for sessions that name none; `None` is any unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_unit: Option<UnitName>,
    pub comment: Option<String>,
}

/// A spec with the generation of its last change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Versioned<T> {
    pub spec: T,
    /// The generation of the last change.
    pub generation: Generation,
}

/// One consistent reading of the catalog.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Catalog {
    /// The generation counter at the time of reading.
    pub generation: Generation,
    pub units: BTreeMap<UnitName, Versioned<UnitSpec>>,
    pub pools: BTreeMap<PoolName, Versioned<PoolSpec>>,
    pub tenants: BTreeMap<TenantName, Versioned<TenantSpec>>,
    /// Empty in the snapshot of a proxy.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub quotas: BTreeMap<QuotaName, Versioned<QuotaSpec>>,
}

impl PoolSpec {
    /// Why no engine can run in this pool, if so. `must_name`: a pool that names no nodes has none
    /// ([`InstanceKind::needs_nodes`](crate::instance::InstanceKind::needs_nodes)).
    pub fn lacks_nodes(&self, must_name: bool) -> Option<&'static str> {
        match &self.nodes {
            Some(nodes) if nodes.is_empty() => Some("its NODE_LIST is empty"),
            None if must_name && self.node_selector.is_empty() => Some("it has neither NODE_LIST nor NODE_SELECTOR"),
            Some(_) | None => None,
        }
    }

    /// Whether engines of this pool may run on the node.
    pub fn admits(&self, node: &str, labels: &LabelMap) -> bool {
        self.nodes.as_ref().is_none_or(|nodes| nodes.iter().any(|listed| listed == node)) && self.selects(labels)
    }

    /// Whether the pool's selector matches a node with these labels. An empty selector matches every node.
    pub fn selects(&self, labels: &LabelMap) -> bool {
        self.node_selector.iter().all(|(label, value)| labels.get(label) == Some(value))
    }

    /// Whether the pool owns the node: the pool may use it, and names it by list or by labels.
    pub fn claims(&self, node: &str, labels: &LabelMap) -> bool {
        (self.nodes.is_some() || !self.node_selector.is_empty()) && self.admits(node, labels)
    }

    /// Whether the queue belongs to the pool: the prefix itself, or a queue below it, which continues after a dot.
    fn has_queue(&self, queue: &str) -> bool {
        let below = self.queue_prefix.as_ref().and_then(|prefix| queue.strip_prefix(prefix.as_str()));
        below.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    }
}

impl Catalog {
    /// The generation of the last change of the tenant, of its pools and of their units; 0 without the tenant.
    pub fn newest_change(&self, tenant: &TenantName) -> Generation {
        let Some(tenant) = self.tenants.get(tenant) else { return Generation::default() };
        let pools = || tenant.spec.pools.iter().filter_map(|pool| self.pools.get(pool));
        let units = pools().flat_map(|pool| &pool.spec.units).filter_map(|unit| self.units.get(unit));
        let of_parts = pools().map(|pool| pool.generation).chain(units.map(|unit| unit.generation));
        of_parts.fold(tenant.generation, Generation::max)
    }

    pub fn unit(&self, name: &UnitName) -> Option<&UnitSpec> {
        self.units.get(name).map(|unit| &unit.spec)
    }

    pub fn pool(&self, name: &PoolName) -> Option<&PoolSpec> {
        self.pools.get(name).map(|pool| &pool.spec)
    }

    pub fn tenant(&self, name: &TenantName) -> Option<&TenantSpec> {
        self.tenants.get(name).map(|tenant| &tenant.spec)
    }

    /// The quota of the subject; there is at most one.
    pub fn quota_of(&self, subject: &QuotaSubject) -> Option<(&QuotaName, &QuotaSpec)> {
        let mut quotas = self.quotas.iter().map(|(name, quota)| (name, &quota.spec));
        quotas.find(|(_, spec)| spec.subject() == *subject)
    }

    /// Every (tenant, pool, unit) where the tenant lists the pool and the pool lists the unit, sorted.
    pub fn links(&self) -> BTreeSet<Link> {
        let mut links = BTreeSet::new();
        for (tenant, of_tenant) in &self.tenants {
            for pool in &of_tenant.spec.pools {
                for unit in self.pool(pool).map_or(&[][..], |spec| &spec.units) {
                    if self.units.contains_key(unit) {
                        links.insert(Link { tenant: tenant.clone(), pool: pool.clone(), unit: unit.clone() });
                    }
                }
            }
        }
        links
    }

    /// The pools that offer the unit.
    pub fn pools_of_unit(&self, unit: &UnitName) -> Vec<&PoolName> {
        self.pools.iter().filter(|(_, pool)| pool.spec.units.contains(unit)).map(|(name, _)| name).collect()
    }

    /// The pool that the queue belongs to: the one with the longest matching prefix.
    pub fn pool_of_queue(&self, queue: &str) -> Option<&PoolName> {
        let fitting = self.pools.iter().filter(|(_, pool)| pool.spec.has_queue(queue));
        fitting.max_by_key(|(_, pool)| pool.spec.queue_prefix.as_ref().map_or(0, String::len)).map(|(name, _)| name)
    }

    /// The unit for sessions of the tenant that name none; none if the pool does not offer it.
    pub fn default_unit(&self, tenant: &TenantName, pool: Option<&PoolName>) -> Option<&UnitName> {
        let unit = self.tenant(tenant)?.default_unit.as_ref()?;
        let offered = pool.is_none_or(|pool| self.pool(pool).is_some_and(|spec| spec.units.contains(unit)));
        offered.then_some(unit)
    }

    /// The tenants that use the pool.
    pub fn tenants_of_pool(&self, pool: &PoolName) -> Vec<&TenantName> {
        self.tenants.iter().filter(|(_, tenant)| tenant.spec.pools.contains(pool)).map(|(name, _)| name).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn pools(of: &[(&str, PoolSpec)]) -> Catalog {
        let versioned = |spec: &PoolSpec| Versioned { spec: spec.clone(), generation: Generation(1) };
        let pools = of.iter().map(|(name, spec)| (PoolName::new(*name).unwrap(), versioned(spec))).collect();
        Catalog { pools, ..Catalog::default() }
    }

    fn queues(of: &[(&str, &str)]) -> Catalog {
        let spec = |prefix: &str| PoolSpec { queue_prefix: Some(prefix.to_owned()), ..PoolSpec::default() };
        let of: Vec<_> = of.iter().map(|(name, prefix)| (*name, spec(prefix))).collect();
        pools(&of)
    }

    #[test]
    fn the_longest_prefix_that_ends_at_a_dot_is_the_queues_pool() {
        let mut catalog =
            queues(&[("rp_1", "pool1"), ("rp_2", "pool1.etl"), ("rp_3", "pool10"), ("rp_4", "root.übung")]);
        let spec = PoolSpec::default();
        catalog.pools.insert(PoolName::new("rp_0").unwrap(), Versioned { spec, generation: Generation(1) });
        for (queue, pool) in [
            ("pool1", Some("rp_1")),
            ("pool1.a", Some("rp_1")),
            ("pool1.etl", Some("rp_2")),
            ("pool1.etl.nightly", Some("rp_2")),
            ("pool1.etlx", Some("rp_1")),
            ("pool10.x", Some("rp_3")),
            ("pool100", None),
            ("Pool1", None),
            ("pool", None),
            ("", None),
            ("root.übung.a", Some("rp_4")),
            ("root.übungen", None),
        ] {
            assert_eq!(catalog.pool_of_queue(queue).map(AsRef::as_ref), pool, "{queue}");
        }
    }

    #[test]
    fn a_pool_has_no_nodes_with_an_empty_list_or_a_missing_mandatory_one() {
        let none = PoolSpec::default();
        let empty = PoolSpec { nodes: Some(Vec::new()), ..PoolSpec::default() };
        let listed = PoolSpec { nodes: Some(vec!["node-1".to_owned()]), ..PoolSpec::default() };
        let selector = [("zone".to_owned(), "a".to_owned())];
        let selected = PoolSpec { node_selector: selector.clone().into(), ..PoolSpec::default() };
        let both = PoolSpec { node_selector: selector.into(), ..empty.clone() };
        for (spec, anywhere, named) in [
            (&none, false, true),
            (&empty, true, true),
            (&listed, false, false),
            (&selected, false, false),
            (&both, true, true),
        ] {
            assert_eq!(spec.lacks_nodes(false).is_some(), anywhere, "{spec:?}");
            assert_eq!(spec.lacks_nodes(true).is_some(), named, "{spec:?}");
        }
    }

    #[test]
    fn a_node_of_a_pool_satisfies_both_its_list_and_its_labels() {
        let labels: LabelMap = [("zone".to_owned(), "a".to_owned())].into();
        let any = PoolSpec::default();
        assert!(any.admits("node-1", &labels) && !any.claims("node-1", &labels));
        let selected = PoolSpec { node_selector: labels.clone(), ..PoolSpec::default() };
        assert!(selected.claims("node-1", &labels) && !selected.admits("node-1", &LabelMap::new()));
        let both = PoolSpec { nodes: Some(vec!["node-1".to_owned()]), ..selected };
        assert!(both.claims("node-1", &labels));
        assert!(!both.admits("node-2", &labels) && !both.admits("node-1", &LabelMap::new()));
    }

    #[test]
    fn options_unknown_to_an_older_program_are_read_and_written_as_absent() {
        let old = r#"{"units":[],"namespace":null,"nodes":null,"image":null,"comment":null}"#;
        let spec: PoolSpec = serde_json::from_str(old).unwrap();
        assert_eq!(spec, PoolSpec::default());
        assert_eq!(serde_json::to_string(&spec).unwrap(), old);
    }
}
