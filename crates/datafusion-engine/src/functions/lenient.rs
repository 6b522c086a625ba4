//! Functions that give NULL instead of an error.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature};
use datafusion::scalar::ScalarValue;

/// A function whose errors are NULL: a batch that fails is computed again row by row.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Lenient {
    inner: Arc<ScalarUDF>,
}

impl Lenient {
    /// Wraps a function.
    pub fn of(inner: Arc<ScalarUDF>) -> ScalarUDF {
        ScalarUDF::new_from_impl(Self { inner })
    }
}

impl ScalarUDFImpl for Lenient {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.coerce_types(types)
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.inner.return_type(types)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        if let Ok(value) = self.inner.invoke_with_args(args.clone()) {
            return Ok(value);
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
