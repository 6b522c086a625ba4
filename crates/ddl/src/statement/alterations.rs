//! SHOW ALTERATIONS.

use std::fmt;

use super::Statement;
use super::limit::{read_limit, write_limit};
use crate::cursor::Cursor;
use crate::error::ParseError;

pub(super) fn show(cursor: &mut Cursor<'_>) -> Result<Statement, ParseError> {
    Ok(Statement::ShowAlterations { limit: read_limit(cursor)? })
}

pub(super) fn write_show(f: &mut fmt::Formatter<'_>, limit: Option<u32>) -> fmt::Result {
    f.write_str("SHOW ALTERATIONS")?;
    write_limit(f, limit)
}
