//! Tenants: options and validation.

use serde::{Deserialize, Serialize};

use super::{Setting, check_comment, check_foreign_names, check_list, list_names};
use crate::catalog::{Catalog, TenantSpec};
use crate::error::{ErrorKind, UserError};
use crate::name::{PoolName, TenantName, UnitName};

/// The longest name of a user, in bytes.
pub const MAX_USER_BYTES: usize = 255;

/// The options of a tenant that a statement names.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TenantPatch {
    /// `RESOURCE_POOL_LIST`
    pub pools: Option<Vec<PoolName>>,
    /// `USER_LIST`
    pub users: Option<Vec<String>>,
    /// `DEFAULT_UNIT`
    #[serde(default)]
    pub default_unit: Setting<UnitName>,
    /// `COMMENT`
    pub comment: Setting<String>,
}

impl TenantPatch {
    pub(super) fn onto(&self, before: &TenantSpec) -> TenantSpec {
        let mut spec = before.clone();
        if let Some(pools) = &self.pools {
            spec.pools.clone_from(pools);
        }
        if let Some(users) = &self.users {
            spec.users.clone_from(users);
        }
        self.default_unit.onto(&mut spec.default_unit);
        self.comment.onto(&mut spec.comment);
        spec
    }
}

pub(super) fn validate(name: &TenantName, spec: &TenantSpec, catalog: &Catalog) -> Result<(), UserError> {
    let users = format!("USER_LIST of tenant \"{name}\"");
    check_list(&format!("RESOURCE_POOL_LIST of tenant \"{name}\""), &spec.pools)?;
    check_list(&users, &spec.users)?;
    check_foreign_names("user", &users, &spec.users, MAX_USER_BYTES)?;
    check_comment(&format!("tenant \"{name}\""), spec.comment.as_ref())?;
    let unknown: Vec<&str> =
        spec.pools.iter().filter(|pool| !catalog.pools.contains_key(pool)).map(AsRef::as_ref).collect();
    if !unknown.is_empty() {
        return Err(UserError::new(
            ErrorKind::UndefinedObject,
            format!("resource pool {} does not exist", list_names(&unknown)),
        )
        .detail(format!("It is named in RESOURCE_POOL_LIST of tenant \"{name}\"."))
        .hint(format!("Use CREATE RESOURCE POOL {} first.", unknown[0])));
    }
    if let Some(unit) = spec.default_unit.as_ref().filter(|unit| !catalog.units.contains_key(unit)) {
        return Err(UserError::new(ErrorKind::UndefinedObject, format!("resource unit \"{unit}\" does not exist"))
            .detail(format!("It is the DEFAULT_UNIT of tenant \"{name}\"."))
            .hint(format!("Use CREATE RESOURCE UNIT {unit} first.")));
    }
    Ok(())
}
