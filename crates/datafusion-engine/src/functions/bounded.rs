//! Functions with a limit on the size of their results, which is estimated before evaluation.
//!
//! DataFusion accounts for the memory of operators that hold rows, not for that of expressions: `repeat('x', 1000000000)` is
//! allocated outside the pool, and a failed allocation ends the process. A bounded function fails with SQLSTATE 54000
//! if, by its arguments, the result for one batch would exceed the limit. The limit also holds during optimization,
//! because constants are evaluated through the same function.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl};
use model::error::{ErrorKind, UserError};

use super::adapter::as_inner;
use super::measure::{Arguments, Measure};

/// A function with a limit on the bytes of its result.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Bounded {
    inner: Arc<ScalarUDF>,
    measure: Measure,
    bytes_max: usize,
}

impl Bounded {
    /// Limits the results of `inner` to `bytes_max` bytes per batch.
    pub const fn new(inner: Arc<ScalarUDF>, measure: Measure, bytes_max: usize) -> Self {
        Self { inner, measure, bytes_max }
    }
}

/// The error of a call whose result is too large.
pub fn too_much(name: &str, rows: usize, bytes: u128, bytes_max: usize) -> DataFusionError {
    let error = UserError::new(ErrorKind::ProgramLimit, format!("result of {name} is too large"))
        .detail(format!("{rows} rows of one batch would have about {bytes} bytes; the limit is {bytes_max}."))
        .hint("Use shorter values, or SET datafusion.execution.batch_size to a smaller number.");
    DataFusionError::External(Box::new(error))
}

impl ScalarUDFImpl for Bounded {
    as_inner!();

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let bytes = self.measure.bytes(&Arguments::new(&args.args, args.number_rows)?)?;
        if bytes > self.bytes_max as u128 {
            return Err(too_much(self.name(), args.number_rows, bytes, self.bytes_max));
        }
        self.inner.invoke_with_args(args)
    }
}
