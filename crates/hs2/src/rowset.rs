//! Columnar result sets: built by column or by row, read back as rows.
//!
//! A null has a bit in the column's bitmap (lowest bit of the first byte first) and a meaningless value. Input may
//! come from an engine: columns of different lengths are an error, and bits missing from a bitmap are not null.

use thrift::OrderedFloat;

use crate::schema::Column;
use crate::tcli::{
    TBinaryColumn, TBoolColumn, TByteColumn, TColumn, TDoubleColumn, TI16Column, TI32Column, TI64Column, TRowSet,
    TStringColumn,
};
use crate::value::{Layout, SqlType, Value};

/// The error of a result set, or of a value for one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RowSetError {
    /// The peer uses a protocol version below V6.
    #[error("the result set is in rows, as before protocol version V6")]
    InRows,
    /// The columns are encoded a second time.
    #[error("the result set is encoded by the engine's tasks, which is not supported")]
    Encoded,
    /// The columns do not have the same length.
    #[error("the columns of the result set differ in length")]
    Ragged,
    /// A value that does not fit its column's type.
    #[error("a value of type {found} does not fit a column of type {wanted}")]
    WrongType {
        /// The column's type on the wire.
        wanted: &'static str,
        found: &'static str,
    },
    /// A row with more or fewer values than there are columns.
    #[error("a row of {found} values does not fit {wanted} columns")]
    WrongWidth { wanted: usize, found: usize },
}

/// A column under construction.
#[derive(Debug)]
pub struct ColumnBuilder {
    values: Values,
    nulls: Vec<u8>,
    length: usize,
}

#[derive(Debug)]
enum Values {
    Bool(Vec<bool>),
    Byte(Vec<i8>),
    I16(Vec<i16>),
    I32(Vec<i32>),
    I64(Vec<i64>),
    Double(Vec<OrderedFloat<f64>>),
    Text(Vec<String>),
    Binary(Vec<Vec<u8>>),
}

impl ColumnBuilder {
    pub fn new(sql_type: SqlType) -> Self {
        Self::with_capacity(sql_type, 0)
    }

    pub fn with_capacity(sql_type: SqlType, rows: usize) -> Self {
        let values = match sql_type.layout() {
            Layout::Bool => Values::Bool(Vec::with_capacity(rows)),
            Layout::Byte => Values::Byte(Vec::with_capacity(rows)),
            Layout::I16 => Values::I16(Vec::with_capacity(rows)),
            Layout::I32 => Values::I32(Vec::with_capacity(rows)),
            Layout::I64 => Values::I64(Vec::with_capacity(rows)),
            Layout::Double => Values::Double(Vec::with_capacity(rows)),
            Layout::Text => Values::Text(Vec::with_capacity(rows)),
            Layout::Binary => Values::Binary(Vec::with_capacity(rows)),
        };
        Self { values, nulls: Vec::new(), length: 0 }
    }

    pub fn len(&self) -> usize {
        self.length
    }

    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Adds a value. Integers are widened where the column is wider; any other value must have the column's type.
    pub fn push(&mut self, value: Value) -> Result<(), RowSetError> {
        match (&mut self.values, value) {
            (_, Value::Null) => {
                self.push_null();
                return Ok(());
            }
            (Values::Bool(values), Value::Bool(value)) => values.push(value),
            (Values::Byte(values), Value::I8(value)) => values.push(value),
            (Values::I16(values), Value::I16(value)) => values.push(value),
            (Values::I16(values), Value::I8(value)) => values.push(value.into()),
            (Values::I32(values), Value::I32(value)) => values.push(value),
            (Values::I32(values), Value::I16(value)) => values.push(value.into()),
            (Values::I32(values), Value::I8(value)) => values.push(value.into()),
            (Values::I64(values), Value::I64(value)) => values.push(value),
            (Values::I64(values), Value::I32(value)) => values.push(value.into()),
            (Values::I64(values), Value::I16(value)) => values.push(value.into()),
            (Values::I64(values), Value::I8(value)) => values.push(value.into()),
            (Values::Double(values), Value::F64(value)) => values.push(OrderedFloat(value)),
            (Values::Text(values), Value::Text(value)) => values.push(value),
            (Values::Binary(values), Value::Bytes(value)) => values.push(value),
            (values, value) => {
                return Err(RowSetError::WrongType { wanted: values.type_name(), found: type_name(&value) });
            }
        }
        self.mark(false);
        Ok(())
    }

    pub fn push_null(&mut self) {
        match &mut self.values {
            Values::Bool(values) => values.push(false),
            Values::Byte(values) => values.push(0),
            Values::I16(values) => values.push(0),
            Values::I32(values) => values.push(0),
            Values::I64(values) => values.push(0),
            Values::Double(values) => values.push(OrderedFloat(0.0)),
            Values::Text(values) => values.push(String::new()),
            Values::Binary(values) => values.push(Vec::new()),
        }
        self.mark(true);
    }

    /// Counts the value; the bitmap grows only up to the last null, as in Java servers.
    fn mark(&mut self, null: bool) {
        if null {
            let (byte, bit) = (self.length / 8, self.length % 8);
            self.nulls.resize(byte + 1, 0);
            self.nulls[byte] |= 1 << bit;
        }
        self.length += 1;
    }

    pub fn finish(self) -> TColumn {
        let nulls = self.nulls;
        match self.values {
            Values::Bool(values) => TColumn::BoolVal(TBoolColumn { values, nulls }),
            Values::Byte(values) => TColumn::ByteVal(TByteColumn { values, nulls }),
            Values::I16(values) => TColumn::I16Val(TI16Column { values, nulls }),
            Values::I32(values) => TColumn::I32Val(TI32Column { values, nulls }),
            Values::I64(values) => TColumn::I64Val(TI64Column { values, nulls }),
            Values::Double(values) => TColumn::DoubleVal(TDoubleColumn { values, nulls }),
            Values::Text(values) => TColumn::StringVal(TStringColumn { values, nulls }),
            Values::Binary(values) => TColumn::BinaryVal(TBinaryColumn { values, nulls }),
        }
    }
}

impl Values {
    fn type_name(&self) -> &'static str {
        match self {
            Self::Bool(_) => "boolean",
            Self::Byte(_) => "tinyint",
            Self::I16(_) => "smallint",
            Self::I32(_) => "int",
            Self::I64(_) => "bigint",
            Self::Double(_) => "double",
            Self::Text(_) => "string",
            Self::Binary(_) => "binary",
        }
    }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "void",
        Value::Bool(_) => "boolean",
        Value::I8(_) => "tinyint",
        Value::I16(_) => "smallint",
        Value::I32(_) => "int",
        Value::I64(_) => "bigint",
        Value::F64(_) => "double",
        Value::Text(_) => "string",
        Value::Bytes(_) => "binary",
    }
}

macro_rules! typed {
    ($($(#[$doc:meta])* $name:ident($type:ty) $layout:ident $wrap:expr;)*) => {
        /// Adds a value whose type the caller knows; `None` is a null. If the column has another layout, a null is
        /// added instead: the caller used the wrong schema, which a debug build asserts.
        impl ColumnBuilder {
            $($(#[$doc])*
            pub fn $name(&mut self, value: Option<$type>) {
                if let (Values::$layout(values), Some(value)) = (&mut self.values, value) {
                    values.push($wrap(value));
                    self.mark(false);
                } else {
                    debug_assert!(matches!(self.values, Values::$layout(_)), "a column of another layout");
                    self.push_null();
                }
            })*
        }
    };
}

typed! {
    /// To a BOOLEAN column.
    push_bool(bool) Bool std::convert::identity;
    /// To a TINYINT column.
    push_i8(i8) Byte std::convert::identity;
    /// To a SMALLINT column.
    push_i16(i16) I16 std::convert::identity;
    /// To an INT column.
    push_i32(i32) I32 std::convert::identity;
    /// To a BIGINT column.
    push_i64(i64) I64 std::convert::identity;
    /// To a FLOAT or DOUBLE column.
    push_f64(f64) Double OrderedFloat;
    /// To a column whose values are sent as text.
    push_text(String) Text std::convert::identity;
    /// To a BINARY column.
    push_bytes(Vec<u8>) Binary std::convert::identity;
}

/// A result set under construction, row by row.
#[derive(Debug)]
pub struct RowSetBuilder {
    start_row: i64,
    columns: Vec<ColumnBuilder>,
}

impl RowSetBuilder {
    /// A set whose first row has the number `start_row` (from 0) in the whole result.
    pub fn new(columns: &[Column], start_row: i64) -> Self {
        Self { start_row, columns: columns.iter().map(|column| ColumnBuilder::new(column.sql_type)).collect() }
    }

    pub fn push_row(&mut self, row: Vec<Value>) -> Result<(), RowSetError> {
        if row.len() != self.columns.len() {
            return Err(RowSetError::WrongWidth { wanted: self.columns.len(), found: row.len() });
        }
        self.columns.iter_mut().zip(row).try_for_each(|(column, value)| column.push(value))
    }

    pub fn finish(self) -> TRowSet {
        from_columns(self.start_row, self.columns.into_iter().map(ColumnBuilder::finish).collect())
    }
}

/// A set of complete columns.
pub fn from_columns(start_row: i64, columns: Vec<TColumn>) -> TRowSet {
    TRowSet {
        start_row_offset: start_row,
        rows: Vec::new(),
        columns: Some(columns),
        binary_columns: None,
        column_count: None,
    }
}

/// A set without rows: the end of the result.
pub fn empty(columns: &[Column], start_row: i64) -> TRowSet {
    RowSetBuilder::new(columns, start_row).finish()
}

/// A set of one text column, for operation logs and EXPLAIN.
pub fn lines<T: Into<String>>(start_row: i64, lines: impl IntoIterator<Item = T>) -> TRowSet {
    let mut column = ColumnBuilder::new(SqlType::String);
    lines.into_iter().for_each(|line| column.push_text(Some(line.into())));
    from_columns(start_row, vec![column.finish()])
}

pub fn row_count(set: &TRowSet) -> Result<usize, RowSetError> {
    let columns = columns(set)?;
    let count = columns.first().map_or(0, length);
    if columns.iter().any(|column| length(column) != count) {
        return Err(RowSetError::Ragged);
    }
    Ok(count)
}

fn columns(set: &TRowSet) -> Result<&[TColumn], RowSetError> {
    if set.binary_columns.is_some() {
        return Err(RowSetError::Encoded);
    }
    if !set.rows.is_empty() {
        return Err(RowSetError::InRows);
    }
    Ok(set.columns.as_deref().unwrap_or_default())
}

fn length(column: &TColumn) -> usize {
    match column {
        TColumn::BoolVal(column) => column.values.len(),
        TColumn::ByteVal(column) => column.values.len(),
        TColumn::I16Val(column) => column.values.len(),
        TColumn::I32Val(column) => column.values.len(),
        TColumn::I64Val(column) => column.values.len(),
        TColumn::DoubleVal(column) => column.values.len(),
        TColumn::StringVal(column) => column.values.len(),
        TColumn::BinaryVal(column) => column.values.len(),
    }
}

pub fn rows(set: &TRowSet) -> Result<Vec<Vec<Value>>, RowSetError> {
    let count = row_count(set)?;
    let columns = columns(set)?;
    let mut rows: Vec<Vec<Value>> = (0..count).map(|_| Vec::with_capacity(columns.len())).collect();
    for column in columns {
        fill(&mut rows, column);
    }
    Ok(rows)
}

fn fill(rows: &mut [Vec<Value>], column: &TColumn) {
    macro_rules! fill {
        ($column:expr, $value:expr) => {{
            let nulls = &$column.nulls;
            for (number, (row, value)) in rows.iter_mut().zip(&$column.values).enumerate() {
                row.push(if is_null(nulls, number) { Value::Null } else { $value(value) });
            }
        }};
    }
    match column {
        TColumn::BoolVal(column) => fill!(column, |value: &bool| Value::Bool(*value)),
        TColumn::ByteVal(column) => fill!(column, |value: &i8| Value::I8(*value)),
        TColumn::I16Val(column) => fill!(column, |value: &i16| Value::I16(*value)),
        TColumn::I32Val(column) => fill!(column, |value: &i32| Value::I32(*value)),
        TColumn::I64Val(column) => fill!(column, |value: &i64| Value::I64(*value)),
        TColumn::DoubleVal(column) => fill!(column, |value: &OrderedFloat<f64>| Value::F64(value.0)),
        TColumn::StringVal(column) => fill!(column, |value: &String| Value::Text(value.clone())),
        TColumn::BinaryVal(column) => fill!(column, |value: &Vec<u8>| Value::Bytes(value.clone())),
    }
}

fn is_null(nulls: &[u8], number: usize) -> bool {
    nulls.get(number / 8).is_some_and(|byte| byte & (1 << (number % 8)) != 0)
}
