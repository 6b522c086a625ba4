//! The result of a statement: columns and rows.

use hs2::{Column, SqlType, Value};

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Answer {
    pub(super) columns: Vec<Column>,
    pub(super) rows: Vec<Vec<Value>>,
}

impl Answer {
    pub(super) fn new(columns: &[(&str, SqlType)]) -> Self {
        let columns = columns.iter().map(|(name, of)| Column::new(*name, *of)).collect();
        Self { columns, rows: Vec::new() }
    }

    pub(super) fn row(&mut self, values: Vec<Value>) {
        debug_assert_eq!(values.len(), self.columns.len(), "a row has the answer's columns");
        self.rows.push(values);
    }

    /// (property, value) rows.
    pub(super) fn properties(rows: impl IntoIterator<Item = (String, String)>) -> Self {
        let mut answer = Self::new(&[("property", SqlType::String), ("value", SqlType::String)]);
        for (property, value) in rows {
            answer.row(vec![text(property), text(value)]);
        }
        answer
    }
}

pub(super) fn text(value: impl Into<String>) -> Value {
    Value::Text(value.into())
}

pub(super) fn maybe(value: Option<impl Into<String>>) -> Value {
    value.map_or(Value::Null, |value| Value::Text(value.into()))
}

pub(super) fn number(value: impl Into<i64>) -> Value {
    Value::I64(value.into())
}

/// Names as a list: `uc_1, uc_2`.
pub(super) fn names<T: ToString>(items: &[T]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
