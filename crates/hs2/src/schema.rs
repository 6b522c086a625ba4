//! The columns of a result set, to and from `TTableSchema`.

use std::collections::BTreeMap;

use crate::tcli::{
    TColumnDesc, TPrimitiveTypeEntry, TTableSchema, TTypeDesc, TTypeEntry, TTypeId, TTypeQualifierValue,
    TTypeQualifiers,
};
use crate::value::SqlType;

/// The length of a VARCHAR or CHAR without one: Hive's longest.
const LONGEST_VARCHAR: u32 = 65_535;
const LONGEST_CHAR: u32 = 255;

/// Hive's DECIMAL without qualifiers.
const DEFAULT_PRECISION: u32 = 10;

/// A column of a result set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    pub name: String,
    pub sql_type: SqlType,
    pub comment: Option<String>,
}

impl Column {
    pub fn new(name: impl Into<String>, sql_type: SqlType) -> Self {
        Self { name: name.into(), sql_type, comment: None }
    }

    #[must_use]
    pub fn comment(mut self, comment: impl Into<String>) -> Self {
        self.comment = Some(comment.into());
        self
    }
}

/// Columns in the protocol's form; positions count from 1.
pub fn table_schema(columns: &[Column]) -> TTableSchema {
    let described = columns.iter().zip(1..).map(|(column, position)| TColumnDesc {
        column_name: column.name.clone(),
        type_desc: TTypeDesc { types: vec![TTypeEntry::PrimitiveEntry(entry(column.sql_type))] },
        position,
        comment: column.comment.clone(),
    });
    TTableSchema { columns: described.collect() }
}

fn entry(sql_type: SqlType) -> TPrimitiveTypeEntry {
    let qualifiers: &[(&str, u32)] = match sql_type {
        SqlType::Varchar(length) | SqlType::Char(length) => &[("characterMaximumLength", length)],
        SqlType::Decimal { precision, scale } => &[("precision", precision), ("scale", scale)],
        _ => &[],
    };
    let type_qualifiers = (!qualifiers.is_empty()).then(|| {
        let value = |number: u32| TTypeQualifierValue::I32Value(number as i32);
        let map: BTreeMap<_, _> = qualifiers.iter().map(|(key, number)| ((*key).to_owned(), value(*number))).collect();
        TTypeQualifiers { qualifiers: map }
    });
    TPrimitiveTypeEntry { type_: sql_type.type_id(), type_qualifiers }
}

/// Parses columns. An unknown type is a STRING: its values are sent as text.
pub fn columns(schema: &TTableSchema) -> Vec<Column> {
    let mut described: Vec<&TColumnDesc> = schema.columns.iter().collect();
    described.sort_by_key(|column| column.position);
    described
        .into_iter()
        .map(|column| Column {
            name: column.column_name.clone(),
            sql_type: sql_type(&column.type_desc),
            comment: column.comment.clone(),
        })
        .collect()
}

fn sql_type(described: &TTypeDesc) -> SqlType {
    let entry = match described.types.first() {
        Some(TTypeEntry::PrimitiveEntry(entry)) => entry,
        Some(TTypeEntry::ArrayEntry(_)) => return SqlType::Array,
        Some(TTypeEntry::MapEntry(_)) => return SqlType::Map,
        Some(TTypeEntry::StructEntry(_)) => return SqlType::Struct,
        _ => return SqlType::String,
    };
    let qualifier = |key: &str| {
        let value = entry.type_qualifiers.as_ref()?.qualifiers.get(key)?;
        match value {
            TTypeQualifierValue::I32Value(number) => u32::try_from(*number).ok(),
            TTypeQualifierValue::StringValue(text) => text.parse().ok(),
        }
    };
    match entry.type_ {
        TTypeId::BOOLEAN_TYPE => SqlType::Boolean,
        TTypeId::TINYINT_TYPE => SqlType::TinyInt,
        TTypeId::SMALLINT_TYPE => SqlType::SmallInt,
        TTypeId::INT_TYPE => SqlType::Int,
        TTypeId::BIGINT_TYPE => SqlType::BigInt,
        TTypeId::FLOAT_TYPE => SqlType::Float,
        TTypeId::DOUBLE_TYPE => SqlType::Double,
        TTypeId::BINARY_TYPE => SqlType::Binary,
        TTypeId::VARCHAR_TYPE => SqlType::Varchar(qualifier("characterMaximumLength").unwrap_or(LONGEST_VARCHAR)),
        TTypeId::CHAR_TYPE => SqlType::Char(qualifier("characterMaximumLength").unwrap_or(LONGEST_CHAR)),
        TTypeId::DECIMAL_TYPE => SqlType::Decimal {
            precision: qualifier("precision").unwrap_or(DEFAULT_PRECISION),
            scale: qualifier("scale").unwrap_or(0),
        },
        TTypeId::DATE_TYPE => SqlType::Date,
        TTypeId::TIMESTAMP_TYPE | TTypeId::TIMESTAMPLOCALTZ_TYPE => SqlType::Timestamp,
        TTypeId::INTERVAL_YEAR_MONTH_TYPE => SqlType::IntervalYearMonth,
        TTypeId::INTERVAL_DAY_TIME_TYPE => SqlType::IntervalDayTime,
        TTypeId::ARRAY_TYPE => SqlType::Array,
        TTypeId::MAP_TYPE => SqlType::Map,
        TTypeId::STRUCT_TYPE => SqlType::Struct,
        TTypeId::NULL_TYPE => SqlType::Null,
        _ => SqlType::String,
    }
}
