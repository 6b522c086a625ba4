//! Collectors: what is kept of a result while its rows arrive, in bounded memory.
//!
//! Every kept byte is acquired from the proxy's byte budget. A page ends early where its bytes would exceed
//! [`MAX_RESULT_BYTES`]; a result that has no pages is refused there.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use hs2::{Column, Value};
use model::error::{ErrorKind, UserError};

use super::page::{Key, Page, invalid_cursor};
use super::rows;
use crate::budget::{Budget, BudgetGuard};

/// The most bytes of the rows of a response.
pub(super) const MAX_RESULT_BYTES: usize = 8 << 20;
/// The most rows of a result that has no pages.
pub(super) const MAX_STATEMENT_ROWS: usize = 10_000;

/// Receives the rows of a result. A result that has to be read again begins again.
pub(super) trait Collect: Send {
    fn begin(&mut self, columns: Vec<Column>) -> Result<(), UserError>;

    /// Takes a row; breaks when no further row is needed.
    fn row(&mut self, row: &[Value]) -> Result<ControlFlow<()>, UserError>;
}

/// A result without pages.
pub(super) struct Whole {
    pub(super) columns: Vec<Column>,
    /// The rows as JSON.
    pub(super) rows: Vec<String>,
    /// The first row.
    pub(super) first: Vec<Value>,
    guard: BudgetGuard,
    /// What a client may do instead if the result is too large.
    hint: Option<String>,
}

impl Whole {
    pub(super) fn new(budget: &Arc<Budget>, hint: Option<String>) -> Result<Self, UserError> {
        let guard = budget.acquire(0)?;
        Ok(Self { columns: Vec::new(), rows: Vec::new(), first: Vec::new(), guard, hint })
    }

    /// The text in this column of the first row.
    pub(super) fn text(&self, column: &str) -> Option<&str> {
        let at = self.columns.iter().position(|known| known.name == column)?;
        self.first.get(at)?.as_text()
    }
}

impl Collect for Whole {
    fn begin(&mut self, columns: Vec<Column>) -> Result<(), UserError> {
        self.columns = columns;
        self.rows.clear();
        self.first.clear();
        self.guard.resize(0)
    }

    fn row(&mut self, row: &[Value]) -> Result<ControlFlow<()>, UserError> {
        if self.rows.is_empty() {
            self.first = row.to_vec();
        }
        let text = rows::object(&self.columns, row);
        let bytes = self.guard.bytes() + text.len();
        if self.rows.len() >= MAX_STATEMENT_ROWS || bytes > MAX_RESULT_BYTES {
            let hint = self.hint.as_deref().unwrap_or("Run the statement in a HiveServer2 session.");
            // Not the kind of a limit that a later request may find free.
            return Err(UserError::new(ErrorKind::NotSupported, "result too large for one response")
                .with_sqlstate(ErrorKind::ProgramLimit.sqlstate())
                .detail(format!("A response has at most {MAX_STATEMENT_ROWS} rows and {MAX_RESULT_BYTES} bytes."))
                .hint(hint));
        }
        self.guard.resize(bytes)?;
        self.rows.push(text);
        Ok(ControlFlow::Continue(()))
    }
}

/// The positions of the columns that identify a row.
fn positions(columns: &[Column], key: &[&str]) -> Result<Vec<usize>, UserError> {
    let at = |name: &&str| columns.iter().position(|column| column.name == *name);
    let found: Option<Vec<usize>> = key.iter().map(at).collect();
    found.ok_or_else(|| UserError::internal("the result lacks a column that identifies its rows"))
}

fn key_of(row: &[Value], positions: &[usize]) -> Key {
    positions.iter().map(|at| row.get(*at).map(ToString::to_string).unwrap_or_default()).collect()
}

/// A page of a list that is sorted by its key: the first rows after the cursor. A row that the cursor names may be gone.
pub(super) struct ByKey {
    page: Page,
    key: &'static [&'static str],
    columns: Vec<Column>,
    positions: Vec<usize>,
    /// The smallest keys so far. Rows with equal keys stay on one page.
    kept: BTreeMap<Key, Vec<String>>,
    count: usize,
    has_more: bool,
    guard: BudgetGuard,
}

impl ByKey {
    pub(super) fn new(budget: &Arc<Budget>, page: Page, key: &'static [&'static str]) -> Result<Self, UserError> {
        Ok(Self {
            page,
            key,
            columns: Vec::new(),
            positions: Vec::new(),
            kept: BTreeMap::new(),
            count: 0,
            has_more: false,
            guard: budget.acquire(0)?,
        })
    }

    /// The rows, and the cursor of the next page.
    pub(super) fn finish(&self) -> (impl Iterator<Item = &str>, Option<String>) {
        let last = self.kept.last_key_value().filter(|_| self.has_more);
        let next = last.map(|(key, _)| self.page.cursor(key));
        (self.kept.values().flatten().map(String::as_str), next)
    }
}

impl Collect for ByKey {
    fn begin(&mut self, columns: Vec<Column>) -> Result<(), UserError> {
        self.positions = positions(&columns, self.key)?;
        self.columns = columns;
        self.kept.clear();
        (self.count, self.has_more) = (0, false);
        self.guard.resize(0)
    }

    fn row(&mut self, row: &[Value]) -> Result<ControlFlow<()>, UserError> {
        let key = key_of(row, &self.positions);
        if self.page.after.as_ref().is_some_and(|after| key <= *after) {
            return Ok(ControlFlow::Continue(()));
        }
        // What was dropped once is on a later page.
        if self.has_more && self.kept.last_key_value().is_some_and(|(last, _)| key > *last) {
            return Ok(ControlFlow::Continue(()));
        }
        let text = rows::object(&self.columns, row);
        let mut bytes = self.guard.bytes() + text.len();
        self.kept.entry(key).or_default().push(text);
        self.count += 1;
        while self.kept.len() > 1 && (self.count > self.page.limit || bytes > MAX_RESULT_BYTES) {
            if let Some((_, dropped)) = self.kept.pop_last() {
                self.count -= dropped.len();
                bytes -= dropped.iter().map(String::len).sum::<usize>();
                self.has_more = true;
            }
        }
        self.guard.resize(bytes)?;
        Ok(ControlFlow::Continue(()))
    }
}

/// A page of a list in the order in which it is shown, such as newest first: the rows after the one that the cursor names.
pub(super) struct AsShown {
    page: Page,
    key: &'static [&'static str],
    columns: Vec<Column>,
    positions: Vec<usize>,
    /// Whether the row of the cursor has come.
    is_after: bool,
    rows: Vec<String>,
    last: Key,
    has_more: bool,
    guard: BudgetGuard,
}

impl AsShown {
    pub(super) fn new(budget: &Arc<Budget>, page: Page, key: &'static [&'static str]) -> Result<Self, UserError> {
        Ok(Self {
            page,
            key,
            columns: Vec::new(),
            positions: Vec::new(),
            is_after: false,
            rows: Vec::new(),
            last: Key::new(),
            has_more: false,
            guard: budget.acquire(0)?,
        })
    }

    /// The rows, and the cursor of the next page. Fails if the row of the cursor did not come.
    pub(super) fn finish(&self) -> Result<(impl Iterator<Item = &str>, Option<String>), UserError> {
        if !self.is_after {
            return Err(invalid_cursor());
        }
        let next = self.has_more.then(|| self.page.cursor(&self.last));
        Ok((self.rows.iter().map(String::as_str), next))
    }
}

impl Collect for AsShown {
    fn begin(&mut self, columns: Vec<Column>) -> Result<(), UserError> {
        self.positions = positions(&columns, self.key)?;
        self.columns = columns;
        self.is_after = self.page.after.is_none();
        self.rows.clear();
        self.has_more = false;
        self.guard.resize(0)
    }

    fn row(&mut self, row: &[Value]) -> Result<ControlFlow<()>, UserError> {
        let key = key_of(row, &self.positions);
        if !self.is_after {
            self.is_after = self.page.after.as_ref() == Some(&key);
            return Ok(ControlFlow::Continue(()));
        }
        let text = rows::object(&self.columns, row);
        let bytes = self.guard.bytes() + text.len();
        if self.rows.len() >= self.page.limit || (bytes > MAX_RESULT_BYTES && !self.rows.is_empty()) {
            self.has_more = true;
            return Ok(ControlFlow::Break(()));
        }
        self.guard.resize(bytes)?;
        self.rows.push(text);
        self.last = key;
        Ok(ControlFlow::Continue(()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;
    use hs2::SqlType;

    const NAMES: &[&str] = &["name"];

    fn columns() -> Vec<Column> {
        vec![Column::new("name", SqlType::String), Column::new("size", SqlType::BigInt)]
    }

    fn row(name: &str) -> Vec<Value> {
        vec![name.into(), Value::I64(1)]
    }

    fn names<'a>(rows: impl Iterator<Item = &'a str>) -> Vec<String> {
        let parsed = rows.map(|row| serde_json::from_str::<serde_json::Value>(row).unwrap());
        parsed.map(|row| row["name"].as_str().unwrap().to_owned()).collect()
    }

    /// All pages of a sorted list, with this limit.
    fn pages(rows: &[&str], limit: u32) -> Vec<Vec<String>> {
        let budget = Budget::new(1 << 20, Arc::default());
        let (mut pages, mut cursor) = (Vec::new(), None::<String>);
        loop {
            let page = Page::new("x", Some(limit), cursor.as_deref()).unwrap();
            let mut collect = ByKey::new(&budget, page, NAMES).unwrap();
            collect.begin(columns()).unwrap();
            for name in rows {
                assert!(collect.row(&row(name)).unwrap().is_continue());
            }
            let (page, next) = collect.finish();
            pages.push(names(page));
            match next {
                Some(next) => cursor = Some(next),
                None => return pages,
            }
        }
    }

    #[test]
    fn pages_by_key_have_every_row_once_in_whatever_order_they_come() {
        assert_eq!(pages(&["c", "a", "d", "b"], 2), [["a", "b"], ["c", "d"]]);
        assert_eq!(pages(&["a", "b", "c"], 2), [vec!["a", "b"], vec!["c"]]);
        assert_eq!(pages(&[], 2), [Vec::<String>::new()]);
        // Rows with equal keys stay together.
        assert_eq!(pages(&["b", "a", "a", "a", "c"], 2), [vec!["a", "a", "a"], vec!["b", "c"]]);
    }

    #[test]
    fn a_shown_page_begins_after_its_cursor_and_needs_its_row() {
        let budget = Budget::new(1 << 20, Arc::default());
        let shown = |rows: &[&str], cursor: Option<&str>| {
            let mut collect = AsShown::new(&budget, Page::new("x", Some(2), cursor).unwrap(), NAMES).unwrap();
            collect.begin(columns()).unwrap();
            let ended = rows.iter().any(|name| collect.row(&row(name)).unwrap().is_break());
            collect.finish().map(|(rows, next)| (names(rows), next, ended))
        };
        let (first, next, ended) = shown(&["9", "8", "7", "6", "5"], None).unwrap();
        assert_eq!((first.as_slice(), ended), (&["9".to_owned(), "8".to_owned()][..], true));
        // Rows that came since shift nothing.
        let (second, next, _) = shown(&["11", "10", "9", "8", "7"], next.as_deref()).unwrap();
        assert_eq!((second.as_slice(), &next), (&["7".to_owned()][..], &None));
        let cursor = Page::new("x", None, None).unwrap().cursor(&vec!["8".to_owned()]);
        assert_eq!(shown(&["9"], Some(&cursor)).unwrap_err().message, "invalid cursor");
    }

    #[test]
    fn a_result_without_pages_is_bounded_and_a_page_ends_early() {
        let budget = Budget::new(1 << 30, Arc::default());
        let long = "x".repeat(MAX_RESULT_BYTES / 2);
        let mut whole = Whole::new(&budget, None).unwrap();
        whole.begin(columns()).unwrap();
        assert!(whole.row(&row(&long)).is_ok());
        assert_eq!(whole.row(&row(&long)).unwrap_err().message, "result too large for one response");
        let mut by_key = ByKey::new(&budget, Page::new("x", None, None).unwrap(), NAMES).unwrap();
        by_key.begin(columns()).unwrap();
        for first in ["b", "a", "c"] {
            assert!(by_key.row(&row(&format!("{first}{long}"))).unwrap().is_continue());
        }
        let (rows, next) = by_key.finish();
        assert_eq!((rows.count(), next.is_some()), (1, true));
        let scarce = Budget::new(100, Arc::default());
        let mut whole = Whole::new(&scarce, None).unwrap();
        whole.begin(columns()).unwrap();
        assert_eq!(whole.row(&row(&"y".repeat(200))).unwrap_err().sqlstate(), "54000");
    }
}
