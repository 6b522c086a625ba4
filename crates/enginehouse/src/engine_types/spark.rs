//! The type `spark`: Spark's Thrift server, a driver with executors.
//!
//! In a pod Spark is a container of its own next to its agent. On one machine it is a child process of its agent.

mod child;
pub mod connector;
pub mod launch;
pub mod location;
pub mod section;
mod server;
mod sidecar;
