//! The vocabulary of Enginehouse: what every other crate means when it says *tenant*, *slot*, *engine* or *epoch*.
//!
//! Nothing here does IO, waits or keeps state; everything is a value or a pure function over values, so that two
//! processes that are given the same values come to the same result. The one home of each concept:
//!
//! | module | concept |
//! | --- | --- |
//! | [`name`], [`number`], [`quantity`], [`span`] | validated names, counters that never go back, CPU and memory, lengths of time |
//! | [`catalog`], [`change`] | tenants, resource pools and resource units; what a CREATE, ALTER or DROP makes of them |
//! | [`slot`], [`desired`] | the wish for one engine; which slots follow from a catalog |
//! | [`configuration`], [`engine_name`], [`labels`], [`engine_type`] | what an engine is made from, and how it is called, marked and launched |
//! | [`engine_state`], [`observation`] | what is known of an engine that runs, and of a node |
//! | [`table_catalog`] | whether an engine's tables are its own or shared |
//! | [`capacity`] | what the nodes of a pool offer and have left |
//! | [`alteration`], [`snapshot`] | a change on its way; everything that the database knows, read at once |
//! | [`advertised`] | the address that others are told to connect to |
//! | [`error`], [`secret`], [`fingerprint`], [`credential`], [`clock`] | errors that reach users, values that must not and their digest, keys, time |
//! | [`stack_trace`] | the stack traces of Java in the texts of errors |
//! | [`statement_timeout`] | how long a statement may take |
//! | [`log_throttle`] | how often a condition that lasts is logged |
//!
//! A caller with stale values gets stale results, never wrong effects: every effect elsewhere carries the
//! generation, incarnation or epoch that it was derived from and is refused if that moved.

pub mod advertised;
pub mod alteration;
pub mod capacity;
pub mod catalog;
pub mod change;
pub mod clock;
pub mod configuration;
pub mod credential;
pub mod desired;
pub mod engine_name;
pub mod engine_state;
pub mod engine_type;
pub mod error;
pub mod failpoint;
pub mod fingerprint;
pub mod labels;
pub mod log_throttle;
pub mod name;
pub mod number;
pub mod observation;
pub mod quantity;
pub mod secret;
pub mod slot;
pub mod snapshot;
pub mod span;
pub mod stack_trace;
pub mod statement_timeout;
pub mod table_catalog;

pub use engine_name::EngineName;
pub use error::{ErrorKind, UserError};
pub use name::{PoolName, TenantName, UnitName};
pub use number::{Epoch, Generation, Incarnation};
pub use slot::{Slot, SlotKey};
