//! SHOW TENANTS, RESOURCE POOLS, RESOURCE UNITS and QUOTAS, and the reverse look-ups.

use std::fmt;

use model::alteration::ObjectKind;
use model::name::{PoolName, UnitName};

use super::like::{read_like, write_like};
use super::{Statement, quotas};
use crate::cursor::Cursor;
use crate::error::ParseError;
use crate::quote::quoted_name;

pub(super) fn objects(cursor: &mut Cursor<'_>, kind: ObjectKind) -> Result<Statement, ParseError> {
    if kind == ObjectKind::ResourceQuota {
        return quotas::show(cursor);
    }
    Ok(Statement::ShowObjects { kind, like: read_like(cursor)? })
}

/// `SHOW RESOURCE UNIT uc_1 FOR POOL` and `SHOW RESOURCE POOL rp_1 FOR TENANT`.
pub(super) fn users_of(cursor: &mut Cursor<'_>, kind: ObjectKind) -> Result<Statement, ParseError> {
    if cursor.is("FOR") {
        return Err(match kind {
            ObjectKind::ResourceUnit => cursor.missing("the name of a resource unit"),
            _ => cursor.missing("the name of a resource pool"),
        });
    }
    if kind == ObjectKind::ResourceUnit {
        let unit = cursor.unit()?;
        cursor.keyword("FOR")?;
        cursor.keyword("POOL")?;
        return Ok(Statement::ShowPoolsOfUnit { unit });
    }
    let pool = cursor.pool()?;
    cursor.keyword("FOR")?;
    cursor.keyword("TENANT")?;
    Ok(Statement::ShowTenantsOfPool { pool })
}

pub(super) fn write_objects(f: &mut fmt::Formatter<'_>, kind: ObjectKind, like: Option<&str>) -> fmt::Result {
    match kind {
        ObjectKind::Tenant | ObjectKind::ResourcePool | ObjectKind::ResourceUnit => {
            write!(f, "SHOW {}S", kind.keywords())?;
        }
        ObjectKind::ResourceQuota => f.write_str("SHOW QUOTAS")?,
    }
    write_like(f, like)
}

pub(super) fn write_pools_of_unit(f: &mut fmt::Formatter<'_>, unit: &UnitName) -> fmt::Result {
    write!(f, "SHOW RESOURCE UNIT {} FOR POOL", quoted_name(unit.as_str()))
}

pub(super) fn write_tenants_of_pool(f: &mut fmt::Formatter<'_>, pool: &PoolName) -> fmt::Result {
    write!(f, "SHOW RESOURCE POOL {} FOR TENANT", quoted_name(pool.as_str()))
}
