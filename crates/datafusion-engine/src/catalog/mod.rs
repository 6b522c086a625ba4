//! The tenant's tables, views and schemas.
//!
//! [`folder`] keeps definitions in files that all engines of the tenant share; [`build`] turns one into something that
//! can be scanned; [`provider`] is how DataFusion looks names up. The truth is the folder alone: an engine that is
//! restarted, or a second one beside it, sees the same.

pub mod build;
pub mod definition;
pub mod file_name;
pub mod folder;
pub mod provider;

pub use build::Catalog;
pub use folder::{DEFAULT_SCHEMA, Folder};
pub use provider::{CATALOG, SessionCatalogs, Temporary};
