//! SHOW, DESCRIBE and EXPLAIN: one file each, with its columns and rows.

pub(super) mod alterations;
pub(super) mod audit;
pub(super) mod demand;
pub(super) mod engine;
pub(super) mod engine_history;
pub(super) mod engines;
pub(super) mod explain;
pub(super) mod explain_start;
mod foreign;
pub(super) mod freshness;
mod idle;
pub(super) mod master;
pub(super) mod object;
pub(super) mod objects;
mod quota;
pub(super) mod quotas;
pub(super) mod reservations;
mod visible;
