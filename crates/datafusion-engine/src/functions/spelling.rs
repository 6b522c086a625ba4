//! Replacement of Spark's functions that DataFusion has under another name, with other arguments, or as an expression.
//!
//! A replacement is an expression with the placeholders `$1`, `$2` … for the arguments, each at most once, so that nested
//! calls do not multiply. Calls are replaced before planning. The modifiers of an aggregate or window function (OVER,
//! FILTER, DISTINCT) are moved to the first call in its replacement.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::LazyLock;

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    DataType, DuplicateTreatment, ExactNumberInfo, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments,
    Ident, ObjectName, TimezoneInfo, UnaryOperator, Value, VisitMut, VisitorMut, visit_expressions,
};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::Parser;

use super::template::{ArgumentFiller, CallModifiers, null};
use crate::dialect::rewrite::visit;

/// The replacements: name, number of arguments, expression.
const SPELLINGS: &[(&str, usize, &str)] = &[
    // Dates and times. A text is a date or timestamp where one is expected.
    ("year", 1, "date_part('year', CAST($1 AS DATE))"),
    ("quarter", 1, "date_part('quarter', CAST($1 AS DATE))"),
    ("month", 1, "date_part('month', CAST($1 AS DATE))"),
    ("day", 1, "date_part('day', CAST($1 AS DATE))"),
    ("dayofmonth", 1, "date_part('day', CAST($1 AS DATE))"),
    ("dayofyear", 1, "date_part('doy', CAST($1 AS DATE))"),
    ("weekofyear", 1, "date_part('week', CAST($1 AS DATE))"),
    ("dayofweek", 1, "dayofweek_number(CAST($1 AS DATE))"),
    ("weekday", 1, "weekday(CAST($1 AS DATE))"),
    ("hour", 1, "hour(CAST($1 AS TIMESTAMP(6)))"),
    ("minute", 1, "minute(CAST($1 AS TIMESTAMP(6)))"),
    ("second", 1, "second(CAST($1 AS TIMESTAMP(6)))"),
    ("date_add", 2, "date_add(CAST($1 AS DATE), CAST($2 AS INT))"),
    ("dateadd", 2, "date_add(CAST($1 AS DATE), CAST($2 AS INT))"),
    ("date_sub", 2, "date_sub(CAST($1 AS DATE), CAST($2 AS INT))"),
    ("datediff", 2, "date_diff(CAST($1 AS DATE), CAST($2 AS DATE))"),
    ("date_diff", 2, "date_diff(CAST($1 AS DATE), CAST($2 AS DATE))"),
    ("add_months", 2, "add_months(CAST($1 AS DATE), CAST($2 AS INT))"),
    ("last_day", 1, "last_day(CAST($1 AS DATE))"),
    ("next_day", 2, "next_day(CAST($1 AS DATE), $2)"),
    ("trunc", 2, "CAST(date_trunc($2, CAST($1 AS TIMESTAMP(6))) AS DATE)"),
    ("to_date", 1, "CAST($1 AS DATE)"),
    ("to_date", 2, "to_date(CAST($1 AS STRING), java_pattern($2))"),
    ("to_timestamp", 1, "CAST($1 AS TIMESTAMP(6))"),
    ("to_timestamp", 2, "to_timestamp_micros(CAST($1 AS STRING), java_pattern($2))"),
    ("date_format", 2, "to_char(CAST($1 AS TIMESTAMP(6)), java_pattern($2))"),
    ("unix_timestamp", 0, "to_unixtime(now())"),
    ("unix_timestamp", 1, "to_unixtime(CAST($1 AS TIMESTAMP(6)))"),
    ("unix_timestamp", 2, "to_unixtime(to_timestamp_micros(CAST($1 AS STRING), java_pattern($2)))"),
    ("to_unix_timestamp", 1, "to_unixtime(CAST($1 AS TIMESTAMP(6)))"),
    ("to_unix_timestamp", 2, "to_unixtime(to_timestamp_micros(CAST($1 AS STRING), java_pattern($2)))"),
    ("from_unixtime", 1, "to_char(to_timestamp_seconds(CAST($1 AS BIGINT)), '%Y-%m-%d %H:%M:%S')"),
    ("from_unixtime", 2, "to_char(to_timestamp_seconds(CAST($1 AS BIGINT)), java_pattern($2))"),
    ("timestamp_seconds", 1, "to_timestamp_seconds($1)"),
    ("timestamp_millis", 1, "to_timestamp_millis($1)"),
    ("timestamp_micros", 1, "to_timestamp_micros($1)"),
    ("date_from_unix_date", 1, "CAST(CAST($1 AS INT) AS DATE)"),
    ("curdate", 0, "current_date()"),
    ("current_timezone", 0, "'UTC'"),
    // Text.
    ("locate", 2, "strpos($2, $1)"),
    ("locate", 3, "locate_from($1, $2, $3)"),
    ("position", 2, "strpos($2, $1)"),
    ("charindex", 2, "strpos($2, $1)"),
    ("ucase", 1, "upper($1)"),
    ("lcase", 1, "lower($1)"),
    ("len", 1, "length($1)"),
    ("startswith", 2, "starts_with($1, $2)"),
    ("endswith", 2, "ends_with($1, $2)"),
    ("regexp", 2, "regexp_like($1, $2)"),
    ("rlike", 2, "regexp_like($1, $2)"),
    ("regexp_replace", 3, "regexp_replace($1, $2, $3, 'g')"),
    ("sha", 1, "sha1($1)"),
    ("space", 1, "space(CAST($1 AS INT))"),
    // Numbers.
    ("factorial", 1, "factorial(CAST($1 AS INT))"),
    ("bitwise_not_of", 1, "bitwise_not($1)"),
    ("log", 1, "ln($1)"),
    ("mod", 2, "($1 % $2)"),
    ("positive", 1, "$1"),
    ("sign", 1, "signum($1)"),
    ("rand", 0, "random()"),
    ("e", 0, "exp(1.0)"),
    // Conditions.
    ("isnull", 1, "($1 IS NULL)"),
    ("isnotnull", 1, "($1 IS NOT NULL)"),
    // Casts.
    ("string", 1, "CAST($1 AS STRING)"),
    ("boolean", 1, "CAST($1 AS BOOLEAN)"),
    ("tinyint", 1, "CAST($1 AS TINYINT)"),
    ("smallint", 1, "CAST($1 AS SMALLINT)"),
    ("int", 1, "CAST($1 AS INT)"),
    ("bigint", 1, "CAST($1 AS BIGINT)"),
    ("float", 1, "CAST($1 AS FLOAT)"),
    ("double", 1, "CAST($1 AS DOUBLE)"),
    ("decimal", 1, "CAST($1 AS DECIMAL(10, 0))"),
    ("date", 1, "CAST($1 AS DATE)"),
    ("timestamp", 1, "CAST($1 AS TIMESTAMP(6))"),
    ("binary", 1, "CAST($1 AS BYTEA)"),
    // Lists and maps.
    ("explode", 1, "unnest($1)"),
    ("array_join", 2, "array_to_string($1, $2)"),
    ("array_join", 3, "array_to_string($1, $2, $3)"),
    ("sort_array", 1, "array_sort($1, 'ASC', 'NULLS FIRST')"),
    ("sort_array_down", 1, "array_sort($1, 'DESC', 'NULLS LAST')"),
    ("transform", 2, "array_transform($1, $2)"),
    ("filter", 2, "array_filter($1, $2)"),
    ("exists", 2, "array_any_match($1, $2)"),
    ("array_position", 2, "CAST(coalesce(array_position($1, $2), 0) AS BIGINT)"),
    ("array_remove", 2, "array_remove_all($1, $2)"),
    ("arrays_overlap", 2, "array_has_any($1, $2)"),
    ("array_size", 1, "CAST(cardinality($1) AS INT)"),
    ("cardinality", 1, "CAST(cardinality($1) AS INT)"),
    ("map_contains_key", 2, "array_has(map_keys($1), $2)"),
    ("sequence", 2, "generate_series($1, $2)"),
    ("sequence", 3, "generate_series($1, $2, $3)"),
    // Aggregates.
    ("approx_count_distinct", 1, "CAST(approx_distinct($1) AS BIGINT)"),
    ("approx_count_distinct", 2, "CAST(approx_distinct($1) AS BIGINT)"),
    ("percentile", 2, "percentile_cont(CAST($1 AS DOUBLE), $2)"),
    ("percentile_approx", 2, "approx_percentile_cont($1, $2)"),
    ("percentile_approx", 3, "approx_percentile_cont($1, $2)"),
    ("approx_percentile", 2, "approx_percentile_cont($1, $2)"),
    ("approx_percentile", 3, "approx_percentile_cont($1, $2)"),
    ("first", 1, "first_value($1)"),
    ("last", 1, "last_value($1)"),
    ("count_if", 1, "count(CASE WHEN $1 THEN 1 END)"),
    ("every", 1, "bool_and($1)"),
    ("std", 1, "stddev($1)"),
    ("variance", 1, "var_samp($1)"),
    ("max_by", 2, "first_value($1 ORDER BY $2 DESC NULLS LAST)"),
    ("min_by", 2, "first_value($1 ORDER BY $2 ASC NULLS LAST)"),
    // Window functions that count from 1.
    ("row_number", 0, "CAST(row_number() AS INT)"),
    ("rank", 0, "CAST(rank() AS INT)"),
    ("dense_rank", 0, "CAST(dense_rank() AS INT)"),
    ("ntile", 1, "CAST(ntile($1) AS INT)"),
];

/// The parsed replacements. A test below checks that all of them parse.
static PARSED: LazyLock<HashMap<(&str, usize), Expr>> = LazyLock::new(|| {
    let parse = |text| Parser::new(&GenericDialect {}).try_with_sql(text).and_then(|mut parser| parser.parse_expr());
    SPELLINGS.iter().filter_map(|(name, arity, text)| Some(((*name, *arity), parse(text).ok()?))).collect()
});

/// Replaces Spark's spellings in a statement.
pub fn respell(statement: &mut Statement) {
    let _ = visit(statement, &mut Speller);
}

struct Speller;

impl VisitorMut for Speller {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        match expr {
            Expr::Function(function) => {
                if let Some(replacement) = replacement(function) {
                    *expr = replacement;
                }
            }
            Expr::Cast { data_type, .. } => spark_type(data_type),
            Expr::TypedString(typed) => spark_type(&mut typed.data_type),
            Expr::UnaryOp { op: UnaryOperator::BitwiseNot, expr: value } => {
                if let Some(inverted) = filled("bitwise_not_of", vec![std::mem::replace(value.as_mut(), null())]) {
                    *expr = inverted;
                }
            }
            Expr::RLike { negated, expr: text, pattern, .. } => {
                let args = [text, pattern].map(|part| std::mem::replace(part.as_mut(), null()));
                let matched = filled("rlike", args.into());
                *expr = match matched {
                    Some(matched) if *negated => Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(matched) },
                    Some(matched) => matched,
                    None => return ControlFlow::Continue(()),
                };
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

/// Maps Spark's type names, and timestamps to microseconds: in nanoseconds their range would end in 2262.
fn spark_type(data_type: &mut DataType) {
    match data_type {
        DataType::Timestamp(precision @ None, TimezoneInfo::None) => *precision = Some(6),
        DataType::Custom(name, arguments) if arguments.is_empty() => {
            *data_type = match name.to_string().to_ascii_lowercase().as_str() {
                "long" => DataType::BigInt(None),
                "short" => DataType::SmallInt(None),
                "byte" => DataType::TinyInt(None),
                _ => return,
            };
        }
        DataType::Decimal(info @ ExactNumberInfo::None) => *info = ExactNumberInfo::PrecisionAndScale(10, 0),
        _ => {}
    }
}

fn replacement(function: &mut Function) -> Option<Expr> {
    let name = match function.name.0.as_slice() {
        [part] => part.as_ident()?.value.to_ascii_lowercase(),
        _ => return None,
    };
    let FunctionArguments::List(list) = &mut function.args else { return None };
    if name == "count" && list.args.len() > 1 {
        return count_distinct_of_several(function);
    }
    if !list.clauses.is_empty() || !function.within_group.is_empty() {
        return None;
    }
    if name == "map" {
        return keys_and_values(&mut list.args);
    }
    // A constant specifies the order of the list.
    let name = match (name.as_str(), list.args.get(1).map(is_true)) {
        ("sort_array", Some(Some(ascending))) => {
            list.args.truncate(1);
            if ascending { "sort_array" } else { "sort_array_down" }
        }
        _ => name.as_str(),
    };
    let (key, template) = PARSED.get_key_value(&(name, list.args.len()))?;
    // A replacement without a call would drop the modifiers. The planner rejects the call under its own name.
    let is_surrounded = list.duplicate_treatment.is_some()
        || function.filter.is_some()
        || function.over.is_some()
        || function.null_treatment.is_some();
    if !matches!(function.parameters, FunctionArguments::None) || (is_surrounded && !has_call(template)) {
        return None;
    }
    // A pattern with `%` has DataFusion's syntax.
    if matches!(key.0, "to_date" | "to_timestamp")
        && list.args.get(1).and_then(text_of).is_some_and(|pattern| pattern.contains('%'))
    {
        return None;
    }
    // `trunc(number, digits)` is DataFusion's.
    if key.0 == "trunc" && list.args.get(1).and_then(text_of).is_none() {
        return None;
    }
    let args: Option<Vec<_>> = list
        .args
        .iter_mut()
        .map(|arg| match arg {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(arg)) => Some(std::mem::replace(arg, null())),
            _ => None,
        })
        .collect();
    let mut expr = template.clone();
    let mut modifiers = CallModifiers {
        distinct: list.duplicate_treatment,
        filter: function.filter.take(),
        over: function.over.take(),
        nulls: function.null_treatment,
        is_moved: false,
    };
    let _ = VisitMut::visit(&mut expr, &mut modifiers);
    let _ = VisitMut::visit(&mut expr, &mut ArgumentFiller { args: args? });
    Some(expr)
}

fn has_call(template: &Expr) -> bool {
    visit_expressions(template, |expr| match expr {
        Expr::Function(_) => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    })
    .is_break()
}

fn filled(name: &str, args: Vec<Expr>) -> Option<Expr> {
    let mut expr = PARSED.get(&(name, args.len()))?.clone();
    let _ = VisitMut::visit(&mut expr, &mut ArgumentFiller { args });
    Some(expr)
}

fn text_of(arg: &FunctionArg) -> Option<&str> {
    match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Value(value))) => match &value.value {
            Value::SingleQuotedString(text) | Value::DoubleQuotedString(text) => Some(text),
            _ => None,
        },
        _ => None,
    }
}

fn is_true(arg: &FunctionArg) -> Option<bool> {
    match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Value(value))) => match &value.value {
            Value::Boolean(value) => Some(*value),
            _ => None,
        },
        _ => None,
    }
}

/// `count(DISTINCT a, b)` counts the distinct pairs in which neither value is NULL.
fn count_distinct_of_several(function: &mut Function) -> Option<Expr> {
    let FunctionArguments::List(list) = &mut function.args else { return None };
    if list.duplicate_treatment != Some(DuplicateTreatment::Distinct) {
        return None;
    }
    let mut outer = function.clone();
    let mut inner = function.clone();
    inner.name = ObjectName::from(vec![Ident::new("all_or_null")]);
    (inner.filter, inner.over) = (None, None);
    if let FunctionArguments::List(list) = &mut inner.args {
        list.duplicate_treatment = None;
    }
    if let FunctionArguments::List(list) = &mut outer.args {
        list.args = vec![FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Function(inner)))];
    }
    Some(Expr::Function(outer))
}

/// `map(k, v, k, v)`; DataFusion's `map(keys, values)` is kept.
fn keys_and_values(args: &mut Vec<FunctionArg>) -> Option<Expr> {
    let is_list = |arg: &FunctionArg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Array(_))) => true,
        FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Function(call))) => {
            matches!(call.name.to_string().to_ascii_lowercase().as_str(), "make_array" | "array")
        }
        _ => false,
    };
    if args.is_empty() || args.len() % 2 == 1 || (args.len() == 2 && args.iter().all(is_list)) {
        return None;
    }
    let mut made =
        Parser::new(&GenericDialect {}).try_with_sql("map(make_array(), make_array())").ok()?.parse_expr().ok()?;
    let (mut keys, mut values) = (Vec::new(), Vec::new());
    for (at, arg) in args.drain(..).enumerate() {
        if at % 2 == 0 { keys.push(arg) } else { values.push(arg) }
    }
    if let Expr::Function(Function { args: FunctionArguments::List(list), .. }) = &mut made {
        for (arg, items) in list.args.iter_mut().zip([keys, values]) {
            if let FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Function(Function {
                args: FunctionArguments::List(list),
                ..
            }))) = arg
            {
                list.args = items;
            }
        }
    }
    Some(made)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use datafusion::sql::parser::DFParser;

    use super::*;

    fn respelled(text: &str) -> String {
        let mut statement = DFParser::parse_sql(text).unwrap().pop_front().unwrap();
        respell(&mut statement);
        statement.to_string()
    }

    #[test]
    fn every_replacement_parses_and_uses_each_argument_once() {
        for (name, arity, text) in SPELLINGS {
            assert!(PARSED.contains_key(&(*name, *arity)), "{name}: {text}");
            for place in 1..=9 {
                assert!(text.matches(&format!("${place}")).count() <= 1, "{name}: {text}");
            }
        }
        assert_eq!(PARSED.len(), SPELLINGS.len());
    }

    #[test]
    fn calls_are_replaced_with_their_modifiers() {
        for (text, expected) in [
            ("SELECT YEAR(d) FROM t", "SELECT date_part('year', CAST(d AS DATE)) FROM t"),
            ("SELECT locate('a', lcase(b))", "SELECT strpos(lower(b), 'a')"),
            ("SELECT row_number() OVER (ORDER BY a)", "SELECT CAST(row_number() OVER (ORDER BY a) AS INT)"),
            (
                "SELECT approx_count_distinct(a) FILTER (WHERE b) FROM t",
                "SELECT CAST(approx_distinct(a) FILTER (WHERE b) AS BIGINT) FROM t",
            ),
            ("SELECT count(DISTINCT a, b) FROM t", "SELECT count(DISTINCT all_or_null(a, b)) FROM t"),
            ("SELECT map('a', 1, 'b', 2)", "SELECT map(make_array('a', 'b'), make_array(1, 2))"),
            ("SELECT a NOT RLIKE 'b'", "SELECT NOT regexp_like(a, 'b')"),
            ("SELECT to_date(a, '%Y')", "SELECT to_date(a, '%Y')"),
        ] {
            assert_eq!(respelled(text), expected);
        }
    }
}
