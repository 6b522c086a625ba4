//! The names of result columns without an alias, derived as in Spark: `SELECT 1` gives a column `1`, `SELECT a + 1` a
//! column `(a + 1)`.
//!
//! A name that is already in the SELECT list is not used again, because DataFusion requires distinct names.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    AccessExpr, BinaryOperator, CastKind, DuplicateTreatment, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArguments, Ident, Select, SelectItem, Subscript, UnaryOperator, Value, VisitorMut,
};

use crate::dialect::rewrite::visit;

/// Functions that return several columns: an alias would name only one.
const MANY_COLUMNS: [&str; 5] = ["unnest", "explode", "explode_outer", "inline", "posexplode"];
/// The longest derived name, in bytes; longer ones are left to DataFusion.
const NAME_MAX: usize = 1_000;

/// Names the columns of every SELECT in a statement.
pub fn name_columns(statement: &mut Statement) {
    let _ = visit(statement, &mut Namer);
}

struct Namer;

impl VisitorMut for Namer {
    type Break = ();

    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        let mut taken: HashSet<String> = select
            .projection
            .iter()
            .filter_map(|item| match item {
                SelectItem::UnnamedExpr(Expr::Identifier(name)) => Some(name),
                SelectItem::UnnamedExpr(Expr::CompoundIdentifier(names)) => names.last(),
                SelectItem::ExprWithAlias { alias, .. } => Some(alias),
                _ => None,
            })
            .map(|name| name.value.to_lowercase())
            .collect();
        for item in &mut select.projection {
            let SelectItem::UnnamedExpr(expr) = item else { continue };
            if matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_)) || has_many_columns(expr) {
                continue;
            }
            let name = name_of(expr);
            if name.is_empty() || name.len() > NAME_MAX || !taken.insert(name.to_lowercase()) {
                continue;
            }
            let expr = std::mem::replace(expr, Expr::Value(Value::Null.into()));
            *item = SelectItem::ExprWithAlias { expr, alias: Ident::with_quote('`', name) };
        }
        ControlFlow::Continue(())
    }
}

fn has_many_columns(expr: &Expr) -> bool {
    match expr {
        Expr::Function(function) => {
            let name = function.name.to_string().to_lowercase();
            MANY_COLUMNS.contains(&name.as_str())
        }
        Expr::Nested(inner) => has_many_columns(inner),
        _ => false,
    }
}

fn name_of(expr: &Expr) -> String {
    let list = |items: &[Expr]| items.iter().map(name_of).collect::<Vec<_>>().join(", ");
    match expr {
        Expr::Identifier(name) => name.value.clone(),
        Expr::CompoundIdentifier(names) => names.last().map(|name| name.value.clone()).unwrap_or_default(),
        Expr::Nested(inner) => name_of(inner),
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) | Value::DoubleQuotedString(text) => text.clone(),
            Value::Null => "NULL".to_owned(),
            other => other.to_string(),
        },
        Expr::BinaryOp { left, op, right } => {
            let (left, right) = (name_of(left), name_of(right));
            match op {
                BinaryOperator::NotEq => format!("(NOT ({left} = {right}))"),
                BinaryOperator::StringConcat => format!("concat({left}, {right})"),
                BinaryOperator::MyIntegerDivide => format!("({left} div {right})"),
                op => format!("({left} {op} {right})"),
            }
        }
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => match expr.as_ref() {
            Expr::Value(_) => format!("-{}", name_of(expr)),
            _ => format!("(- {})", name_of(expr)),
        },
        Expr::UnaryOp { op: UnaryOperator::Not, expr } => format!("(NOT {})", name_of(expr)),
        Expr::UnaryOp { op: UnaryOperator::BitwiseNot, expr } => format!("~{}", name_of(expr)),
        Expr::ILike { negated: false, expr, pattern, .. } => format!("ilike({}, {})", name_of(expr), name_of(pattern)),
        Expr::RLike { negated, expr, pattern, .. } => {
            let test = format!("RLIKE({}, {})", name_of(expr), name_of(pattern));
            if *negated { format!("(NOT {test})") } else { test }
        }
        Expr::Substring { expr, substring_from: Some(from), substring_for, shorthand, .. } => {
            let name = if *shorthand { "substr" } else { "substring" };
            let length = substring_for.as_deref().map_or("2147483647".to_owned(), name_of);
            format!("{name}({}, {}, {length})", name_of(expr), name_of(from))
        }
        Expr::Trim { trim_where: None, trim_what: None, expr, .. } => format!("trim({})", name_of(expr)),
        Expr::Ceil { expr, .. } => format!("CEIL({})", name_of(expr)),
        Expr::Floor { expr, .. } => format!("FLOOR({})", name_of(expr)),
        Expr::IsNull(inner) => format!("({} IS NULL)", name_of(inner)),
        Expr::IsNotNull(inner) => format!("({} IS NOT NULL)", name_of(inner)),
        Expr::InList { expr, list: items, negated } => {
            let test = format!("({} IN ({}))", name_of(expr), list(items));
            if *negated { format!("(NOT {test})") } else { test }
        }
        Expr::Between { expr, negated, low, high } => {
            let value = name_of(expr);
            let test = format!("(({value} >= {}) AND ({value} <= {}))", name_of(low), name_of(high));
            if *negated { format!("(NOT {test})") } else { test }
        }
        Expr::Like { negated: false, expr, pattern, .. } => format!("{} LIKE {}", name_of(expr), name_of(pattern)),
        Expr::Cast { kind: CastKind::Cast | CastKind::DoubleColon, expr, data_type, .. } => {
            format!("CAST({} AS {})", name_of(expr), data_type.to_string().to_uppercase())
        }
        Expr::TypedString(typed) => format!("{} {}", typed.data_type, typed.value),
        Expr::Subquery(_) => "scalarsubquery()".to_owned(),
        Expr::CompoundFieldAccess { root, access_chain } => access(root, access_chain),
        Expr::Case { operand, conditions, else_result, .. } => {
            let mut text = String::from("CASE");
            for when in conditions {
                let condition = match operand {
                    Some(operand) => format!("({} = {})", name_of(operand), name_of(&when.condition)),
                    None => name_of(&when.condition),
                };
                text.extend([" WHEN ", &condition, " THEN ", &name_of(&when.result)]);
            }
            if let Some(otherwise) = else_result {
                text.extend([" ELSE ", &name_of(otherwise)]);
            }
            text + " END"
        }
        Expr::Function(function) => call(function).unwrap_or_else(|| expr.to_string()),
        other => other.to_string(),
    }
}

fn access(root: &Expr, chain: &[AccessExpr]) -> String {
    let mut text = name_of(root);
    for step in chain {
        match step {
            AccessExpr::Subscript(Subscript::Index { index }) => text.extend(["[", &name_of(index), "]"]),
            AccessExpr::Dot(field) => text.extend([".", &name_of(field)]),
            AccessExpr::Subscript(slice) => text.extend(["[", &slice.to_string(), "]"]),
        }
    }
    text
}

fn call(function: &Function) -> Option<String> {
    if function.over.is_some() || function.filter.is_some() || !function.within_group.is_empty() {
        return None;
    }
    let name = function.name.to_string().to_lowercase();
    let list = match &function.args {
        FunctionArguments::None => return Some(format!("{name}()")),
        FunctionArguments::List(list) if list.clauses.is_empty() => list,
        _ => return None,
    };
    let args: Option<Vec<_>> = list
        .args
        .iter()
        .map(|arg| match arg {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(arg)) => Some(name_of(arg)),
            FunctionArg::Unnamed(FunctionArgExpr::Wildcard) if name == "count" => Some("1".to_owned()),
            _ => None,
        })
        .collect();
    let distinct = if list.duplicate_treatment == Some(DuplicateTreatment::Distinct) { "DISTINCT " } else { "" };
    Some(format!("{name}({distinct}{})", args?.join(", ")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use datafusion::sql::parser::DFParser;

    use super::*;

    #[test]
    fn columns_have_sparks_names_and_none_twice() {
        for (text, expected) in [
            ("SELECT 1, 'x', a, t.b FROM t", "SELECT 1 AS `1`, 'x' AS `x`, a, t.b FROM t"),
            ("SELECT count(*), SUM(a + 1)", "SELECT count(*) AS `count(1)`, SUM(a + 1) AS `sum((a + 1))`"),
            ("SELECT 1, 1", "SELECT 1 AS `1`, 1"),
            ("SELECT unnest(a)", "SELECT unnest(a)"),
            ("SELECT CAST(a AS INT), l[0]", "SELECT CAST(a AS INT) AS `CAST(a AS INT)`, l[0] AS `l[0]`"),
        ] {
            let mut statement = DFParser::parse_sql(text).unwrap().pop_front().unwrap();
            name_columns(&mut statement);
            assert_eq!(statement.to_string(), expected);
        }
    }
}
