//! Conversion of Arrow batches to HiveServer2's columnar rows.
//!
//! A fetch slices batches without copying; each column is then converted once to the wire format. Nulls are one bit each,
//! least significant first; the value of a null is the type's zero.

pub mod size;
pub mod text;
pub mod types;

use datafusion::arrow::array::cast::AsArray;
use datafusion::arrow::array::types::{
    Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type,
};
use datafusion::arrow::array::{Array, ArrayRef};
use datafusion::arrow::compute::{cast, concat};
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::record_batch::RecordBatch;
use hs2::SqlType;
use hs2::rowset::ColumnBuilder;
use hs2::tcli::{
    TBinaryColumn, TBoolColumn, TByteColumn, TColumn, TI16Column, TI32Column, TI64Column, TRowSet, TStringColumn,
};

use types::sql_type;

/// The rows of slices as one row set whose first row has the number `start`.
pub fn row_set(schema: &SchemaRef, batches: &[RecordBatch], start: u64) -> Result<TRowSet, ArrowError> {
    let columns = (0..schema.fields().len()).map(|index| column(schema.field(index).data_type(), batches, index));
    Ok(hs2::rowset::from_columns(start as i64, columns.collect::<Result<_, _>>()?))
}

/// The bytes of the texts and binaries of a row set.
pub fn bytes_of(rows: &TRowSet) -> usize {
    let columns = rows.columns.iter().flatten().map(|column| match column {
        TColumn::StringVal(texts) => texts.values.iter().map(String::len).sum(),
        TColumn::BinaryVal(binaries) => binaries.values.iter().map(Vec::len).sum(),
        _ => 0,
    });
    columns.sum()
}

fn column(data_type: &DataType, batches: &[RecordBatch], index: usize) -> Result<TColumn, ArrowError> {
    let arrays: Vec<&dyn Array> = batches.iter().map(|batch| batch.column(index).as_ref()).collect();
    let array = match arrays.as_slice() {
        [] => datafusion::arrow::array::new_empty_array(data_type),
        [_] => batches[0].column(index).clone(),
        many => concat(many)?,
    };
    let array = match array.data_type() {
        DataType::Dictionary(_, values) => cast(&array, values)?,
        DataType::RunEndEncoded(_, values) => cast(&array, values.data_type())?,
        _ => array,
    };
    to_column(&array)
}

fn nulls(array: &ArrayRef) -> Vec<u8> {
    let mut bits = vec![0_u8; array.len().div_ceil(8)];
    if let Some(nulls) = array.logical_nulls() {
        for row in 0..array.len() {
            if nulls.is_null(row) {
                bits[row / 8] |= 1 << (row % 8);
            }
        }
    }
    bits
}

/// The values, with zero in place of nulls.
macro_rules! numbers {
    ($array:expr, $arrow:ty, $wire:ty) => {
        $array.as_primitive::<$arrow>().iter().map(|value| value.map(<$wire>::from).unwrap_or_default()).collect()
    };
}

fn to_column(array: &ArrayRef) -> Result<TColumn, ArrowError> {
    let nulls = nulls(array);
    Ok(match array.data_type() {
        DataType::Boolean => {
            let values = array.as_boolean().iter().map(Option::unwrap_or_default).collect();
            TColumn::BoolVal(TBoolColumn { values, nulls })
        }
        DataType::Int8 => TColumn::ByteVal(TByteColumn { values: numbers!(array, Int8Type, i8), nulls }),
        DataType::Int16 => TColumn::I16Val(TI16Column { values: numbers!(array, Int16Type, i16), nulls }),
        DataType::UInt8 => TColumn::I16Val(TI16Column { values: numbers!(array, UInt8Type, i16), nulls }),
        DataType::Int32 => TColumn::I32Val(TI32Column { values: numbers!(array, Int32Type, i32), nulls }),
        DataType::UInt16 => TColumn::I32Val(TI32Column { values: numbers!(array, UInt16Type, i32), nulls }),
        DataType::Int64 => TColumn::I64Val(TI64Column { values: numbers!(array, Int64Type, i64), nulls }),
        DataType::UInt32 => TColumn::I64Val(TI64Column { values: numbers!(array, UInt32Type, i64), nulls }),
        DataType::Float16 => {
            doubles(array.as_primitive::<Float16Type>().iter().map(|value| value.map(f64::from)), SqlType::Float)
        }
        DataType::Float32 => {
            doubles(array.as_primitive::<Float32Type>().iter().map(|value| value.map(widened)), SqlType::Float)
        }
        DataType::Float64 => doubles(array.as_primitive::<Float64Type>().iter(), SqlType::Double),
        DataType::Binary => bytes(array.as_binary::<i32>().iter(), nulls),
        DataType::LargeBinary => bytes(array.as_binary::<i64>().iter(), nulls),
        DataType::BinaryView => bytes(array.as_binary_view().iter(), nulls),
        DataType::FixedSizeBinary(_) => bytes(array.as_fixed_size_binary().iter(), nulls),
        data_type => {
            debug_assert!(!matches!(sql_type(data_type), SqlType::Binary | SqlType::Boolean));
            TColumn::StringVal(TStringColumn { values: text::texts(array)?, nulls })
        }
    })
}

/// The double with the same decimal text: 0.1 stays 0.1, as in Hive and Spark.
fn widened(value: f32) -> f64 {
    value.to_string().parse().unwrap_or_else(|_| f64::from(value))
}

fn bytes<'a>(values: impl Iterator<Item = Option<&'a [u8]>>, nulls: Vec<u8>) -> TColumn {
    TColumn::BinaryVal(TBinaryColumn {
        values: values.map(|value| value.unwrap_or_default().to_vec()).collect(),
        nulls,
    })
}

fn doubles(values: impl Iterator<Item = Option<f64>>, sql_type: SqlType) -> TColumn {
    let mut builder = ColumnBuilder::new(sql_type);
    for value in values {
        builder.push_f64(value);
    }
    builder.finish()
}
