//! The types that the crates of Enginehouse share: tenants, slots, engines, alterations, epochs, and the rules over
//! them.
//!
//! Nothing here does I/O, waits or keeps state: everything is a value or a pure function of values, so two processes
//! that have the same values reach the same result. The modules:
//!
//! | module | concept |
//! | --- | --- |
//! | [`name`], [`number`], [`quantity`], [`span`] | validated names, counters that never go back, CPU and memory, lengths of time |
//! | [`catalog`], [`change`] | tenants, resource pools, units and quotas; what a CREATE, ALTER or DROP makes of them |
//! | [`slot`], [`desired`] | one desired engine; which slots follow from a catalog |
//! | [`on_demand`] | options and defaults of engines that waiting sessions start |
//! | [`configuration`], [`engine_name`], [`engine_type`] | the configuration of an engine, its name and what its type requests |
//! | [`labels`], [`engine_labels`] | labels and those of an engine |
//! | [`instance`], [`charge`] | what an engine runs in; its pods with what they request |
//! | [`engine_state`], [`observation`] | the observed state of engines and nodes |
//! | [`resource`] | resources that are requested, and what they are charged |
//! | [`quota`] | limits of tenants, users and creators; what a tenant may still be granted on a resource pool |
//! | [`ledger`] | reservations, and what they charge to users, creators, tenants and pools |
//! | [`table_catalog`] | whether an engine's tables are its own or shared |
//! | [`capacity`], [`fit`] | what the nodes of a pool offer and have left; whether the pods of an engine find nodes |
//! | [`user_name`], [`rights`] | names of users and groups; which role may run which statement |
//! | [`demand`], [`demand_report`] | sessions that wait for an engine; what is scaled together, and how a proxy reports them |
//! | [`scaling`] | the slots that a master adds and removes to follow demand |
//! | [`alteration`], [`snapshot`] | an alteration and its outcome; the whole database, read at once |
//! | [`advertised`] | the address that clients and other processes connect to |
//! | [`error`], [`secret`], [`fingerprint`] | errors for users, secret values and their fingerprint |
//! | [`sealed`], [`sealing`] | secret values as the database has them |
//! | [`credential`], [`key_generation`], [`role_digests`], [`signed_tls_key`] | comparison of keys; their generations; the roles' identities in ZooKeeper; the TLS keys of engines |
//! | [`cause`] | the causes of errors, kept and printed |
//! | [`clock`], [`millis`] | time; durations as milliseconds |
//! | [`spark_start`] | whether a Spark that did not start may start later |
//! | [`text`], [`stack_trace`] | texts cut to a limit, reasons as details; Java stack traces in error texts |
//! | [`statement_timeout`] | how long a statement may take |
//! | [`log_throttle`] | how often a condition that lasts is logged |
//! | [`shared`], [`in_order`] | rows that readings share as long as they do not change; joins by engine name |
//!
//! A caller with stale values gets stale results, never wrong effects: every effect carries the generation,
//! incarnation or epoch that it was derived from, and is refused if that has changed.

pub mod advertised;
pub mod alteration;
pub mod capacity;
pub mod catalog;
pub mod cause;
pub mod change;
pub mod charge;
pub mod clock;
pub mod configuration;
pub mod credential;
pub mod demand;
pub mod demand_report;
pub mod desired;
pub mod end;
pub mod engine_labels;
pub mod engine_name;
pub mod engine_state;
pub mod engine_type;
pub mod error;
pub mod failed_node;
pub mod failpoint;
pub mod fingerprint;
pub mod fit;
pub mod history;
pub mod in_order;
pub mod instance;
pub mod key_generation;
pub mod labels;
pub mod ledger;
pub mod log_throttle;
pub mod millis;
pub mod name;
pub mod number;
pub mod observation;
pub mod observed_pods;
pub mod on_demand;
pub mod owner;
pub mod pace;
pub mod quantity;
pub mod quota;
pub mod resource;
pub mod rights;
pub mod role_digests;
pub mod run_as;
pub mod scaling;
pub mod sealed;
pub mod sealing;
pub mod secret;
pub mod shared;
pub mod sharing;
pub mod signed_tls_key;
pub mod slot;
pub mod snapshot;
pub mod span;
pub mod spark_start;
pub mod stack_trace;
pub mod statement_timeout;
pub mod table_catalog;
pub mod text;
pub mod type_selector;
pub mod user_name;

pub use engine_name::EngineName;
pub use error::{ErrorKind, UserError};
pub use name::{PoolName, QuotaName, TenantName, UnitName};
pub use number::{Epoch, Generation, Incarnation};
pub use slot::{Slot, SlotKey};
