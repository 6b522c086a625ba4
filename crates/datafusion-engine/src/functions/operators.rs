//! Operators with Spark's semantics.
//!
//! Division of integers is a division of doubles, division by zero is NULL, a DECIMAL is divided and rounded to as many
//! digits as in Spark ([`super::quotients`]), a DOUBLE and a DECIMAL are compared as DOUBLE, `array[0]` is the first element,
//! and `||` is a function, so that its result is limited like that of `concat`.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::{BinaryExpr, ScalarFunction};
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr, RawFieldAccessExpr};
use datafusion::logical_expr::{Expr, ExprSchemable, GetFieldAccess, Operator, cast, lit};
use datafusion::sql::sqlparser::ast::BinaryOperator;

use super::Functions;
use super::quotients::Quotient;

/// The expression planner that runs before DataFusion's own ones.
#[derive(Debug)]
pub struct Operators {
    functions: Arc<Functions>,
}

impl Operators {
    /// A planner that uses these functions.
    pub const fn new(functions: Arc<Functions>) -> Self {
        Self { functions }
    }

    fn call(&self, name: &str, args: Vec<Expr>) -> Result<Expr> {
        Ok(Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(self.functions.scalar(name)?), args)))
    }

    /// The divisor, NULL where it is zero.
    fn nonzero(&self, divisor: Expr, data_type: &DataType) -> Result<Expr> {
        if let Expr::Literal(value, _) = &divisor
            && !value.is_null()
            && ScalarValue::new_zero(data_type).is_ok_and(|zero| zero != *value)
        {
            return Ok(divisor);
        }
        let zero = Expr::Literal(ScalarValue::new_zero(data_type)?, None);
        self.call("nullif", vec![divisor, zero])
    }

    fn division(&self, op: &BinaryOperator, left: Expr, right: Expr, schema: &DFSchema) -> Result<Option<Expr>> {
        let (Ok(left_type), Ok(right_type)) = (left.get_type(schema), right.get_type(schema)) else { return Ok(None) };
        let is_plain = |data_type: &DataType| data_type.is_numeric() || data_type.is_string() || data_type.is_null();
        if !is_plain(&left_type) || !is_plain(&right_type) {
            return Ok(None);
        }
        let double_arithmetic = |op: Operator, left: Expr, right: Expr| -> Result<Expr> {
            let right = self.nonzero(doubled(right, &right_type), &DataType::Float64)?;
            Ok(binary(doubled(left, &left_type), op, right))
        };
        let operator = match op {
            BinaryOperator::Divide => Operator::Divide,
            BinaryOperator::Modulo => Operator::Modulo,
            // DIV of whole numbers.
            _ if left_type.is_integer() && right_type.is_integer() => {
                let (left, right) = (cast(left, DataType::Int64), cast(right, DataType::Int64));
                let right = self.nonzero(right, &DataType::Int64)?;
                return Ok(Some(binary(left, Operator::Divide, right)));
            }
            // DIV of others: the integer part of the quotient.
            _ => return Ok(Some(cast(double_arithmetic(Operator::Divide, left, right)?, DataType::Int64))),
        };
        let any_text = left_type.is_string() || right_type.is_string();
        let any_decimal = left_type.is_decimal() || right_type.is_decimal();
        if any_text || (operator == Operator::Divide && !any_decimal) {
            return double_arithmetic(operator, left, right).map(Some);
        }
        if right_type.is_null() {
            return Ok(None);
        }
        if operator == Operator::Divide
            && let Some(quotient) = Quotient::for_operands((&left, &left_type), (&right, &right_type))
        {
            let right = cast(self.nonzero(right, &right_type)?, quotient.divisor);
            return Ok(Some(cast(binary(cast(left, quotient.dividend), operator, right), quotient.result)));
        }
        Ok(Some(binary(left, operator, self.nonzero(right, &right_type)?)))
    }

    fn concatenation(&self, left: Expr, right: Expr, schema: &DFSchema) -> Result<Option<Expr>> {
        // A chain is one call of many arguments, so that its type is not derived again for each link.
        if let Expr::ScalarFunction(call) = &left
            && call.func.name() == "concat"
            && right.get_type(schema).is_ok_and(|data_type| !is_list(&data_type))
        {
            let mut args = call.args.clone();
            args.push(right);
            return self.call("concat", args).map(Some);
        }
        let (Ok(left_type), Ok(right_type)) = (left.get_type(schema), right.get_type(schema)) else { return Ok(None) };
        let name = match (is_list(&left_type), is_list(&right_type)) {
            (false, false) => "concat",
            (true, true) => "array_concat",
            (true, false) => "array_append",
            (false, true) => "array_prepend",
        };
        self.call(name, vec![left, right]).map(Some)
    }
}

fn binary(left: Expr, op: Operator, right: Expr) -> Expr {
    Expr::BinaryExpr(BinaryExpr::new(Box::new(left), op, Box::new(right)))
}

fn doubled(expression: Expr, data_type: &DataType) -> Expr {
    if *data_type == DataType::Float64 {
        return expression;
    }
    // A constant stays one: DataFusion folds the others later.
    match &expression {
        Expr::Literal(value, _) => match value.cast_to(&DataType::Float64) {
            Ok(double) => Expr::Literal(double, None),
            Err(_) => cast(expression, DataType::Float64),
        },
        _ => cast(expression, DataType::Float64),
    }
}

/// Whether an operand is text. Only checks operands that have no operands of their own: deriving the type of a long chain
/// again at each of its links would take too long.
fn is_text(operand: &Expr, schema: &DFSchema) -> bool {
    matches!(operand, Expr::Literal(..) | Expr::Column(_) | Expr::Cast(_))
        && operand.get_type(schema).is_ok_and(|data_type| data_type.is_string())
}

/// Arithmetic with a text is arithmetic of doubles.
fn text_arithmetic(expr: &RawBinaryExpr, schema: &DFSchema) -> Option<Expr> {
    let (left, right) = (expr.left.get_type(schema).ok()?, expr.right.get_type(schema).ok()?);
    let is_number = |data_type: &DataType| data_type.is_numeric() || data_type.is_string();
    if !is_number(&left) || !is_number(&right) {
        return None;
    }
    let operator = match expr.op {
        BinaryOperator::Plus => Operator::Plus,
        BinaryOperator::Minus => Operator::Minus,
        _ => Operator::Multiply,
    };
    Some(binary(doubled(expr.left.clone(), &left), operator, doubled(expr.right.clone(), &right)))
}

/// A DOUBLE and a DECIMAL are compared as DOUBLE: DataFusion would convert the DOUBLE to DECIMAL, which is inexact for most
/// values. A constant stays DECIMAL, so that files can be pruned by it.
fn compared(expr: &RawBinaryExpr, schema: &DFSchema) -> Option<Expr> {
    let operator = match expr.op {
        BinaryOperator::Eq => Operator::Eq,
        BinaryOperator::NotEq => Operator::NotEq,
        BinaryOperator::Lt => Operator::Lt,
        BinaryOperator::LtEq => Operator::LtEq,
        BinaryOperator::Gt => Operator::Gt,
        BinaryOperator::GtEq => Operator::GtEq,
        BinaryOperator::Spaceship => Operator::IsNotDistinctFrom,
        _ => return None,
    };
    let constant = |expr: &Expr| matches!(expr, Expr::Literal(..));
    if constant(&expr.left) || constant(&expr.right) {
        return None;
    }
    let (left, right) = (expr.left.get_type(schema).ok()?, expr.right.get_type(schema).ok()?);
    if !((left.is_floating() && right.is_decimal()) || (left.is_decimal() && right.is_floating())) {
        return None;
    }
    Some(binary(doubled(expr.left.clone(), &left), operator, doubled(expr.right.clone(), &right)))
}

const fn is_list(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::List(_)
            | DataType::LargeList(_)
            | DataType::FixedSizeList(..)
            | DataType::ListView(_)
            | DataType::LargeListView(_)
    )
}

impl ExprPlanner for Operators {
    fn plan_binary_op(&self, expr: RawBinaryExpr, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
        let planned = match expr.op {
            BinaryOperator::Divide
            | BinaryOperator::Modulo
            | BinaryOperator::DuckIntegerDivide
            | BinaryOperator::MyIntegerDivide => {
                self.division(&expr.op, expr.left.clone(), expr.right.clone(), schema)?
            }
            BinaryOperator::Plus | BinaryOperator::Minus | BinaryOperator::Multiply
                if is_text(&expr.left, schema) || is_text(&expr.right, schema) =>
            {
                text_arithmetic(&expr, schema)
            }
            BinaryOperator::StringConcat => self.concatenation(expr.left.clone(), expr.right.clone(), schema)?,
            _ => compared(&expr, schema),
        };
        Ok(planned.map_or(PlannerResult::Original(expr), PlannerResult::Planned))
    }

    fn plan_field_access(
        &self,
        expr: RawFieldAccessExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawFieldAccessExpr>> {
        let RawFieldAccessExpr { expr, field_access } = expr;
        let GetFieldAccess::ListIndex { key } = field_access else {
            return Ok(PlannerResult::Original(RawFieldAccessExpr { expr, field_access }));
        };
        if !expr.get_type(schema).is_ok_and(|data_type| is_list(&data_type)) {
            let field_access = GetFieldAccess::ListIndex { key };
            return Ok(PlannerResult::Original(RawFieldAccessExpr { expr, field_access }));
        }
        let index = match *key {
            Expr::Literal(ScalarValue::Int64(Some(index)), _) => lit(index.max(-1).saturating_add(1)),
            // Element 0 of array_element is NULL; negative indexes are mapped to it.
            other => binary(
                self.call("greatest", vec![cast(other, DataType::Int64), lit(-1_i64)])?,
                Operator::Plus,
                lit(1_i64),
            ),
        };
        self.call("array_element", vec![expr, index]).map(PlannerResult::Planned)
    }

    fn plan_substring(&self, args: Vec<Expr>) -> Result<PlannerResult<Vec<Expr>>> {
        self.call("substring", args).map(PlannerResult::Planned)
    }

    fn plan_array_literal(&self, exprs: Vec<Expr>, _schema: &DFSchema) -> Result<PlannerResult<Vec<Expr>>> {
        self.call("make_array", exprs).map(PlannerResult::Planned)
    }
}
