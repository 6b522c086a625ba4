//! Casts with Spark's semantics without ANSI mode: a value that cannot be converted becomes NULL, and an integer that is too
//! large for its type keeps its lower bits. INSERT refuses such an integer.
//!
//! The rule runs after DataFusion's type coercion has inserted its casts, so that `'abc' = 1` is NULL, too, and not an error.
//! Casts that cannot fail are not changed.

use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::functions::string::expr_fn::btrim;
use datafusion::logical_expr::expr::{BinaryExpr, Cast, TryCast};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, Operator, ScalarUDF, cast, lit};
use datafusion::optimizer::AnalyzerRule;

use super::computed;

/// The last rule of the analyzer.
#[derive(Debug)]
pub struct LenientCasts {
    whole_number: ScalarUDF,
    timestamp_text: ScalarUDF,
}

impl Default for LenientCasts {
    fn default() -> Self {
        Self { whole_number: computed::whole_number(), timestamp_text: computed::timestamp_text() }
    }
}

impl LenientCasts {
    /// The cast with Spark's semantics. `is_stored`: an INSERT writes its value.
    fn lenient(&self, from: &DataType, to: Cast, is_stored: bool) -> Transformed<Expr> {
        let target = to.field.data_type().clone();
        if from.is_string() && target.is_integer() {
            let whole = self.whole_number.call(vec![cast(*to.expr, DataType::Utf8)]);
            return Transformed::yes(if target == DataType::Int64 { whole } else { tried(whole, target) });
        }
        if target.is_string() && matches!(from, DataType::Timestamp(..)) {
            let text = self.timestamp_text.call(vec![*to.expr]);
            return Transformed::yes(if target == DataType::Utf8 { text } else { cast(text, target) });
        }
        if from.is_signed_integer()
            && let Some(sign) = sign_bit(&target)
            && bits(from) > bits(&target)
        {
            // A number out of the column's range is an error.
            if is_stored {
                return Transformed::no(Expr::Cast(to));
            }
            // Keep the lower bits: mask the bits above the sign bit, then extend the sign.
            let low = binary(cast(*to.expr, DataType::Int64), Operator::BitwiseAnd, sign * 2 - 1);
            let signed = binary(binary(low, Operator::BitwiseXor, sign), Operator::Minus, sign);
            return Transformed::yes(tried(signed, target));
        }
        if from.is_integer() && matches!(target, DataType::Timestamp(..)) {
            // A number is seconds since 1970.
            let seconds = cast(cast(*to.expr, DataType::Int64), DataType::Timestamp(TimeUnit::Second, None));
            return Transformed::yes(tried(seconds, target));
        }
        if can_fail(from, &target) {
            // Surrounding blanks are ignored.
            let value = if from.is_string() { btrim(vec![*to.expr]) } else { *to.expr };
            return Transformed::yes(tried(value, target));
        }
        Transformed::no(Expr::Cast(to))
    }
}

fn tried(expression: Expr, target: DataType) -> Expr {
    Expr::TryCast(TryCast::new(Box::new(expression), target))
}

/// The value of the sign bit of an integer type that is shorter than BIGINT.
const fn sign_bit(data_type: &DataType) -> Option<i64> {
    match data_type {
        DataType::Int8 => Some(1 << 7),
        DataType::Int16 => Some(1 << 15),
        DataType::Int32 => Some(1 << 31),
        _ => None,
    }
}

fn bits(data_type: &DataType) -> usize {
    data_type.primitive_width().unwrap_or_default()
}

fn binary(left: Expr, op: Operator, right: i64) -> Expr {
    Expr::BinaryExpr(BinaryExpr::new(Box::new(left), op, Box::new(lit(right))))
}

fn can_fail(from: &DataType, to: &DataType) -> bool {
    if from.is_string() {
        return !to.is_string() && !to.is_binary() && !matches!(to, DataType::Dictionary(..));
    }
    if let (Some(from), Some(to)) = (digits(from), digits(to)) {
        return from.0 > to.0 || from.1 > to.1;
    }
    if from.is_floating() {
        return to.is_integer() || to.is_decimal();
    }
    matches!((from, to), (DataType::Date32 | DataType::Date64 | DataType::Timestamp(..), DataType::Timestamp(..)))
}

/// The most digits before and after the decimal point of an exact type. Integers have the digits of their largest value.
fn digits(data_type: &DataType) -> Option<(i16, i16)> {
    Some(match data_type {
        DataType::Int8 | DataType::UInt8 => (3, 0),
        DataType::Int16 | DataType::UInt16 => (5, 0),
        DataType::Int32 | DataType::UInt32 => (10, 0),
        DataType::Int64 => (19, 0),
        DataType::UInt64 => (20, 0),
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale) => (i16::from(*precision) - i16::from(*scale), i16::from(*scale)),
        _ => return None,
    })
}

impl AnalyzerRule for LenientCasts {
    fn name(&self) -> &'static str {
        "lenient_casts"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        let stored = match &plan {
            LogicalPlan::Dml(write) => match write.input.as_ref() {
                LogicalPlan::Projection(columns) => Some(columns.expr.clone()),
                _ => None,
            },
            _ => None,
        };
        plan.transform_up_with_subqueries(|plan| {
            let is_stored = stored.as_ref().is_some_and(|stored| match &plan {
                LogicalPlan::Projection(columns) => columns.expr == *stored,
                LogicalPlan::Values(_) => true,
                _ => false,
            });
            let mut schema = merge_schema(&plan.inputs());
            if let LogicalPlan::TableScan(scan) = &plan {
                let source = datafusion::common::DFSchema::try_from_qualified_schema(
                    scan.table_name.clone(),
                    &scan.source.schema(),
                )?;
                schema.merge(&source);
            }
            let names = NamePreserver::new(&plan);
            let changed = plan.map_expressions(|expression| {
                let name = names.save(&expression);
                let changed = expression.transform_up(|expression| match expression {
                    Expr::Cast(to) => match to.expr.get_type(&schema) {
                        Ok(from) => Ok(self.lenient(&from, to, is_stored)),
                        Err(_) => Ok(Transformed::no(Expr::Cast(to))),
                    },
                    other => Ok(Transformed::no(other)),
                })?;
                Ok(changed.update_data(|expression| name.restore(expression)))
            })?;
            if changed.transformed { changed.map_data(LogicalPlan::recompute_schema) } else { Ok(changed) }
        })
        .map(|plan| plan.data)
    }
}
