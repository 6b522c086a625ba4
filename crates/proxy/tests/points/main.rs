//! Every failpoint of the proxy, its relay, the engine agent, DataFusion and the calls between roles: a task is held there
//! while the others continue, and the client must see what is guaranteed.
//!
//! Failpoints are the process's, so these tests are alone with each other: one at a time.

#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "../../../engine-agent/tests/fixture/agents.rs"]
mod agents;
mod calls_between_roles;
#[allow(dead_code)]
#[path = "../gateway/cluster.rs"]
mod cluster;
mod engine_agent_points;
mod engine_points;
#[path = "../../../engine-agent/tests/fixture/engines.rs"]
mod engines;
#[path = "../../../engine-agent/tests/fixture/mod.rs"]
mod fixture;
mod held;
mod proxy_points;
mod relay_points;
