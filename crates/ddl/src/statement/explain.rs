//! EXPLAIN of a CREATE, ALTER or DROP.

use std::fmt;

use model::alteration::ObjectKind;
use model::change::Change;

use super::{Statement, change};
use crate::cursor::Cursor;
use crate::error::ParseError;
use crate::sniff::Verb;

pub(super) fn read(cursor: &mut Cursor<'_>, verb: Verb, kind: ObjectKind) -> Result<Statement, ParseError> {
    let change = change::read_change(cursor, verb, kind)?;
    if cursor.is("WAIT") {
        return Err(cursor
            .missing("the end of the statement")
            .or_hint("EXPLAIN changes nothing, so there is nothing to wait for: remove WAIT."));
    }
    Ok(Statement::Explain { change })
}

pub(super) fn write(f: &mut fmt::Formatter<'_>, change: &Change) -> fmt::Result {
    f.write_str("EXPLAIN ")?;
    change::write(f, change)
}
