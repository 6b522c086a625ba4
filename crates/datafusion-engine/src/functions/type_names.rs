//! The function `typeof`.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

use crate::rows::types::type_name;

#[derive(Debug, PartialEq, Eq, Hash)]
struct TypeOf {
    signature: Signature,
}

/// The function `typeof`. It returns the type's name as in DESCRIBE.
pub fn type_of() -> ScalarUDF {
    ScalarUDF::new_from_impl(TypeOf { signature: Signature::any(1, Volatility::Immutable) })
}

impl ScalarUDFImpl for TypeOf {
    fn name(&self) -> &'static str {
        "typeof"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let name = args.arg_fields.first().map(|field| type_name(field.data_type()));
        Ok(ColumnarValue::Scalar(ScalarValue::Utf8(name)))
    }
}
