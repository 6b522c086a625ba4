//! The metadata store: the source of truth for the desired state and for the outcome of every alteration.
//!
//! [`Store`] is a connection pool of one `SQLite` file, `PostgreSQL` or `MariaDB` database. Each of its methods is one
//! transaction of portable SQL (`sql.rs` lists the tables). Rows are locked in a fixed order:
//!
//! 1. a master's transaction locks the row of `master` with its own epoch, the fence, or ends at once;
//! 2. a transaction that changes slots, objects or rows of `engine` takes the catalog lock, the one row of `catalog`;
//! 3. a transaction of the ledger locks its scopes: users, creators, tenants on pools, pools, each by name;
//! 4. then everything that it depends on is read again, and only then written.
//!
//! Generations and incarnations are drawn from that row, so they are unique and ordered. Outcomes are written, never inferred:
//! [`Store::commit`] and [`Store::abort`] race for one primary key. Requests are idempotent: their id is a primary key whose
//! row holds the answer.
//!
//! A stale caller changes nothing: an agent whose object has changed receives [`Error::Conflict`], a deposed master receives
//! [`Error::Deposed`] with the record of its successor, a call after its deadline is refused, and a repeat receives the answer
//! of the first call, however late it is.
//!
//! Every wait is bounded ([`StoreSettings`]): for a connection, a row lock, a statement, an idle transaction and the whole
//! call. Only the metadata agents have the credentials.

mod audit;
mod audit_ledger;
mod audit_row;
mod backend;
mod batch;
mod caller;
mod cancel;
mod capacity;
mod catalog_lock;
mod commit;
mod connector;
mod demand;
mod demand_tables;
mod diagnose;
mod durability;
mod error;
mod expire;
pub mod failpoints;
mod history;
mod holder_change;
mod holder_queue;
mod housekeeping;
mod ledger;
mod ledger_limits;
mod ledger_rows;
mod ledger_sql;
mod ledger_views;
mod limits;
mod master;
mod migration;
mod missing_scopes;
mod node_fit;
mod observe;
mod open;
mod password;
mod percent;
mod read;
mod record_ledger;
mod reductions;
mod registration;
mod remedy;
mod request;
mod reservation_pages;
mod reserve;
mod rows;
mod scale;
mod secret_rows;
mod server;
mod settle;
mod slot_batch;
mod slots;
mod sql;
mod sqlite_read_only;
mod start;
mod store;
mod stored_secrets;
mod transaction;
mod trust;
pub mod user_error;
mod views;
mod writer;

pub use audit::{AuditFilter, MAX_AUDIT_ROWS, Refusal};
pub use audit_row::{AuditOutcome, AuditRow, MAX_AUDIT_STATEMENT_BYTES};
pub use backend::{
    Backend, CALL_DEADLINE, CONNECT_DEADLINE, CONNECTIONS, IDLE_TIMEOUT, LOCK_TIMEOUT, STATEMENT_TIMEOUT, StoreSettings,
};
pub use caller::Caller;
pub use commit::{CommitRequest, Committed};
pub use diagnose::{Diagnosis, ROUND_TRIPS, TimeoutSetting};
pub use durability::Durability;
pub use error::{Error, StoreErrorKind};
pub use history::{HistoryFilter, MAX_HISTORY};
pub use holder_queue::{HolderStatement, MAX_BATCHED_CALLS, MAX_QUEUED_CALLS};
pub use housekeeping::{DEMAND_KEEP, DeletedRows, ENGINE_KEEP, MAX_DELETED, MAX_ROUNDS, REQUEST_KEEP};
pub use ledger_limits::{MAX_BATCH_SCOPES, MAX_CHANGES, MAX_WAITING_OF_POOL, MAX_WAITING_OF_TENANT};
pub use ledger_views::{LedgerCounts, MAX_RESERVATIONS, QuotaScope, ReservationFilter, Viewer};
pub use master::MAX_RENEWALS;
pub use migration::SCHEMA_VERSION;
pub use observe::{MAX_KEPT, MAX_REPORT, NAMESPACE_KEEP};
pub use password::PasswordSource;
pub use registration::{RegisterRequest, UnregisterRequest};
pub use remedy::remedy;
pub use request::{EngineAnswer, Request, RequestEffect, RestartRequest, StopRequest};
pub use reservation_pages::{MAX_RESERVATION_ROWS, ReservationPage, Wait};
pub use rows::ObservedRow;
pub use secret_rows::SealedSecrets;
pub use sqlite_read_only::ReadOnlySqlite;
pub use start::{StartRequest, linked, owner_of_started};
pub use store::Store;
pub use stored_secrets::StoredSecrets;
pub use trust::{Distrust, ServerTls};
pub use views::{EngineDetail, MAX_ALTERATIONS, NodeOverview, Overview};
