//! An engine behind its HiveServer2 listener, tested with a HiveServer2 client.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod catalog;
mod dialect;
mod errors;
mod fixture;
mod functions;
mod metadata;
mod names;
mod resources;
mod results;
mod sessions;
mod values;
