//! The clauses of an expression.

use datafusion::sql::sqlparser::ast::{
    DuplicateTreatment, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentClause, FunctionArgumentList,
    FunctionArguments, Interval, TypedString, WindowFrame, WindowSpec, WindowType,
};

use super::query::order_key;
use super::{Checked, refuse, refused};

/// Checks one expression; nested ones are visited separately. `is_scalar` tells whether a function is scalar.
pub fn expression(expr: &Expr, is_scalar: impl Fn(&str) -> bool) -> Checked {
    let what = match expr {
        Expr::Identifier(_)
        | Expr::CompoundIdentifier(_)
        | Expr::CompoundFieldAccess { root: _, access_chain: _ }
        | Expr::JsonAccess { value: _, path: _ }
        | Expr::IsFalse(_)
        | Expr::IsNotFalse(_)
        | Expr::IsTrue(_)
        | Expr::IsNotTrue(_)
        | Expr::IsNull(_)
        | Expr::IsNotNull(_)
        | Expr::IsUnknown(_)
        | Expr::IsNotUnknown(_)
        | Expr::IsDistinctFrom(..)
        | Expr::IsNotDistinctFrom(..)
        | Expr::InList { expr: _, list: _, negated: _ }
        | Expr::InSubquery { expr: _, subquery: _, negated: _ }
        | Expr::Between { expr: _, negated: _, low: _, high: _ }
        | Expr::BinaryOp { left: _, op: _, right: _ }
        | Expr::SimilarTo { negated: _, expr: _, pattern: _, escape_char: _ }
        | Expr::AnyOp { left: _, compare_op: _, right: _, is_some: _ }
        | Expr::AllOp { left: _, compare_op: _, right: _ }
        | Expr::UnaryOp { op: _, expr: _ }
        | Expr::Extract { field: _, syntax: _, expr: _ }
        | Expr::Ceil { expr: _, field: _ }
        | Expr::Floor { expr: _, field: _ }
        | Expr::Position { expr: _, r#in: _ }
        | Expr::Substring { expr: _, substring_from: _, substring_for: _, special: _, shorthand: _ }
        | Expr::Overlay { expr: _, overlay_what: _, overlay_from: _, overlay_for: _ }
        | Expr::Nested(_)
        | Expr::Value(_)
        | Expr::TypedString(TypedString { data_type: _, value: _, uses_odbc_syntax: _ })
        | Expr::Case { case_token: _, end_token: _, operand: _, conditions: _, else_result: _ }
        | Expr::Exists { subquery: _, negated: _ }
        | Expr::Subquery(_)
        | Expr::GroupingSets(_)
        | Expr::Cube(_)
        | Expr::Rollup(_)
        | Expr::Tuple(_)
        | Expr::Struct { values: _, fields: _ }
        | Expr::Dictionary(_)
        | Expr::Map(_)
        | Expr::Array(_)
        | Expr::Wildcard(_)
        | Expr::QualifiedWildcard(..)
        | Expr::AtTimeZone { timestamp: _, time_zone: _ }
        // Planned as arguments of a function or fields of a struct.
        | Expr::Named { expr: _, name: _ }
        | Expr::Lambda(_) => return Ok(()),
        Expr::Function(one) => return function(one, is_scalar),
        Expr::Like { negated: _, any, expr: _, pattern: _, escape_char: _ }
        | Expr::ILike { negated: _, any, expr: _, pattern: _, escape_char: _ } => {
            return refuse(*any, "LIKE ANY").map_err(|error| error.hint("Combine several LIKE with OR."));
        }
        Expr::Cast { kind: _, expr: _, data_type: _, array, format } => {
            refuse(*array, "CAST to an ARRAY type of MySQL")?;
            return refuse(format.is_some(), "FORMAT of CAST");
        }
        Expr::Trim { trim_where: _, trim_what: _, expr: _, trim_characters } => {
            return refuse(trim_characters.as_ref().is_some_and(|them| them.len() > 1), "TRIM with several arguments");
        }
        Expr::Interval(Interval {
            value: _,
            leading_field: _,
            leading_precision,
            last_field,
            fractional_seconds_precision,
        }) => {
            refuse(leading_precision.is_some() || fractional_seconds_precision.is_some(), "the precision of INTERVAL")?;
            return refuse(last_field.is_some(), "INTERVAL … TO …")
                .map_err(|error| error.hint("Write the interval's parts, as in INTERVAL '1 day 2 hours'."));
        }
        Expr::IsNormalized { expr: _, form: _, negated: _ } => "IS NORMALIZED",
        Expr::InUnnest { expr: _, array_expr: _, negated: _ } => "IN UNNEST",
        Expr::RLike { negated: _, expr: _, pattern: _, regexp: _ } => "RLIKE",
        Expr::Convert { is_try: _, expr: _, data_type: _, charset: _, target_before_value: _, styles: _ } => "CONVERT",
        Expr::Collate { expr: _, collation: _ } => "COLLATE",
        Expr::Prefixed { prefix: _, value: _ } => "a character set before a string",
        Expr::MatchAgainst { columns: _, match_value: _, opt_search_modifier: _ } => "MATCH … AGAINST",
        Expr::OuterJoin(_) => "the outer join operator (+)",
        Expr::Prior(_) => "PRIOR",
        Expr::MemberOf(_) => "MEMBER OF",
    };
    Err(refused(what))
}

fn function(function: &Function, is_scalar: impl Fn(&str) -> bool) -> Checked {
    let Function { name, uses_odbc_syntax: _, parameters, args, filter, null_treatment, over, within_group } = function;
    let name = name.to_string().to_lowercase();
    refuse(!matches!(parameters, FunctionArguments::None), "a second list of arguments of a function")?;
    // The planner uses these only for aggregate and window functions.
    if is_scalar(&name) {
        let of = |clause: &str| format!("{clause} of {name}()");
        refuse(filter.is_some(), &of("FILTER"))?;
        refuse(over.is_some(), &of("OVER"))?;
        refuse(null_treatment.is_some(), &of("IGNORE NULLS or RESPECT NULLS"))?;
        refuse(!within_group.is_empty(), &of("WITHIN GROUP"))?;
        if let FunctionArguments::List(FunctionArgumentList { duplicate_treatment, args: _, clauses }) = args {
            refuse(matches!(duplicate_treatment, Some(DuplicateTreatment::Distinct)), &of("DISTINCT"))?;
            refuse(!clauses.is_empty(), &of("a clause in the arguments"))?;
        }
    }
    match args {
        FunctionArguments::None => {}
        FunctionArguments::Subquery(_) => return Err(refused("a query as the argument of a function")),
        FunctionArguments::List(FunctionArgumentList { duplicate_treatment: _, args, clauses }) => {
            args.iter().try_for_each(argument)?;
            clauses.iter().try_for_each(argument_clause)?;
        }
    }
    within_group.iter().try_for_each(order_key)?;
    match over {
        None | Some(WindowType::NamedWindow(_)) => Ok(()),
        Some(WindowType::WindowSpec(WindowSpec { window_name, partition_by: _, order_by, window_frame })) => {
            refuse(window_name.is_some(), "OVER with the name of a window and further clauses")
                .map_err(|error| error.hint("Write OVER name, or the whole window."))?;
            if let Some(WindowFrame { units: _, start_bound: _, end_bound: _ }) = window_frame {}
            order_by.iter().try_for_each(order_key)
        }
    }
}

fn argument(argument: &FunctionArg) -> Checked {
    let value = match argument {
        FunctionArg::Unnamed(value) | FunctionArg::Named { name: _, arg: value, operator: _ } => value,
        FunctionArg::ExprNamed { name: _, arg: _, operator: _ } => {
            return Err(refused("an expression as the name of an argument"));
        }
    };
    match value {
        FunctionArgExpr::Expr(_) | FunctionArgExpr::QualifiedWildcard(_) | FunctionArgExpr::Wildcard => Ok(()),
        FunctionArgExpr::WildcardWithOptions(_) => Err(refused("EXCEPT or EXCLUDE of * in an argument")),
    }
}

fn argument_clause(clause: &FunctionArgumentClause) -> Checked {
    let what = match clause {
        FunctionArgumentClause::IgnoreOrRespectNulls(_) => return Ok(()),
        FunctionArgumentClause::OrderBy(keys) => return keys.iter().try_for_each(order_key),
        FunctionArgumentClause::Limit(_) => "LIMIT in an argument",
        FunctionArgumentClause::OnOverflow(_) => "ON OVERFLOW in an argument",
        FunctionArgumentClause::Having(_) => "HAVING in an argument",
        FunctionArgumentClause::Separator(_) => "SEPARATOR in an argument",
        FunctionArgumentClause::JsonNullClause(_) => "NULL ON NULL or ABSENT ON NULL in an argument",
        FunctionArgumentClause::JsonReturningClause(_) => "RETURNING in an argument",
    };
    Err(refused(what))
}
