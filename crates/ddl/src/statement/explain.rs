//! EXPLAIN of a CREATE, ALTER or DROP, and of START and RESTART ENGINE.

use std::fmt;

use model::alteration::ObjectKind;
use model::change::Change;

use super::{Statement, change, engines};
use crate::cursor::Cursor;
use crate::error::ParseError;
use crate::sniff::Verb;

pub(super) fn read(cursor: &mut Cursor<'_>, verb: Verb, kind: ObjectKind) -> Result<Statement, ParseError> {
    let change = change::read_change(cursor, verb, kind)?;
    let in_place = change::read_in_place(cursor, verb, kind)?;
    refuse(cursor, &["WAIT"])?;
    Ok(Statement::Explain { change, in_place })
}

pub(super) fn start(cursor: &mut Cursor<'_>) -> Result<Statement, ParseError> {
    let (tenant, pool, unit) = engines::read_link(cursor)?;
    refuse(cursor, &["NOWAIT", "WAIT"])?;
    Ok(Statement::ExplainStart { tenant, pool, unit })
}

pub(super) fn restart(cursor: &mut Cursor<'_>) -> Result<Statement, ParseError> {
    let (pool, engine) = engines::read_engine(cursor)?;
    let in_place = cursor.eat_in_place()?;
    refuse(cursor, &["WITHIN", "FORCE", "WAIT"])?;
    Ok(Statement::ExplainRestart { pool, engine, in_place })
}

/// Refuses options that matter only if the statement is run.
fn refuse(cursor: &mut Cursor<'_>, options: &[&str]) -> Result<(), ParseError> {
    let Some(option) = options.iter().find(|option| cursor.is(option)) else { return Ok(()) };
    let why = match *option {
        "NOWAIT" | "WAIT" => "so there is nothing to wait for",
        _ => "so no engine ends",
    };
    let hint = format!("EXPLAIN changes nothing, {why}: remove {option}.");
    Err(cursor.missing("the end of the statement").or_hint(hint))
}

pub(super) fn write(f: &mut fmt::Formatter<'_>, change: &Change) -> fmt::Result {
    f.write_str("EXPLAIN ")?;
    change::write(f, change)
}
