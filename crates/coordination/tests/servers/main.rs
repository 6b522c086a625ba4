//! One program for every server, so that the suite is compiled once: the embedded one, a real ZooKeeper, with TLS too, and known
//! bugs of similar systems.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

mod embedded;
mod real_zookeeper;
#[cfg(feature = "zookeeper-tls")]
mod real_zookeeper_tls;
mod suite;
mod track_record;
