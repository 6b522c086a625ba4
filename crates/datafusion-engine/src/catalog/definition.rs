//! A definition of the tenant's catalog: the content of its file.
//!
//! A definition is the statement that created the object, with the settings needed to parse it the same way again. It is
//! immutable: a change replaces the file by a definition with another id, so a reader sees either the old or the new one,
//! and a table built from it can be cached under its id.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The format version that this code writes. Version 2 added the dialect.
pub const VERSION: u32 = 2;
/// The oldest version that this code reads.
pub const OLDEST_VERSION: u32 = 1;

/// The kind of object that a definition defines.
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
    /// The format version.
    pub version: u32,
    /// Unique for every definition, so that a replacement is detected.
    pub id: String,
    pub kind: ObjectKind,
    pub schema: String,
    pub name: String,
    /// The statement as the user wrote it.
    pub statement: String,
    /// The schema of the statement's unqualified names.
    pub default_schema: String,
    /// DataFusion's `sql_parser` settings with which the statement was parsed.
    pub parser: BTreeMap<String, String>,
    /// The SQL dialect of the statement; `None` for the one in `parser`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dialect: Option<String>,
    pub created_by: String,
    /// In milliseconds since 1970.
    pub created_at_ms: i64,
}

impl ObjectKind {
    /// The word in messages.
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
