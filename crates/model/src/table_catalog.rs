//! Which other engines have the tables that an engine's users create.

use serde::{Deserialize, Serialize};

/// Where an engine keeps the definitions of its tables. Its registration states it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TableCatalog {
    /// In the engine itself: no other engine has its tables, and they are lost with it.
    Own,
    /// Outside: each engine of the tenant sees the tables, and they outlive the engine.
    Shared,
}

/// The detail of an observed engine that states an own catalog; there is none for a shared one.
pub const DETAIL: &str = "catalog";
/// Its value, as DESCRIBE ENGINE prints it.
pub const OWN_DETAIL: &str = "own: its tables and views are lost with this engine, and no other engine has them";
