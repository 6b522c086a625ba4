//! What SHOW, DESCRIBE and EXPLAIN answer: one file each, columns declared beside the rows.

pub(super) mod alterations;
pub(super) mod engine;
pub(super) mod engines;
pub(super) mod explain;
mod foreign;
pub(super) mod freshness;
pub(super) mod master;
pub(super) mod object;
pub(super) mod objects;
