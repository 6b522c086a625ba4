//! Session statements: those that the proxy answers before a session has an engine, and those that pin it to one.
//!
//! Proxy and engine agent call the same functions, so that both decide alike.

use crate::scan::Scanner;
use crate::sniff::sniff;

/// Heads after which a session has no other state than USE and SET, which can be replayed.
const STATELESS: [&str; 11] =
    ["SELECT", "WITH", "VALUES", "TABLE", "INSERT", "SHOW", "DESCRIBE", "DESC", "EXPLAIN", "USE", "SET"];

/// The words that may precede TEMPORARY in CREATE, ALTER or DROP, in the grammars of Spark and DataFusion.
const BEFORE_TEMPORARY: [&str; 10] =
    ["OR", "REPLACE", "ALTER", "GLOBAL", "LOCAL", "EXTERNAL", "UNBOUNDED", "TRANSIENT", "VOLATILE", "MATERIALIZED"];

/// Whether the session is stateful from this statement on, so that it cannot be moved to another engine.
///
/// It is unless the head is SELECT, WITH, VALUES, TABLE, INSERT, SHOW, DESCRIBE, DESC, EXPLAIN, USE, SET, or
/// CREATE, ALTER or DROP without TEMPORARY. A query in parentheses counts as the query; an empty statement and
/// a control statement leave no state. Never fails, never allocates.
pub fn pins_session(text: &str) -> bool {
    let mut scanner = Scanner::new(text);
    if scanner.at_end() || sniff(text).is_some() {
        return false;
    }
    while scanner.symbol('(') {}
    if STATELESS.iter().any(|head| scanner.keyword(head)) {
        return false;
    }
    if !scanner.any_keyword(&["CREATE", "ALTER", "DROP"]) {
        return true;
    }
    while scanner.any_keyword(&BEFORE_TEMPORARY) {}
    scanner.any_keyword(&["TEMPORARY", "TEMP"])
}

/// Whether a statement changes the set of tables, views and databases: CREATE, ALTER or DROP. At an engine with its
/// own catalog, the session is pinned from this statement on. Never fails, never allocates.
pub fn changes_tables(text: &str) -> bool {
    sniff(text).is_none() && Scanner::new(text).any_keyword(&["CREATE", "ALTER", "DROP"])
}

/// A statement that the proxy answers for a session without an engine, and replays as it was written when the session
/// is bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionStatement<'a> {
    /// `USE x`, `USE DATABASE x`, `` USE `x` ``.
    Use {
        /// The database as it was written, with its quotes.
        database: &'a str,
    },
    /// `SET key=value`.
    Set {
        key: &'a str,
        /// Trimmed; may be empty.
        value: &'a str,
    },
    /// `SET key`, which reads the value.
    ShowSetting { key: &'a str },
    /// `SET`, `SET -v`, which list the settings.
    ListSettings {
        /// With `-v`: with descriptions and defaults.
        verbose: bool,
    },
}

/// Recognises USE and SET; any other statement, and any form of them that only an engine understands (`SET TIME
/// ZONE`, `SET VAR x = 1`), is `None`. Never fails, never allocates.
pub fn session_statement(text: &str) -> Option<SessionStatement<'_>> {
    let mut scanner = Scanner::new(text);
    if scanner.keyword("USE") {
        use_statement(scanner)
    } else if scanner.keyword("SET") {
        set_statement(scanner.remaining())
    } else {
        None
    }
}

/// The key and the value, as they were written, of a SET in any form: also those that only an engine understands, with a quoted
/// key (``SET `key` = value``) or with TO. `None` for any other statement. Never fails, never allocates.
pub fn assignment(text: &str) -> Option<(&str, &str)> {
    let mut scanner = Scanner::new(text);
    if !scanner.keyword("SET") {
        return None;
    }
    let rest = scanner.remaining().trim_end_matches(|c: char| c == ';' || c.is_whitespace());
    let (before, value) = rest.split_once('=').or_else(|| split_at_to(rest))?;
    // Words before the key, such as SESSION, change nothing about it.
    let key = before.trim_end();
    let start = match key.chars().next_back() {
        Some(quote @ ('`' | '"' | '\'')) => key[..key.len() - 1].rfind(quote)?,
        _ => key.rfind(char::is_whitespace).map_or(0, |at| at + 1),
    };
    Some((key.get(start..)?, value.trim()))
}

/// The text before and after the word TO.
fn split_at_to(rest: &str) -> Option<(&str, &str)> {
    let mut words = rest.match_indices(char::is_whitespace).map(|(at, _)| at);
    words.find_map(|at| {
        let after = rest[at..].trim_start();
        let (to, value) = after.split_once(char::is_whitespace)?;
        to.eq_ignore_ascii_case("TO").then_some((&rest[..at], value))
    })
}

/// Whether the statement is USE or SET in any form, including `SET TIME ZONE`, `SET x TO 1`, `USE CATALOG c`. Such a
/// statement has to be replayed at another engine; it does not pin the session.
pub fn sets_session(text: &str) -> bool {
    Scanner::new(text).any_keyword(&["SET", "USE"])
}

fn use_statement(mut scanner: Scanner<'_>) -> Option<SessionStatement<'_>> {
    let mut ahead = scanner;
    // `USE database` alone refers to a database of that name.
    if ahead.any_keyword(&["DATABASE", "SCHEMA", "NAMESPACE"]) && !matches!(ahead.peek(), None | Some(';')) {
        scanner = ahead;
    }
    let rest = scanner.remaining();
    if rest.starts_with('\'') {
        return None;
    }
    let before = scanner.offset();
    // A quoted part may be followed by a dot and another part.
    while scanner.name() {
        if !matches!(rest.get(scanner.offset() - before..).and_then(|rest| rest.chars().next()), Some('.' | '`' | '"'))
        {
            break;
        }
    }
    let database = &rest[..scanner.offset() - before];
    while scanner.symbol(';') {}
    (!database.is_empty() && scanner.at_end()).then_some(SessionStatement::Use { database })
}

fn set_statement(rest: &str) -> Option<SessionStatement<'_>> {
    let rest = rest.trim_end_matches(|c: char| c == ';' || c.is_whitespace());
    match rest {
        "" => return Some(SessionStatement::ListSettings { verbose: false }),
        "-v" | "-V" => return Some(SessionStatement::ListSettings { verbose: true }),
        _ => {}
    }
    let is_key = |key: &str| {
        !key.is_empty()
            && key.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b':' | b'-' | b'$' | b'/'))
    };
    match rest.split_once('=') {
        Some((key, value)) => {
            let key = key.trim_end();
            is_key(key).then(|| SessionStatement::Set { key, value: value.trim() })
        }
        None => is_key(rest).then_some(SessionStatement::ShowSetting { key: rest }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_assigns_its_key_in_every_form() {
        for (text, expected) in [
            ("SET a.b=1", Some(("a.b", "1"))),
            ("set a.b = 'x = y' ;", Some(("a.b", "'x = y'"))),
            ("/* c */ SET\n`a.b`='x'", Some(("`a.b`", "'x'"))),
            ("SET \"a.b\" = 1", Some(("\"a.b\"", "1"))),
            ("SET `a b` = 1", Some(("`a b`", "1"))),
            ("SET a.b TO 'x'", Some(("a.b", "'x'"))),
            ("SET `a.b`\tto\n'x';", Some(("`a.b`", "'x'"))),
            ("SET SESSION a.b = 1", Some(("a.b", "1"))),
            ("SET a.b =", Some(("a.b", ""))),
            ("SET `a = 1", Some(("`a", "1"))),
            ("SET ` = 1", None),
            ("SET a.b", None),
            ("SET", None),
            ("SELECT a = 1", None),
        ] {
            assert_eq!(assignment(text), expected, "{text}");
        }
    }

    #[test]
    fn queries_and_permanent_objects_leave_no_state_in_a_session() {
        for text in [
            "SELECT 1",
            "with x as (select 1) select * from x",
            "VALUES (1)",
            "TABLE t",
            "INSERT INTO t VALUES (1)",
            "SHOW TABLES",
            "DESCRIBE t",
            "desc t",
            "EXPLAIN SELECT 1",
            "USE x",
            "SET x=don't",
            "-- a\n/* b */ SELECT 1",
            "(SELECT 1) UNION (SELECT 2)",
            "CREATE TABLE temporary (a INT)",
            "CREATE EXTERNAL TABLE temporary STORED AS CSV LOCATION '/x'",
            "CREATE OR REPLACE EXTERNAL TABLE t STORED AS CSV LOCATION '/x'",
            "CREATE OR REPLACE VIEW v AS SELECT 1",
            "DROP TABLE t",
            "ALTER TABLE t ADD COLUMN b INT",
            "START ENGINE a b c",
            "  ",
            "-- nothing",
        ] {
            assert!(!pins_session(text), "{text}");
        }
    }

    #[test]
    fn temporary_objects_and_everything_else_are_state() {
        for text in [
            "CREATE TEMPORARY VIEW v AS SELECT 1",
            "create or replace global temp view v as select 1",
            "CREATE OR /* x */ REPLACE TEMPORARY FUNCTION f AS 'x'",
            "DROP TEMPORARY FUNCTION f",
            "CREATE EXTERNAL TEMPORARY TABLE t STORED AS CSV LOCATION '/x'",
            "CREATE OR REPLACE EXTERNAL TEMP TABLE t STORED AS CSV LOCATION '/x'",
            "CREATE UNBOUNDED EXTERNAL TEMPORARY TABLE t STORED AS CSV LOCATION '/x'",
            "CREATE TEMPORARY EXTERNAL TABLE t STORED AS CSV LOCATION '/x'",
            "CREATE TEMP TABLE t AS SELECT 1",
            "CREATE LOCAL TEMPORARY TABLE t AS SELECT 1",
            "CREATE OR ALTER TEMPORARY VIEW v AS SELECT 1",
            "ADD JAR /tmp/it's.jar",
            "CACHE TABLE t",
            "DECLARE VARIABLE x INT",
            "FROM t INSERT INTO u SELECT *",
            "SELECTED",
            "it's",
        ] {
            assert!(pins_session(text), "{text}");
        }
    }

    #[test]
    fn use_names_a_database_as_it_was_written() {
        for (text, database) in [
            ("USE x", "x"),
            ("use\n x ;", "x"),
            ("USE `it's` -- c", "`it's`"),
            ("USE DATABASE x", "x"),
            ("USE database", "database"),
            ("USE cat.db", "cat.db"),
            ("USE `a b`.`c.d`", "`a b`.`c.d`"),
        ] {
            assert_eq!(session_statement(text), Some(SessionStatement::Use { database }), "{text}");
        }
        for text in ["USE", "USE x y", "USE 'x'", "USE `x", "USER x", "USE (x)"] {
            assert_eq!(session_statement(text), None, "{text}");
        }
    }

    #[test]
    fn set_takes_any_value_as_it_is() {
        for (text, key, value) in [
            ("SET x=don't", "x", "don't"),
            ("set hiveconf:a.b-c = 1 ;", "hiveconf:a.b-c", "1"),
            ("SET x=", "x", ""),
            ("/* c */ SET x=a=b -- c", "x", "a=b -- c"),
            ("SET spark.x=\u{e9}\u{1f600}", "spark.x", "\u{e9}\u{1f600}"),
        ] {
            assert_eq!(session_statement(text), Some(SessionStatement::Set { key, value }), "{text}");
        }
        assert_eq!(session_statement("SET spark.x"), Some(SessionStatement::ShowSetting { key: "spark.x" }));
        assert_eq!(session_statement("SET;"), Some(SessionStatement::ListSettings { verbose: false }));
        assert_eq!(session_statement("SET -v"), Some(SessionStatement::ListSettings { verbose: true }));
        for text in ["SET TIME ZONE 'UTC'", "SET VAR x = 1", "SETTLE x=1", "SET (a, b) = (1, 2)", "SET =x"] {
            assert_eq!(session_statement(text), None, "{text}");
        }
    }

    #[test]
    fn whatever_begins_with_set_or_use_sets_the_session() {
        for text in ["SET TIME ZONE 'UTC'", "-- c\nset x TO 1", "SET x=1", "USE CATALOG c", "use `x`", "SET"] {
            assert!(sets_session(text), "{text}");
            assert!(!pins_session(text), "{text}");
        }
        for text in ["SETTLE", "SELECT 1", "USER x", "RESET x", ""] {
            assert!(!sets_session(text), "{text}");
        }
    }
}
