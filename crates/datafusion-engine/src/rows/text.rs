//! Values as text: what HiveServer2 sends as strings.
//!
//! Dates are `yyyy-MM-dd`, timestamps `yyyy-MM-dd HH:mm:ss[.fffffffff]` without trailing zeros in the fraction (in their
//! zone, if they have one), intervals as Hive writes them, nested values as JSON whose numbers are numbers.

use datafusion::arrow::array::cast::AsArray;
use datafusion::arrow::array::types::{
    DurationMicrosecondType, DurationMillisecondType, DurationNanosecondType, DurationSecondType, IntervalDayTimeType,
    IntervalYearMonthType,
};
use datafusion::arrow::array::{Array, ArrayRef};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, IntervalUnit, TimeUnit};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use serde_json::{Map, Number, Value};

const DATE: &str = "%Y-%m-%d";
const TIMESTAMP: &str = "%Y-%m-%d %H:%M:%S%.f";
const TIME: &str = "%H:%M:%S%.f";
/// How deep nested values are written; deeper ones stand as Arrow shows them.
const DEPTH_MAX: usize = 32;

fn options() -> FormatOptions<'static> {
    FormatOptions::new()
        .with_display_error(true)
        .with_date_format(Some(DATE))
        .with_datetime_format(Some(TIMESTAMP))
        .with_timestamp_format(Some(TIMESTAMP))
        .with_timestamp_tz_format(Some(TIMESTAMP))
        .with_time_format(Some(TIME))
}

/// All values of a column as text; a null's text is not looked at.
pub fn texts(array: &ArrayRef) -> Result<Vec<String>, ArrowError> {
    let rows = 0..array.len();
    match array.data_type() {
        DataType::Utf8 => Ok(array.as_string::<i32>().iter().map(|text| text.unwrap_or_default().to_owned()).collect()),
        DataType::LargeUtf8 => {
            Ok(array.as_string::<i64>().iter().map(|text| text.unwrap_or_default().to_owned()).collect())
        }
        DataType::Utf8View => {
            Ok(array.as_string_view().iter().map(|text| text.unwrap_or_default().to_owned()).collect())
        }
        DataType::Dictionary(_, values) => texts(&cast(array, values)?),
        DataType::RunEndEncoded(_, values) => texts(&cast(array, values.data_type())?),
        DataType::Null => Ok(rows.map(|_| String::new()).collect()),
        DataType::Interval(IntervalUnit::YearMonth) => {
            let months = array.as_primitive::<IntervalYearMonthType>();
            Ok(rows.map(|row| year_month(months.value(row))).collect())
        }
        DataType::Interval(IntervalUnit::DayTime) => {
            let values = array.as_primitive::<IntervalDayTimeType>();
            let nanos = |row| {
                let value = values.value(row);
                i128::from(value.days) * NANOS_OF_DAY + i128::from(value.milliseconds) * 1_000_000
            };
            Ok(rows.map(|row| day_time(nanos(row))).collect())
        }
        DataType::Duration(unit) => Ok(rows.map(|row| day_time(duration_nanos(array, *unit, row))).collect()),
        DataType::List(_)
        | DataType::LargeList(_)
        | DataType::FixedSizeList(..)
        | DataType::ListView(_)
        | DataType::LargeListView(_)
        | DataType::Struct(_)
        | DataType::Map(..) => rows.map(|row| Ok(json(array, row, 0)?.to_string())).collect(),
        data_type => {
            let options = options();
            let formatter = ArrayFormatter::try_new(array.as_ref(), &options)?;
            let trims = matches!(data_type, DataType::Timestamp(..) | DataType::Time32(_) | DataType::Time64(_));
            let text = |row| {
                let text = formatter.value(row).to_string();
                if trims { trimmed(text) } else { text }
            };
            Ok(rows.map(|row| if array.is_null(row) { String::new() } else { text(row) }).collect())
        }
    }
}

/// Takes trailing zeros off a fraction of seconds.
fn trimmed(mut text: String) -> String {
    if text.rfind('.').is_some_and(|dot| text[dot + 1..].bytes().all(|byte| byte.is_ascii_digit())) {
        text.truncate(text.trim_end_matches('0').trim_end_matches('.').len());
    }
    text
}

const NANOS_OF_SECOND: i128 = 1_000_000_000;
const NANOS_OF_DAY: i128 = 86_400 * NANOS_OF_SECOND;

fn duration_nanos(array: &ArrayRef, unit: TimeUnit, row: usize) -> i128 {
    match unit {
        TimeUnit::Second => i128::from(array.as_primitive::<DurationSecondType>().value(row)) * NANOS_OF_SECOND,
        TimeUnit::Millisecond => i128::from(array.as_primitive::<DurationMillisecondType>().value(row)) * 1_000_000,
        TimeUnit::Microsecond => i128::from(array.as_primitive::<DurationMicrosecondType>().value(row)) * 1_000,
        TimeUnit::Nanosecond => i128::from(array.as_primitive::<DurationNanosecondType>().value(row)),
    }
}

/// `1-2`: one year and two months.
fn year_month(months: i32) -> String {
    let sign = if months < 0 { "-" } else { "" };
    let months = months.unsigned_abs();
    format!("{sign}{}-{}", months / 12, months % 12)
}

/// `1 02:03:04.000000005`: days, then time.
fn day_time(nanos: i128) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let nanos = nanos.unsigned_abs();
    let (day, second) = (NANOS_OF_DAY.unsigned_abs(), NANOS_OF_SECOND.unsigned_abs());
    let (days, rest) = (nanos / day, nanos % day);
    let (seconds, fraction) = (rest / second, rest % second);
    format!("{sign}{days} {:02}:{:02}:{:02}.{fraction:09}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// One value as JSON.
fn json(array: &ArrayRef, row: usize, depth: usize) -> Result<Value, ArrowError> {
    if array.is_null(row) {
        return Ok(Value::Null);
    }
    let item = |items: &ArrayRef| -> Result<Value, ArrowError> {
        (0..items.len()).map(|row| json(items, row, depth + 1)).collect::<Result<Vec<_>, _>>().map(Value::Array)
    };
    match array.data_type() {
        // The nulls of a column that has nothing else are no entries of its own.
        DataType::Null => Ok(Value::Null),
        _ if depth >= DEPTH_MAX => Ok(Value::String(shown(array, row)?)),
        DataType::Boolean => Ok(Value::Bool(array.as_boolean().value(row))),
        data_type if data_type.is_integer() => {
            let text = shown(array, row)?;
            let signed = text.parse::<i64>().map(Number::from);
            Ok(signed.or_else(|_| text.parse::<u64>().map(Number::from)).map_or(Value::String(text), Value::Number))
        }
        data_type if data_type.is_floating() => {
            let text = shown(array, row)?;
            let number = text.parse::<f64>().ok().and_then(Number::from_f64);
            Ok(number.map_or(Value::String(text), Value::Number))
        }
        DataType::List(_) => item(&array.as_list::<i32>().value(row)),
        DataType::LargeList(_) => item(&array.as_list::<i64>().value(row)),
        DataType::FixedSizeList(..) => item(&array.as_fixed_size_list().value(row)),
        DataType::ListView(_) => item(&array.as_list_view::<i32>().value(row)),
        DataType::LargeListView(_) => item(&array.as_list_view::<i64>().value(row)),
        DataType::Struct(fields) => {
            let columns = array.as_struct().columns();
            let mut object = Map::new();
            for (field, column) in fields.iter().zip(columns) {
                object.insert(field.name().clone(), json(column, row, depth + 1)?);
            }
            Ok(Value::Object(object))
        }
        DataType::Map(..) => {
            let entries = array.as_map().value(row);
            let (keys, values) = (entries.column(0), entries.column(1));
            let keys = texts(keys)?;
            let mut object = Map::new();
            for (row, key) in keys.into_iter().enumerate() {
                object.insert(key, json(values, row, depth + 1)?);
            }
            Ok(Value::Object(object))
        }
        DataType::Dictionary(_, values) => json(&cast(&array.slice(row, 1), values)?, 0, depth + 1),
        DataType::RunEndEncoded(_, values) => json(&cast(&array.slice(row, 1), values.data_type())?, 0, depth + 1),
        _ => Ok(Value::String(shown(array, row)?)),
    }
}

fn shown(array: &ArrayRef, row: usize) -> Result<String, ArrowError> {
    if array.data_type().is_nested() {
        return Ok(ArrayFormatter::try_new(array.as_ref(), &options())?.value(row).to_string());
    }
    Ok(texts(&array.slice(row, 1))?.into_iter().next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use std::sync::Arc;

    use datafusion::arrow::array::{ListArray, NullArray, StringArray, StructArray};
    use datafusion::arrow::buffer::OffsetBuffer;
    use datafusion::arrow::datatypes::Field;

    use super::*;

    #[test]
    fn intervals_are_written_as_hive_writes_them() {
        assert_eq!(year_month(14), "1-2");
        assert_eq!(year_month(-1), "-0-1");
        assert_eq!(day_time(NANOS_OF_DAY + 3_723 * NANOS_OF_SECOND + 5), "1 01:02:03.000000005");
        assert_eq!(day_time(-NANOS_OF_SECOND), "-0 00:00:01.000000000");
    }

    #[test]
    fn a_null_is_null_however_deep_and_whatever_its_type() {
        let untyped: ArrayRef = Arc::new(NullArray::new(1));
        let typed: ArrayRef = Arc::new(StringArray::from(vec![None::<&str>]));
        for nulls in [untyped, typed] {
            let field = Field::new("item", nulls.data_type().clone(), true);
            let list = ListArray::new(Arc::new(field.clone()), OffsetBuffer::from_lengths([1]), nulls.clone(), None);
            let list: ArrayRef = Arc::new(list);
            assert_eq!(texts(&list).unwrap(), ["[null]"]);
            let object: ArrayRef = Arc::new(StructArray::from(vec![(Arc::new(field), nulls)]));
            assert_eq!(texts(&object).unwrap(), [r#"{"item":null}"#]);
        }
    }

    #[test]
    fn fractions_have_no_trailing_zeros() {
        assert_eq!(trimmed("2026-01-02 03:04:05.120".to_owned()), "2026-01-02 03:04:05.12");
        assert_eq!(trimmed("2026-01-02 03:04:50".to_owned()), "2026-01-02 03:04:50");
        assert_eq!(trimmed("2026-01-02 03:04:50.000".to_owned()), "2026-01-02 03:04:50");
    }
}
