//! The limits of the transactions and queues of the ledger.

/// The maximum number of changes of a batch.
pub const MAX_CHANGES: usize = 256;
/// The maximum number of scopes of a batch.
pub const MAX_BATCH_SCOPES: usize = 64;
/// The maximum number of external requests that wait for a tenant on a pool.
pub const MAX_WAITING_OF_TENANT: i64 = 1_000;
/// The maximum number of external requests that wait for a pool.
pub const MAX_WAITING_OF_POOL: i64 = 10_000;
