//! ZooKeeper: the only place that knows a znode's path.
//!
//! ZooKeeper holds mutual exclusion, liveness and wake-ups here, and no truth: if it lost everything, the system
//! would still converge from the database. One module per concept of the table in `alter-protocol.md`:
//!
//! | module | concept |
//! | --- | --- |
//! | [`layout`], [`credentials`] | paths below one root; who may do what |
//! | [`session`], [`supervisor`] | one session; a session that is built anew when it expired |
//! | [`election`] | the master's lock |
//! | [`alter_node`], [`agents`], [`permits`], [`permit_batch`], [`registry`], [`drains`], [`bell`], [`discovery`] | the nodes |
//! | [`diagnose`], [`probe_handshake`] | a look by an operator's tool: access lists, the queue for the lock, each server by itself |
//! | [`observation`], [`wakeups`], [`view`] | everything read at once; wake-ups without payload; a proxy's view of the registry |
//!
//! Invariants:
//! - What the master writes takes a [`Lock`] and is one multi that begins with a check of the lock's node. A deposed
//!   master's late call is refused by ZooKeeper itself.
//! - Every request has a deadline. An error that is not a plain answer of the server is
//!   [`Error::OutcomeUnknown`]: the write may have happened, or may still happen.
//! - Only one-shot watches are used, and never alone: whoever waits for an event also reads again after a while, so a
//!   lost event costs time and nothing else.
//!
//! A caller with a stale reading is refused (`BadVersion`, `NoNode`, `NodeExists`, `NotEmpty`: [`ZkErrorKind::Conflict`]) and
//! reads again; nothing in this crate retries a write.

pub mod agents;
pub mod alter_node;
pub mod bell;
pub mod bootstrap;
pub mod credentials;
pub mod diagnose;
pub mod discovery;
mod document;
pub mod drains;
pub mod election;
mod error;
pub mod failpoints;
mod handshake_probe;
pub mod layout;
pub mod observation;
pub mod permit_batch;
pub mod permits;
pub mod registration;
pub mod registry;
pub mod session;
pub mod supervisor;
mod transaction;
pub mod view;
pub mod wakeups;
mod watches;

pub use agents::Agent;
pub use alter_node::{AlterChild, AlterNode, Alteration, CreateOutcome};
pub use credentials::{EngineCredential, Identity};
pub use drains::{DrainOrder, DrainOrderNode};
pub use election::{Election, Lock};
pub use error::{Error, ZkErrorKind};
pub use handshake_probe::{GrantedSession, probe_handshake};
pub use layout::Layout;
pub use observation::{Observation, Unread, observe};
pub use permits::{Permit, PermitNode};
pub use registration::{Registration, RegistrationNode};
pub use registry::{OwnNodes, OwnWatch};
pub use session::{MAX_CHILDREN, Session, SessionSettings, SessionState};
pub use supervisor::{NoRebuild, Rebuild, Supervisor};
pub use view::{RegisteredEngine, RegistrySnapshot, View};
pub use wakeups::Wakeups;
