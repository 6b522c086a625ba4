//! Tenants: options and validation.

use serde::{Deserialize, Serialize};

use super::{Setting, check_comment, check_list, list_names, shown};
use crate::catalog::{Catalog, TenantSpec};
use crate::error::{ErrorKind, UserError};
use crate::name::{PoolName, TenantName, UnitName};
use crate::user_name::{MAX_USER_NAME_BYTES, is_entry};

/// The options of a tenant that a statement names.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TenantPatch {
    /// `RESOURCE_POOL_LIST`
    pub pools: Option<Vec<PoolName>>,
    /// `USER_LIST`
    pub users: Option<Vec<String>>,
    /// `ADMIN_LIST`
    #[serde(default)]
    pub admins: Setting<Vec<String>>,
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
        self.admins.onto(&mut spec.admins);
        self.default_unit.onto(&mut spec.default_unit);
        self.comment.onto(&mut spec.comment);
        spec
    }
}

pub(super) fn validate(name: &TenantName, spec: &TenantSpec, catalog: &Catalog) -> Result<(), UserError> {
    check_list(&format!("RESOURCE_POOL_LIST of tenant \"{name}\""), &spec.pools)?;
    check_entries(&format!("USER_LIST of tenant \"{name}\""), &spec.users)?;
    check_entries(&format!("ADMIN_LIST of tenant \"{name}\""), spec.admins.as_deref().unwrap_or_default())?;
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

/// Refuses a list with an entry that is neither a user nor `@` and a group.
fn check_entries(list: &str, entries: &[String]) -> Result<(), UserError> {
    check_list(list, entries)?;
    let Some(entry) = entries.iter().find(|entry| !is_entry(entry)) else { return Ok(()) };
    let what = if entry.starts_with('@') { "group" } else { "user" };
    let message = format!("invalid {what} name \"{}\" in {list}", shown(entry));
    Err(UserError::new(ErrorKind::InvalidValue, message)
        .detail(format!(
            "A user name has 1 to {MAX_USER_NAME_BYTES} bytes, is not blank and has no control characters; a group is written '@analysts', without commas, colons or surrounding blanks."
        )))
}
