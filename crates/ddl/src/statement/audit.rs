//! SHOW AUDIT.

use std::fmt;
use std::time::Duration;

use model::name::TenantName;
use model::span;

use super::Statement;
use super::limit::{read_limit, write_limit};
use crate::cursor::Cursor;
use crate::error::ParseError;
use crate::quote::{quoted_name, quoted_string};

/// Whose rows SHOW AUDIT returns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuditScope {
    All,
    /// The statements of a user.
    User(String),
    /// The statements about a tenant and its engines.
    Tenant(TenantName),
}

pub(super) fn show(cursor: &mut Cursor<'_>) -> Result<Statement, ParseError> {
    let scope = if !cursor.eat("FOR") {
        AuditScope::All
    } else if cursor.eat("USER") {
        AuditScope::User(cursor.string("the name of a user such as 'alice'")?)
    } else {
        cursor.keyword("TENANT")?;
        AuditScope::Tenant(cursor.tenant()?)
    };
    let since = if cursor.eat("SINCE") { Some(cursor.span()?) } else { None };
    Ok(Statement::ShowAudit { scope, since, limit: read_limit(cursor)? })
}

pub(super) fn write_show(
    f: &mut fmt::Formatter<'_>,
    scope: &AuditScope,
    since: Option<Duration>,
    limit: Option<u32>,
) -> fmt::Result {
    f.write_str("SHOW AUDIT")?;
    match scope {
        AuditScope::All => {}
        AuditScope::User(user) => write!(f, " FOR USER {}", quoted_string(user))?,
        AuditScope::Tenant(tenant) => write!(f, " FOR TENANT {}", quoted_name(tenant.as_str()))?,
    }
    if let Some(since) = since {
        write!(f, " SINCE {}", quoted_string(&span::print(since)))?;
    }
    write_limit(f, limit)
}
