//! The tenant's tables, views and schemas.
//!
//! [`folder`] stores definitions in files that the engines of one machine share, [`bucket`] in an object store that all
//! engines of the tenant reach; [`definitions`] is either. [`build`] builds a scannable table from a definition,
//! [`provider`] implements DataFusion's look-ups, and [`prefetched`] holds the tables of one statement. The definitions
//! are the only source: a restarted engine, or a second engine of the tenant, reads the same.

pub mod bucket;
pub mod build;
pub mod definition;
pub mod definitions;
pub mod file_name;
pub mod folder;
pub mod prefetched;
pub mod provider;
pub mod temporary;

pub use bucket::Bucket;
pub use build::Catalog;
pub use definitions::Definitions;
pub use folder::{DEFAULT_SCHEMA, Folder};
pub use provider::{CATALOG, SessionCatalogs};
pub use temporary::TemporaryTables;
