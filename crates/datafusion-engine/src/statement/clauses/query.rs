//! The clauses of a query: around SELECT, in SELECT, and in FROM.

use datafusion::sql::sqlparser::ast::{
    Cte, Expr, ExprWithAliasAndOrderBy, Function, FunctionArg, GroupByExpr, Join, JoinConstraint, JoinOperator,
    LimitClause, NamedWindowDefinition, NamedWindowExpr, OrderBy, OrderByExpr, OrderByKind, OrderByOptions,
    PipeOperator, Query, Select, SelectItem, SetExpr, SetOperator, SetQuantifier, TableAlias, TableAliasColumnDef,
    TableFactor, TableFunctionArgs, TableWithJoins, Values, WildcardAdditionalOptions, WindowType, With,
    visit_expressions,
};
use std::ops::ControlFlow;

use super::{Checked, refuse, refused};

pub fn query(query: &Query) -> Checked {
    let Query { with, body, order_by, limit_clause, fetch, locks, for_clause, settings, format_clause, pipe_operators } =
        query;
    refuse(fetch.is_some(), "FETCH")?;
    refuse(!locks.is_empty(), "FOR UPDATE or FOR SHARE")?;
    refuse(for_clause.is_some(), "FOR XML, FOR JSON or FOR BROWSE")?;
    refuse(settings.is_some(), "SETTINGS")?;
    refuse(format_clause.is_some(), "FORMAT")?;
    if let Some(With { with_token: _, recursive, cte_tables }) = with {
        cte_tables.iter().try_for_each(|cte| common_table(cte, *recursive))?;
    }
    if let Some(order_by) = order_by {
        let OrderBy { kind, interpolate } = order_by;
        refuse(interpolate.is_some(), "INTERPOLATE")?;
        match kind {
            OrderByKind::All(OrderByOptions { asc: _, nulls_first: _ }) => {
                refuse(!matches!(body.as_ref(), SetExpr::Select(_)), "ORDER BY ALL after UNION, INTERSECT or EXCEPT")?;
            }
            OrderByKind::Expressions(keys) => keys.iter().try_for_each(order_key)?,
        }
    }
    match limit_clause {
        Some(LimitClause::LimitOffset { limit: _, offset: _, limit_by }) => refuse(!limit_by.is_empty(), "LIMIT … BY")?,
        Some(LimitClause::OffsetCommaLimit { offset: _, limit: _ }) | None => {}
    }
    pipe_operators.iter().try_for_each(pipe)?;
    set_expr(body)
}

fn common_table(cte: &Cte, recursive: bool) -> Checked {
    // MATERIALIZED has no effect on results.
    let Cte { alias, query, from, materialized: _, closing_paren_token: _ } = cte;
    refuse(from.is_some(), "FROM after a common table expression")?;
    table_alias(alias)?;
    let Query {
        with,
        body,
        order_by,
        limit_clause,
        fetch,
        locks: _,
        for_clause: _,
        settings: _,
        format_clause: _,
        pipe_operators,
    } = query.as_ref();
    // The planner uses only the two sides of the UNION.
    if recursive && matches!(body.as_ref(), SetExpr::SetOperation { op: SetOperator::Union, .. }) {
        refuse(with.is_some(), "WITH inside a recursive common table expression")?;
        refuse(order_by.is_some(), "ORDER BY of a recursive common table expression")?;
        refuse(limit_clause.is_some() || fetch.is_some(), "LIMIT of a recursive common table expression")?;
        refuse(!pipe_operators.is_empty(), "a pipe operator of a recursive common table expression")?;
    }
    Ok(())
}

fn set_expr(body: &SetExpr) -> Checked {
    match body {
        // Visited separately.
        SetExpr::Select(_) | SetExpr::Query(_) => Ok(()),
        SetExpr::SetOperation { left, op, set_quantifier, right } => {
            let by_name = match set_quantifier {
                SetQuantifier::ByName | SetQuantifier::AllByName | SetQuantifier::DistinctByName => true,
                SetQuantifier::All | SetQuantifier::Distinct | SetQuantifier::None => false,
            };
            match op {
                SetOperator::Union => {}
                SetOperator::Except | SetOperator::Intersect => refuse(by_name, "BY NAME of EXCEPT or INTERSECT")?,
                SetOperator::Minus => return Err(refused("MINUS BY NAME")),
            }
            set_expr(left)?;
            set_expr(right)
        }
        // ROW before a row's values has no effect.
        SetExpr::Values(Values { explicit_row: _, value_keyword, rows: _ }) => refuse(*value_keyword, "VALUE"),
        SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_) | SetExpr::Merge(_) => {
            Err(refused("a statement that writes inside a query"))
        }
        SetExpr::Table(_) => Err(refused("TABLE as a query").hint("Write SELECT * FROM ….")),
    }
}

fn pipe(operator: &PipeOperator) -> Checked {
    let what = match operator {
        PipeOperator::Limit { expr: _, offset: _ }
        | PipeOperator::Where { expr: _ }
        | PipeOperator::As { alias: _ }
        | PipeOperator::Union { set_quantifier: _, queries: _ } => return Ok(()),
        PipeOperator::OrderBy { exprs } => return exprs.iter().try_for_each(order_key),
        PipeOperator::Select { exprs } | PipeOperator::Extend { exprs } => {
            return exprs.iter().try_for_each(select_item);
        }
        PipeOperator::Aggregate { full_table_exprs, group_by_expr } => {
            return full_table_exprs.iter().chain(group_by_expr).try_for_each(|item| {
                let ExprWithAliasAndOrderBy { expr: _, order_by: OrderByOptions { asc, nulls_first } } = item;
                refuse(asc.is_some() || nulls_first.is_some(), "an order in |> AGGREGATE")
            });
        }
        PipeOperator::Intersect { set_quantifier, queries: _ }
        | PipeOperator::Except { set_quantifier, queries: _ } => {
            let by_name = matches!(
                set_quantifier,
                SetQuantifier::ByName | SetQuantifier::AllByName | SetQuantifier::DistinctByName
            );
            return refuse(by_name, "BY NAME of EXCEPT or INTERSECT");
        }
        PipeOperator::Join(one) => return join(one),
        PipeOperator::Set { assignments: _ } => "|> SET",
        PipeOperator::Drop { columns: _ } => "|> DROP",
        PipeOperator::TableSample { sample: _ } => "TABLESAMPLE",
        PipeOperator::Rename { mappings: _ } => "|> RENAME",
        PipeOperator::Call { function: _, alias: _ } => "|> CALL",
        PipeOperator::Pivot { aggregate_functions: _, value_column: _, value_source: _, alias: _ } => "PIVOT",
        PipeOperator::Unpivot { value_column: _, name_column: _, unpivot_columns: _, alias: _ } => "UNPIVOT",
    };
    Err(refused(what))
}

pub fn select(select: &Select) -> Checked {
    let Select {
        select_token: _,
        // Hints have no effect on results; Spark, too, ignores unknown ones.
        optimizer_hints: _,
        distinct: _,
        select_modifiers,
        top,
        top_before_distinct: _,
        projection,
        exclude,
        into,
        from,
        lateral_views,
        prewhere,
        selection: _,
        connect_by,
        group_by,
        cluster_by,
        // It only distributes rows among tasks, with no effect on results.
        distribute_by: _,
        sort_by,
        having,
        named_window,
        qualify,
        window_before_qualify: _,
        value_table_mode,
        // FROM first, with or without SELECT, is already rewritten to a plain SELECT.
        flavor: _,
    } = select;
    refuse(select_modifiers.is_some(), "a modifier of SELECT such as SQL_CALC_FOUND_ROWS")?;
    refuse(top.is_some(), "TOP").map_err(|error| error.hint("Use LIMIT."))?;
    refuse(exclude.is_some(), "EXCLUDE after the columns")
        .map_err(|error| error.hint("Write SELECT * EXCLUDE (…)."))?;
    refuse(into.is_some(), "SELECT INTO").map_err(|error| error.hint("Use CREATE TEMPORARY TABLE … AS SELECT …."))?;
    refuse(!lateral_views.is_empty(), "LATERAL VIEW")
        .map_err(|error| error.hint("Use explode(…) in the SELECT list."))?;
    refuse(prewhere.is_some(), "PREWHERE").map_err(|error| error.hint("Use WHERE."))?;
    refuse(!connect_by.is_empty(), "CONNECT BY").map_err(|error| error.hint("Use WITH RECURSIVE."))?;
    refuse(!cluster_by.is_empty(), "CLUSTER BY").map_err(|error| error.hint("Use ORDER BY."))?;
    refuse(!sort_by.is_empty(), "SORT BY").map_err(|error| error.hint("Use ORDER BY."))?;
    refuse(value_table_mode.is_some(), "SELECT AS STRUCT or AS VALUE")?;
    let modifiers = match group_by {
        GroupByExpr::All(modifiers) | GroupByExpr::Expressions(_, modifiers) => modifiers,
    };
    refuse(!modifiers.is_empty(), "WITH TOTALS, or WITH ROLLUP or WITH CUBE of GROUP BY ALL")?;
    projection.iter().try_for_each(select_item)?;
    from.iter().try_for_each(with_joins)?;
    for NamedWindowDefinition(_, definition) in named_window {
        match definition {
            NamedWindowExpr::NamedWindow(_) => return Err(refused("a window that names another window")),
            NamedWindowExpr::WindowSpec(_) => {}
        }
    }
    // The planner resolves named windows only in the SELECT list. Elsewhere it would compute an aggregate.
    having.iter().chain(qualify).try_for_each(no_named_window)
}

fn no_named_window(expr: &Expr) -> Checked {
    let found = visit_expressions(expr, |expr| match expr {
        Expr::Function(Function { over: Some(WindowType::NamedWindow(_)), .. }) => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    refuse(found.is_break(), "a named window outside the SELECT list")
}

pub fn order_key(key: &OrderByExpr) -> Checked {
    let OrderByExpr { expr, options: OrderByOptions { asc: _, nulls_first: _ }, with_fill } = key;
    refuse(with_fill.is_some(), "WITH FILL")?;
    no_named_window(expr)
}

fn select_item(item: &SelectItem) -> Checked {
    match item {
        SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { expr: _, alias: _ } => Ok(()),
        SelectItem::ExprWithAliases { expr: _, aliases: _ } => Err(refused("a column with several aliases")),
        SelectItem::QualifiedWildcard(_, options) | SelectItem::Wildcard(options) => wildcard(options),
    }
}

fn wildcard(options: &WildcardAdditionalOptions) -> Checked {
    let WildcardAdditionalOptions {
        wildcard_token: _,
        opt_ilike: _,
        opt_exclude: _,
        opt_except: _,
        opt_replace: _,
        opt_rename,
        opt_alias,
    } = options;
    refuse(opt_rename.is_some(), "RENAME of *")?;
    refuse(opt_alias.is_some(), "an alias of *")
}

fn with_joins(item: &TableWithJoins) -> Checked {
    let TableWithJoins { relation: _, joins } = item;
    joins.iter().try_for_each(join)
}

fn join(join: &Join) -> Checked {
    let Join { relation: _, global, join_operator } = join;
    refuse(*global, "GLOBAL of a join")?;
    let constraint = match join_operator {
        JoinOperator::Join(constraint)
        | JoinOperator::Inner(constraint)
        | JoinOperator::Left(constraint)
        | JoinOperator::LeftOuter(constraint)
        | JoinOperator::Right(constraint)
        | JoinOperator::RightOuter(constraint)
        | JoinOperator::FullOuter(constraint)
        | JoinOperator::LeftSemi(constraint)
        | JoinOperator::RightSemi(constraint)
        | JoinOperator::LeftAnti(constraint)
        | JoinOperator::RightAnti(constraint) => constraint,
        JoinOperator::CrossJoin(constraint) => {
            return refuse(!matches!(constraint, JoinConstraint::None), "ON or USING of a CROSS JOIN");
        }
        JoinOperator::Semi(_) => return Err(refused("SEMI JOIN without a side").hint("Write LEFT SEMI JOIN.")),
        JoinOperator::Anti(_) => return Err(refused("ANTI JOIN without a side").hint("Write LEFT ANTI JOIN.")),
        JoinOperator::CrossApply | JoinOperator::OuterApply => {
            return Err(refused("APPLY").hint("Use CROSS JOIN LATERAL."));
        }
        JoinOperator::AsOf { match_condition: _, constraint: _ } => return Err(refused("ASOF JOIN")),
        JoinOperator::StraightJoin(_) => return Err(refused("STRAIGHT_JOIN").hint("Use JOIN.")),
        JoinOperator::ArrayJoin | JoinOperator::LeftArrayJoin | JoinOperator::InnerArrayJoin => {
            return Err(refused("ARRAY JOIN").hint("Use unnest(…) in the SELECT list."));
        }
    };
    match constraint {
        JoinConstraint::On(_) | JoinConstraint::Using(_) | JoinConstraint::Natural | JoinConstraint::None => Ok(()),
    }
}

fn table_alias(alias: &TableAlias) -> Checked {
    let TableAlias { explicit: _, name: _, columns, at } = alias;
    refuse(at.is_some(), "AT of an alias")?;
    columns.iter().try_for_each(|TableAliasColumnDef { name: _, data_type }| {
        refuse(data_type.is_some(), "a type in the columns of an alias")
    })
}

pub fn table_factor(table: &TableFactor) -> Checked {
    let sampled = |sample: bool| {
        refuse(sample, "TABLESAMPLE").map_err(|error| error.hint("Use WHERE random() < 0.01, or LIMIT."))
    };
    let alias = match table {
        TableFactor::Table {
            name: _,
            alias,
            args,
            with_hints,
            version,
            with_ordinality,
            partitions,
            json_path,
            sample,
            index_hints,
        } => {
            sampled(sample.is_some())?;
            refuse(!with_hints.is_empty(), "a table hint (WITH …)")?;
            refuse(version.is_some(), "the version of a table (FOR … AS OF)")?;
            refuse(*with_ordinality, "WITH ORDINALITY")?;
            refuse(!partitions.is_empty(), "PARTITION (…) of a table")
                .map_err(|error| error.hint("Use a condition on the partition columns in WHERE."))?;
            refuse(json_path.is_some(), "a path into a table")?;
            refuse(!index_hints.is_empty(), "an index hint")?;
            if let Some(TableFunctionArgs { args, settings }) = args {
                refuse(settings.is_some(), "SETTINGS of a table function")?;
                args.iter().try_for_each(positional)?;
            }
            alias
        }
        TableFactor::Derived { lateral: _, subquery: _, alias, sample } => {
            sampled(sample.is_some())?;
            alias
        }
        TableFactor::Function { lateral: _, name: _, args, with_ordinality, alias } => {
            refuse(*with_ordinality, "WITH ORDINALITY")?;
            args.iter().try_for_each(positional)?;
            alias
        }
        TableFactor::UNNEST { alias, array_exprs: _, with_offset, with_offset_alias, with_ordinality } => {
            refuse(*with_offset || with_offset_alias.is_some(), "WITH OFFSET of UNNEST")?;
            refuse(*with_ordinality, "WITH ORDINALITY")?;
            alias
        }
        TableFactor::NestedJoin { table_with_joins, alias } => {
            with_joins(table_with_joins)?;
            alias
        }
        TableFactor::TableFunction { expr: _, alias: _ } => return Err(refused("TABLE(…)")),
        TableFactor::JsonTable { json_expr: _, json_path: _, columns: _, alias: _ } => {
            return Err(refused("JSON_TABLE"));
        }
        TableFactor::OpenJsonTable { json_expr: _, json_path: _, columns: _, alias: _ } => {
            return Err(refused("OPENJSON"));
        }
        TableFactor::Pivot {
            table: _,
            aggregate_functions: _,
            value_column: _,
            value_source: _,
            default_on_null: _,
            alias: _,
        } => return Err(refused("PIVOT").hint("Write one aggregate with FILTER (WHERE …) for each value.")),
        TableFactor::Unpivot { table: _, value: _, name: _, columns: _, null_inclusion: _, alias: _ } => {
            return Err(refused("UNPIVOT").hint("Use UNION ALL."));
        }
        TableFactor::MatchRecognize {
            table: _,
            partition_by: _,
            order_by: _,
            measures: _,
            rows_per_match: _,
            after_match_skip: _,
            pattern: _,
            symbols: _,
            alias: _,
        } => return Err(refused("MATCH_RECOGNIZE")),
        TableFactor::XmlTable { namespaces: _, row_expression: _, passing: _, columns: _, alias: _ } => {
            return Err(refused("XMLTABLE"));
        }
        TableFactor::SemanticView { name: _, dimensions: _, metrics: _, facts: _, where_clause: _, alias: _ } => {
            return Err(refused("SEMANTIC_VIEW"));
        }
    };
    alias.iter().try_for_each(table_alias)
}

fn positional(argument: &FunctionArg) -> Checked {
    match argument {
        FunctionArg::Unnamed(_) => Ok(()),
        FunctionArg::Named { name: _, arg: _, operator: _ }
        | FunctionArg::ExprNamed { name: _, arg: _, operator: _ } => {
            Err(refused("a named argument of a table function"))
        }
    }
}
