//! Functions that return NULL instead of an error.

use std::sync::Arc;

use datafusion::arrow::array::new_empty_array;
use datafusion::common::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl};
use datafusion::scalar::ScalarValue;

use super::adapter::as_inner;

/// A function that returns NULL on an error: a failed batch is evaluated again row by row.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Lenient {
    inner: Arc<ScalarUDF>,
}

impl Lenient {
    /// Wraps a function.
    pub fn wrap(inner: Arc<ScalarUDF>) -> ScalarUDF {
        ScalarUDF::new_from_impl(Self { inner })
    }
}

impl ScalarUDFImpl for Lenient {
    as_inner!();

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        if let Ok(value) = self.inner.invoke_with_args(args.clone()) {
            return Ok(value);
        }
        if args.number_rows == 0 {
            return Ok(ColumnarValue::Array(new_empty_array(args.return_type())));
        }
        let null = ScalarValue::try_new_null(args.return_type())?;
        let mut values = Vec::with_capacity(args.number_rows);
        for row in 0..args.number_rows {
            let cells = args.args.iter().map(|value| match value {
                ColumnarValue::Array(array) => ScalarValue::try_from_array(array, row).map(ColumnarValue::Scalar),
                ColumnarValue::Scalar(value) => Ok(ColumnarValue::Scalar(value.clone())),
            });
            let one = ScalarFunctionArgs { args: cells.collect::<Result<_>>()?, number_rows: 1, ..args.clone() };
            values.push(match self.inner.invoke_with_args(one) {
                Ok(ColumnarValue::Scalar(value)) => value,
                Ok(ColumnarValue::Array(array)) => ScalarValue::try_from_array(&array, 0)?,
                Err(_) => null.clone(),
            });
        }
        Ok(ColumnarValue::Array(ScalarValue::iter_to_array(values)?))
    }
}
