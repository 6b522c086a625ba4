//! The ZooKeeper recipes: leader election, registrations, permits, drain orders and wake-ups. No other crate knows a znode's
//! path.
//!
//! ZooKeeper provides mutual exclusion, liveness and wake-ups. It is not a source of truth: if it lost everything, the system
//! would still converge from the database. One module for each concept of the table in `alter-protocol.md`:
//!
//! | module | concept |
//! | --- | --- |
//! | [`layout`], [`bootstrap`], [`credentials`], [`access_renewal`] | paths below one root; the base nodes; identities and ACLs; new ACLs for new keys |
//! | [`session`], [`supervisor`] | one session; its replacement after it expired |
//! | [`election`] | the master's lock, and with its session the lease |
//! | [`alter_node`], [`agents`], [`permits`], [`permit_batch`], [`registration`], [`registry`], [`drains`], [`bell`], [`discovery`] | the nodes |
//! | [`diagnose`], [`probe_handshake`] | reads for `doctor`: access lists, the queue for the lock, each server of the ensemble |
//! | [`observation`], [`wakeups`], [`view`] | the input of a tick; wake-ups without payload; a proxy's view of the registry |
//!
//! Invariants:
//! - Every write of the master takes a [`Lock`] and is one multi that begins with a check of the lock's node, the fencing
//!   token. ZooKeeper itself rejects the late call of a deposed master. (ACLs, which no multi can set, are the exception.)
//! - Every request has a deadline. A write that fails with anything but a definite answer of the server is
//!   [`Error::OutcomeUnknown`]: it may have happened, or may still happen.
//! - Only one-shot watches are used, and always with a timer: a lost event costs time and nothing else.
//!
//! A caller with a stale reading is refused (`BadVersion`, `NoNode`, `NodeExists`, `NotEmpty`: [`ZkErrorKind::Conflict`]) and
//! reads again. Nothing in this crate retries a write.

pub mod access_renewal;
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
mod tls;
mod transaction;
pub mod view;
pub mod wakeups;
mod watches;

pub use agents::Agent;
pub use alter_node::{AlterChild, AlterNode, Alteration, CreateOutcome};
pub use credentials::{EngineCredential, EnginePasswords, Identity, Logins, digest};
pub use drains::{DrainOrder, DrainOrderNode};
pub use election::{Election, Lock};
pub use error::{Error, LockLoss, ZkErrorKind};
pub use handshake_probe::{GrantedSession, probe_handshake};
pub use layout::Layout;
pub use observation::{Observation, Observer, Unread, observe};
pub use permits::{Permit, PermitNode};
pub use registration::{Registration, RegistrationNode};
pub use registry::{OwnNodes, OwnWatch};
pub use session::{MAX_CHILDREN, Session, SessionSettings, SessionState};
pub use supervisor::{NoRebuild, Rebuild, Supervisor};
pub use tls::{ZookeeperTls, ZookeeperTlsError};
pub use view::{RegisteredEngine, RegistrySnapshot, View};
pub use wakeups::Wakeups;
