//! A limit on large constants, which an operator repeats for each row of a batch.
//!
//! `repeat('x', 200000)` is a constant after optimization, and its projection over 8,192 rows takes 1.6 GB. A constant above
//! `WIDE_BYTES` is therefore read through a function that fails if its repetition would exceed the limit.

use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{
    ColumnarValue, Expr, LogicalPlan, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

use super::bounded::too_much;

/// The size above which a constant is wide, in bytes.
const WIDE_BYTES: usize = 4_096;

/// The last rule of the optimizer: it wraps wide constants in `Wide`.
#[derive(Debug)]
pub struct WideConstants {
    function: ScalarUDF,
}

impl WideConstants {
    /// Limits constants to `bytes_max` bytes per column and batch.
    pub fn new(bytes_max: usize) -> Self {
        // Volatile, or the optimizer would fold it to a constant.
        let signature = Signature::any(1, Volatility::Volatile);
        Self { function: ScalarUDF::new_from_impl(Wide { signature, bytes_max }) }
    }

    fn guarded(&self, expression: Expr) -> Result<Transformed<Expr>> {
        expression.transform_down(|expression| {
            Ok(match expression {
                Expr::Literal(value, metadata) if value.size() > WIDE_BYTES => Transformed::new(
                    self.function.call(vec![Expr::Literal(value, metadata)]),
                    true,
                    TreeNodeRecursion::Jump,
                ),
                Expr::ScalarFunction(call) if call.func.name() == self.function.name() => {
                    Transformed::new(Expr::ScalarFunction(call), false, TreeNodeRecursion::Jump)
                }
                other => Transformed::no(other),
            })
        })
    }
}

impl OptimizerRule for WideConstants {
    fn name(&self) -> &'static str {
        "wide_constants"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(&self, plan: LogicalPlan, _config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        // Only operators that compute columns repeat constants.
        if !matches!(
            plan,
            LogicalPlan::Projection(_) | LogicalPlan::Aggregate(_) | LogicalPlan::Window(_) | LogicalPlan::Sort(_)
        ) {
            return Ok(Transformed::no(plan));
        }
        let names = NamePreserver::new(&plan);
        plan.map_expressions(|expression| {
            let name = names.save(&expression);
            Ok(self.guarded(expression)?.update_data(|expression| name.restore(expression)))
        })
    }
}

/// Returns its argument, unless its repetition for the rows of the batch is too large.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Wide {
    signature: Signature,
    bytes_max: usize,
}

impl ScalarUDFImpl for Wide {
    fn name(&self) -> &'static str {
        "wide_constant"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok(types[0].clone())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        Ok(FieldRef::clone(&args.arg_fields[0]))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        let [value] = <[_; 1]>::try_from(args.args)
            .map_err(|_| datafusion::error::DataFusionError::Internal("a wide constant has one argument".to_owned()))?;
        if let ColumnarValue::Scalar(constant) = &value {
            let bytes = constant.size() as u128 * rows as u128;
            if bytes > self.bytes_max as u128 {
                return Err(too_much("a constant", rows, bytes, self.bytes_max));
            }
        }
        Ok(value)
    }
}
