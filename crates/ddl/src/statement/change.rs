//! CREATE, ALTER and DROP: the part that all kinds of objects share.

use std::fmt;

use model::alteration::{ObjectKind, ObjectRef};
use model::change::{Change, ObjectPatch};

use super::options::{Options, read_options, write_options};
use super::{Statement, describe, read_wait};
use crate::cursor::Cursor;
use crate::error::ParseError;
use crate::sniff::Verb;

pub(super) fn read(cursor: &mut Cursor<'_>, verb: Verb, kind: ObjectKind) -> Result<Statement, ParseError> {
    let change = read_change(cursor, verb, kind)?;
    let in_place = read_in_place(cursor, verb, kind)?;
    let wait = read_wait(cursor)?;
    if cursor.at_in_place() && !in_place {
        let hint = if replaces_engines(verb, kind) { "Write IN PLACE before WAIT." } else { REPLACES_NONE };
        return Err(cursor.missing("the end of the statement").or_hint(hint));
    }
    Ok(Statement::Change { change, in_place, wait })
}

/// Parses `[IN PLACE]` after the options.
pub(super) fn read_in_place(cursor: &mut Cursor<'_>, verb: Verb, kind: ObjectKind) -> Result<bool, ParseError> {
    if replaces_engines(verb, kind) {
        return cursor.eat_in_place();
    }
    if !cursor.at_in_place() {
        return Ok(false);
    }
    Err(cursor.missing("the end of the statement").or_hint(REPLACES_NONE))
}

/// The hint for IN PLACE in a statement that cannot be run so.
const REPLACES_NONE: &str =
    "Remove IN PLACE: of these statements, only ALTER of a resource pool or resource unit replaces engines.";

/// Whether the statement can change the configuration of engines that run.
const fn replaces_engines(verb: Verb, kind: ObjectKind) -> bool {
    matches!(verb, Verb::Alter) && matches!(kind, ObjectKind::ResourcePool | ObjectKind::ResourceUnit)
}

pub(super) fn read_change(cursor: &mut Cursor<'_>, verb: Verb, kind: ObjectKind) -> Result<Change, ParseError> {
    Ok(match verb {
        Verb::Create => {
            let if_not_exists = cursor.eat("IF");
            if if_not_exists {
                cursor.keyword("NOT")?;
                cursor.keyword("EXISTS")?;
            }
            Change::Create { if_not_exists, object: read_object(cursor, kind, false)? }
        }
        Verb::Alter => {
            let if_exists = read_if_exists(cursor)?;
            Change::Alter { if_exists, object: read_object(cursor, kind, true)? }
        }
        Verb::Drop => {
            let if_exists = read_if_exists(cursor)?;
            Change::Drop { if_exists, object: describe::object(cursor, kind)? }
        }
    })
}

fn read_if_exists(cursor: &mut Cursor<'_>) -> Result<bool, ParseError> {
    let has_condition = cursor.eat("IF");
    if has_condition {
        cursor.keyword("EXISTS")?;
    }
    Ok(has_condition)
}

/// The name and the options; an ALTER without options is refused.
fn read_object(cursor: &mut Cursor<'_>, kind: ObjectKind, needed: bool) -> Result<ObjectPatch, ParseError> {
    Ok(match kind {
        ObjectKind::Tenant => ObjectPatch::Tenant(cursor.tenant()?, read_options(cursor, needed)?),
        ObjectKind::ResourcePool => ObjectPatch::ResourcePool(cursor.pool()?, read_options(cursor, needed)?),
        ObjectKind::ResourceUnit => ObjectPatch::ResourceUnit(cursor.unit()?, read_options(cursor, needed)?),
        ObjectKind::ResourceQuota => ObjectPatch::ResourceQuota(cursor.quota()?, read_options(cursor, needed)?),
    })
}

pub(super) fn write(f: &mut fmt::Formatter<'_>, change: &Change) -> fmt::Result {
    let (condition, object, options) = match change {
        Change::Create { if_not_exists, object } => (if_not_exists.then_some("IF NOT EXISTS "), object, true),
        Change::Alter { if_exists, object } => (if_exists.then_some("IF EXISTS "), object, true),
        Change::Drop { if_exists, object } => {
            return write_head(f, change.verb(), if_exists.then_some("IF EXISTS "), object);
        }
    };
    write_head(f, change.verb(), condition, &object.reference())?;
    if options { write_options(f, &printed(object)) } else { Ok(()) }
}

fn write_head(f: &mut fmt::Formatter<'_>, verb: &str, condition: Option<&str>, object: &ObjectRef) -> fmt::Result {
    let name = crate::quote::quoted_name(&object.name);
    write!(f, "{verb} {} {}{name}", object.kind.keywords(), condition.unwrap_or_default())
}

/// The named options as text.
pub(crate) fn printed(object: &ObjectPatch) -> Vec<String> {
    match object {
        ObjectPatch::Tenant(_, patch) => patch.printed(),
        ObjectPatch::ResourcePool(_, patch) => patch.printed(),
        ObjectPatch::ResourceUnit(_, patch) => patch.printed(),
        ObjectPatch::ResourceQuota(_, patch) => patch.printed(),
    }
}
