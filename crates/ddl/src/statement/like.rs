//! `LIKE 'pattern'` of the lists of objects.

use std::fmt;

use crate::cursor::Cursor;
use crate::error::ParseError;
use crate::quote::quoted_string;

/// Parses `[LIKE 'pattern']`.
pub(super) fn read_like(cursor: &mut Cursor<'_>) -> Result<Option<String>, ParseError> {
    if cursor.eat("LIKE") { cursor.string("a pattern such as 't%'").map(Some) } else { Ok(None) }
}

pub(super) fn write_like(f: &mut fmt::Formatter<'_>, like: Option<&str>) -> fmt::Result {
    match like {
        Some(pattern) => write!(f, " LIKE {}", quoted_string(pattern)),
        None => Ok(()),
    }
}
