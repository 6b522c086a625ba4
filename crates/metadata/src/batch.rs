//! Batched statements: one round trip for hundreds of rows, so that a change of 10,000 engines fits into the deadline of a call
//! at any latency of the database.
//!
//! Each statement is a head from `sql.rs` and a list that is appended here. A list is split into parts within
//! [`MAX_PLACEHOLDERS`] and [`MAX_PART_BYTES`], each a statement of the caller's transaction. Parts are prepared for one use,
//! because their text depends on their length and would evict other statements from the connection's cache. Where the lengths
//! are powers of two, there are few texts, and they are kept: keys that are read are filled up by the last one, and rows that are
//! written with individual values, or inserted with keys that may exist, are split.

use std::fmt::Write as _;

use sqlx::any::AnyRow;

use crate::backend::Backend;
use crate::error::Error;
use crate::transaction::{Arg, Keep, Transaction};

/// The maximum number of placeholders of a part. `SQLite` allows 32,766, the others 65,535.
pub(crate) const MAX_PLACEHOLDERS: usize = 8_192;
/// The maximum length of the texts of a part, in bytes, unless a single row is longer. `MariaDB` allows 16 MiB by default.
pub(crate) const MAX_PART_BYTES: usize = 1 << 20;
/// The maximum number of rows of an UPDATE with individual values: the database searches the whole list for each row.
const MAX_EACH_ROWS: usize = 256;

/// The longest list whose statement a connection keeps.
const MAX_KEPT: usize = 256;

/// An UPDATE of many rows with individual values.
pub(crate) struct UpdateEach {
    /// The part that all rows share, such as `UPDATE engine SET a = ?`.
    pub(crate) head: &'static str,
    /// The key column.
    pub(crate) key: &'static str,
    /// The columns with individual values.
    pub(crate) columns: &'static [&'static str],
    /// A condition on each row, such as ` AND uid IS NULL`.
    pub(crate) condition: &'static str,
}

impl Transaction {
    /// Inserts rows: `head` is `INSERT INTO table (columns)`, each row has a value for each column.
    pub(crate) async fn insert_all(&mut self, head: &'static str, rows: Vec<Vec<Arg>>) -> Result<(), Error> {
        for part in parts(rows, usize::MAX) {
            let mut text = format!("{head} VALUES ");
            tuples(&mut text, &part);
            self.execute_composed(text, part.into_iter().flatten().collect(), Keep::Nothing).await?;
        }
        Ok(())
    }

    /// Inserts rows like [`Transaction::insert_all`]; returns false if one of their keys exists. On `PostgreSQL` the transaction has
    /// then failed and must end.
    pub(crate) async fn insert_all_new(&mut self, head: &'static str, rows: Vec<Vec<Arg>>) -> Result<bool, Error> {
        for part in parts(rows, MAX_KEPT).into_iter().flat_map(powers_of_two) {
            let mut text = format!("{head} VALUES ");
            tuples(&mut text, &part);
            if !self.insert_composed(text, part.into_iter().flatten().collect(), Keep::Prepared).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Runs a statement for all keys: `head` ends with the column and `IN`, `values` are for its own placeholders. Returns the
    /// number of matched rows.
    pub(crate) async fn execute_in(
        &mut self,
        head: &'static str,
        values: &[Arg],
        keys: Vec<Arg>,
    ) -> Result<u64, Error> {
        let mut matched = 0;
        for part in parts(single(keys), usize::MAX) {
            let args = values.iter().cloned().chain(part.iter().flatten().cloned()).collect();
            matched += self.execute_composed(format!("{head} {}", list(part.len())), args, Keep::Nothing).await?;
        }
        Ok(matched)
    }

    /// Runs a statement for all keys of several columns: `head` ends with the columns in parentheses and `IN`.
    pub(crate) async fn execute_in_tuples(&mut self, head: &'static str, keys: Vec<Vec<Arg>>) -> Result<u64, Error> {
        let mut matched = 0;
        for part in parts(keys, usize::MAX) {
            let text = self.in_tuples(head, &part);
            matched += self.execute_composed(text, part.into_iter().flatten().collect(), Keep::Nothing).await?;
        }
        Ok(matched)
    }

    /// Reads the rows of all keys of several columns: `head` ends with the columns in parentheses and `IN`.
    pub(crate) async fn rows_in_tuples(
        &mut self,
        head: &'static str,
        keys: Vec<Vec<Arg>>,
    ) -> Result<Vec<AnyRow>, Error> {
        let mut rows = Vec::new();
        for part in parts(keys, usize::MAX) {
            let (part, keep) = filled_up(part);
            let text = self.in_tuples(head, &part);
            rows.extend(self.rows_composed(text, part.into_iter().flatten().collect(), keep).await?);
        }
        Ok(rows)
    }

    fn in_tuples(&self, head: &'static str, part: &[Vec<Arg>]) -> String {
        // SQLite compares rows only with a query, and PostgreSQL hashes it; MariaDB uses the index only for a list.
        let mut text = format!("{head} ({}", if self.backend() == Backend::Mariadb { "" } else { "VALUES " });
        tuples(&mut text, part);
        text.push(')');
        text
    }

    /// Reads the rows of all keys: `head` ends with the column and `IN`.
    pub(crate) async fn rows_in(&mut self, head: &'static str, keys: Vec<Arg>) -> Result<Vec<AnyRow>, Error> {
        let mut rows = Vec::new();
        for part in parts(single(keys), usize::MAX) {
            let (part, keep) = filled_up(part);
            let text = format!("{head} {}", list(part.len()));
            rows.extend(self.rows_composed(text, part.into_iter().flatten().collect(), keep).await?);
        }
        Ok(rows)
    }

    /// Reads with one statement the rows of two queries, each for keys of its own: each head ends with the column and `IN`. A row
    /// may be in both.
    pub(crate) async fn rows_in_either(
        &mut self,
        [first, second]: [&'static str; 2],
        [of_first, of_second]: [Vec<Arg>; 2],
    ) -> Result<Vec<AnyRow>, Error> {
        match [of_first.len(), of_second.len()] {
            [_, 0] => self.rows_in(first, of_first).await,
            [0, _] => self.rows_in(second, of_second).await,
            [1..=MAX_KEPT, 1..=MAX_KEPT] => {
                let ((of_first, _), (of_second, _)) = (filled_up(single(of_first)), filled_up(single(of_second)));
                let text = format!("{first} {} UNION ALL {second} {}", list(of_first.len()), list(of_second.len()));
                let args = of_first.into_iter().chain(of_second).flatten().collect();
                self.rows_composed(text, args, Keep::Prepared).await
            }
            _ => {
                let mut rows = self.rows_in(first, of_first).await?;
                rows.extend(self.rows_in(second, of_second).await?);
                Ok(rows)
            }
        }
    }

    /// Sets columns of many rows. Each row is its key and a value for each column.
    pub(crate) async fn update_each(
        &mut self,
        update: &UpdateEach,
        values: &[Arg],
        rows: Vec<Vec<Arg>>,
    ) -> Result<u64, Error> {
        let UpdateEach { head, key, columns, condition } = update;
        let mut matched = 0;
        for part in parts(rows, MAX_EACH_ROWS).into_iter().flat_map(powers_of_two) {
            let (mut text, mut args) = ((*head).to_owned(), values.to_vec());
            for (at, column) in columns.iter().enumerate() {
                let _ = write!(text, ", {column} = CASE {key}{} END", " WHEN ? THEN ?".repeat(part.len()));
                for row in &part {
                    args.extend([row.first(), row.get(at + 1)].into_iter().flatten().cloned());
                }
            }
            let _ = write!(text, " WHERE {key} IN {}{condition}", list(part.len()));
            args.extend(part.iter().filter_map(|row| row.first()).cloned());
            matched += self.execute_composed(text, args, Keep::Prepared).await?;
        }
        Ok(matched)
    }
}

pub(crate) fn keys<K: Into<Arg>>(keys: impl IntoIterator<Item = K>) -> Vec<Arg> {
    keys.into_iter().map(Into::into).collect()
}

fn single(keys: Vec<Arg>) -> Vec<Vec<Arg>> {
    keys.into_iter().map(|key| vec![key]).collect()
}

/// Splits rows into parts whose lengths are powers of two, the longest first.
fn powers_of_two(mut rows: Vec<Vec<Arg>>) -> Vec<Vec<Vec<Arg>>> {
    let mut parts = Vec::new();
    while let Some(power) = rows.len().checked_ilog2() {
        let rest = rows.split_off(1 << power);
        parts.push(std::mem::replace(&mut rows, rest));
    }
    parts
}

/// Repeats the last key of a list up to a power of two.
fn filled_up(mut part: Vec<Vec<Arg>>) -> (Vec<Vec<Arg>>, Keep) {
    match part.last().cloned() {
        Some(last) if part.len() <= MAX_KEPT => {
            part.resize(part.len().next_power_of_two(), last);
            (part, Keep::Prepared)
        }
        _ => (part, Keep::Nothing),
    }
}

/// `(?, ?, ?)`
fn list(count: usize) -> String {
    format!("({})", vec!["?"; count].join(", "))
}

/// `(?, ?), (?, ?)`
fn tuples(text: &mut String, rows: &[Vec<Arg>]) {
    for (at, row) in rows.iter().enumerate() {
        text.push_str(if at == 0 { "" } else { ", " });
        text.push_str(&list(row.len()));
    }
}

/// Splits rows into parts that fit into a statement, in order; no part is empty.
fn parts(rows: Vec<Vec<Arg>>, max_rows: usize) -> Vec<Vec<Vec<Arg>>> {
    let mut parts: Vec<Vec<Vec<Arg>>> = Vec::new();
    let (mut placeholders, mut bytes) = (0, 0);
    for row in rows {
        let of_row: usize = row.iter().map(Arg::bytes).sum();
        match parts.last_mut() {
            Some(part)
                if part.len() < max_rows
                    && placeholders + row.len() <= MAX_PLACEHOLDERS
                    && bytes + of_row <= MAX_PART_BYTES =>
            {
                (placeholders, bytes) = (placeholders + row.len(), bytes + of_row);
                part.push(row);
            }
            _ => {
                (placeholders, bytes) = (row.len(), of_row);
                parts.push(vec![row]);
            }
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transaction::args;

    #[test]
    fn statements_that_are_kept_have_lengths_of_powers_of_two() {
        let rows = |length: usize| (0..length).map(|at| args![at as i64]).collect::<Vec<_>>();
        let lengths = [1, 2, 3, 5, 8, 256, 257].map(|length| {
            let (part, keep) = filled_up(rows(length));
            (part.len(), keep == Keep::Prepared)
        });
        let expected = [(1, true), (2, true), (4, true), (8, true), (8, true), (256, true), (257, false)];
        assert_eq!(lengths, expected);
        let split = powers_of_two(rows(50));
        assert_eq!(split.iter().map(Vec::len).collect::<Vec<_>>(), [32, 16, 2]);
        let values: Vec<Option<i64>> = split
            .into_iter()
            .flatten()
            .flatten()
            .map(|arg| match arg {
                Arg::Int(value) => value,
                Arg::Text(_) => None,
            })
            .collect();
        assert_eq!(values, (0..50).map(Some).collect::<Vec<_>>(), "in order");
        assert!(powers_of_two(Vec::new()).is_empty());
    }

    #[test]
    fn parts_are_bounded_and_lose_no_row() {
        let lengths = |parts: Vec<Vec<Vec<Arg>>>| parts.iter().map(Vec::len).collect::<Vec<_>>();
        let rows = |count: usize| (0..count).map(|at| args![at as i64, "x"]).collect::<Vec<_>>();
        assert_eq!(lengths(parts(Vec::new(), usize::MAX)), Vec::<usize>::new());
        assert_eq!(lengths(parts(rows(MAX_PLACEHOLDERS / 2 + 1), usize::MAX)), [MAX_PLACEHOLDERS / 2, 1]);
        assert_eq!(lengths(parts(rows(5), 2)), [2, 2, 1]);
        let long = || args!["x".repeat(MAX_PART_BYTES / 2)];
        assert_eq!(lengths(parts(vec![long(), long(), long()], usize::MAX)), [2, 1]);
        let huge = args!["x".repeat(2 * MAX_PART_BYTES)];
        assert_eq!(lengths(parts(vec![huge.clone(), huge], usize::MAX)), [1, 1], "one row is never split");
    }
}
