//! SHOW ALTERATIONS.

use std::fmt;

use model::error::{ErrorKind, UserError};

use super::Statement;
use crate::cursor::Cursor;
use crate::error::ParseError;

/// The largest LIMIT.
pub const MAX_LIMIT: u32 = 10_000;

pub(super) fn show(cursor: &mut Cursor<'_>) -> Result<Statement, ParseError> {
    if !cursor.eat("LIMIT") {
        return Ok(Statement::ShowAlterations { limit: None });
    }
    let position = cursor.position();
    let limit = cursor.number("LIMIT")?;
    if !(1..=MAX_LIMIT).contains(&limit) {
        let error = UserError::new(ErrorKind::InvalidValue, format!("LIMIT: {limit} is out of range"));
        return Err(ParseError::at(position, error.detail(format!("It is a whole number from 1 to {MAX_LIMIT}."))));
    }
    Ok(Statement::ShowAlterations { limit: Some(limit) })
}

pub(super) fn write_show(f: &mut fmt::Formatter<'_>, limit: Option<u32>) -> fmt::Result {
    f.write_str("SHOW ALTERATIONS")?;
    match limit {
        Some(limit) => write!(f, " LIMIT {limit}"),
        None => Ok(()),
    }
}
