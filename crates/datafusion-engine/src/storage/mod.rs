//! Access control for files, and the limits of statements on memory and disk.
//!
//! A tenant's SQL names files in three ways: LOCATION, COPY TO, and INSERT INTO an external table. [`Locations`] refuses a
//! path outside the configured folders when the statement is planned; [`confined`] checks every file operation again, with
//! symbolic links resolved, so that a link that is created later does not lead outside.

pub mod confined;
pub mod locations;
pub mod resources;
mod scratch;

pub use locations::Locations;
