//! SHOW TENANTS, RESOURCE POOLS and RESOURCE UNITS, and the reverse look-ups.

use std::fmt;

use model::alteration::ObjectKind;
use model::name::{PoolName, UnitName};

use super::Statement;
use crate::cursor::Cursor;
use crate::error::ParseError;
use crate::quote::{quoted_name, quoted_string};

pub(super) fn objects(cursor: &mut Cursor<'_>, kind: ObjectKind) -> Result<Statement, ParseError> {
    let like = if cursor.eat("LIKE") { Some(cursor.string("a pattern such as 't%'")?) } else { None };
    Ok(Statement::ShowObjects { kind, like })
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
    write!(f, "SHOW {}S", kind.keywords())?;
    match like {
        Some(pattern) => write!(f, " LIKE {}", quoted_string(pattern)),
        None => Ok(()),
    }
}

pub(super) fn write_pools_of_unit(f: &mut fmt::Formatter<'_>, unit: &UnitName) -> fmt::Result {
    write!(f, "SHOW RESOURCE UNIT {} FOR POOL", quoted_name(unit.as_str()))
}

pub(super) fn write_tenants_of_pool(f: &mut fmt::Formatter<'_>, pool: &PoolName) -> fmt::Result {
    write!(f, "SHOW RESOURCE POOL {} FOR TENANT", quoted_name(pool.as_str()))
}
