//! Every failpoint that the proxy, its relay, the engine agent, DataFusion and the calls between roles pass: somebody is
//! held there while the world goes on, and what the client then sees is what it was promised.
//!
//! Failpoints are the process's, so these tests are alone with each other: one at a time.

#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "../../../engine-agent/tests/rig/agents.rs"]
mod agents;
mod calls_between_roles;
mod engine_agent_points;
mod engine_points;
#[path = "../../../engine-agent/tests/rig/engines.rs"]
mod engines;
mod held;
#[allow(dead_code)]
#[path = "../gateway/house.rs"]
mod house;
mod proxy_points;
mod relay_points;
#[path = "../../../engine-agent/tests/rig/mod.rs"]
mod rig;
