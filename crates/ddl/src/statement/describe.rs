//! DESCRIBE and SHOW CREATE of a tenant, pool, unit or quota.

use std::fmt;

use model::alteration::{ObjectKind, ObjectRef};

use super::Statement;
use crate::cursor::Cursor;
use crate::error::ParseError;
use crate::quote::quoted_name;

pub(super) fn describe(cursor: &mut Cursor<'_>, kind: ObjectKind) -> Result<Statement, ParseError> {
    object(cursor, kind).map(Statement::Describe)
}

pub(super) fn show_create(cursor: &mut Cursor<'_>, kind: ObjectKind) -> Result<Statement, ParseError> {
    object(cursor, kind).map(Statement::ShowCreate)
}

/// Parses the name of an object of the kind.
pub(super) fn object(cursor: &mut Cursor<'_>, kind: ObjectKind) -> Result<ObjectRef, ParseError> {
    let name = match kind {
        ObjectKind::Tenant => cursor.tenant()?.into(),
        ObjectKind::ResourcePool => cursor.pool()?.into(),
        ObjectKind::ResourceUnit => cursor.unit()?.into(),
        ObjectKind::ResourceQuota => cursor.quota()?.into(),
    };
    Ok(ObjectRef { kind, name })
}

/// `<verb> RESOURCE POOL rp_1`
pub(super) fn write(f: &mut fmt::Formatter<'_>, verb: &str, object: &ObjectRef) -> fmt::Result {
    write!(f, "{verb} {} {}", object.kind.keywords(), quoted_name(&object.name))
}
