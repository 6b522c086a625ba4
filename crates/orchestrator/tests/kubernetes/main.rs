//! Properties of pods beyond the contract: the rendered objects, the classification of pods, and the client against a server
//! that refuses, is late, forgets or is changed by others. The cluster is simulated ([`cluster`]).

#![allow(clippy::unwrap_used, clippy::panic)]

mod charge;
#[allow(dead_code, reason = "shared with the contract suite")]
#[path = "../cluster/mod.rs"]
mod cluster;
mod delete;
mod ensure;
mod executors;
mod golden;
mod list;
mod namespaces;
mod read;
mod render;
mod requests;
mod support;
mod wire;
