//! A single-node, in-memory server of ZooKeeper's wire protocol, for `enginehouse standalone` and for tests.
//!
//! Every role talks to it with the client library that it also uses against a real ensemble, so there is one code
//! path everywhere. The real server is the oracle: the suite in `tests/` runs on this server and on ZooKeeper
//! itself, and where the two differ, this one is wrong.
//!
//! Three layers, each of which knows only those above it in this list:
//!
//! - `proto`: bytes to requests, replies and events to bytes. Nothing here knows a tree.
//! - `state`: the tree, access control, watches and sessions, one pure state machine. It reads no clock and does no
//!   IO: the time comes in with each call, what is to be sent goes out as a list.
//! - `server`: sockets, timers, the port file, and the [`Faults`] that tests ask for.
//!
//! # Invariants
//!
//! - One lock around the state machine gives the global order: what a request changed, which events it fired and
//!   the place of its reply in each connection's queue are decided under that lock. So an event reaches a
//!   connection before any reply that shows the change to it (unless a test asks for delayed events).
//! - Watches and authentication belong to a connection, ephemeral nodes to a session, as in ZooKeeper.
//! - Transaction ids and session ids start from the wall clock, so a server that was started again counts higher
//!   than it ever did before, and never gives out a session id again. With a data folder that holds also if the
//!   clock was set back in between.
//!
//! # What a stale caller can do
//!
//! Nothing survives a restart but the port. A client that lived on offers a session id which this server never
//! gave out, is told that its session has expired, and must register anew; a request of a session that is gone is
//! never executed.

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
