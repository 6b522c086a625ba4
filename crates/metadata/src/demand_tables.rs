//! Schema 12: the tables of demand, the owners of slots, what table `engine` needs for the history, and what is observed of idle
//! engines.

/// The tables. `MariaDB` cannot index the columns of a key together, so a digest of them is its primary key. An empty column is not
/// specified. `usr` and `grp` are not `user` and `group`, which the databases reserve.
/// `owner_kind` is empty for a slot whose engines the tenant shares. `observed_demand` has one row: what no engine was found for, as JSON.
/// Of an engine that was issued before, origin and owner are empty and the other columns null. `charge_…` are what it was charged to
/// its tenant. `stateful` counts the sessions that cannot move to another engine.
pub(crate) const DEMAND: &[&str] = &[
    "CREATE TABLE IF NOT EXISTS demand (proxy VARCHAR(64) NOT NULL, \
     digest VARCHAR(64) NOT NULL, tenant VARCHAR(63) NOT NULL, pool VARCHAR(63) NOT NULL, unit VARCHAR(63) NOT NULL, \
     engine_type VARCHAR(255) NOT NULL, creator VARCHAR(255) NOT NULL, usr VARCHAR(255) NOT NULL, \
     grp VARCHAR(255) NOT NULL, session VARCHAR(64) NOT NULL, waiting BIGINT NOT NULL, since_ms BIGINT NOT NULL, \
     until_ms BIGINT NOT NULL, seq BIGINT NOT NULL, PRIMARY KEY (proxy, digest))",
    "CREATE TABLE IF NOT EXISTS observed_demand (id SMALLINT NOT NULL PRIMARY KEY, unmet TEXT NOT NULL)",
    "ALTER TABLE slot ADD COLUMN IF NOT EXISTS owner_kind VARCHAR(8) NOT NULL DEFAULT ''",
    "ALTER TABLE slot ADD COLUMN IF NOT EXISTS owner VARCHAR(255) NOT NULL DEFAULT ''",
    "ALTER TABLE engine ADD COLUMN IF NOT EXISTS origin VARCHAR(16) NOT NULL DEFAULT ''",
    "ALTER TABLE engine ADD COLUMN IF NOT EXISTS owner_kind VARCHAR(8) NOT NULL DEFAULT ''",
    "ALTER TABLE engine ADD COLUMN IF NOT EXISTS owner VARCHAR(255) NOT NULL DEFAULT ''",
    "ALTER TABLE engine ADD COLUMN IF NOT EXISTS ended_word VARCHAR(16)",
    "ALTER TABLE engine ADD COLUMN IF NOT EXISTS retryable SMALLINT",
    "ALTER TABLE engine ADD COLUMN IF NOT EXISTS reserved_at_ms BIGINT",
    "ALTER TABLE engine ADD COLUMN IF NOT EXISTS registered_at_ms BIGINT",
    "ALTER TABLE engine ADD COLUMN IF NOT EXISTS charge_cpu BIGINT",
    "ALTER TABLE engine ADD COLUMN IF NOT EXISTS charge_memory BIGINT",
    "ALTER TABLE engine ADD COLUMN IF NOT EXISTS sessions_served BIGINT",
    "ALTER TABLE observed_engine ADD COLUMN IF NOT EXISTS idle_since_ms BIGINT",
    "ALTER TABLE observed_engine ADD COLUMN IF NOT EXISTS stateful BIGINT",
    "CREATE INDEX IF NOT EXISTS engine_of_tenant_by_end ON engine (tenant, ended_at_ms)",
    "INSERT INTO observed_demand (id, unmet) SELECT 1, '[]' WHERE NOT EXISTS (SELECT 1 FROM observed_demand)",
];
