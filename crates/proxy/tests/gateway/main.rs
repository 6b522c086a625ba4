//! The proxy with real metadata agents, real engine agents with DataFusion beside them, and an embedded ZooKeeper; the
//! tests are the clients and, by hand, the master.

#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "../../../engine-agent/tests/rig/agents.rs"]
mod agents;
#[path = "../../../engine-agent/tests/rig/engines.rs"]
mod engines;
#[path = "../../../engine-agent/tests/rig/mod.rs"]
mod rig;

mod binding;
mod budgets;
mod control;
mod drains;
mod handles;
mod house;
mod http;
mod leaving;
mod limits;
mod queues;
mod timeouts;
mod trouble;
mod types;
