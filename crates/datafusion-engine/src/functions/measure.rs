//! Estimates of the size of a call's result from its arguments.
//!
//! An estimate is an upper bound up to a few bytes per row.

use std::borrow::Cow;
use std::sync::Arc;

use datafusion::arrow::array::cast::AsArray;
use datafusion::arrow::array::types::{Int64Type, IntervalMonthDayNanoType, TimestampMicrosecondType};
use datafusion::arrow::array::{Array, ArrayRef};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, IntervalUnit, TimeUnit};
use datafusion::common::Result;
use datafusion::logical_expr::ColumnarValue;
use regex_automata::meta::Regex;

const MICROS_OF_DAY: i64 = 86_400_000_000;
/// The bytes of an element in addition to its value: an offset or a view.
const ELEMENT_BYTES: u128 = 8;
/// The longest text of one number in a list.
const NUMBER_BYTES: u128 = 24;

/// How the result of a function grows with its arguments; numbers are argument positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Measure {
    /// All arguments, one after another.
    Sum,
    /// Argument 0, repeated argument 1 times.
    Repeat,
    /// As many characters as that argument states, each as long as one of the last argument.
    Pad,
    /// As many characters as argument 0 states.
    Space,
    /// The entries from argument 0 to argument 1 in steps of argument 2.
    Series,
    /// The list of argument 0, with the length in argument 1.
    Resize,
    /// Argument 0 with each occurrence of argument 1 replaced by argument 2.
    Replace,
    /// The same with a regular expression.
    RegexpReplace,
    /// Argument 0 is a format with widths; the others are its values.
    Format,
    /// The elements of argument 0 with the other arguments between them.
    Join,
}

/// The measure of a function whose result can be much larger than its arguments.
pub fn measure_of(name: &str) -> Option<Measure> {
    Some(match name {
        "concat" | "concat_ws" | "make_array" | "make_list" | "array" | "array_concat" | "array_cat"
        | "list_concat" | "list_cat" | "array_append" | "list_append" | "array_push_back" | "list_push_back"
        | "array_prepend" | "list_prepend" | "array_push_front" | "list_push_front" | "to_char" | "overlay"
        | "array_insert" => Measure::Sum,
        "repeat" | "array_repeat" | "list_repeat" => Measure::Repeat,
        "lpad" | "rpad" => Measure::Pad,
        "space" => Measure::Space,
        "range" | "generate_series" => Measure::Series,
        "array_resize" | "list_resize" => Measure::Resize,
        "replace" => Measure::Replace,
        "regexp_replace" => Measure::RegexpReplace,
        "format_string" | "printf" => Measure::Format,
        "array_to_string" | "list_to_string" | "array_join" | "list_join" => Measure::Join,
        _ => return None,
    })
}

/// The arguments of one call.
pub struct Arguments<'a> {
    columns: Vec<Argument<'a>>,
    rows: usize,
}

struct Argument<'a> {
    array: Cow<'a, ArrayRef>,
    is_scalar: bool,
}

impl<'a> Arguments<'a> {
    /// The arguments of a call for `rows` rows.
    pub fn new(args: &'a [ColumnarValue], rows: usize) -> Result<Self> {
        let column = |value: &'a ColumnarValue| {
            Ok(match value {
                ColumnarValue::Array(array) => Argument { array: Cow::Borrowed(array), is_scalar: false },
                ColumnarValue::Scalar(value) => {
                    Argument { array: Cow::Owned(value.to_array_of_size(1)?), is_scalar: true }
                }
            })
        };
        Ok(Self { columns: args.iter().map(column).collect::<Result<_>>()?, rows })
    }

    fn numbers(&self, index: usize, otherwise: i64) -> Result<Vec<i64>> {
        let Some(argument) = self.columns.get(index) else { return Ok(vec![otherwise; self.rows]) };
        let numbers = cast(argument.array.as_ref(), &DataType::Int64)?;
        let numbers = numbers.as_primitive::<Int64Type>();
        Ok((0..self.rows)
            .map(|row| argument.row(row))
            .map(|row| if numbers.is_null(row) { 0 } else { numbers.value(row) })
            .collect())
    }

    fn text(&self, index: usize, row: usize) -> Option<&str> {
        let argument = self.columns.get(index)?;
        let row = argument.row(row);
        if row >= argument.array.len() || argument.array.is_null(row) {
            return None;
        }
        Some(match argument.array.data_type() {
            DataType::Utf8 => argument.array.as_string::<i32>().value(row),
            DataType::LargeUtf8 => argument.array.as_string::<i64>().value(row),
            DataType::Utf8View => argument.array.as_string_view().value(row),
            _ => return None,
        })
    }

    fn bytes_at(&self, index: usize, row: usize) -> u128 {
        self.columns.get(index).map_or(0, |argument| bytes_at(&argument.array, argument.row(row)))
    }

    fn total(&self, argument: &Argument<'_>) -> u128 {
        if argument.is_scalar {
            return bytes_at(&argument.array, 0) * self.rows as u128;
        }
        bytes_of(&argument.array)
    }

    fn sum_of_rows(&self, bytes: impl Fn(usize) -> u128) -> u128 {
        (0..self.rows).map(bytes).sum()
    }
}

impl Argument<'_> {
    const fn row(&self, row: usize) -> usize {
        if self.is_scalar { 0 } else { row }
    }
}

impl Measure {
    /// The approximate size of the result for all rows, in bytes.
    pub fn bytes(self, args: &Arguments<'_>) -> Result<u128> {
        let counts = |index, otherwise| -> Result<Vec<u128>> {
            Ok(args.numbers(index, otherwise)?.into_iter().map(|count| count.max(0) as u128).collect())
        };
        Ok(match self {
            Self::Sum => {
                let separator = args.columns.first().filter(|_| args.columns.len() > 2);
                let separators = separator.map_or(0, |first| args.total(first));
                let texts: u128 = args.columns.iter().map(|column| args.total(column)).sum();
                // Only `concat_ws` repeats its first argument; a scalar is cheap to count as if it were repeated.
                let repeated = separators * args.columns.len().saturating_sub(2) as u128;
                if separator.is_some_and(|first| first.is_scalar) { texts + repeated } else { texts }
            }
            Self::Repeat => {
                let counts = counts(1, 0)?;
                args.sum_of_rows(|row| counts[row] * args.bytes_at(0, row))
            }
            Self::Pad => {
                let counts = counts(1, 0)?;
                args.sum_of_rows(|row| {
                    let pad = args.text(2, row).unwrap_or(" ");
                    let width = pad.len().div_ceil(pad.chars().count().max(1)).max(1);
                    counts[row] * width as u128
                })
            }
            Self::Space => counts(0, 0)?.into_iter().sum(),
            Self::Series => series(args)?,
            Self::Resize => {
                let counts = counts(1, 0)?;
                args.sum_of_rows(|row| counts[row] * args.bytes_at(2, row).max(ELEMENT_BYTES))
            }
            Self::Replace => args.sum_of_rows(|row| {
                let (Some(text), Some(from), Some(to)) = (args.text(0, row), args.text(1, row), args.text(2, row))
                else {
                    return 0;
                };
                let length = text.len() as u128;
                if to.len() <= from.len() {
                    return length;
                }
                length + text.matches(from).count() as u128 * (to.len() - from.len()) as u128
            }),
            Self::RegexpReplace => regexp_replace(args),
            Self::Format => args.sum_of_rows(|row| {
                let format = args.text(0, row).unwrap_or_default();
                let values: u128 = (1..args.columns.len()).map(|index| args.bytes_at(index, row)).sum();
                format.len() as u128 + values + widths(format)
            }),
            Self::Join => {
                let between: u128 = args.columns.iter().skip(1).map(|column| bytes_at(&column.array, 0)).sum();
                args.columns.first().map_or(0, |list| {
                    let rows = if list.is_scalar { args.rows as u128 } else { 1 };
                    (args.total(list) / rows.max(1) + elements(&list.array) * (between + NUMBER_BYTES)) * rows
                })
            }
        })
    }
}

fn series(args: &Arguments<'_>) -> Result<u128> {
    let Some(first) = args.columns.first() else { return Ok(0) };
    let is_integer =
        |argument: &Argument<'_>| argument.array.data_type().is_integer() || argument.array.data_type().is_null();
    if args.columns.iter().all(is_integer) {
        let (start, stop) = match args.columns.len() {
            1 => (vec![0; args.rows], args.numbers(0, 0)?),
            _ => (args.numbers(0, 0)?, args.numbers(1, 0)?),
        };
        let step = args.numbers(2, 1)?;
        return Ok(args.sum_of_rows(|row| entries(stop[row].into(), start[row].into(), step[row].into())));
    }
    let micros = DataType::Timestamp(TimeUnit::Microsecond, None);
    let times = |argument: &Argument<'_>| -> Result<Vec<i64>> {
        let zoneless = match argument.array.data_type() {
            DataType::Timestamp(unit, Some(_)) => cast(argument.array.as_ref(), &DataType::Timestamp(*unit, None))?,
            _ => Arc::clone(argument.array.as_ref()),
        };
        let times = cast(&zoneless, &micros)?;
        let times = times.as_primitive::<TimestampMicrosecondType>();
        Ok((0..args.rows)
            .map(|row| argument.row(row))
            .map(|row| if times.is_null(row) { 0 } else { times.value(row) })
            .collect())
    };
    let (Some(second), Some(step)) = (args.columns.get(1), args.columns.get(2)) else { return Ok(0) };
    let (start, stop) = (times(first)?, times(second)?);
    let steps = cast(step.array.as_ref(), &DataType::Interval(IntervalUnit::MonthDayNano))?;
    let steps = steps.as_primitive::<IntervalMonthDayNanoType>();
    Ok(args.sum_of_rows(|row| {
        let step = steps.value(step.row(row));
        let days = i64::from(step.months) * 28 + i64::from(step.days);
        let step = days.saturating_mul(MICROS_OF_DAY).saturating_add(step.nanoseconds / 1_000);
        entries(stop[row].into(), start[row].into(), if step == 0 { 1 } else { step.into() })
    }))
}

fn entries(stop: i128, start: i128, step: i128) -> u128 {
    // A step of zero or in the wrong direction returns no entries or an error.
    let count = (stop - start).checked_div(step).unwrap_or_default().max(-1) + 1;
    count as u128 * ELEMENT_BYTES
}

fn regexp_replace(args: &Arguments<'_>) -> u128 {
    let mut compiled: Option<(&str, Option<Regex>)> = None;
    (0..args.rows)
        .map(|row| {
            let (Some(text), Some(pattern), Some(to)) = (args.text(0, row), args.text(1, row), args.text(2, row))
            else {
                return 0;
            };
            let length = text.len() as u128;
            // Each reference to a group repeats at most the matched text.
            let references = to.matches(['\\', '$']).count() as u128;
            // Counting matches is only worth its time if they could multiply a long text.
            let most = length + (length + 1) * to.len() as u128 + references * length;
            if most < 4_096 {
                return most;
            }
            if compiled.as_ref().is_none_or(|(known, _)| *known != pattern) {
                compiled = Some((pattern, Regex::new(pattern).ok()));
            }
            let count = match &compiled {
                Some((_, Some(regex))) => regex.find_iter(text).count() as u128,
                _ => length + 1,
            };
            length + count * to.len() as u128 + references * length
        })
        .sum()
}

/// The sum of the widths and precisions of a format.
fn widths(format: &str) -> u128 {
    let mut sum = 0_u128;
    for part in format.split('%').skip(1) {
        let directive: String = part.chars().take_while(|c| !c.is_ascii_alphabetic()).collect();
        let numbers = directive.split(|c: char| !c.is_ascii_digit());
        sum = numbers.fold(sum, |sum, digits| sum.saturating_add(digits.parse::<u64>().unwrap_or_default().into()));
    }
    sum
}

fn bytes_of(array: &ArrayRef) -> u128 {
    let bytes = match array.data_type() {
        DataType::Utf8View => array.as_string_view().lengths().map(|length| length as usize).sum(),
        DataType::BinaryView => array.as_binary_view().lengths().map(|length| length as usize).sum(),
        _ => array.to_data().get_slice_memory_size().unwrap_or_else(|_| array.get_array_memory_size()),
    };
    bytes as u128
}

fn bytes_at(array: &ArrayRef, row: usize) -> u128 {
    if row >= array.len() || array.is_null(row) {
        return 0;
    }
    let bytes = match array.data_type() {
        DataType::Utf8 => array.as_string::<i32>().value_length(row) as usize,
        DataType::LargeUtf8 => array.as_string::<i64>().value_length(row) as usize,
        DataType::Utf8View => array.as_string_view().value(row).len(),
        data_type => match data_type.primitive_width() {
            Some(width) => width,
            None => return bytes_of(&array.slice(row, 1)).max(1),
        },
    };
    bytes as u128
}

fn elements(list: &ArrayRef) -> u128 {
    let count = match list.data_type() {
        DataType::List(_) => {
            let offsets = list.as_list::<i32>().value_offsets();
            i64::from(offsets[offsets.len() - 1]) - i64::from(offsets[0])
        }
        DataType::LargeList(_) => {
            let offsets = list.as_list::<i64>().value_offsets();
            offsets[offsets.len() - 1] - offsets[0]
        }
        DataType::FixedSizeList(_, length) => list.len() as i64 * i64::from(*length),
        _ => 0,
    };
    count.max(0) as u128
}
