//! A single-node, in-memory server of ZooKeeper's wire protocol, for `enginehouse standalone` and for tests.
//!
//! Every role uses the same client library against it as against a real ensemble, so there is one code path. The
//! real server is the oracle: the suite in `tests/` runs on this server and on ZooKeeper itself, and where the two
//! differ, this one is wrong.
//!
//! Three layers; each depends only on those above it in this list:
//!
//! - `proto`: decodes requests, encodes replies and events. It knows no tree.
//! - `state`: the tree, access control, watches and sessions, one pure state machine. It reads no clock and does no
//!   IO: each call receives the time and returns the frames to send.
//! - `server`: sockets, timers, the port file, and the [`Faults`] that tests inject.
//!
//! # Invariants
//!
//! - One lock around the state machine gives the global order: the changes of a request, the events that it fires
//!   and the position of its reply in each connection's queue are decided under that lock. So an event reaches a
//!   connection before any reply that shows the change (unless a test delays events).
//! - Watches and authentication belong to a connection, ephemeral nodes to a session, as in ZooKeeper.
//! - Transaction ids and session ids start from the wall clock, so a restarted server uses higher ones than before
//!   and never reuses a session id. With a data folder this holds even if the clock was set back in between.
//!
//! # What a stale caller can do
//!
//! Only the port survives a restart. A client of the previous server presents a session id that this server never
//! issued; its session is reported as expired, and it must register again. A request of an ended session is never
//! executed.

mod clock;
mod config;
mod proto;
mod server;
mod state;

pub use config::Config;
pub use server::error::{ErrorKind, StartError};
pub use server::event_filter::EventFilter;
pub use server::faults::{Faults, SessionView};
pub use server::{Server, kept_port};
