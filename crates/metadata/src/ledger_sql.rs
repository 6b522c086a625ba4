//! The SQL of the ledger.
//!
//! | table | one row is |
//! | --- | --- |
//! | `quota_scope` | a user, creator, tenant on a pool, or pool: its limits and what it holds. `version` changes whenever a transaction locks it |
//! | `reservation` | a charge with its holder, or a request that waits for one; ended ones are kept for a while |
//!
//! `capacity` of a pool is JSON: its measured capacity in requests, or what a program has registered; NULL if neither. The lease
//! of a registration is `open_until_ms`, and `measured_at_ms` is when it was registered. All three change only under the catalog
//! lock.
//!
//! A limit of 2^62 is unlimited, so no condition compares with NULL. A guarantee of −1 is none. `usr` and `creator` are
//! empty if neither is charged.

use crate::batch::UpdateEach;

/// The scopes and reservations.
pub(crate) const LEDGER: &[&str] = &[
    "CREATE TABLE IF NOT EXISTS quota_scope (kind SMALLINT NOT NULL, name VARCHAR(255) NOT NULL, \
     open SMALLINT NOT NULL, version BIGINT NOT NULL, open_until_ms BIGINT NOT NULL, counted_epoch BIGINT NOT NULL, \
     queued BIGINT NOT NULL, \
     limit_cpu BIGINT NOT NULL, limit_memory BIGINT NOT NULL, limit_engines BIGINT NOT NULL, \
     held_cpu BIGINT NOT NULL CHECK (held_cpu >= 0), held_memory BIGINT NOT NULL CHECK (held_memory >= 0), \
     held_engines BIGINT NOT NULL CHECK (held_engines >= 0), \
     guarantee_cpu BIGINT NOT NULL, guarantee_memory BIGINT NOT NULL, guarantee_engines BIGINT NOT NULL, \
     exclusive_cpu BIGINT NOT NULL, exclusive_memory BIGINT NOT NULL, exclusive_engines BIGINT NOT NULL, \
     shared_limit_cpu BIGINT NOT NULL, shared_limit_memory BIGINT NOT NULL, shared_limit_engines BIGINT NOT NULL, \
     shared_held_cpu BIGINT NOT NULL CHECK (shared_held_cpu >= 0), \
     shared_held_memory BIGINT NOT NULL CHECK (shared_held_memory >= 0), \
     shared_held_engines BIGINT NOT NULL CHECK (shared_held_engines >= 0), \
     unguaranteed_limit_cpu BIGINT NOT NULL, unguaranteed_limit_memory BIGINT NOT NULL, \
     unguaranteed_limit_engines BIGINT NOT NULL, \
     unguaranteed_held_cpu BIGINT NOT NULL CHECK (unguaranteed_held_cpu >= 0), \
     unguaranteed_held_memory BIGINT NOT NULL CHECK (unguaranteed_held_memory >= 0), \
     unguaranteed_held_engines BIGINT NOT NULL CHECK (unguaranteed_held_engines >= 0), \
     PRIMARY KEY (kind, name))",
    "CREATE TABLE IF NOT EXISTS reservation (id VARCHAR(64) NOT NULL PRIMARY KEY, \
     request_key VARCHAR(512) NOT NULL UNIQUE, holder VARCHAR(16) NOT NULL, lineage VARCHAR(255) NOT NULL, \
     tenant VARCHAR(63) NOT NULL, pool VARCHAR(63) NOT NULL, unit VARCHAR(63), incarnation BIGINT, \
     instance VARCHAR(255), usr VARCHAR(255) NOT NULL, creator VARCHAR(255) NOT NULL, state VARCHAR(16) NOT NULL, \
     asked TEXT, asked_cpu BIGINT NOT NULL, asked_memory BIGINT NOT NULL, asked_engines BIGINT NOT NULL, \
     asked_request_cpu BIGINT NOT NULL, asked_request_memory BIGINT NOT NULL, ttl_ms BIGINT, actual TEXT, \
     cpu BIGINT NOT NULL, memory BIGINT NOT NULL, engines BIGINT NOT NULL, \
     request_cpu BIGINT NOT NULL, request_memory BIGINT NOT NULL, uid VARCHAR(255), epoch BIGINT NOT NULL, \
     asked_at_ms BIGINT NOT NULL, locked_at_ms BIGINT, used_at_ms BIGINT, ended_at_ms BIGINT, deadline_ms BIGINT, \
     reason TEXT)",
    "CREATE INDEX IF NOT EXISTS reservation_by_deadline ON reservation (state, deadline_ms)",
    "CREATE INDEX IF NOT EXISTS reservation_by_pool ON reservation (pool, state)",
    "CREATE INDEX IF NOT EXISTS reservation_by_lineage ON reservation (lineage)",
    "CREATE INDEX IF NOT EXISTS reservation_by_end ON reservation (ended_at_ms)",
    "CREATE INDEX IF NOT EXISTS reservation_by_user ON reservation (usr, state)",
    "CREATE INDEX IF NOT EXISTS reservation_by_creator ON reservation (creator, state)",
];

/// What connects the ledger to slots and pools: whom a slot is charged to, and measured capacities. The rows of scopes are filled
/// by `migration.rs`.
pub(crate) const LEDGER_IN_USE: &[&str] = &[
    "ALTER TABLE slot ADD COLUMN IF NOT EXISTS usr VARCHAR(255) NOT NULL DEFAULT ''",
    "ALTER TABLE slot ADD COLUMN IF NOT EXISTS creator VARCHAR(255) NOT NULL DEFAULT ''",
    "ALTER TABLE slot ADD COLUMN IF NOT EXISTS asked_at_ms BIGINT NOT NULL DEFAULT 0",
    "ALTER TABLE quota_scope ADD COLUMN IF NOT EXISTS capacity TEXT",
    "ALTER TABLE quota_scope ADD COLUMN IF NOT EXISTS measured_at_ms BIGINT",
    "CREATE INDEX IF NOT EXISTS reservation_by_incarnation ON reservation (incarnation)",
];

/// How many differences the audits have corrected.
pub(crate) const LEDGER_DRIFTS: &[&str] =
    &["ALTER TABLE master ADD COLUMN IF NOT EXISTS drifts BIGINT NOT NULL DEFAULT 0"];

pub(crate) const DRIFTS_ADD: &str = "UPDATE master SET drifts = drifts + ? WHERE id = 1";
pub(crate) const DRIFTS: &str = "SELECT drifts FROM master WHERE id = 1";

/// Locks a scope. It changes a column: after an update that changes none, a SELECT of `MariaDB` reads an older
/// snapshot.
pub(crate) const SCOPE_LOCK: &str = "UPDATE quota_scope SET version = version + 1 WHERE kind = ? AND name = ?";
pub(crate) const SCOPES_OF: &str = "SELECT * FROM quota_scope WHERE (kind, name) IN";
pub(crate) const SCOPES: &str = "SELECT * FROM quota_scope ORDER BY kind, name";
/// The tenants of a pool: `name` is between `tenant/pool` for all tenants.
pub(crate) const SCOPES_OF_POOL: &str = "SELECT * FROM quota_scope WHERE kind = 3 AND name LIKE ?";
/// Writes a scope that this transaction has locked and read.
pub(crate) const SCOPE_WRITE: &str = "UPDATE quota_scope SET open = ?, open_until_ms = ?, counted_epoch = ?, \
     queued = ?, limit_cpu = ?, limit_memory = ?, limit_engines = ?, held_cpu = ?, held_memory = ?, \
     held_engines = ?, guarantee_cpu = ?, guarantee_memory = ?, guarantee_engines = ?, exclusive_cpu = ?, \
     exclusive_memory = ?, exclusive_engines = ?, shared_limit_cpu = ?, shared_limit_memory = ?, \
     shared_limit_engines = ?, shared_held_cpu = ?, shared_held_memory = ?, shared_held_engines = ?, \
     unguaranteed_limit_cpu = ?, unguaranteed_limit_memory = ?, unguaranteed_limit_engines = ?, \
     unguaranteed_held_cpu = ?, unguaranteed_held_memory = ?, unguaranteed_held_engines = ? \
     WHERE kind = ? AND name = ? AND version = ?";
pub(crate) const SCOPES_INSERT: &str = "INSERT INTO quota_scope (open, open_until_ms, counted_epoch, queued, \
     limit_cpu, limit_memory, limit_engines, held_cpu, held_memory, held_engines, guarantee_cpu, guarantee_memory, \
     guarantee_engines, exclusive_cpu, exclusive_memory, exclusive_engines, shared_limit_cpu, shared_limit_memory, \
     shared_limit_engines, shared_held_cpu, shared_held_memory, shared_held_engines, unguaranteed_limit_cpu, \
     unguaranteed_limit_memory, unguaranteed_limit_engines, unguaranteed_held_cpu, unguaranteed_held_memory, \
     unguaranteed_held_engines, kind, name, version)";

/// The users and creators.
pub(crate) const PRINCIPALS: &str = "SELECT kind, name FROM quota_scope WHERE kind IN (1, 2)";
pub(crate) const SCOPE_KEYS_OF: &str = "SELECT kind, name FROM quota_scope WHERE (kind, name) IN";
/// The pools, and the tenants on pools.
pub(crate) const SCOPES_OF_POOLS: &str = "SELECT * FROM quota_scope WHERE kind IN (3, 4)";
/// Gives users or creators a limit. It depends on nothing that they hold, so they are not read.
pub(crate) const PRINCIPALS_LIMIT: &str = "UPDATE quota_scope SET open = 1, limit_cpu = ?, limit_memory = ?, \
     limit_engines = ?, version = version + 1 WHERE kind = ? AND name IN";
pub(crate) const CAPACITIES: &str = "SELECT name, capacity FROM quota_scope WHERE kind = 4 AND capacity IS NOT NULL";
pub(crate) const CAPACITY_WRITE: &str =
    "UPDATE quota_scope SET capacity = ?, measured_at_ms = ? WHERE kind = 4 AND name = ?";

/// A registered capacity with its lease. The row is locked.
pub(crate) const REGISTRATION_WRITE: &str = "UPDATE quota_scope SET capacity = ?, measured_at_ms = ?, \
     open_until_ms = ? WHERE kind = 4 AND name = ?";
pub(crate) const REGISTRATION: &str =
    "SELECT capacity, open_until_ms FROM quota_scope WHERE kind = 4 AND name = ? AND capacity IS NOT NULL";
/// Forgets a measured or registered capacity and its lease.
pub(crate) const CAPACITY_FORGET: &str = "UPDATE quota_scope SET capacity = NULL, measured_at_ms = NULL, \
     open_until_ms = ? WHERE kind = 4 AND name = ?";

/// Writes what an admission round left, if it has changed.
pub(crate) const POOL_ADMISSION: &str = "UPDATE quota_scope SET queued = ?, counted_epoch = ? \
     WHERE kind = 4 AND name = ? AND (queued <> ? OR counted_epoch <> ?)";
/// Tenants on pools, and pools, that are gone and hold nothing.
pub(crate) const SCOPES_GONE: &str = "SELECT * FROM quota_scope WHERE kind IN (3, 4) AND open = 0 AND held_cpu = 0 \
     AND held_memory = 0 AND held_engines = 0 ORDER BY kind, name LIMIT ?";
pub(crate) const SCOPE_DELETE: &str = "DELETE FROM quota_scope WHERE kind = ? AND name = ? AND open = 0 \
     AND held_cpu = 0 AND held_memory = 0 AND held_engines = 0";

pub(crate) const RESERVATION_COUNTS: &str =
    "SELECT state, COUNT(*) AS number FROM reservation WHERE ended_at_ms IS NULL GROUP BY state";
/// The newest charges of each user and creator in a tenant on a pool.
pub(crate) const CHARGES_NEWEST: &str = "SELECT tenant, pool, usr, creator, MAX(locked_at_ms) AS locked_at_ms, \
     MAX(used_at_ms) AS used_at_ms FROM reservation WHERE state IN ('locked', 'used') \
     GROUP BY tenant, pool, usr, creator";
/// The newest alterations of what has limits.
pub(crate) const LIMITS_ALTERED: &str = "SELECT object_kind, object_name, MAX(decided_at_ms) AS decided_at_ms \
     FROM alteration WHERE outcome = 'committed' AND object_kind IN ('resource_pool', 'resource_quota') \
     GROUP BY object_kind, object_name";
/// Only pools have queued requests.
pub(crate) const POOLS_QUEUED: &str = "SELECT queued FROM quota_scope WHERE queued > 0";
pub(crate) const RESERVATIONS: &str = "SELECT * FROM reservation ORDER BY id";
/// The head of a query; conditions and order are appended.
pub(crate) const RESERVATIONS_ANY: &str = "SELECT * FROM reservation WHERE 1 = 1";
pub(crate) const RESERVATIONS_OF_IDS: &str = "SELECT * FROM reservation WHERE id IN";
/// A page of a list; conditions follow.
pub(crate) const RESERVATION_PAGE: &str = "SELECT * FROM reservation WHERE id > ?";
/// The external requests that wait for a pool, up to one of them by age.
pub(crate) const RESERVATION_POSITION: &str = "SELECT COUNT(*) AS waiting FROM reservation WHERE pool = ? \
     AND state = 'waiting' AND (asked_at_ms < ? OR (asked_at_ms = ? AND id <= ?))";
pub(crate) const RESERVATIONS_OF_KEYS: &str = "SELECT * FROM reservation WHERE request_key IN";
pub(crate) const RESERVATIONS_OF_LINEAGES: &str =
    "SELECT * FROM reservation WHERE state IN ('locked', 'used') AND lineage IN";
pub(crate) const RESERVATIONS_OF_POOL: &str =
    "SELECT * FROM reservation WHERE pool = ? AND state IN ('locked', 'used')";
pub(crate) const RESERVATIONS_OF_USERS: &str = "SELECT * FROM reservation WHERE state IN ('locked', 'used') AND usr IN";
pub(crate) const RESERVATIONS_OF_CREATORS: &str =
    "SELECT * FROM reservation WHERE state IN ('locked', 'used') AND creator IN";
pub(crate) const RESERVATIONS_OF_TENANTS: &str =
    "SELECT * FROM reservation WHERE state IN ('locked', 'used') AND (tenant, pool) IN";
/// The charged and waiting reservations.
pub(crate) const RESERVATIONS_OPEN: &str = "SELECT id, request_key, holder, lineage, tenant, pool, unit, incarnation, \
     instance, usr, creator, state, cpu, memory, engines, request_cpu, request_memory, ttl_ms, uid, asked_at_ms, \
     used_at_ms, ended_at_ms, deadline_ms FROM reservation WHERE state IN ('waiting', 'locked', 'used')";
/// The reservations that have ended of the current engines of slots.
pub(crate) const RESERVATIONS_ENDED_OF_CURRENT: &str = "SELECT r.id, r.request_key, r.holder, r.lineage, r.tenant, r.pool, \
     r.unit, r.incarnation, r.instance, r.usr, r.creator, r.state, r.cpu, r.memory, r.engines, r.request_cpu, \
     r.request_memory, r.ttl_ms, r.uid, r.asked_at_ms, r.used_at_ms, r.ended_at_ms, r.deadline_ms FROM slot s \
     CROSS JOIN reservation r WHERE r.incarnation = s.incarnation AND r.ended_at_ms IS NOT NULL AND r.tenant = s.tenant \
     AND r.pool = s.pool AND r.unit = s.unit";
/// The reservations that have ended of engines that have not.
pub(crate) const RESERVATIONS_ENDED_OF_LIVING: &str = "SELECT r.id, r.request_key, r.holder, r.lineage, r.tenant, r.pool, \
     r.unit, r.incarnation, r.instance, r.usr, r.creator, r.state, r.cpu, r.memory, r.engines, r.request_cpu, \
     r.request_memory, r.ttl_ms, r.uid, r.asked_at_ms, r.used_at_ms, r.ended_at_ms, r.deadline_ms FROM engine e \
     CROSS JOIN reservation r WHERE e.ended_at_ms IS NULL AND r.id = e.name AND r.ended_at_ms IS NOT NULL";
/// The charged reservations of engines that were observed on no node.
pub(crate) const RESERVATIONS_ON_NO_NODE: &str = "SELECT r.id, r.request_key, r.holder, r.lineage, r.tenant, r.pool, \
     r.unit, r.incarnation, r.instance, r.usr, r.creator, r.state, r.cpu, r.memory, r.engines, r.request_cpu, \
     r.request_memory, r.ttl_ms, r.uid, r.asked_at_ms, r.used_at_ms, r.ended_at_ms, r.deadline_ms FROM reservation r \
     LEFT JOIN observed_engine o ON o.name = r.id WHERE r.state IN ('locked', 'used') AND r.holder = 'engine' \
     AND o.node IS NULL";
/// The requests that wait for a pool, by tenant.
pub(crate) const RESERVATIONS_WAITING: &str =
    "SELECT tenant, COUNT(*) AS waiting FROM reservation WHERE pool = ? AND state = 'waiting' GROUP BY tenant";
pub(crate) const RESERVATIONS_OVERDUE: &str = "SELECT * FROM reservation WHERE holder = 'external' \
     AND state IN ('waiting', 'locked', 'used') AND deadline_ms <= ? ORDER BY deadline_ms, id LIMIT ?";
/// The charged reservations of external holders in a pool that were granted until then.
pub(crate) const RESERVATIONS_GRANTED: &str = "SELECT * FROM reservation WHERE pool = ? AND holder = 'external' \
     AND state IN ('locked', 'used') AND locked_at_ms <= ? ORDER BY id LIMIT ?";
pub(crate) const RESERVATIONS_OLD: &str =
    "SELECT id FROM reservation WHERE ended_at_ms < ? ORDER BY ended_at_ms LIMIT ?";
/// Not one that has been adopted since.
pub(crate) const RESERVATIONS_DELETE: &str = "DELETE FROM reservation WHERE ended_at_ms IS NOT NULL AND id IN";
pub(crate) const RESERVATIONS_INSERT: &str = "INSERT INTO reservation (id, request_key, holder, lineage, tenant, \
     pool, unit, incarnation, instance, usr, creator, asked, asked_cpu, asked_memory, asked_engines, \
     asked_request_cpu, asked_request_memory, ttl_ms, state, actual, cpu, memory, engines, request_cpu, \
     request_memory, uid, epoch, asked_at_ms, locked_at_ms, used_at_ms, ended_at_ms, deadline_ms, reason)";
/// Writes reservations that were read under the locks of their scopes. The first assignment changes nothing.
pub(crate) const RESERVATIONS_WRITE: UpdateEach = UpdateEach {
    head: "UPDATE reservation SET id = id",
    key: "id",
    columns: &[
        "state",
        "actual",
        "cpu",
        "memory",
        "engines",
        "request_cpu",
        "request_memory",
        "uid",
        "epoch",
        "asked_at_ms",
        "locked_at_ms",
        "used_at_ms",
        "ended_at_ms",
        "deadline_ms",
        "reason",
    ],
    condition: "",
};
