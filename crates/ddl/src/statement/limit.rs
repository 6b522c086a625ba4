//! `LIMIT n` of SHOW ALTERATIONS, SHOW AUDIT, SHOW DEMAND, SHOW ENGINE HISTORY and SHOW RESERVATIONS.

use std::fmt;

use model::error::{ErrorKind, UserError};

use crate::cursor::Cursor;
use crate::error::ParseError;

/// The largest LIMIT.
pub const MAX_LIMIT: u32 = 10_000;

/// Parses `[LIMIT n]`.
pub(super) fn read_limit(cursor: &mut Cursor<'_>) -> Result<Option<u32>, ParseError> {
    if !cursor.eat("LIMIT") {
        return Ok(None);
    }
    let position = cursor.position();
    let limit = cursor.number("LIMIT")?;
    if !(1..=MAX_LIMIT).contains(&limit) {
        let error = UserError::new(ErrorKind::InvalidValue, format!("LIMIT: {limit} is out of range"));
        return Err(ParseError::at(position, error.detail(format!("It is a whole number from 1 to {MAX_LIMIT}."))));
    }
    Ok(Some(limit))
}

pub(super) fn write_limit(f: &mut fmt::Formatter<'_>, limit: Option<u32>) -> fmt::Result {
    match limit {
        Some(limit) => write!(f, " LIMIT {limit}"),
        None => Ok(()),
    }
}
