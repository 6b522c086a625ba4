//! The function `all_or_null`, which combines several values into one for `count(DISTINCT a, b)`.

use std::sync::Arc;

use datafusion::arrow::array::{Array, StructArray};
use datafusion::arrow::buffer::NullBuffer;
use datafusion::arrow::datatypes::{DataType, Field, Fields};
use datafusion::common::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

/// Returns its arguments as a struct; NULL if one of them is NULL.
#[derive(Debug, PartialEq, Eq, Hash)]
struct AllOrNull {
    signature: Signature,
}

/// The function `all_or_null`.
pub fn all_or_null() -> ScalarUDF {
    ScalarUDF::new_from_impl(AllOrNull { signature: Signature::variadic_any(Volatility::Immutable) })
}

impl ScalarUDFImpl for AllOrNull {
    fn name(&self) -> &'static str {
        "all_or_null"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        let field = |(at, data_type): (usize, &DataType)| Field::new(format!("c{at}"), data_type.clone(), true);
        Ok(DataType::Struct(types.iter().enumerate().map(field).collect::<Fields>()))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let columns = ColumnarValue::values_to_arrays(&args.args)?;
        let nulls = columns
            .iter()
            .fold(None, |nulls, column| NullBuffer::union(nulls.as_ref(), column.logical_nulls().as_ref()));
        let DataType::Struct(fields) = args.return_type().clone() else {
            return Err(datafusion::error::DataFusionError::Internal("all_or_null returns a struct".to_owned()));
        };
        Ok(ColumnarValue::Array(Arc::new(StructArray::try_new(fields, columns, nulls)?)))
    }
}
