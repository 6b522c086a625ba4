//! Durability settings: whether acknowledged commits survive a crash of the database's machine.
//!
//! Generations and incarnations are unique because the catalog's counter never goes back. A database that loses acknowledged
//! commits would draw the same numbers, and so the same engine names, again. Each connection sets what it can (`backend.rs`):
//! all of it for `SQLite`, a part for `PostgreSQL`. The rest is configured by the server's operator; it is reported but not
//! rejected, because a test database need not be durable.

use crate::backend::Backend;
use crate::error::Error;
use crate::rows;
use crate::sql;
use crate::transaction::{Transaction, args};

/// A setting that decides whether acknowledged commits are durable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Durability {
    /// The name of the setting in the database.
    pub name: &'static str,
    /// The effective value on our connections.
    pub found: String,
    /// The recommended value.
    pub recommended: &'static str,
    /// What a crash may cause with this value; `None` if it is durable.
    pub risk: Option<&'static str>,
}

/// A setting, its query, its durable values (the recommended one first), and the risk of the others.
struct SettingQuery {
    name: &'static str,
    sql: &'static str,
    durable: &'static [&'static str],
    risk: &'static str,
}

const LOST: &str = "a crash of the database's machine may lose acknowledged commits";
const DAMAGED: &str = "a crash of the database's machine may leave unreadable pages";

const SQLITE: &[SettingQuery] = &[
    SettingQuery {
        name: "journal_mode",
        sql: sql::DURABILITY_SQLITE_JOURNAL,
        durable: &["wal", "delete", "truncate", "persist"],
        risk: DAMAGED,
    },
    SettingQuery {
        name: "synchronous",
        sql: sql::DURABILITY_SQLITE_SYNCHRONOUS,
        durable: &["full", "extra"],
        risk: LOST,
    },
];
const POSTGRES: &[SettingQuery] = &[
    SettingQuery { name: "fsync", sql: sql::DURABILITY_POSTGRES_FSYNC, durable: &["on"], risk: LOST },
    SettingQuery {
        name: "synchronous_commit",
        sql: sql::DURABILITY_POSTGRES_COMMIT,
        durable: &["on", "local", "remote_write", "remote_apply"],
        risk: LOST,
    },
    SettingQuery { name: "full_page_writes", sql: sql::DURABILITY_POSTGRES_PAGES, durable: &["on"], risk: DAMAGED },
];
const MARIADB: &[SettingQuery] = &[
    SettingQuery {
        name: "innodb_flush_log_at_trx_commit",
        sql: sql::DURABILITY_MARIADB_FLUSH,
        // 3 waits for the disk more often than 1.
        durable: &["1", "3"],
        risk: LOST,
    },
    // With a binary log, a transaction that is missing there is rolled back when the server restarts.
    SettingQuery { name: "sync_binlog", sql: sql::DURABILITY_MARIADB_BINLOG, durable: &["1", "no log"], risk: LOST },
    SettingQuery {
        name: "innodb_doublewrite",
        sql: sql::DURABILITY_MARIADB_PAGES,
        durable: &["on", "fast"],
        risk: DAMAGED,
    },
];

pub(crate) async fn read(tx: &mut Transaction, backend: Backend) -> Result<Vec<Durability>, Error> {
    let queries = match backend {
        Backend::Sqlite => SQLITE,
        Backend::Postgres => POSTGRES,
        Backend::Mariadb => MARIADB,
    };
    let mut read = Vec::new();
    for query in queries {
        let row = tx.row(query.sql, args![]).await?;
        let row = row.ok_or_else(|| Error::Broken(format!("the database has no setting {}", query.name).into()))?;
        read.push(query.judge(rows::text(&row, "value")?.to_lowercase()));
    }
    Ok(read)
}

impl SettingQuery {
    fn judge(&self, found: String) -> Durability {
        let risk = (!self.durable.contains(&found.as_str())).then_some(self.risk);
        Durability { name: self.name, found, recommended: self.durable.first().copied().unwrap_or_default(), risk }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // No test server has these values.
    #[test]
    fn only_values_that_lose_commits_are_a_risk() {
        let risky = |questions: &[SettingQuery], name: &str, found: &str| {
            let question = questions.iter().find(|question| question.name == name);
            question.map(|question| question.judge(found.to_owned()).risk.is_some())
        };
        for (questions, name, found, is) in [
            (SQLITE, "journal_mode", "memory", true),
            (SQLITE, "journal_mode", "wal", false),
            (SQLITE, "synchronous", "normal", true),
            (SQLITE, "synchronous", "full", false),
            (POSTGRES, "fsync", "off", true),
            (POSTGRES, "synchronous_commit", "off", true),
            (POSTGRES, "synchronous_commit", "local", false),
            (POSTGRES, "full_page_writes", "off", true),
            (MARIADB, "innodb_flush_log_at_trx_commit", "2", true),
            (MARIADB, "innodb_flush_log_at_trx_commit", "1", false),
            (MARIADB, "sync_binlog", "0", true),
            (MARIADB, "sync_binlog", "1000", true),
            (MARIADB, "sync_binlog", "no log", false),
            (MARIADB, "innodb_doublewrite", "off", true),
            (MARIADB, "innodb_doublewrite", "on", false),
        ] {
            assert_eq!(risky(questions, name, found), Some(is), "{name} = {found}");
        }
    }
}
