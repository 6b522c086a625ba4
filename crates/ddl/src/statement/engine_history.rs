//! SHOW ENGINE HISTORY: the engines that have ended.

use std::fmt;

use model::name::{PoolName, TenantName, UnitName};

use super::Statement;
use super::limit::{read_limit, write_limit};
use crate::cursor::Cursor;
use crate::error::ParseError;
use crate::quote::quoted_name;

/// The engines that SHOW ENGINE HISTORY lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HistoryScope {
    /// `t_1`
    Tenant(TenantName),
    /// `t_1 POOL rp_1`
    Pool(TenantName, PoolName),
    /// `t_1 UNIT rp_1 uc_1`
    Unit(TenantName, PoolName, UnitName),
}

/// Parses `t_1 [POOL rp_1 | UNIT rp_1 uc_1] [LIMIT n]`.
pub(super) fn show(cursor: &mut Cursor<'_>) -> Result<Statement, ParseError> {
    let tenant = cursor.tenant()?;
    let scope = if cursor.eat("POOL") {
        HistoryScope::Pool(tenant, cursor.pool()?)
    } else if cursor.eat("UNIT") {
        HistoryScope::Unit(tenant, cursor.pool()?, cursor.unit()?)
    } else {
        HistoryScope::Tenant(tenant)
    };
    Ok(Statement::ShowEngineHistory { scope, limit: read_limit(cursor)? })
}

pub(super) fn write_show(f: &mut fmt::Formatter<'_>, scope: &HistoryScope, limit: Option<u32>) -> fmt::Result {
    write!(f, "SHOW ENGINE HISTORY {}", quoted_name(scope.tenant().as_str()))?;
    match scope {
        HistoryScope::Tenant(_) => {}
        HistoryScope::Pool(_, pool) => write!(f, " POOL {}", quoted_name(pool.as_str()))?,
        HistoryScope::Unit(_, pool, unit) => {
            write!(f, " UNIT {} {}", quoted_name(pool.as_str()), quoted_name(unit.as_str()))?;
        }
    }
    write_limit(f, limit)
}

impl HistoryScope {
    pub const fn tenant(&self) -> &TenantName {
        match self {
            Self::Tenant(tenant) | Self::Pool(tenant, _) | Self::Unit(tenant, _, _) => tenant,
        }
    }

    pub const fn pool(&self) -> Option<&PoolName> {
        match self {
            Self::Tenant(_) => None,
            Self::Pool(_, pool) | Self::Unit(_, pool, _) => Some(pool),
        }
    }

    pub const fn unit(&self) -> Option<&UnitName> {
        match self {
            Self::Tenant(_) | Self::Pool(..) => None,
            Self::Unit(_, _, unit) => Some(unit),
        }
    }
}
