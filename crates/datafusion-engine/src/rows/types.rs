//! The mapping of Arrow types to HiveServer2's types and their names.
//!
//! The mapping is total: a type that HiveServer2 lacks becomes a wider one (unsigned numbers) or text (times, lists as
//! JSON). It is stable, because clients choose their getters by it.

use datafusion::arrow::datatypes::{DataType, IntervalUnit, Schema};
use hs2::{Column, SqlType};

/// The type of a column's values on the wire.
pub fn sql_type(data_type: &DataType) -> SqlType {
    match data_type {
        DataType::Boolean => SqlType::Boolean,
        DataType::Int8 => SqlType::TinyInt,
        DataType::Int16 | DataType::UInt8 => SqlType::SmallInt,
        DataType::Int32 | DataType::UInt16 => SqlType::Int,
        DataType::Int64 | DataType::UInt32 => SqlType::BigInt,
        DataType::UInt64 => SqlType::Decimal { precision: 20, scale: 0 },
        DataType::Float16 | DataType::Float32 => SqlType::Float,
        DataType::Float64 => SqlType::Double,
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale) => decimal(*precision, *scale),
        DataType::Date32 | DataType::Date64 => SqlType::Date,
        DataType::Timestamp(..) => SqlType::Timestamp,
        DataType::Interval(IntervalUnit::YearMonth) => SqlType::IntervalYearMonth,
        DataType::Interval(IntervalUnit::DayTime) | DataType::Duration(_) => SqlType::IntervalDayTime,
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
            SqlType::Binary
        }
        DataType::List(_)
        | DataType::LargeList(_)
        | DataType::FixedSizeList(..)
        | DataType::ListView(_)
        | DataType::LargeListView(_) => SqlType::Array,
        DataType::Struct(_) => SqlType::Struct,
        DataType::Map(..) => SqlType::Map,
        DataType::Null => SqlType::Null,
        DataType::Dictionary(_, values) => sql_type(values),
        DataType::RunEndEncoded(_, values) => sql_type(values.data_type()),
        DataType::Utf8
        | DataType::LargeUtf8
        | DataType::Utf8View
        | DataType::Time32(_)
        | DataType::Time64(_)
        | DataType::Interval(IntervalUnit::MonthDayNano)
        | DataType::Union(..) => SqlType::String,
    }
}

/// HiveServer2 has no negative scale: it becomes more digits.
fn decimal(precision: u8, scale: i8) -> SqlType {
    let precision = u32::from(precision) + u32::from(scale.min(0).unsigned_abs());
    SqlType::Decimal { precision, scale: u32::from(scale.max(0).unsigned_abs()) }
}

/// The type's name in DESCRIBE and `GetColumns`.
pub fn type_name(data_type: &DataType) -> String {
    match data_type {
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::FixedSizeList(item, _)
        | DataType::ListView(item)
        | DataType::LargeListView(item) => format!("array<{}>", type_name(item.data_type())),
        DataType::Struct(fields) => {
            let fields: Vec<_> =
                fields.iter().map(|field| format!("{}:{}", field.name(), type_name(field.data_type()))).collect();
            format!("struct<{}>", fields.join(","))
        }
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(fields) if fields.len() == 2 => {
                format!("map<{},{}>", type_name(fields[0].data_type()), type_name(fields[1].data_type()))
            }
            _ => "map".to_owned(),
        },
        DataType::Dictionary(_, values) => type_name(values),
        DataType::RunEndEncoded(_, values) => type_name(values.data_type()),
        _ => match sql_type(data_type) {
            SqlType::Boolean => "boolean".to_owned(),
            SqlType::TinyInt => "tinyint".to_owned(),
            SqlType::SmallInt => "smallint".to_owned(),
            SqlType::Int => "int".to_owned(),
            SqlType::BigInt => "bigint".to_owned(),
            SqlType::Float => "float".to_owned(),
            SqlType::Double => "double".to_owned(),
            SqlType::Decimal { precision, scale } => format!("decimal({precision},{scale})"),
            SqlType::Date => "date".to_owned(),
            SqlType::Timestamp => "timestamp".to_owned(),
            SqlType::IntervalYearMonth => "interval_year_month".to_owned(),
            SqlType::IntervalDayTime => "interval_day_time".to_owned(),
            SqlType::Binary => "binary".to_owned(),
            SqlType::Null => "void".to_owned(),
            _ => "string".to_owned(),
        },
    }
}

/// The columns of a result.
pub fn columns(schema: &Schema) -> Vec<Column> {
    schema.fields().iter().map(|field| Column::new(field.name().clone(), sql_type(field.data_type()))).collect()
}
