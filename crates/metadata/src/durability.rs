//! Whether what the database acknowledged outlives a crash of its machine, as its own settings say.
//!
//! A generation and an incarnation are used once because the catalog's counter never goes back. That rests on the
//! database: one that forgets what it acknowledged forgets the counter too, draws the same numbers again, and with them
//! the same names. `SQLite` is told what it needs on every connection, and so is `PostgreSQL` as far as a connection may
//! say it (`backend.rs`); the rest is the server's, and only its operator can change it. So it is read and shown, and
//! nobody is refused for it: a database of a test may forget.

use crate::backend::Backend;
use crate::error::Error;
use crate::rows;
use crate::sql;
use crate::transaction::{Transaction, args};

/// A setting that an acknowledged commit hangs on, in the database's own words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Durability {
    /// What the database calls it.
    pub name: &'static str,
    /// What it is set to, as a connection of ours has it.
    pub found: String,
    /// What it is best set to.
    pub wanted: &'static str,
    /// What a crash may do as it is set; `None` if nothing that was acknowledged can be lost by it.
    pub risk: Option<&'static str>,
}

/// A setting, the question for it, its values that lose nothing (the best one first), and what the others risk.
struct Question {
    name: &'static str,
    sql: &'static str,
    lasting: &'static [&'static str],
    risk: &'static str,
}

const LOST: &str = "a crash of the database's machine may take back what was acknowledged";
const DAMAGED: &str = "a crash of the database's machine may leave pages that can't be read";

const SQLITE: &[Question] = &[
    Question {
        name: "journal_mode",
        sql: sql::DURABILITY_SQLITE_JOURNAL,
        lasting: &["wal", "delete", "truncate", "persist"],
        risk: DAMAGED,
    },
    Question { name: "synchronous", sql: sql::DURABILITY_SQLITE_SYNCHRONOUS, lasting: &["full", "extra"], risk: LOST },
];
const POSTGRES: &[Question] = &[
    Question { name: "fsync", sql: sql::DURABILITY_POSTGRES_FSYNC, lasting: &["on"], risk: LOST },
    Question {
        name: "synchronous_commit",
        sql: sql::DURABILITY_POSTGRES_COMMIT,
        lasting: &["on", "local", "remote_write", "remote_apply"],
        risk: LOST,
    },
    Question { name: "full_page_writes", sql: sql::DURABILITY_POSTGRES_PAGES, lasting: &["on"], risk: DAMAGED },
];
const MARIADB: &[Question] = &[
    Question {
        name: "innodb_flush_log_at_trx_commit",
        sql: sql::DURABILITY_MARIADB_FLUSH,
        // 3 waits for the disk more often than 1, never less.
        lasting: &["1", "3"],
        risk: LOST,
    },
    // With a binary log, a transaction that is not in it is rolled back when the server starts again.
    Question { name: "sync_binlog", sql: sql::DURABILITY_MARIADB_BINLOG, lasting: &["1", "no log"], risk: LOST },
    Question {
        name: "innodb_doublewrite",
        sql: sql::DURABILITY_MARIADB_PAGES,
        lasting: &["on", "fast"],
        risk: DAMAGED,
    },
];

/// Reads them all.
pub(crate) async fn read(tx: &mut Transaction, backend: Backend) -> Result<Vec<Durability>, Error> {
    let questions = match backend {
        Backend::Sqlite => SQLITE,
        Backend::Postgres => POSTGRES,
        Backend::Mariadb => MARIADB,
    };
    let mut read = Vec::new();
    for question in questions {
        let row = tx.row(question.sql, args![]).await?;
        let row = row.ok_or_else(|| Error::Broken(format!("the database does not know {}", question.name)))?;
        read.push(question.judge(rows::text(&row, "value")?.to_lowercase()));
    }
    Ok(read)
}

impl Question {
    fn judge(&self, found: String) -> Durability {
        let risk = (!self.lasting.contains(&found.as_str())).then_some(self.risk);
        Durability { name: self.name, found, wanted: self.lasting.first().copied().unwrap_or_default(), risk }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What no test server is set to.
    #[test]
    fn whatever_may_be_forgotten_is_a_risk_and_nothing_else_is() {
        let risky = |questions: &[Question], name: &str, found: &str| {
            let question = questions.iter().find(|it| it.name == name);
            question.map(|it| it.judge(found.to_owned()).risk.is_some())
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
