//! SHOW, DESCRIBE and EXPLAIN: one file each, with its columns and rows.

pub(super) mod alterations;
pub(super) mod audit;
pub(super) mod engine;
pub(super) mod engines;
pub(super) mod explain;
mod foreign;
pub(super) mod freshness;
pub(super) mod master;
pub(super) mod object;
pub(super) mod objects;
pub(super) mod quotas;
mod visible;
