//! Which files an engine may touch, and what its statements may use of memory and disk.
//!
//! SQL of a tenant names files in three ways: LOCATION, COPY TO, and INSERT INTO an external table. [`Locations`] refuses
//! a path outside the configured folders when the statement is read, with an error that says so; [`confined`] checks
//! every single file operation again, symbolic links resolved, so that what a folder was made to point to afterwards
//! helps nobody.

pub mod confined;
pub mod locations;
pub mod resources;
mod scratch;

pub use locations::Locations;
