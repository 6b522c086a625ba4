//! SHOW DEMAND: the sessions that wait for an engine.

use std::fmt;

use model::name::TenantName;

use super::Statement;
use super::limit::{read_limit, write_limit};
use crate::cursor::Cursor;
use crate::error::ParseError;
use crate::quote::quoted_name;

/// Parses `[TENANT t_1] [LIMIT n]`.
pub(super) fn show(cursor: &mut Cursor<'_>) -> Result<Statement, ParseError> {
    let tenant = if cursor.eat("TENANT") { Some(cursor.tenant()?) } else { None };
    Ok(Statement::ShowDemand { tenant, limit: read_limit(cursor)? })
}

pub(super) fn write_show(f: &mut fmt::Formatter<'_>, tenant: Option<&TenantName>, limit: Option<u32>) -> fmt::Result {
    f.write_str("SHOW DEMAND")?;
    if let Some(tenant) = tenant {
        write!(f, " TENANT {}", quoted_name(tenant.as_str()))?;
    }
    write_limit(f, limit)
}
