//! A framework for functions that are evaluated row by row.
//!
//! Arguments are converted to the types that a function declares. The result is NULL if an argument is NULL or the function
//! returns `None`.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::array::cast::AsArray;
use datafusion::arrow::array::types::{Date32Type, Float64Type, Int64Type, TimestampMicrosecondType};
use datafusion::arrow::array::{
    Array, ArrayRef, Float64Array, Int32Array, Int64Array, ListBuilder, StringArray, StringBuilder,
};
use datafusion::arrow::datatypes::{DataType, Field, TimeUnit};
use datafusion::common::{Result, plan_err};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use datafusion::scalar::ScalarValue;
use model::error::{ErrorKind, UserError};
use regex_automata::meta::Regex;

/// The type of an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ArgumentType {
    /// Text.
    Text,
    /// A whole number.
    Long,
    /// A double.
    Double,
    /// A date.
    Date,
    /// A timestamp in microseconds.
    Timestamp,
    /// Anything.
    Any,
}

impl ArgumentType {
    fn data_type(self, given: &DataType) -> DataType {
        match self {
            Self::Text => DataType::Utf8,
            Self::Long => DataType::Int64,
            Self::Double => DataType::Float64,
            Self::Date => DataType::Date32,
            Self::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, None),
            Self::Any => given.clone(),
        }
    }
}

/// The result of a function for one row.
pub enum Cell {
    /// Text.
    Text(String),
    Int(i32),
    Long(i64),
    Double(f64),
    /// A list of texts.
    Texts(Vec<String>),
}

/// Computes one row.
pub type Eval = fn(&mut Row<'_>) -> Result<Option<Cell>>;

/// A function of one row.
struct RowFunction {
    name: &'static str,
    aliases: Vec<String>,
    /// The arguments, and how many of them must be given.
    kinds: &'static [ArgumentType],
    required: usize,
    returns: DataType,
    eval: Eval,
    signature: Signature,
}

/// One row of the arguments.
pub struct Row<'a> {
    arrays: &'a [(ArrayRef, bool)],
    at: usize,
    regex: &'a mut Option<(String, Regex)>,
}

impl Row<'_> {
    pub(super) fn at(&self, index: usize) -> (&ArrayRef, usize) {
        let (array, is_scalar) = &self.arrays[index];
        (array, if *is_scalar { 0 } else { self.at })
    }

    pub(super) fn is_given(&self, index: usize) -> bool {
        index < self.arrays.len()
    }

    pub(super) fn text(&self, index: usize) -> &str {
        let (array, row) = self.at(index);
        array.as_string::<i32>().value(row)
    }

    pub(super) fn long(&self, index: usize) -> i64 {
        let (array, row) = self.at(index);
        array.as_primitive::<Int64Type>().value(row)
    }

    pub(super) fn long_or(&self, index: usize, otherwise: i64) -> i64 {
        if self.is_given(index) { self.long(index) } else { otherwise }
    }

    pub(super) fn double(&self, index: usize) -> f64 {
        let (array, row) = self.at(index);
        array.as_primitive::<Float64Type>().value(row)
    }

    pub(super) fn days(&self, index: usize) -> i32 {
        let (array, row) = self.at(index);
        array.as_primitive::<Date32Type>().value(row)
    }

    pub(super) fn micros(&self, index: usize) -> i64 {
        let (array, row) = self.at(index);
        array.as_primitive::<TimestampMicrosecondType>().value(row)
    }

    /// The regular expression of an argument. Consecutive equal ones are compiled once.
    pub(super) fn regex(&mut self, index: usize) -> Result<Regex> {
        let pattern = self.text(index);
        if let Some((known, regex)) = &*self.regex
            && known == pattern
        {
            return Ok(regex.clone());
        }
        let regex = Regex::new(pattern).map_err(|error| {
            let error = UserError::new(ErrorKind::InvalidValue, format!("invalid regular expression: {error}"));
            DataFusionError::External(Box::new(error.with_sqlstate("2201B")))
        })?;
        let pattern = pattern.to_owned();
        *self.regex = Some((pattern, regex.clone()));
        Ok(regex)
    }
}

impl fmt::Debug for RowFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for RowFunction {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for RowFunction {}

impl Hash for RowFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl ScalarUDFImpl for RowFunction {
    fn name(&self) -> &str {
        self.name
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        if types.len() < self.required || types.len() > self.kinds.len() {
            return plan_err!("function {} takes {} arguments and was given {}", self.name, self.required, types.len());
        }
        Ok(self.kinds.iter().zip(types).map(|(kind, given)| kind.data_type(given)).collect())
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(self.returns.clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let all_scalar = args.args.iter().all(|value| matches!(value, ColumnarValue::Scalar(_)));
        let rows = if all_scalar { 1 } else { args.number_rows };
        let column = |value: ColumnarValue| {
            Ok(match value {
                ColumnarValue::Array(array) => (array, false),
                ColumnarValue::Scalar(value) => (value.to_array_of_size(1)?, true),
            })
        };
        let arrays: Vec<_> = args.args.into_iter().map(column).collect::<Result<_>>()?;
        let mut regex = None;
        let mut cells = Vec::with_capacity(rows);
        for row in 0..rows {
            let mut row = Row { arrays: &arrays, at: row, regex: &mut regex };
            let is_null = (0..arrays.len()).any(|index| {
                let (array, row) = row.at(index);
                array.is_null(row)
            });
            cells.push(if is_null { None } else { (self.eval)(&mut row)? });
        }
        let array = self.array(cells);
        Ok(if all_scalar {
            ColumnarValue::Scalar(ScalarValue::try_from_array(&array, 0)?)
        } else {
            ColumnarValue::Array(array)
        })
    }
}

impl RowFunction {
    fn array(&self, cells: Vec<Option<Cell>>) -> ArrayRef {
        match self.returns {
            DataType::Int32 => Arc::new(
                cells
                    .into_iter()
                    .map(|cell| match cell {
                        Some(Cell::Int(value)) => Some(value),
                        _ => None,
                    })
                    .collect::<Int32Array>(),
            ),
            DataType::Int64 => Arc::new(
                cells
                    .into_iter()
                    .map(|cell| match cell {
                        Some(Cell::Long(value)) => Some(value),
                        _ => None,
                    })
                    .collect::<Int64Array>(),
            ),
            DataType::Float64 => Arc::new(
                cells
                    .into_iter()
                    .map(|cell| match cell {
                        Some(Cell::Double(value)) => Some(value),
                        _ => None,
                    })
                    .collect::<Float64Array>(),
            ),
            DataType::List(_) => {
                let mut lists = ListBuilder::new(StringBuilder::new()).with_field(item());
                for cell in cells {
                    match cell {
                        Some(Cell::Texts(texts)) => lists.append_value(texts.into_iter().map(Some)),
                        _ => lists.append_null(),
                    }
                }
                Arc::new(lists.finish())
            }
            _ => Arc::new(
                cells
                    .into_iter()
                    .map(|cell| match cell {
                        Some(Cell::Text(value)) => Some(value),
                        _ => None,
                    })
                    .collect::<StringArray>(),
            ),
        }
    }
}

/// The field of a list of texts.
pub(super) fn item() -> Arc<Field> {
    Arc::new(Field::new_list_field(DataType::Utf8, true))
}

/// Builds a function. The arguments after the first `required` ones are optional.
pub(super) fn function(
    name: &'static str,
    kinds: &'static [ArgumentType],
    required: usize,
    returns: DataType,
    eval: Eval,
) -> ScalarUDF {
    let signature = match kinds {
        [ArgumentType::Any] => Signature::any(1, Volatility::Immutable),
        _ => Signature::user_defined(Volatility::Immutable),
    };
    ScalarUDF::new_from_impl(RowFunction { name, aliases: Vec::new(), kinds, required, returns, eval, signature })
}
