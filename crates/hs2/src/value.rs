//! Values and their types, between columns on the wire and rows.

use std::fmt;

use crate::tcli::TTypeId;

/// One value of a row. Decimals, dates, timestamps, intervals and nested types are sent as text, as in Hive.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Null,
    /// BOOLEAN.
    Bool(bool),
    /// TINYINT.
    I8(i8),
    /// SMALLINT.
    I16(i16),
    /// INT.
    I32(i32),
    /// BIGINT.
    I64(i64),
    /// FLOAT and DOUBLE.
    F64(f64),
    /// STRING and all types that are sent as text.
    Text(String),
    /// BINARY.
    Bytes(Vec<u8>),
}

impl Value {
    /// The text of a text value.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The number of an integer of any size.
    pub fn as_i64(&self) -> Option<i64> {
        match self {
            Self::I8(value) => Some(i64::from(*value)),
            Self::I16(value) => Some(i64::from(*value)),
            Self::I32(value) => Some(i64::from(*value)),
            Self::I64(value) => Some(*value),
            _ => None,
        }
    }

    /// Whether there is no value.
    pub fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::I64(value)
    }
}

impl From<i32> for Value {
    fn from(value: i32) -> Self {
        Self::I32(value)
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::F64(value)
    }
}

impl<T: Into<Self>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// As BeeLine shows it: `NULL`, `true`, `1.0`, bytes as text.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("NULL"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::I8(value) => write!(f, "{value}"),
            Self::I16(value) => write!(f, "{value}"),
            Self::I32(value) => write!(f, "{value}"),
            Self::I64(value) => write!(f, "{value}"),
            Self::F64(value) => write!(f, "{value:?}"),
            Self::Text(value) => f.write_str(value),
            Self::Bytes(value) => f.write_str(&String::from_utf8_lossy(value)),
        }
    }
}

/// The type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // SQL's own names
pub enum SqlType {
    Boolean,
    TinyInt,
    SmallInt,
    Int,
    BigInt,
    Float,
    Double,
    String,
    /// The length in characters.
    Varchar(u32),
    /// The length in characters.
    Char(u32),
    Binary,
    Decimal {
        precision: u32,
        scale: u32,
    },
    Date,
    Timestamp,
    IntervalYearMonth,
    IntervalDayTime,
    Array,
    Map,
    Struct,
    /// The type of a column that is NULL in every row.
    Null,
}

/// The layout of a type's values on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    Bool,
    Byte,
    I16,
    I32,
    I64,
    Double,
    Text,
    Binary,
}

impl SqlType {
    pub(crate) const fn layout(self) -> Layout {
        match self {
            Self::Boolean => Layout::Bool,
            Self::TinyInt => Layout::Byte,
            Self::SmallInt => Layout::I16,
            Self::Int => Layout::I32,
            Self::BigInt => Layout::I64,
            Self::Float | Self::Double => Layout::Double,
            Self::Binary => Layout::Binary,
            _ => Layout::Text,
        }
    }

    /// The type's number in the protocol.
    pub const fn type_id(self) -> TTypeId {
        match self {
            Self::Boolean => TTypeId::BOOLEAN_TYPE,
            Self::TinyInt => TTypeId::TINYINT_TYPE,
            Self::SmallInt => TTypeId::SMALLINT_TYPE,
            Self::Int => TTypeId::INT_TYPE,
            Self::BigInt => TTypeId::BIGINT_TYPE,
            Self::Float => TTypeId::FLOAT_TYPE,
            Self::Double => TTypeId::DOUBLE_TYPE,
            Self::String => TTypeId::STRING_TYPE,
            Self::Varchar(_) => TTypeId::VARCHAR_TYPE,
            Self::Char(_) => TTypeId::CHAR_TYPE,
            Self::Binary => TTypeId::BINARY_TYPE,
            Self::Decimal { .. } => TTypeId::DECIMAL_TYPE,
            Self::Date => TTypeId::DATE_TYPE,
            Self::Timestamp => TTypeId::TIMESTAMP_TYPE,
            Self::IntervalYearMonth => TTypeId::INTERVAL_YEAR_MONTH_TYPE,
            Self::IntervalDayTime => TTypeId::INTERVAL_DAY_TIME_TYPE,
            Self::Array => TTypeId::ARRAY_TYPE,
            Self::Map => TTypeId::MAP_TYPE,
            Self::Struct => TTypeId::STRUCT_TYPE,
            Self::Null => TTypeId::NULL_TYPE,
        }
    }
}

/// As DESCRIBE shows it.
impl fmt::Display for SqlType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::Boolean => "boolean",
            Self::TinyInt => "tinyint",
            Self::SmallInt => "smallint",
            Self::Int => "int",
            Self::BigInt => "bigint",
            Self::Float => "float",
            Self::Double => "double",
            Self::String => "string",
            Self::Varchar(length) => return write!(f, "varchar({length})"),
            Self::Char(length) => return write!(f, "char({length})"),
            Self::Binary => "binary",
            Self::Decimal { precision, scale } => return write!(f, "decimal({precision},{scale})"),
            Self::Date => "date",
            Self::Timestamp => "timestamp",
            Self::IntervalYearMonth => "interval year to month",
            Self::IntervalDayTime => "interval day to second",
            Self::Array => "array",
            Self::Map => "map",
            Self::Struct => "struct",
            Self::Null => "void",
        };
        f.write_str(name)
    }
}
