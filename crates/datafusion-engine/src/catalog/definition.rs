//! One definition of the tenant's catalog: what is in its file.
//!
//! A definition is the statement that made the object, with what is needed to read it the same way again. It is
//! immutable: to change one is to replace its file by another definition with another id, so a reader has either the
//! old one or the new one, and whatever was built from one can be kept as long as the id stays.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The version of the file's form that this code writes. In 2 the dialect is recorded.
pub const VERSION: u32 = 2;
/// The oldest version that this code reads.
pub const OLDEST_VERSION: u32 = 1;

/// What a definition defines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ObjectKind {
    /// A table over files.
    ExternalTable,
    /// A view.
    View,
}

/// One file of the catalog.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Definition {
    /// The version of this form.
    pub version: u32,
    /// New for every definition, so that a replaced one is noticed.
    pub id: String,
    /// What it defines.
    pub kind: ObjectKind,
    /// The schema of the object.
    pub schema: String,
    /// The name of the object.
    pub name: String,
    /// The statement as the user wrote it.
    pub statement: String,
    /// The schema in which the statement's bare names are looked up.
    pub default_schema: String,
    /// DataFusion's `sql_parser` settings under which the statement was read.
    pub parser: BTreeMap<String, String>,
    /// The SQL dialect in which the statement was written; none: the one that `parser` names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dialect: Option<String>,
    /// Who made it.
    pub created_by: String,
    /// When, in milliseconds since 1970.
    pub created_at_ms: i64,
}

impl ObjectKind {
    /// The word for it in messages.
    pub const fn word(self) -> &'static str {
        match self {
            Self::ExternalTable => "table",
            Self::View => "view",
        }
    }

    /// The `TABLE_TYPE` of JDBC.
    pub const fn jdbc_type(self) -> &'static str {
        match self {
            Self::ExternalTable => "TABLE",
            Self::View => "VIEW",
        }
    }
}
