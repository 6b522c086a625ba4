//! Estimates of the size of rows on the wire.
//!
//! Nested values become text, which can be forty times as long as their Arrow form: a list of booleans has one bit for
//! each entry, and its text has six characters. A dictionary or run-end value counts once for each row that has it. The
//! estimates are upper bounds, a few bytes per value above the exact size.

use std::collections::HashMap;

use datafusion::arrow::array::cast::AsArray;
use datafusion::arrow::array::types::{Int16Type, Int32Type, Int64Type, RunEndIndexType};
use datafusion::arrow::array::{Array, ArrayRef};
use datafusion::arrow::datatypes::DataType;
use datafusion::arrow::record_batch::RecordBatch;

/// The longest text of a number with its separator: a 256-bit decimal.
const NUMBER_TEXT_BYTES: usize = 80;
/// The bytes of a row in a column in addition to its value: a length or an offset.
const ROW_BYTES: usize = 4;

/// How many rows of a batch, from `offset` on and at most `wanted`, fit into `bytes` bytes, and their size. None fit if
/// the first row alone is longer. A long row may reduce the number of rows before it, and is then returned alone.
pub fn fitting_rows(batch: &RecordBatch, offset: usize, wanted: usize, bytes: usize) -> (usize, usize) {
    let size_of = |rows| {
        let columns = batch.columns().iter();
        columns.map(|column| size(&column.slice(offset, rows), false) + rows * ROW_BYTES).sum::<usize>()
    };
    let mut rows = wanted;
    while rows > 0 {
        let size = size_of(rows);
        if size <= bytes {
            return (rows, size);
        }
        // The first guess is by the average. With one long row among short ones it is too high, but decreases each time.
        let average = (rows as u128 * bytes as u128 / size as u128) as usize;
        rows = average.min(rows / 2);
    }
    (0, 0)
}

/// The bytes of all values of an array; `nested` values are written as part of a longer text.
fn size(array: &ArrayRef, nested: bool) -> usize {
    let rows = array.len();
    let spread = |first: i64, last: i64| usize::try_from(last - first).unwrap_or_default();
    match array.data_type() {
        DataType::Utf8 if !nested => {
            let offsets = array.as_string::<i32>().value_offsets();
            spread(i64::from(offsets[0]), i64::from(offsets[rows]))
        }
        DataType::LargeUtf8 if !nested => {
            let offsets = array.as_string::<i64>().value_offsets();
            spread(offsets[0], offsets[rows])
        }
        DataType::Utf8View if !nested => array.as_string_view().lengths().map(|length| length as usize).sum(),
        DataType::Utf8 => array.as_string::<i32>().iter().map(quoted).sum(),
        DataType::LargeUtf8 => array.as_string::<i64>().iter().map(quoted).sum(),
        DataType::Utf8View => array.as_string_view().iter().map(quoted).sum(),
        DataType::Binary => {
            let offsets = array.as_binary::<i32>().value_offsets();
            binary(spread(i64::from(offsets[0]), i64::from(offsets[rows])), rows, nested)
        }
        DataType::LargeBinary => {
            let offsets = array.as_binary::<i64>().value_offsets();
            binary(spread(offsets[0], offsets[rows]), rows, nested)
        }
        DataType::BinaryView => {
            binary(array.as_binary_view().lengths().map(|length| length as usize).sum(), rows, nested)
        }
        DataType::FixedSizeBinary(width) => binary(rows * usize::try_from(*width).unwrap_or_default(), rows, nested),
        DataType::Null | DataType::Boolean => rows * if nested { "false,".len() } else { 1 },
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            let offsets = list.value_offsets();
            let (first, length) = (offsets[0] as usize, spread(i64::from(offsets[0]), i64::from(offsets[rows])));
            rows * 5 + size(&list.values().slice(first, length), true)
        }
        DataType::LargeList(_) => {
            let list = array.as_list::<i64>();
            let offsets = list.value_offsets();
            rows * 5 + size(&list.values().slice(offsets[0] as usize, spread(offsets[0], offsets[rows])), true)
        }
        DataType::FixedSizeList(..) => rows * 5 + size(array.as_fixed_size_list().values(), true),
        DataType::ListView(_) => {
            let list = array.as_list_view::<i32>();
            (0..rows).filter(|row| list.is_valid(*row)).map(|row| 5 + size(&list.value(row), true)).sum()
        }
        DataType::LargeListView(_) => {
            let list = array.as_list_view::<i64>();
            (0..rows).filter(|row| list.is_valid(*row)).map(|row| 5 + size(&list.value(row), true)).sum()
        }
        DataType::Struct(fields) => {
            let names: usize = fields.iter().map(|field| quoted(Some(field.name())) + 2).sum();
            let columns = array.as_struct().columns().iter();
            rows * (names + 5) + columns.map(|column| size(column, true)).sum::<usize>()
        }
        DataType::Map(..) => {
            let map = array.as_map();
            let offsets = map.value_offsets();
            let (first, length) = (offsets[0] as usize, spread(i64::from(offsets[0]), i64::from(offsets[rows])));
            let entries = map.entries().columns().iter().map(|column| size(&column.slice(first, length), true));
            rows * 5 + length * 2 + entries.sum::<usize>()
        }
        DataType::Dictionary(..) => {
            let dictionary = array.as_any_dictionary();
            let keys = dictionary.normalized_keys();
            let valid = keys.into_iter().enumerate().filter(|(row, _)| dictionary.is_valid(*row)).map(|(_, key)| key);
            repeated(dictionary.values(), valid, nested) + rows * 5
        }
        DataType::RunEndEncoded(ends, _) => match ends.data_type() {
            DataType::Int16 => run_ends::<Int16Type>(array, nested),
            DataType::Int32 => run_ends::<Int32Type>(array, nested),
            _ => run_ends::<Int64Type>(array, nested),
        },
        data_type if !nested && data_type.is_integer() => rows * 8,
        data_type if data_type.is_floating() || data_type.is_integer() => rows * 26,
        _ => rows * NUMBER_TEXT_BYTES,
    }
}

/// A text between quotes, with its escapes and a separator.
fn quoted(text: Option<impl AsRef<str>>) -> usize {
    let escaped = |byte: u8| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 2,
        0..0x20 => 6,
        _ => 1,
    };
    text.map_or(5, |text| text.as_ref().bytes().map(escaped).sum::<usize>() + 3)
}

const fn binary(bytes: usize, rows: usize, nested: bool) -> usize {
    if nested { bytes * 2 + rows * 5 } else { bytes }
}

fn repeated(values: &ArrayRef, indexes: impl Iterator<Item = usize>, nested: bool) -> usize {
    let mut known = HashMap::new();
    indexes.map(|index| *known.entry(index).or_insert_with(|| size(&values.slice(index, 1), nested))).sum()
}

fn run_ends<R: RunEndIndexType>(array: &ArrayRef, nested: bool) -> usize {
    let Some(runs) = array.as_run_opt::<R>() else { return array.get_array_memory_size() };
    repeated(runs.values(), (0..runs.len()).map(|row| runs.get_physical_index(row)), nested) + array.len() * 5
}
