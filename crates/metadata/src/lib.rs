//! The metadata database: the one truth about what should run and what became of an alteration.
//!
//! [`Store`] is a pool of connections to one `SQLite` file, `PostgreSQL` or `MariaDB` database. Each of its verbs is one
//! transaction of one portable SQL text (`sql.rs` says what is stored). The order in which rows are locked is fixed:
//!
//! 1. a master's transaction locks the row of `master` where the epoch is its own, or ends at once;
//! 2. whatever changes slots, objects or rows of `engine` locks the one row of `catalog` by raising it;
//! 3. then everything that the verb depends on is read again, and only then written.
//!
//! Generations and incarnations are drawn from that one row, so they are never used twice and can be compared.
//! Outcomes are written, never inferred: [`Store::commit`] and [`Store::abort`] race for one primary key. Requests
//! take effect once: their id is a primary key whose row holds the answer.
//!
//! What a caller with stale knowledge can do: an agent whose object has moved gets [`Error::Conflict`]; one that comes
//! after its deadline is refused; a deposed master gets [`Error::Deposed`] with the record of the one that took over;
//! a repeat, however late, gets the answer of the first. None of them changes anything.
//!
//! Every wait is bounded ([`StoreSettings`]): for a connection, for a row that another transaction holds, for a statement,
//! for a transaction whose process was stopped, for the whole call. Only the metadata agents have the credentials.

mod backend;
mod batch;
mod caller;
mod catalog_lock;
mod commit;
mod diagnose;
mod durability;
mod error;
pub mod failpoints;
mod fingerprints;
mod housekeeping;
mod master;
mod migration;
mod observe;
mod open;
mod read;
mod request;
mod rows;
mod settle;
mod slot_batch;
mod slots;
mod sql;
mod sqlite_read_only;
mod store;
mod transaction;
pub mod user_error;
mod views;

pub use backend::{
    Backend, CALL_DEADLINE, CONNECT_DEADLINE, CONNECTIONS, IDLE_TIMEOUT, LOCK_TIMEOUT, STATEMENT_TIMEOUT, StoreSettings,
};
pub use caller::Caller;
pub use commit::{CommitRequest, Committed};
pub use diagnose::{Diagnosis, ROUND_TRIPS, TimeoutSetting};
pub use durability::Durability;
pub use error::{Error, StoreErrorKind};
pub use housekeeping::{DeletedRows, ENGINE_KEEP_MS, MAX_DELETED, MAX_ROUNDS, REQUEST_KEEP_MS};
pub use master::MAX_RENEWALS;
pub use migration::SCHEMA_VERSION;
pub use observe::{MAX_KEPT, MAX_REPORT, NAMESPACE_KEEP_MS};
pub use request::{EngineAnswer, Request, RequestEffect, RestartRequest, StartRequest, StopRequest};
pub use rows::ObservedRow;
pub use sqlite_read_only::ReadOnlySqlite;
pub use store::Store;
pub use views::{EngineDetail, MAX_ALTERATIONS, NodeOverview, Overview};
