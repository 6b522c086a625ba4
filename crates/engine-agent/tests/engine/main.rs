//! The engine agent with a real DataFusion engine, an embedded ZooKeeper, and the tests as its master and its proxy.

#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "../fixture/engines.rs"]
mod engines;
#[path = "../fixture/mod.rs"]
mod fixture;

mod drains;
mod odd_engines;
mod owners;
mod permitted;
mod registers;
mod relays;
mod retires;
mod seats;
