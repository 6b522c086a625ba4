//! Table catalogs: which engines share the tables that users create.

use serde::{Deserialize, Serialize};

/// Where an engine keeps its table definitions. Its registration states it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TableCatalog {
    /// In the engine itself: no other engine has its tables, and they are lost with the engine.
    Own,
    /// Outside the engine: all engines of the tenant share the tables, which outlive the engine.
    Shared,
}

/// The key of the detail of an observed engine that has its own catalog; engines with a shared one have no such
/// detail.
pub const DETAIL: &str = "catalog";
/// Its value, as printed by DESCRIBE ENGINE.
pub const OWN_DETAIL: &str = "own: its tables and views are lost with this engine, and no other engine has them";
