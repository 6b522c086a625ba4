//! The catalog: tenants, resource pools and resource units as admins defined them.
//!
//! A [`Catalog`] is one consistent reading of all of them. Specs hold what was said; what follows from it for an
//! engine (image, namespace) is computed in [`crate::configuration`].

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::engine_type::EngineType;
use crate::name::{PoolName, TenantName, UnitName};
use crate::number::Generation;
use crate::quantity::{Cpu, Memory};

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
    /// What runs.
    pub engine_type: EngineType,
    /// CPU of the driver.
    pub driver_cpu: Cpu,
    /// Memory of the driver.
    pub driver_memory: Memory,
    /// CPU of each executor.
    pub executor_cpu: Cpu,
    /// Memory of each executor.
    pub executor_memory: Memory,
    /// Executors at rest.
    pub min_executors: u32,
    /// Executors at most.
    pub max_executors: u32,
    /// Engines that always run, for each tenant and pool.
    pub min_engines: u32,
    /// Engines at most, for each tenant and pool.
    pub max_engines: u32,
    /// Free properties, handed to the engine.
    pub properties: BTreeMap<String, String>,
    /// A remark.
    pub comment: Option<String>,
}

/// Where engines run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PoolSpec {
    /// The units that the pool offers, in the order they were said.
    pub units: Vec<UnitName>,
    /// The template of the namespace; `None` is [`crate::configuration::DEFAULT_NAMESPACE`].
    pub namespace: Option<String>,
    /// The nodes that engines may run on; `None` is any, an empty list none.
    pub nodes: Option<Vec<String>>,
    /// The image of the pool's engines; `None` is the configuration's.
    pub image: Option<String>,
    /// A remark.
    pub comment: Option<String>,
}

/// Who runs engines.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TenantSpec {
    /// The pools that the tenant may use, in the order they were said.
    pub pools: Vec<PoolName>,
    /// The users of the tenant.
    pub users: Vec<String>,
    /// A remark.
    pub comment: Option<String>,
}

/// A spec with the generation of its last change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Versioned<T> {
    /// What was said.
    pub spec: T,
    /// The generation of the last change.
    pub generation: Generation,
}

/// One consistent reading of all objects.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Catalog {
    /// The counter at the time of reading.
    pub generation: Generation,
    /// All units.
    pub units: BTreeMap<UnitName, Versioned<UnitSpec>>,
    /// All pools.
    pub pools: BTreeMap<PoolName, Versioned<PoolSpec>>,
    /// All tenants.
    pub tenants: BTreeMap<TenantName, Versioned<TenantSpec>>,
}

/// One (tenant, pool, unit) that belongs together: the tenant lists the pool, the pool lists the unit.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Link {
    /// The tenant.
    pub tenant: TenantName,
    /// The pool.
    pub pool: PoolName,
    /// The unit.
    pub unit: UnitName,
}

impl Catalog {
    /// The unit's spec.
    pub fn unit(&self, name: &UnitName) -> Option<&UnitSpec> {
        self.units.get(name).map(|it| &it.spec)
    }

    /// The pool's spec.
    pub fn pool(&self, name: &PoolName) -> Option<&PoolSpec> {
        self.pools.get(name).map(|it| &it.spec)
    }

    /// The tenant's spec.
    pub fn tenant(&self, name: &TenantName) -> Option<&TenantSpec> {
        self.tenants.get(name).map(|it| &it.spec)
    }

    /// Every (tenant, pool, unit) that belongs together, in order.
    pub fn links(&self) -> BTreeSet<Link> {
        let mut links = BTreeSet::new();
        for (tenant, of_tenant) in &self.tenants {
            for pool in &of_tenant.spec.pools {
                for unit in self.pool(pool).map_or(&[][..], |it| &it.units) {
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
        self.pools.iter().filter(|(_, it)| it.spec.units.contains(unit)).map(|(name, _)| name).collect()
    }

    /// The tenants that use the pool.
    pub fn tenants_of_pool(&self, pool: &PoolName) -> Vec<&TenantName> {
        self.tenants.iter().filter(|(_, it)| it.spec.pools.contains(pool)).map(|(name, _)| name).collect()
    }

    /// The tenants that the user is listed in.
    pub fn tenants_of_user(&self, user: &str) -> Vec<&TenantName> {
        self.tenants
            .iter()
            .filter(|(_, it)| it.spec.users.iter().any(|listed| listed == user))
            .map(|(name, _)| name)
            .collect()
    }
}
