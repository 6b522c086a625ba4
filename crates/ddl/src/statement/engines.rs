//! Engines: SHOW ENGINES, START, RESTART, STOP and DESCRIBE ENGINE.

use std::fmt;
use std::time::Duration;

use model::EngineName;
use model::name::{PoolName, TenantName, UnitName};
use model::span;

use super::{Statement, read_wait};
use crate::cursor::Cursor;
use crate::distance::nearest;
use crate::error::ParseError;
use crate::quote::{quoted_name, quoted_string};

/// The scope of SHOW ENGINES.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EngineScope {
    /// `SHOW ENGINES t_1`
    Tenant(TenantName),
    /// `SHOW ENGINES POOL t_1 rp_1`
    Pool(TenantName, PoolName),
    /// `SHOW ENGINES UNIT t_1 rp_1 uc_1`
    Unit(TenantName, PoolName, UnitName),
}

impl EngineScope {
    pub const fn tenant(&self) -> &TenantName {
        match self {
            Self::Tenant(tenant) | Self::Pool(tenant, _) | Self::Unit(tenant, _, _) => tenant,
        }
    }
}

/// The grace period of an engine that is stopped or replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grace {
    /// The configured period.
    Default,
    /// `WITHIN '10m'`
    Within(Duration),
    /// `FORCE`: none.
    Force,
}

pub(super) fn show(cursor: &mut Cursor<'_>) -> Result<Statement, ParseError> {
    let scope = if cursor.eat("POOL") {
        EngineScope::Pool(cursor.tenant()?, cursor.pool()?)
    } else if cursor.eat("UNIT") {
        EngineScope::Unit(cursor.tenant()?, cursor.pool()?, cursor.unit()?)
    } else {
        EngineScope::Tenant(read_only_tenant(cursor)?)
    };
    Ok(Statement::ShowEngines(scope))
}

/// A tenant must end the statement: more text was meant for one of the longer forms.
fn read_only_tenant(cursor: &mut Cursor<'_>) -> Result<TenantName, ParseError> {
    let meant = cursor.peek_word().and_then(|word| nearest(word, ["POOL", "UNIT", "HISTORY"]));
    let tenant = cursor.tenant()?;
    if cursor.at_end() {
        return Ok(tenant);
    }
    let hint = match meant {
        Some("HISTORY") => "Did you mean SHOW ENGINE HISTORY?".to_owned(),
        Some(meant) => format!("Did you mean SHOW ENGINES {meant}?"),
        None => "SHOW ENGINES POOL t_1 rp_1 and SHOW ENGINES UNIT t_1 rp_1 uc_1 show fewer.".to_owned(),
    };
    Err(cursor.missing("the end of the statement").or_hint(hint))
}

/// The tenant, the pool and the unit of an engine that a statement starts.
pub(super) fn read_link(cursor: &mut Cursor<'_>) -> Result<(TenantName, PoolName, UnitName), ParseError> {
    Ok((cursor.tenant()?, cursor.pool()?, cursor.unit()?))
}

/// The pool and the engine that a statement names.
pub(super) fn read_engine(cursor: &mut Cursor<'_>) -> Result<(PoolName, EngineName), ParseError> {
    if cursor.at_string() {
        let error = cursor.missing("the name of a resource pool");
        return Err(error.or_hint("Name the pool before its engine: rp_1 'engine-name'."));
    }
    Ok((cursor.pool()?, cursor.engine()?))
}

/// The hint for FORCE and IN PLACE in one statement.
const NOT_BOTH: &str = "FORCE and IN PLACE exclude each other: remove one of them.";

/// Parses `[WITHIN '10m' | FORCE] [WAIT ['5m']]`, in this order.
fn read_ending(cursor: &mut Cursor<'_>) -> Result<(Grace, Option<Duration>), ParseError> {
    let grace = read_grace(cursor)?;
    let wait = read_wait(cursor)?;
    if grace == Grace::Default && (cursor.is("WITHIN") || cursor.is("FORCE")) {
        return Err(cursor.missing("the end of the statement").or_hint("Write WITHIN or FORCE before WAIT."));
    }
    Ok((grace, wait))
}

pub(super) fn start(cursor: &mut Cursor<'_>) -> Result<Statement, ParseError> {
    let (tenant, pool, unit) = read_link(cursor)?;
    let nowait = cursor.eat("NOWAIT");
    let wait = read_wait(cursor)?;
    if cursor.is("NOWAIT") && !nowait {
        return Err(cursor.missing("the end of the statement").or_hint("Write NOWAIT before WAIT."));
    }
    Ok(Statement::StartEngine { tenant, pool, unit, nowait, wait })
}

pub(super) fn restart(cursor: &mut Cursor<'_>) -> Result<Statement, ParseError> {
    let (pool, engine) = read_engine(cursor)?;
    let in_place = cursor.eat_in_place()?;
    if in_place && cursor.is("FORCE") {
        return Err(cursor.missing("WITHIN, WAIT or the end of the statement").or_hint(NOT_BOTH));
    }
    let (grace, wait) = read_ending(cursor)?;
    if cursor.at_in_place() && !in_place {
        let hint = if grace == Grace::Force { NOT_BOTH } else { "Write IN PLACE before WITHIN and WAIT." };
        return Err(cursor.missing("the end of the statement").or_hint(hint));
    }
    Ok(Statement::RestartEngine { pool, engine, in_place, grace, wait })
}

pub(super) fn stop(cursor: &mut Cursor<'_>) -> Result<Statement, ParseError> {
    let (pool, engine) = read_engine(cursor)?;
    let (grace, wait) = read_ending(cursor)?;
    if cursor.at_in_place() {
        let error = cursor.missing("the end of the statement");
        return Err(error.or_hint("STOP replaces no engine: remove IN PLACE, or use RESTART ENGINE."));
    }
    Ok(Statement::StopEngine { pool, engine, grace, wait })
}

pub(super) fn describe(cursor: &mut Cursor<'_>) -> Result<Statement, ParseError> {
    let (pool, engine) = read_engine(cursor)?;
    Ok(Statement::DescribeEngine { pool, engine })
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
pub(super) fn write_engine(
    f: &mut fmt::Formatter<'_>,
    verb: &str,
    pool: &PoolName,
    engine: &EngineName,
) -> fmt::Result {
    write!(f, "{verb} ENGINE {} {}", quoted_name(pool.as_str()), quoted_string(engine.as_str()))
}

pub(super) fn write_grace(f: &mut fmt::Formatter<'_>, grace: Grace) -> fmt::Result {
    match grace {
        Grace::Default => Ok(()),
        Grace::Within(time) => write!(f, " WITHIN {}", quoted_string(&span::print(time))),
        Grace::Force => f.write_str(" FORCE"),
    }
}
