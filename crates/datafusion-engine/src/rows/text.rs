//! The text form of values that HiveServer2 sends as strings.
//!
//! Dates are `yyyy-MM-dd`, timestamps `yyyy-MM-dd HH:mm:ss[.fffffffff]` without trailing zeros in the fraction (in their
//! zone, if they have one), intervals as Hive writes them, nested values as JSON whose numbers are numbers, with the fields
//! of a struct in their declared order. The keys of a map are written as values are, `{1:2,3:4}`. A date or timestamp that
//! has no text is an error with SQLSTATE 22008.

use datafusion::arrow::array::cast::AsArray;
use datafusion::arrow::array::types::{
    DurationMicrosecondType, DurationMillisecondType, DurationNanosecondType, DurationSecondType, Int32Type, Int64Type,
    IntervalDayTimeType, IntervalMonthDayNanoType, IntervalYearMonthType,
};
use datafusion::arrow::array::{Array, ArrayRef, BooleanArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, IntervalUnit, TimeUnit};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use model::error::{ErrorKind, UserError};

const DATE: &str = "%Y-%m-%d";
const TIMESTAMP: &str = "%Y-%m-%d %H:%M:%S%.f";
const TIME: &str = "%H:%M:%S%.f";
/// The deepest nesting that is formatted here; deeper values have Arrow's own format.
const DEPTH_MAX: usize = 32;

fn options() -> FormatOptions<'static> {
    FormatOptions::new()
        .with_display_error(false)
        .with_date_format(Some(DATE))
        .with_datetime_format(Some(TIMESTAMP))
        .with_timestamp_format(Some(TIMESTAMP))
        .with_timestamp_tz_format(Some(TIMESTAMP))
        .with_time_format(Some(TIME))
}

/// All values of a column as text; the text of a null is ignored.
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
        | DataType::Map(..) => {
            let nested = Nested::new(array, 0)?;
            rows.map(|row| {
                let mut text = String::new();
                nested.write(row, &mut text)?;
                Ok(text)
            })
            .collect()
        }
        DataType::Interval(IntervalUnit::MonthDayNano) => {
            let values = array.as_primitive::<IntervalMonthDayNanoType>();
            Ok(rows
                .map(|row| {
                    let value = values.value(row);
                    let nanos = i128::from(value.days) * NANOS_OF_DAY + i128::from(value.nanoseconds);
                    match (value.months, nanos) {
                        (0, nanos) => day_time(nanos),
                        (months, 0) => year_month(months),
                        (months, nanos) => format!("{} {}", year_month(months), day_time(nanos)),
                    }
                })
                .collect())
        }
        data_type => {
            let options = options();
            let formatter = ArrayFormatter::try_new(array.as_ref(), &options)?;
            let trims = matches!(data_type, DataType::Timestamp(..) | DataType::Time32(_) | DataType::Time64(_));
            let text = |row| {
                if array.is_null(row) {
                    return Ok(String::new());
                }
                let text = formatter.value(row).try_to_string().map_err(|_| out_of_range(data_type))?;
                Ok(if trims { trimmed(text) } else { text })
            };
            rows.map(text).collect()
        }
    }
}

/// The error of a date or time that has no text.
fn out_of_range(data_type: &DataType) -> ArrowError {
    let what = if matches!(data_type, DataType::Date32 | DataType::Date64) { "date" } else { "timestamp" };
    let error = UserError::new(ErrorKind::DataException, format!("{what} out of range")).with_sqlstate("22008");
    ArrowError::ExternalError(Box::new(error))
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

/// An array whose values are parts of longer texts.
enum Nested {
    /// Only nulls.
    Null,
    Boolean(BooleanArray),
    /// Numbers, without quotes.
    Number(ArrayRef),
    /// Other values that are not containers, between quotes.
    Quoted(ArrayRef),
    List {
        list: ArrayRef,
        items: Vec<Option<(usize, usize)>>,
        item: Box<Nested>,
    },
    /// List views may overlap, so each row is converted separately.
    Views {
        list: ArrayRef,
        depth: usize,
    },
    Struct {
        array: ArrayRef,
        fields: Vec<(String, Nested)>,
    },
    Map {
        entries: Vec<Option<(usize, usize)>>,
        key: Box<Nested>,
        value: Box<Nested>,
    },
}

impl Nested {
    fn new(array: &ArrayRef, depth: usize) -> Result<Self, ArrowError> {
        let below = |array: &ArrayRef| Self::new(array, depth + 1).map(Box::new);
        let spans = |offsets: &[i64]| -> Vec<_> {
            let first = offsets.first().copied().unwrap_or_default();
            offsets
                .windows(2)
                .enumerate()
                .map(|(row, ends)| {
                    array.is_valid(row).then(|| ((ends[0] - first) as usize, (ends[1] - first) as usize))
                })
                .collect()
        };
        Ok(match array.data_type() {
            DataType::Null => Self::Null,
            _ if depth >= DEPTH_MAX => Self::Quoted(ArrayRef::clone(array)),
            DataType::Boolean => Self::Boolean(array.as_boolean().clone()),
            data_type if data_type.is_numeric() => Self::Number(ArrayRef::clone(array)),
            DataType::List(_) => {
                let list = array.as_list::<i32>();
                let offsets: Vec<_> = list.value_offsets().iter().map(|offset| i64::from(*offset)).collect();
                let (first, last) = (offsets[0], offsets[offsets.len() - 1]);
                let item = below(&list.values().slice(first as usize, (last - first) as usize))?;
                Self::List { list: ArrayRef::clone(array), items: spans(&offsets), item }
            }
            DataType::LargeList(_) => {
                let list = array.as_list::<i64>();
                let offsets = list.value_offsets();
                let (first, last) = (offsets[0], offsets[offsets.len() - 1]);
                let item = below(&list.values().slice(first as usize, (last - first) as usize))?;
                Self::List { list: ArrayRef::clone(array), items: spans(offsets), item }
            }
            DataType::FixedSizeList(_, length) => {
                let offsets: Vec<_> = (0..=array.len() as i64).map(|row| row * i64::from(*length)).collect();
                let item = below(array.as_fixed_size_list().values())?;
                Self::List { list: ArrayRef::clone(array), items: spans(&offsets), item }
            }
            DataType::ListView(_) | DataType::LargeListView(_) => Self::Views { list: ArrayRef::clone(array), depth },
            DataType::Struct(fields) => {
                let columns = fields.iter().zip(array.as_struct().columns());
                let fields = columns.map(|(field, column)| Ok((quoted(field.name()), Self::new(column, depth + 1)?)));
                Self::Struct { fields: fields.collect::<Result<_, ArrowError>>()?, array: ArrayRef::clone(array) }
            }
            DataType::Map(..) => {
                let map = array.as_map();
                let offsets: Vec<_> = map.value_offsets().iter().map(|offset| i64::from(*offset)).collect();
                let (first, length) = (offsets[0] as usize, (offsets[offsets.len() - 1] - offsets[0]) as usize);
                let entries = map.entries();
                Self::Map {
                    entries: spans(&offsets),
                    key: below(&entries.column(0).slice(first, length))?,
                    value: below(&entries.column(1).slice(first, length))?,
                }
            }
            DataType::Dictionary(_, values) => Self::new(&cast(array, values)?, depth)?,
            DataType::RunEndEncoded(_, values) => Self::new(&cast(array, values.data_type())?, depth)?,
            _ => Self::Quoted(ArrayRef::clone(array)),
        })
    }

    fn write(&self, row: usize, text: &mut String) -> Result<(), ArrowError> {
        match self {
            Self::Boolean(values) if values.is_valid(row) => {
                text.push_str(if values.value(row) { "true" } else { "false" });
            }
            Self::Number(values) if values.is_valid(row) => {
                let number = match values.data_type() {
                    DataType::Int32 => values.as_primitive::<Int32Type>().value(row).to_string(),
                    DataType::Int64 => values.as_primitive::<Int64Type>().value(row).to_string(),
                    _ => shown(values, row)?,
                };
                // NaN and the infinities are not numbers in JSON.
                let is_number = number.bytes().any(|byte| byte.is_ascii_digit());
                if is_number { text.push_str(&number) } else { text.push_str(&quoted(&number)) }
            }
            Self::Quoted(values) if values.is_valid(row) => match values.data_type() {
                DataType::Utf8 => text.push_str(&quoted(values.as_string::<i32>().value(row))),
                _ => text.push_str(&quoted(&shown(values, row)?)),
            },
            Self::List { list, items, item } if list.is_valid(row) => {
                let Some((start, end)) = items[row] else { return Ok(()) };
                between('[', ']', start..end, text, |row, text| item.write(row, text))?;
            }
            Self::Views { list, depth } if list.is_valid(row) => {
                let items = match list.data_type() {
                    DataType::ListView(_) => list.as_list_view::<i32>().value(row),
                    _ => list.as_list_view::<i64>().value(row),
                };
                let item = Self::new(&items, depth + 1)?;
                between('[', ']', 0..items.len(), text, |row, text| item.write(row, text))?;
            }
            Self::Struct { array, fields } if array.is_valid(row) => {
                between('{', '}', 0..fields.len(), text, |field, text| {
                    let (name, values) = &fields[field];
                    text.push_str(name);
                    text.push(':');
                    values.write(row, text)
                })?;
            }
            Self::Map { entries, key, value } => match entries[row] {
                Some((start, end)) => between('{', '}', start..end, text, |row, text| {
                    key.write(row, text)?;
                    text.push(':');
                    value.write(row, text)
                })?,
                None => text.push_str("null"),
            },
            _ => text.push_str("null"),
        }
        Ok(())
    }
}

fn between(
    open: char,
    close: char,
    items: std::ops::Range<usize>,
    text: &mut String,
    mut write: impl FnMut(usize, &mut String) -> Result<(), ArrowError>,
) -> Result<(), ArrowError> {
    text.push(open);
    let first = items.start;
    for item in items {
        if item > first {
            text.push(',');
        }
        write(item, text)?;
    }
    text.push(close);
    Ok(())
}

fn quoted(text: &str) -> String {
    serde_json::Value::String(text.to_owned()).to_string()
}

fn shown(array: &ArrayRef, row: usize) -> Result<String, ArrowError> {
    if array.data_type().is_nested() {
        return ArrayFormatter::try_new(array.as_ref(), &options())?.value(row).try_to_string();
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
