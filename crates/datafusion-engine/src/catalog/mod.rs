//! The tenant's tables, views and schemas.
//!
//! [`folder`] keeps definitions in files that the engines of one machine share, [`bucket`] in an object store that each
//! engine of the tenant reaches; [`definitions`] is either. [`build`] turns one into something that can be scanned;
//! [`provider`] is how DataFusion looks names up, and [`prefetched`] holds what one statement names. The definitions are the
//! truth: an engine that is restarted, or a second engine of the tenant, reads the same.

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
