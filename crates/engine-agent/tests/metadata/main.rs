//! The metadata agent over SQLite and an embedded ZooKeeper, with the tests as its proxy and its master.

#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "../fixture/agents.rs"]
mod agents;
#[path = "../fixture/mod.rs"]
mod fixture;
#[path = "../fixture/rights_matrix.rs"]
mod rights_matrix;

mod alterations;
mod auditing;
mod bench;
mod demand;
mod engine_history;
mod failures;
mod on_demand;
mod pools;
mod quotas;
mod requests;
mod reservations;
mod rights;
mod secrets;
mod shows;
