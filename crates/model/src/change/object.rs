//! One catalog object of any kind: its spec, and the options that a statement gives it.

use serde::{Deserialize, Serialize};

use super::{PoolPatch, QuotaPatch, Rules, TenantPatch, UnitPatch};
use crate::alteration::{ObjectKind, ObjectRef};
use crate::catalog::{Catalog, PoolSpec, TenantSpec, UnitSpec, Versioned};
use crate::error::UserError;
use crate::name::{PoolName, QuotaName, TenantName, UnitName};
use crate::number::Generation;
use crate::quota::QuotaSpec;
use crate::secret::SecretKeys;

/// One object with its whole spec.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Object {
    Tenant { name: TenantName, spec: TenantSpec },
    ResourcePool { name: PoolName, spec: PoolSpec },
    ResourceUnit { name: UnitName, spec: UnitSpec },
    ResourceQuota { name: QuotaName, spec: QuotaSpec },
}

/// The options that a CREATE or ALTER gives one object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ObjectPatch {
    Tenant(TenantName, TenantPatch),
    ResourcePool(PoolName, PoolPatch),
    ResourceUnit(UnitName, UnitPatch),
    ResourceQuota(QuotaName, QuotaPatch),
}

impl Object {
    pub fn reference(&self) -> ObjectRef {
        let (kind, name) = match self {
            Self::Tenant { name, .. } => (ObjectKind::Tenant, name.to_string()),
            Self::ResourcePool { name, .. } => (ObjectKind::ResourcePool, name.to_string()),
            Self::ResourceUnit { name, .. } => (ObjectKind::ResourceUnit, name.to_string()),
            Self::ResourceQuota { name, .. } => (ObjectKind::ResourceQuota, name.to_string()),
        };
        ObjectRef { kind, name }
    }

    /// The object in the catalog with its generation; an error if the name is invalid.
    pub fn find(catalog: &Catalog, reference: &ObjectRef) -> Result<Option<(Self, Generation)>, UserError> {
        Ok(match reference.kind {
            ObjectKind::Tenant => {
                let name = TenantName::new(&reference.name)?;
                let found = catalog.tenants.get(&name).cloned();
                found.map(|tenant| (Self::Tenant { name, spec: tenant.spec }, tenant.generation))
            }
            ObjectKind::ResourcePool => {
                let name = PoolName::new(&reference.name)?;
                let found = catalog.pools.get(&name).cloned();
                found.map(|pool| (Self::ResourcePool { name, spec: pool.spec }, pool.generation))
            }
            ObjectKind::ResourceUnit => {
                let name = UnitName::new(&reference.name)?;
                let found = catalog.units.get(&name).cloned();
                found.map(|unit| (Self::ResourceUnit { name, spec: unit.spec }, unit.generation))
            }
            ObjectKind::ResourceQuota => {
                let name = QuotaName::new(&reference.name)?;
                let found = catalog.quotas.get(&name).cloned();
                found.map(|quota| (Self::ResourceQuota { name, spec: quota.spec }, quota.generation))
            }
        })
    }

    /// The object with its secret values masked: the form that may be shown, logged and written to ZooKeeper.
    #[must_use]
    pub fn masked(&self, keys: &SecretKeys) -> Self {
        let mut shown = self.clone();
        if let Self::ResourceUnit { spec, .. } = &mut shown {
            spec.properties = spec.masked_properties(keys);
        }
        shown
    }

    pub(super) fn validate(&self, catalog: &Catalog, rules: &Rules) -> Result<(), UserError> {
        match self {
            Self::Tenant { name, spec } => super::tenant::validate(name, spec, catalog),
            Self::ResourcePool { name, spec } => super::pool::validate(name, spec, catalog, rules.defaults.instances),
            Self::ResourceUnit { name, spec } => super::unit::validate(name, spec),
            Self::ResourceQuota { name, spec } => super::quota::validate(name, spec, catalog),
        }
    }
}

impl ObjectPatch {
    pub fn reference(&self) -> ObjectRef {
        let (kind, name) = match self {
            Self::Tenant(name, _) => (ObjectKind::Tenant, name.to_string()),
            Self::ResourcePool(name, _) => (ObjectKind::ResourcePool, name.to_string()),
            Self::ResourceUnit(name, _) => (ObjectKind::ResourceUnit, name.to_string()),
            Self::ResourceQuota(name, _) => (ObjectKind::ResourceQuota, name.to_string()),
        };
        ObjectRef { kind, name }
    }

    pub(super) fn create(&self, rules: &Rules) -> Result<Object, UserError> {
        Ok(match self {
            Self::Tenant(name, patch) => {
                Object::Tenant { name: name.clone(), spec: patch.onto(&TenantSpec::default()) }
            }
            Self::ResourcePool(name, patch) => {
                Object::ResourcePool { name: name.clone(), spec: patch.onto(&PoolSpec::default()) }
            }
            Self::ResourceUnit(name, patch) => {
                patch.properties.refuse_masked_on_create(&rules.secret_keys)?;
                patch.refuse_unproven_owner(name, rules.names_are_proven)?;
                let spec = patch.create(&rules.defaults)?;
                patch.check_type(name, None, &spec, &rules.defaults)?;
                Object::ResourceUnit { name: name.clone(), spec: rules.with_fingerprint(name, None, spec) }
            }
            Self::ResourceQuota(name, patch) => Object::ResourceQuota { name: name.clone(), spec: patch.create(name)? },
        })
    }

    pub(super) fn alter(&self, before: &Object, rules: &Rules) -> Result<Object, UserError> {
        match (self, before) {
            (Self::Tenant(name, patch), Object::Tenant { spec, .. }) => {
                Ok(Object::Tenant { name: name.clone(), spec: patch.onto(spec) })
            }
            (Self::ResourcePool(name, patch), Object::ResourcePool { spec, .. }) => {
                Ok(Object::ResourcePool { name: name.clone(), spec: patch.onto(spec) })
            }
            (Self::ResourceUnit(name, patch), Object::ResourceUnit { spec, .. }) => {
                patch.refuse_unproven_owner(name, rules.names_are_proven)?;
                let after = patch.alter(spec, &rules.secret_keys)?;
                patch.check_type(name, Some(spec), &after, &rules.defaults)?;
                Ok(Object::ResourceUnit { name: name.clone(), spec: rules.with_fingerprint(name, Some(spec), after) })
            }
            (Self::ResourceQuota(name, patch), Object::ResourceQuota { spec, .. }) => {
                Ok(Object::ResourceQuota { name: name.clone(), spec: patch.alter(name, spec)? })
            }
            _ => Err(UserError::internal("a change met an object of another kind")),
        }
    }
}

pub(super) fn put(catalog: &mut Catalog, reference: &ObjectRef, after: Option<&Object>, generation: Generation) {
    match after {
        Some(Object::Tenant { name, spec }) => {
            catalog.tenants.insert(name.clone(), Versioned { spec: spec.clone(), generation });
        }
        Some(Object::ResourcePool { name, spec }) => {
            catalog.pools.insert(name.clone(), Versioned { spec: spec.clone(), generation });
        }
        Some(Object::ResourceUnit { name, spec }) => {
            catalog.units.insert(name.clone(), Versioned { spec: spec.clone(), generation });
        }
        Some(Object::ResourceQuota { name, spec }) => {
            catalog.quotas.insert(name.clone(), Versioned { spec: spec.clone(), generation });
        }
        None => match reference.kind {
            ObjectKind::Tenant => catalog.tenants.retain(|name, _| name.as_str() != reference.name),
            ObjectKind::ResourcePool => catalog.pools.retain(|name, _| name.as_str() != reference.name),
            ObjectKind::ResourceUnit => catalog.units.retain(|name, _| name.as_str() != reference.name),
            ObjectKind::ResourceQuota => catalog.quotas.retain(|name, _| name.as_str() != reference.name),
        },
    }
}
