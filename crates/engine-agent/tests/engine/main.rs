//! The engine agent with a real DataFusion engine, an embedded ZooKeeper, and the tests as its master and its proxy.

#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "../rig/engines.rs"]
mod engines;
#[path = "../rig/mod.rs"]
mod rig;

mod drains;
mod registers;
mod relays;
