//! Functions that are dispatched on the type of their first argument.
//!
//! `concat` concatenates texts or lists, and `element_at` reads a list or a map. DataFusion has a function for each.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::Result;
use datafusion::error::DataFusionError;
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

/// One name for two functions.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Dispatch {
    name: &'static str,
    for_lists: Arc<ScalarUDF>,
    otherwise: Arc<ScalarUDF>,
    signature: Signature,
}

/// `name`: calls `for_lists` if the first argument is a list.
pub fn dispatch(name: &'static str, for_lists: Arc<ScalarUDF>, otherwise: Arc<ScalarUDF>) -> ScalarUDF {
    let signature = Signature::user_defined(Volatility::Immutable);
    ScalarUDF::new_from_impl(Dispatch { name, for_lists, otherwise, signature })
}

impl Dispatch {
    fn chosen(&self, first: Option<&DataType>) -> &Arc<ScalarUDF> {
        match first {
            Some(DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..)) => &self.for_lists,
            _ => &self.otherwise,
        }
    }
}

impl ScalarUDFImpl for Dispatch {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let field = |data_type: &DataType| Arc::new(Field::new("", data_type.clone(), true));
        let fields: Vec<FieldRef> = types.iter().map(field).collect();
        let coerced = fields_with_udf(&fields, self.chosen(types.first()).as_ref())?;
        Ok(coerced.iter().map(|field| field.data_type().clone()).collect())
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Err(DataFusionError::Internal("the type follows from the fields".to_owned()))
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let first = args.arg_fields.first().map(|field| field.data_type().clone());
        self.chosen(first.as_ref()).return_field_from_args(args)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let first = args.args.first().map(ColumnarValue::data_type);
        self.chosen(first.as_ref()).invoke_with_args(args)
    }
}
