//! The SQL of the store: the tables, the migrations and all statements.
//!
//! | table | one row is |
//! | --- | --- |
//! | `schema_version` | the version of everything below (one row) |
//! | `catalog` | the counter from which generations and incarnations are drawn (one row); raising it takes the catalog lock |
//! | `master` | the epoch of the current master, its holder, and what it waits for (one row) |
//! | `tenant`, `resource_pool`, `resource_unit`, `resource_quota` | one object: its spec as JSON and the generation of its last change |
//! | `slot` | one desired engine; `born` is the first incarnation of this row, which distinguishes engines of an earlier row with the same key; `usr` and `creator` are empty unless its engines are charged to both, `owner_kind` and `owner` if the tenant shares them |
//! | `request` | one START, STOP or RESTART that took effect, with its answer |
//! | `engine` | one issued name, with the state and the termination of its engine |
//! | `alteration` | one CREATE, ALTER or DROP with its outcome and progress |
//! | `audit` | one control statement with its caller and outcome; rows are inserted and deleted, never updated |
//! | `observed_engine` | one engine as the master last observed it |
//! | `observed_node` | one node as the master last observed it, as JSON |
//! | `namespace` | one namespace for which an engine's name was issued |
//! | `demand` | the sessions of one proxy that wait under one key, with a lease; with an empty digest the number of the proxy's last report; its statements are in `demand.rs` |
//! | `observed_demand` | the demand that no engine was found for, as the master last reported it, as JSON (one row) |
//! | `quota_scope`, `reservation` | the ledger; their statements are in `ledger_sql.rs` |
//!
//! The SQL is portable: BIGINT, SMALLINT, VARCHAR and TEXT; times are milliseconds since 1970; JSON is TEXT; a boolean is a
//! SMALLINT of 0 or 1. Conflicts are detected by unique violations and conditional updates, because the three databases spell
//! upserts and locking reads differently. A placeholder is `?`.

use crate::batch::UpdateEach;
use crate::demand_tables::DEMAND;
use crate::ledger_sql::{LEDGER, LEDGER_DRIFTS, LEDGER_IN_USE};

/// The migrations in order; the version is the position, counted from 1. A released migration never changes. On `MariaDB` every
/// statement commits by itself, so each must be repeatable.
pub(crate) const MIGRATIONS: &[&[&str]] = &[
    FIRST,
    DETAILS,
    ANSWERED,
    CLUSTER_WARNINGS,
    NODES,
    INCARNATIONS,
    AUDIT,
    RESOURCE_QUOTAS,
    LEDGER,
    LEDGER_IN_USE,
    LEDGER_DRIFTS,
    DEMAND,
];

const FIRST: &[&str] = &[
    "CREATE TABLE IF NOT EXISTS catalog (id SMALLINT NOT NULL PRIMARY KEY, generation BIGINT NOT NULL)",
    "INSERT INTO catalog (id, generation) SELECT 1, 0 WHERE NOT EXISTS (SELECT 1 FROM catalog)",
    "CREATE TABLE IF NOT EXISTS master (id SMALLINT NOT NULL PRIMARY KEY, epoch BIGINT NOT NULL, holder TEXT NOT NULL, \
     since_ms BIGINT NOT NULL, last_tick_ms BIGINT NOT NULL, waits_for TEXT)",
    "INSERT INTO master (id, epoch, holder, since_ms, last_tick_ms) SELECT 1, 0, '', 0, 0 \
     WHERE NOT EXISTS (SELECT 1 FROM master)",
    "CREATE TABLE IF NOT EXISTS tenant (name VARCHAR(63) NOT NULL PRIMARY KEY, spec TEXT NOT NULL, \
     generation BIGINT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS resource_pool (name VARCHAR(63) NOT NULL PRIMARY KEY, spec TEXT NOT NULL, \
     generation BIGINT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS resource_unit (name VARCHAR(63) NOT NULL PRIMARY KEY, spec TEXT NOT NULL, \
     generation BIGINT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS slot (tenant VARCHAR(63) NOT NULL, pool VARCHAR(63) NOT NULL, \
     unit VARCHAR(63) NOT NULL, ordinal BIGINT NOT NULL, incarnation BIGINT NOT NULL, born BIGINT NOT NULL, \
     origin VARCHAR(16) NOT NULL, failures BIGINT NOT NULL, forced SMALLINT NOT NULL, \
     PRIMARY KEY (tenant, pool, unit, ordinal))",
    "CREATE TABLE IF NOT EXISTS request (id VARCHAR(64) NOT NULL PRIMARY KEY, statement TEXT NOT NULL, \
     engine VARCHAR(63) NOT NULL, requested_by VARCHAR(255) NOT NULL, answer TEXT NOT NULL, done_at_ms BIGINT NOT NULL)",
    "CREATE INDEX IF NOT EXISTS request_by_age ON request (done_at_ms)",
    "CREATE TABLE IF NOT EXISTS engine (name VARCHAR(63) NOT NULL PRIMARY KEY, tenant VARCHAR(63) NOT NULL, \
     pool VARCHAR(63) NOT NULL, unit VARCHAR(63) NOT NULL, ordinal BIGINT NOT NULL, incarnation BIGINT NOT NULL, \
     namespace VARCHAR(63) NOT NULL, uid VARCHAR(255), config VARCHAR(64) NOT NULL, issued_at_ms BIGINT NOT NULL, \
     started_at_ms BIGINT, end_grace_ms BIGINT, end_reason TEXT, ended_at_ms BIGINT, ended_reason TEXT, log_tail TEXT)",
    "CREATE INDEX IF NOT EXISTS engine_by_slot ON engine (tenant, pool, unit, ordinal)",
    "CREATE INDEX IF NOT EXISTS engine_by_end ON engine (ended_at_ms)",
    "CREATE TABLE IF NOT EXISTS alteration (id VARCHAR(64) NOT NULL PRIMARY KEY, object_kind VARCHAR(32), \
     object_name VARCHAR(63), base_generation BIGINT NOT NULL, generation BIGINT NOT NULL, statement TEXT NOT NULL, \
     requested_by VARCHAR(255) NOT NULL, requested_at_ms BIGINT NOT NULL, outcome VARCHAR(16) NOT NULL, \
     decided_by VARCHAR(255) NOT NULL, decided_at_ms BIGINT NOT NULL, progress VARCHAR(16), reason TEXT, \
     finished_at_ms BIGINT)",
    "CREATE INDEX IF NOT EXISTS alteration_by_progress ON alteration (progress)",
    "CREATE INDEX IF NOT EXISTS alteration_by_age ON alteration (decided_at_ms)",
    "CREATE TABLE IF NOT EXISTS observed_engine (name VARCHAR(63) NOT NULL PRIMARY KEY, uid VARCHAR(255), \
     phase VARCHAR(16) NOT NULL, reason TEXT, node VARCHAR(255), address VARCHAR(255), registered SMALLINT NOT NULL, \
     draining SMALLINT NOT NULL, sessions BIGINT, running BIGINT, started_at_ms BIGINT, log_tail TEXT, \
     labels TEXT NOT NULL, observed_at_ms BIGINT NOT NULL, epoch BIGINT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS namespace (name VARCHAR(63) NOT NULL PRIMARY KEY, retired_at_ms BIGINT)",
];

/// More details of an engine from the orchestrator. Null in existing rows.
const DETAILS: &[&str] = &["ALTER TABLE observed_engine ADD COLUMN IF NOT EXISTS details TEXT"];

/// Whether an engine has ever registered, from which EXPLAIN derives the stand-ins. Null in existing rows.
const ANSWERED: &[&str] = &["ALTER TABLE observed_engine ADD COLUMN IF NOT EXISTS answered SMALLINT"];

/// The cluster warnings of a master, as JSON. Null until a master reports them.
const CLUSTER_WARNINGS: &[&str] = &["ALTER TABLE master ADD COLUMN IF NOT EXISTS surroundings TEXT"];
/// The nodes of the orchestrator. From this version on, specs of pools have more options, which an older program would drop: it
/// does not open a database of this version.
const NODES: &[&str] = &["CREATE TABLE IF NOT EXISTS observed_node (name VARCHAR(255) NOT NULL PRIMARY KEY, \
     facts TEXT NOT NULL, observed_at_ms BIGINT NOT NULL, epoch BIGINT NOT NULL)"];

/// Indexes to find the current engine of a slot, and the previous one, among the ended engines. From this version on, the spec of a
/// unit may list its secret properties with their fingerprint, and each write checks the version.
const INCARNATIONS: &[&str] = &[
    "CREATE INDEX IF NOT EXISTS engine_by_incarnation ON engine (incarnation)",
    "CREATE INDEX IF NOT EXISTS engine_of_slot ON engine (tenant, pool, unit, ordinal, incarnation)",
];

/// The audit. `user_name` and `sql_state` are not `user` and `sqlstate`, which `PostgreSQL` and `MariaDB` reserve.
const AUDIT: &[&str] = &[
    "CREATE TABLE IF NOT EXISTS audit (request VARCHAR(64) NOT NULL, part SMALLINT NOT NULL, at_ms BIGINT NOT NULL, \
     user_name VARCHAR(255) NOT NULL, via VARCHAR(255), method VARCHAR(255), proxy VARCHAR(255), client VARCHAR(255), \
     statement TEXT NOT NULL, object VARCHAR(255), tenant VARCHAR(63), outcome VARCHAR(16) NOT NULL, \
     sql_state VARCHAR(5), generation BIGINT, PRIMARY KEY (request, part))",
    "CREATE INDEX IF NOT EXISTS audit_by_age ON audit (at_ms)",
    "CREATE INDEX IF NOT EXISTS audit_by_user ON audit (user_name, at_ms)",
    "CREATE INDEX IF NOT EXISTS audit_by_tenant ON audit (tenant, at_ms)",
];

/// The quotas. From this version on, specs of pools and units have options that an older program would drop.
const RESOURCE_QUOTAS: &[&str] =
    &["CREATE TABLE IF NOT EXISTS resource_quota (name VARCHAR(63) NOT NULL PRIMARY KEY, \
     spec TEXT NOT NULL, generation BIGINT NOT NULL)"];

// The version.
pub(crate) const VERSION_CREATE: &str =
    "CREATE TABLE IF NOT EXISTS schema_version (id SMALLINT NOT NULL PRIMARY KEY, version BIGINT NOT NULL)";
pub(crate) const VERSION_FIRST: &str =
    "INSERT INTO schema_version (id, version) SELECT 1, 0 WHERE NOT EXISTS (SELECT 1 FROM schema_version)";
pub(crate) const VERSION_LOCK: &str = "UPDATE schema_version SET version = version WHERE id = 1";
pub(crate) const VERSION_SET: &str = "UPDATE schema_version SET version = ? WHERE id = 1";
pub(crate) const VERSION: &str = "SELECT version FROM schema_version WHERE id = 1";
/// Whether the table of the version exists, from the system catalog of each database, so that a missing table is no error.
pub(crate) const VERSION_TABLE_SQLITE: &str =
    "SELECT COUNT(*) AS tables FROM sqlite_master WHERE type = 'table' AND name = 'schema_version'";
pub(crate) const VERSION_TABLE_POSTGRES: &str = "SELECT COUNT(*) AS tables FROM information_schema.tables \
     WHERE table_schema = CAST(current_schema() AS TEXT) AND table_name = 'schema_version'";
pub(crate) const VERSION_TABLE_MARIADB: &str = "SELECT COUNT(*) AS tables FROM information_schema.tables \
     WHERE table_schema = DATABASE() AND table_name = 'schema_version'";
/// Whether the server is a standby, which answers reads with an old state.
pub(crate) const STANDBY_POSTGRES: &str = "SELECT CASE WHEN pg_is_in_recovery() THEN 1 ELSE 0 END AS standby";
pub(crate) const STANDBY_MARIADB: &str = "SELECT CAST(@@global.read_only AS SIGNED) AS standby";

/// Writes an `SQLite` file again without free pages, and empties its journal.
pub(crate) const SQLITE_REWRITE: [&str; 2] = ["VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)"];
/// Checks an `SQLite` file; returns `ok`, or at most that many errors.
pub(crate) const SQLITE_CHECK: &str = "PRAGMA quick_check(5)";

// The effective timeouts of a connection.
pub(crate) const TIMEOUT_SQLITE_BUSY: &str = "SELECT timeout AS value FROM pragma_busy_timeout";
pub(crate) const TIMEOUT_POSTGRES_LOCK: &str =
    "SELECT CAST(setting AS BIGINT) AS value FROM pg_settings WHERE name = 'lock_timeout'";
pub(crate) const TIMEOUT_POSTGRES_STATEMENT: &str =
    "SELECT CAST(setting AS BIGINT) AS value FROM pg_settings WHERE name = 'statement_timeout'";
pub(crate) const TIMEOUT_POSTGRES_IDLE: &str =
    "SELECT CAST(setting AS BIGINT) AS value FROM pg_settings WHERE name = 'idle_in_transaction_session_timeout'";
pub(crate) const TIMEOUT_MARIADB_ROW: &str = "SELECT CAST(@@session.innodb_lock_wait_timeout AS SIGNED) AS value";
pub(crate) const TIMEOUT_MARIADB_TABLE: &str = "SELECT CAST(@@session.lock_wait_timeout AS SIGNED) AS value";
pub(crate) const TIMEOUT_MARIADB_STATEMENT: &str = "SELECT CAST(@@session.max_statement_time AS SIGNED) AS value";
pub(crate) const TIMEOUT_MARIADB_IDLE: &str = "SELECT CAST(@@session.idle_transaction_timeout AS SIGNED) AS value";

// The effective durability settings of a connection.
pub(crate) const DURABILITY_SQLITE_JOURNAL: &str = "SELECT journal_mode AS value FROM pragma_journal_mode";
pub(crate) const DURABILITY_SQLITE_SYNCHRONOUS: &str = "SELECT CASE synchronous WHEN 0 THEN 'off' \
     WHEN 1 THEN 'normal' WHEN 2 THEN 'full' ELSE 'extra' END AS value FROM pragma_synchronous";
pub(crate) const DURABILITY_POSTGRES_FSYNC: &str = "SELECT current_setting('fsync') AS value";
pub(crate) const DURABILITY_POSTGRES_COMMIT: &str = "SELECT current_setting('synchronous_commit') AS value";
pub(crate) const DURABILITY_POSTGRES_PAGES: &str = "SELECT current_setting('full_page_writes') AS value";
pub(crate) const DURABILITY_MARIADB_FLUSH: &str =
    "SELECT CAST(@@global.innodb_flush_log_at_trx_commit AS CHAR) AS value";
pub(crate) const DURABILITY_MARIADB_BINLOG: &str =
    "SELECT CASE WHEN @@global.log_bin THEN CAST(@@global.sync_binlog AS CHAR) ELSE 'no log' END AS value";
/// A boolean in some versions, a string in others.
pub(crate) const DURABILITY_MARIADB_PAGES: &str = "SELECT CASE CAST(@@global.innodb_doublewrite AS CHAR) \
     WHEN '0' THEN 'off' WHEN '1' THEN 'on' ELSE CAST(@@global.innodb_doublewrite AS CHAR) END AS value";

// The counter.
pub(crate) const CATALOG_RAISE: &str = "UPDATE catalog SET generation = generation + ? WHERE id = 1";
/// The end of a query of the database's clock. With the schema version: a transaction that draws a number writes, and a program
/// of an older version must not.
pub(crate) const CATALOG_WITH_VERSION: &str = ", c.generation, v.version FROM catalog c, schema_version v \
     WHERE c.id = 1 AND v.id = 1";
/// The counter and all objects, by kind: read together, because each statement reads them under the catalog lock.
pub(crate) const CATALOG_WITH_OBJECTS: &str = "SELECT '' AS kind, '' AS name, '' AS spec, generation FROM catalog WHERE id = 1 \
     UNION ALL SELECT 'unit', name, spec, generation FROM resource_unit \
     UNION ALL SELECT 'pool', name, spec, generation FROM resource_pool \
     UNION ALL SELECT 'tenant', name, spec, generation FROM tenant \
     UNION ALL SELECT 'quota', name, spec, generation FROM resource_quota";

// The master.
pub(crate) const MASTER: &str =
    "SELECT epoch, holder, since_ms, last_tick_ms, waits_for, surroundings FROM master WHERE id = 1";
/// The end of a query of the database's clock.
pub(crate) const EPOCH_TOO: &str = ", epoch FROM master WHERE id = 1";
pub(crate) const MASTER_LOCK: &str = "UPDATE master SET epoch = epoch WHERE id = 1 AND epoch = ?";
pub(crate) const MASTER_RAISE: &str =
    "UPDATE master SET epoch = ?, holder = ?, since_ms = ?, waits_for = NULL WHERE id = 1 AND epoch = ?";
pub(crate) const MASTER_TICK: &str = "UPDATE master SET last_tick_ms = ?, waits_for = ? WHERE id = 1";
pub(crate) const MASTER_TICK_AFTER: &str =
    "UPDATE master SET last_tick_ms = ?, waits_for = ? WHERE id = 1 AND last_tick_ms = ?";
pub(crate) const MASTER_CLUSTER_WARNINGS: &str = "UPDATE master SET surroundings = ? WHERE id = 1";

// Objects. Each table has the same columns, so there are four variants of each statement.
pub(crate) const TENANT_INSERT: &str = "INSERT INTO tenant (spec, generation, name) VALUES (?, ?, ?)";
pub(crate) const POOL_INSERT: &str = "INSERT INTO resource_pool (spec, generation, name) VALUES (?, ?, ?)";
/// In no order.
pub(crate) const UNITS: &str = "SELECT name, spec, generation FROM resource_unit";
pub(crate) const UNIT_INSERT: &str = "INSERT INTO resource_unit (spec, generation, name) VALUES (?, ?, ?)";
pub(crate) const QUOTA_INSERT: &str = "INSERT INTO resource_quota (spec, generation, name) VALUES (?, ?, ?)";
pub(crate) const TENANT_UPDATE: &str = "UPDATE tenant SET spec = ?, generation = ? WHERE name = ? AND generation = ?";
pub(crate) const POOL_UPDATE: &str =
    "UPDATE resource_pool SET spec = ?, generation = ? WHERE name = ? AND generation = ?";
pub(crate) const UNIT_UPDATE: &str =
    "UPDATE resource_unit SET spec = ?, generation = ? WHERE name = ? AND generation = ?";
pub(crate) const QUOTA_UPDATE: &str =
    "UPDATE resource_quota SET spec = ?, generation = ? WHERE name = ? AND generation = ?";
pub(crate) const TENANT_DELETE: &str = "DELETE FROM tenant WHERE name = ? AND generation = ?";
pub(crate) const POOL_DELETE: &str = "DELETE FROM resource_pool WHERE name = ? AND generation = ?";
pub(crate) const UNIT_DELETE: &str = "DELETE FROM resource_unit WHERE name = ? AND generation = ?";
pub(crate) const QUOTA_DELETE: &str = "DELETE FROM resource_quota WHERE name = ? AND generation = ?";

// Slots.
/// In no order.
pub(crate) const SLOTS: &str = "SELECT tenant, pool, unit, ordinal, incarnation, born, origin, failures, forced, \
     usr, creator, asked_at_ms, owner_kind, owner FROM slot";
pub(crate) const SLOTS_COUNT: &str = "SELECT COUNT(*) AS slots FROM slot";
pub(crate) const SLOTS_OF_LINK: &str = "SELECT tenant, pool, unit, ordinal, incarnation, born, origin, failures, \
     forced, usr, creator, asked_at_ms, owner_kind, owner FROM slot WHERE tenant = ? AND pool = ? AND unit = ? \
     ORDER BY ordinal";
pub(crate) const ENGINE_ISSUED_SINCE: &str = "SELECT MAX(incarnation) AS newest FROM engine \
     WHERE tenant = ? AND pool = ? AND unit = ? AND incarnation > ?";
pub(crate) const SLOT_INSERT: &str = "INSERT INTO slot (tenant, pool, unit, ordinal, incarnation, born, origin, \
     failures, forced, usr, creator, asked_at_ms, owner_kind, owner) \
     VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
pub(crate) const SLOT_RENEW: &str = "UPDATE slot SET incarnation = ?, failures = ?, forced = ? \
     WHERE tenant = ? AND pool = ? AND unit = ? AND ordinal = ? AND incarnation = ?";
pub(crate) const SLOT_DELETE: &str = "DELETE FROM slot WHERE tenant = ? AND pool = ? AND unit = ? AND ordinal = ?";
/// The head of a batched statement, like all statements that end with IN or with the columns.
pub(crate) const SLOTS_INSERT: &str = "INSERT INTO slot (tenant, pool, unit, ordinal, incarnation, born, origin, \
     failures, forced, usr, creator, asked_at_ms, owner_kind, owner)";
pub(crate) const SLOTS_DELETE: &str = "DELETE FROM slot WHERE (tenant, pool, unit, ordinal) IN";

// Requests.
pub(crate) const REQUEST: &str = "SELECT statement, answer FROM request WHERE id = ?";
pub(crate) const REQUEST_INSERT: &str =
    "INSERT INTO request (id, statement, engine, requested_by, answer, done_at_ms) VALUES (?, ?, ?, ?, ?, ?)";
pub(crate) const REQUESTS_OLD: &str = "SELECT id FROM request WHERE done_at_ms < ? ORDER BY done_at_ms LIMIT ?";
pub(crate) const REQUESTS_DELETE: &str = "DELETE FROM request WHERE id IN";

// Engines.
pub(crate) const ENGINE: &str = "SELECT name, tenant, pool, unit, ordinal, incarnation, uid, config, issued_at_ms, \
     started_at_ms, end_grace_ms, end_reason, ended_at_ms, ended_reason, ended_word, retryable, log_tail FROM engine WHERE name = ?";
/// Every engine that has not ended, in no order. Without the logs, which may be long and which no plan reads.
pub(crate) const ENGINES: &str = "SELECT name, tenant, pool, unit, ordinal, incarnation, uid, config, issued_at_ms, \
     started_at_ms, end_grace_ms, end_reason, ended_at_ms, ended_reason, ended_word, retryable FROM engine WHERE ended_at_ms IS NULL";
/// The current engines of slots that have ended, without their logs. A statement of its own, because with an OR no database uses an
/// index, and nearly always there are none.
pub(crate) const CURRENT_ENGINES_ENDED: &str = "SELECT e.name, e.tenant, e.pool, e.unit, e.ordinal, e.incarnation, e.uid, \
     e.config, e.issued_at_ms, e.started_at_ms, e.end_grace_ms, e.end_reason, e.ended_at_ms, e.ended_reason, e.ended_word, \
     e.retryable FROM slot s CROSS JOIN engine e WHERE e.incarnation = s.incarnation AND e.ended_at_ms IS NOT NULL \
     AND e.tenant = s.tenant AND e.pool = s.pool AND e.unit = s.unit AND e.ordinal = s.ordinal";
/// How the previous engine ended, for each slot with repeated failures.
pub(crate) const FAILURES_BEFORE: &str = "SELECT s.tenant, s.pool, s.unit, s.ordinal, e.ended_reason FROM slot s \
     CROSS JOIN engine e WHERE s.failures > 0 AND e.ended_reason IS NOT NULL AND e.incarnation = \
     (SELECT MAX(b.incarnation) FROM engine b WHERE b.tenant = s.tenant AND b.pool = s.pool AND b.unit = s.unit \
     AND b.ordinal = s.ordinal AND b.incarnation < s.incarnation) LIMIT ?";
pub(crate) const ENGINE_INSERT: &str = "INSERT INTO engine (name, tenant, pool, unit, ordinal, incarnation, \
     namespace, config, issued_at_ms, origin, owner_kind, owner) VALUES (?, ?, ?, ?, ?, ?, ?, '', ?, ?, ?, ?)";
pub(crate) const ENGINES_GRACE: &str = "UPDATE engine SET end_grace_ms = ? WHERE tenant = ? AND pool = ? \
     AND unit = ? AND ordinal = ? AND incarnation < ? AND ended_at_ms IS NULL AND end_reason IS NULL";
pub(crate) const ENGINES_CONDEMN: &str = "UPDATE engine SET end_grace_ms = ?, end_reason = ?, \
     ended_word = COALESCE(ended_word, ?) WHERE tenant = ? AND pool = ? AND unit = ? AND ordinal = ? AND incarnation < ? AND ended_at_ms IS NULL AND end_reason IS NULL";
/// Each uid is recorded once.
pub(crate) const ENGINES_MADE: UpdateEach = UpdateEach {
    head: "UPDATE engine SET started_at_ms = ?",
    key: "name",
    columns: &["uid", "config"],
    condition: " AND uid IS NULL",
};
pub(crate) const ENGINES_ENDED: UpdateEach = UpdateEach {
    head: "UPDATE engine SET ended_at_ms = ?",
    key: "name",
    columns: &["ended_reason", "log_tail"],
    condition: " AND ended_at_ms IS NULL",
};
/// The word is written once.
pub(crate) const ENGINES_WORD: &str = "UPDATE engine SET ended_word = ?, retryable = ? WHERE ended_at_ms IS NULL \
     AND ended_word IS NULL AND name IN";
pub(crate) const ENGINES_GIVEN_UP: &str = "UPDATE engine SET ended_word = ?, retryable = ?, ended_reason = ? \
     WHERE ended_at_ms IS NULL AND ended_word IS NULL AND name IN";
/// The head of a query; conditions and order are appended.
pub(crate) const ENGINES_ENDED_OF: &str = "SELECT name, tenant, pool, unit, ordinal, incarnation, origin, owner_kind, \
     owner, issued_at_ms, reserved_at_ms, started_at_ms, registered_at_ms, end_reason, ended_at_ms, ended_reason, \
     ended_word, retryable, sessions_served, charge_cpu, charge_memory FROM engine WHERE ended_at_ms IS NOT NULL AND tenant = ?";
/// What the history needs of the reservation, which is deleted earlier.
pub(crate) const ENGINES_CHARGED: &str = "UPDATE engine SET \
     reserved_at_ms = (SELECT r.locked_at_ms FROM reservation r WHERE r.id = engine.name), \
     registered_at_ms = (SELECT r.used_at_ms FROM reservation r WHERE r.id = engine.name), \
     charge_cpu = (SELECT r.cpu FROM reservation r WHERE r.id = engine.name AND r.locked_at_ms IS NOT NULL), \
     charge_memory = (SELECT r.memory FROM reservation r WHERE r.id = engine.name AND r.locked_at_ms IS NOT NULL) \
     WHERE ended_at_ms IS NULL AND name IN";
pub(crate) const ENGINES_SERVED: &str = "UPDATE engine SET sessions_served = ? WHERE ended_at_ms IS NULL AND name IN";
pub(crate) const ENGINES_OLD: &str = "SELECT e.name FROM engine e LEFT JOIN slot s ON s.tenant = e.tenant \
     AND s.pool = e.pool AND s.unit = e.unit AND s.ordinal = e.ordinal AND s.incarnation = e.incarnation \
     WHERE e.ended_at_ms < ? AND s.incarnation IS NULL ORDER BY e.ended_at_ms LIMIT ?";
pub(crate) const ENGINES_DELETE: &str = "DELETE FROM engine WHERE name IN";
pub(crate) const ENGINES_INSERT: &str = "INSERT INTO engine (name, tenant, pool, unit, ordinal, incarnation, \
     namespace, config, issued_at_ms, origin, owner_kind, owner)";
pub(crate) const ENGINES_UNCONDEMNED: &str = "SELECT name, tenant, pool, unit, ordinal FROM engine \
     WHERE ended_at_ms IS NULL AND end_reason IS NULL";
pub(crate) const ENGINES_GRACE_ALL: &str = "UPDATE engine SET end_grace_ms = ? WHERE name IN";
/// With the grace of the row, or the default.
pub(crate) const ENGINES_CONDEMN_AS_THEY_ARE: &str = "UPDATE engine SET end_reason = ?, \
     ended_word = COALESCE(ended_word, ?) WHERE name IN";
pub(crate) const ENGINES_CONDEMN_ALL: &str = "UPDATE engine SET end_grace_ms = ?, end_reason = ?, \
     ended_word = COALESCE(ended_word, ?) WHERE name IN";
pub(crate) const ENGINES_UIDS: &str = "SELECT name, uid, ended_reason FROM engine WHERE name IN";

// Alterations.
pub(crate) const ALTERATION: &str = "SELECT id, object_kind, object_name, base_generation, generation, statement, \
     requested_by, requested_at_ms, outcome, decided_by, decided_at_ms, progress, reason, finished_at_ms \
     FROM alteration WHERE id = ?";
pub(crate) const ALTERATIONS_OPEN: &str = "SELECT id, object_kind, object_name, base_generation, generation, \
     statement, requested_by, requested_at_ms, outcome, decided_by, decided_at_ms, progress, reason, finished_at_ms \
     FROM alteration WHERE progress IN ('converging', 'stalled') ORDER BY generation";
pub(crate) const ALTERATIONS: &str = "SELECT id, object_kind, object_name, base_generation, generation, statement, \
     requested_by, requested_at_ms, outcome, decided_by, decided_at_ms, progress, reason, finished_at_ms \
     FROM alteration ORDER BY decided_at_ms DESC, generation DESC, id LIMIT ?";
pub(crate) const ALTERATION_INSERT: &str = "INSERT INTO alteration (id, object_kind, object_name, base_generation, \
     generation, statement, requested_by, requested_at_ms, outcome, decided_by, decided_at_ms, progress, reason, \
     finished_at_ms) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
pub(crate) const ALTERATION_FINISH: &str = "UPDATE alteration SET progress = 'converged', finished_at_ms = ? \
     WHERE id = ? AND generation <= ? AND progress IN ('converging', 'stalled')";
pub(crate) const ALTERATION_STALL: &str = "UPDATE alteration SET progress = 'stalled', reason = ?, \
     finished_at_ms = ? WHERE id = ? AND progress = 'converging' AND decided_at_ms <= ?";
pub(crate) const ALTERATION_SUPERSEDE: &str = "UPDATE alteration SET progress = 'superseded', finished_at_ms = ? \
     WHERE id = ? AND progress IN ('converging', 'stalled')";
pub(crate) const ALTERATIONS_NEWER: &str = "SELECT COUNT(*) AS newer FROM alteration WHERE object_kind = ? \
     AND object_name = ? AND outcome = 'committed' AND generation > ?";
pub(crate) const ALTERATIONS_OLD: &str = "SELECT id FROM alteration WHERE decided_at_ms < ? \
     AND (progress IS NULL OR progress NOT IN ('converging', 'stalled')) ORDER BY decided_at_ms LIMIT ?";
pub(crate) const ALTERATIONS_DELETE: &str = "DELETE FROM alteration WHERE id IN";

// The audit.
pub(crate) const AUDIT_INSERT: &str = "INSERT INTO audit (request, part, at_ms, user_name, via, method, proxy, client, \
     statement, object, tenant, outcome, sql_state, generation)";
pub(crate) const AUDIT_OF_REQUEST: &str = "SELECT part, at_ms, user_name, statement FROM audit WHERE request = ?";
/// The head of a query; conditions and order are appended.
pub(crate) const AUDIT_ROWS: &str = "SELECT request, at_ms, user_name, via, method, proxy, client, statement, object, \
     tenant, outcome, sql_state, generation FROM audit WHERE at_ms >= ?";
pub(crate) const AUDIT_OLD: &str = "SELECT request, part FROM audit WHERE at_ms < ? ORDER BY at_ms LIMIT ?";
pub(crate) const AUDIT_DELETE: &str = "DELETE FROM audit WHERE (request, part) IN";

// Observed engines and nodes.
pub(crate) const OBSERVED: &str = "SELECT name, uid, phase, reason, node, address, registered, draining, sessions, \
     running, idle_since_ms, stateful, started_at_ms, log_tail, labels, details, answered, observed_at_ms, epoch \
     FROM observed_engine ORDER BY name";
pub(crate) const OBSERVED_ONE: &str = "SELECT name, uid, phase, reason, node, address, registered, draining, \
     sessions, running, idle_since_ms, stateful, started_at_ms, log_tail, labels, details, answered, observed_at_ms, \
     epoch FROM observed_engine WHERE name = ?";
pub(crate) const OBSERVED_INSERT: &str = "INSERT INTO observed_engine (name, uid, phase, reason, node, address, \
     registered, draining, sessions, running, idle_since_ms, stateful, started_at_ms, log_tail, labels, details, answered, \
     observed_at_ms, epoch)";
pub(crate) const OBSERVED_NAMES: &str = "SELECT name FROM observed_engine";
pub(crate) const OBSERVED_DELETE: &str = "DELETE FROM observed_engine WHERE name IN";

pub(crate) const NODES_OBSERVED: &str = "SELECT name, facts FROM observed_node ORDER BY name";
pub(crate) const NODES_INSERT: &str = "INSERT INTO observed_node (name, facts, observed_at_ms, epoch)";
pub(crate) const NODES_DELETE: &str = "DELETE FROM observed_node WHERE name IN";

// Namespaces.
pub(crate) const NAMESPACES: &str = "SELECT name, retired_at_ms FROM namespace ORDER BY name";
pub(crate) const NAMESPACES_WANTED: &str = "SELECT DISTINCT namespace FROM engine WHERE ended_at_ms IS NULL";
pub(crate) const NAMESPACE_INSERT: &str = "INSERT INTO namespace (name, retired_at_ms) VALUES (?, NULL)";
pub(crate) const NAMESPACE_REVIVE: &str = "UPDATE namespace SET retired_at_ms = NULL WHERE name = ?";
pub(crate) const NAMESPACES_INSERT: &str = "INSERT INTO namespace (name)";
pub(crate) const NAMESPACES_REVIVE: &str =
    "UPDATE namespace SET retired_at_ms = NULL WHERE retired_at_ms IS NOT NULL AND name IN";
pub(crate) const NAMESPACES_RETIRE: &str =
    "UPDATE namespace SET retired_at_ms = ? WHERE retired_at_ms IS NULL AND name IN";
pub(crate) const NAMESPACES_FORGET: &str = "DELETE FROM namespace WHERE retired_at_ms <= ? AND name IN";
