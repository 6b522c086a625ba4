//! Engines: SHOW ENGINES, START, RESTART, STOP and DESCRIBE ENGINE.

use std::fmt;
use std::time::Duration;

use model::EngineName;
use model::name::{PoolName, TenantName, UnitName};
use model::span;

use super::{Statement, read_wait};
use crate::cursor::Cursor;
use crate::error::ParseError;
use crate::quote::{quoted_name, quoted_string};

/// Which engines SHOW ENGINES shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EngineScope {
    /// `SHOW ENGINES t_1`: all of the tenant.
    Tenant(TenantName),
    /// `SHOW ENGINES POOL t_1 rp_1`: those in one pool.
    Pool(TenantName, PoolName),
    /// `SHOW ENGINES UNIT t_1 rp_1 uc_1`: those of one unit.
    Unit(TenantName, PoolName, UnitName),
}

impl EngineScope {
    /// The tenant whose engines are shown.
    pub const fn tenant(&self) -> &TenantName {
        match self {
            Self::Tenant(tenant) | Self::Pool(tenant, _) | Self::Unit(tenant, _, _) => tenant,
        }
    }
}

/// How long an engine that is stopped or replaced may take until it is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grace {
    /// As long as the configuration says.
    Default,
    /// `WITHIN '10m'`
    Within(Duration),
    /// `FORCE`: no time at all.
    Force,
}

pub(super) fn show(cursor: &mut Cursor<'_>) -> Result<Statement, ParseError> {
    let scope = if cursor.eat("POOL") {
        EngineScope::Pool(cursor.tenant()?, cursor.pool()?)
    } else if cursor.eat("UNIT") {
        EngineScope::Unit(cursor.tenant()?, cursor.pool()?, cursor.unit()?)
    } else {
        EngineScope::Tenant(cursor.tenant()?)
    };
    Ok(Statement::ShowEngines(scope))
}

pub(super) fn start(cursor: &mut Cursor<'_>) -> Result<Statement, ParseError> {
    let (tenant, pool, unit) = (cursor.tenant()?, cursor.pool()?, cursor.unit()?);
    Ok(Statement::StartEngine { tenant, pool, unit, wait: read_wait(cursor)? })
}

pub(super) fn restart(cursor: &mut Cursor<'_>) -> Result<Statement, ParseError> {
    let (pool, engine, grace) = (cursor.pool()?, cursor.engine()?, read_grace(cursor)?);
    Ok(Statement::RestartEngine { pool, engine, grace, wait: read_wait(cursor)? })
}

pub(super) fn stop(cursor: &mut Cursor<'_>) -> Result<Statement, ParseError> {
    let (pool, engine, grace) = (cursor.pool()?, cursor.engine()?, read_grace(cursor)?);
    Ok(Statement::StopEngine { pool, engine, grace, wait: read_wait(cursor)? })
}

pub(super) fn describe(cursor: &mut Cursor<'_>) -> Result<Statement, ParseError> {
    Ok(Statement::DescribeEngine { pool: cursor.pool()?, engine: cursor.engine()? })
}

fn read_grace(cursor: &mut Cursor<'_>) -> Result<Grace, ParseError> {
    if cursor.eat("WITHIN") {
        return cursor.span().map(Grace::Within);
    }
    Ok(if cursor.eat("FORCE") { Grace::Force } else { Grace::Default })
}

pub(super) fn write_show(f: &mut fmt::Formatter<'_>, scope: &EngineScope) -> fmt::Result {
    let name = |name: &str| quoted_name(name);
    match scope {
        EngineScope::Tenant(tenant) => write!(f, "SHOW ENGINES {}", name(tenant.as_str())),
        EngineScope::Pool(tenant, pool) => {
            write!(f, "SHOW ENGINES POOL {} {}", name(tenant.as_str()), name(pool.as_str()))
        }
        EngineScope::Unit(tenant, pool, unit) => {
            let (tenant, pool, unit) = (name(tenant.as_str()), name(pool.as_str()), name(unit.as_str()));
            write!(f, "SHOW ENGINES UNIT {tenant} {pool} {unit}")
        }
    }
}

pub(super) fn write_start(
    f: &mut fmt::Formatter<'_>,
    tenant: &TenantName,
    pool: &PoolName,
    unit: &UnitName,
) -> fmt::Result {
    let (tenant, pool, unit) = (quoted_name(tenant.as_str()), quoted_name(pool.as_str()), quoted_name(unit.as_str()));
    write!(f, "START ENGINE {tenant} {pool} {unit}")
}

/// The statements that name one engine.
pub(super) fn write_end(
    f: &mut fmt::Formatter<'_>,
    verb: &str,
    pool: &PoolName,
    engine: &EngineName,
    grace: Grace,
) -> fmt::Result {
    write!(f, "{verb} ENGINE {} {}", quoted_name(pool.as_str()), quoted_string(engine.as_str()))?;
    match grace {
        Grace::Default => Ok(()),
        Grace::Within(time) => write!(f, " WITHIN {}", quoted_string(&span::print(time))),
        Grace::Force => f.write_str(" FORCE"),
    }
}
