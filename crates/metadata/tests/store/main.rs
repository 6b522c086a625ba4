//! The contract on every database, in one program, so that it is compiled once.

#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "../contract/mod.rs"]
mod contract;
mod mariadb;
mod postgres;
mod sqlite;
