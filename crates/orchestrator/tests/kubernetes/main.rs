//! What holds for pods beyond the contract: the objects that are made, what pods are read as, and how the client answers
//! a server that refuses, is late, forgets or is changed by others. The cluster is a table ([`cluster`]).

#![allow(clippy::unwrap_used, clippy::panic)]

#[allow(dead_code, reason = "shared with the contract suite")]
#[path = "../cluster/mod.rs"]
mod cluster;
mod ending;
mod golden;
mod looking;
mod making;
mod place;
mod preparing;
mod reading;
mod rendering;
mod wire;
