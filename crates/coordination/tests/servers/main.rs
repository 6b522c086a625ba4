//! One program for every server, so that the suite is compiled once: the embedded one, a real ZooKeeper, and known bugs of
//! similar systems.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

mod embedded;
mod real_zookeeper;
mod suite;
mod track_record;
