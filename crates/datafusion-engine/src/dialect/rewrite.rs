//! Rewrites of Spark's and Hive's syntax that the parser accepts and the planner does not.
//!
//! | written | planned as |
//! | --- | --- |
//! | `GROUP BY a WITH ROLLUP`, `WITH CUBE`, `GROUP BY a, b GROUPING SETS (…)` | `GROUP BY ROLLUP (a)` etc. |
//! | `MINUS` | `EXCEPT` |
//! | `FROM t` without SELECT | `SELECT * FROM t` |

use std::ops::ControlFlow;

use datafusion::sql::parser::{CopyToSource, CopyToStatement, ExplainStatement, Statement};
use datafusion::sql::sqlparser::ast::{
    Expr, GroupByExpr, GroupByWithModifier, Query, Select, SelectFlavor, SelectItem, SetExpr, SetOperator,
    SetQuantifier, VisitMut, VisitorMut, WildcardAdditionalOptions,
};

/// The statement in syntax that the planner supports.
pub fn rewritten(mut statement: Statement) -> Statement {
    let _ = visit(&mut statement, &mut Forms);
    statement
}

/// Visits all syntax trees of a statement of DataFusion's parser.
pub fn visit<V: VisitorMut>(statement: &mut Statement, visitor: &mut V) -> ControlFlow<V::Break> {
    match statement {
        Statement::Statement(statement) => statement.visit(visitor),
        Statement::CopyTo(CopyToStatement { source: CopyToSource::Query(query), .. }) => query.visit(visitor),
        Statement::Explain(ExplainStatement { statement, .. }) => visit(statement, visitor),
        Statement::CreateExternalTable(table) => {
            for order in table.order_exprs.iter_mut().flatten() {
                order.visit(visitor)?;
            }
            ControlFlow::Continue(())
        }
        Statement::CopyTo(_) | Statement::Reset(_) => ControlFlow::Continue(()),
    }
}

struct Forms;

impl VisitorMut for Forms {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        minus_is_except(&mut query.body);
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        if select.flavor == SelectFlavor::FromFirstNoSelect && select.projection.is_empty() {
            select.projection.push(SelectItem::Wildcard(WildcardAdditionalOptions::default()));
        }
        if let GroupByExpr::Expressions(keys, modifiers) = &mut select.group_by {
            grouping_sets(keys, modifiers);
        }
        ControlFlow::Continue(())
    }
}

fn minus_is_except(body: &mut SetExpr) {
    if let SetExpr::SetOperation { left, op, set_quantifier, right } = body {
        if *op == SetOperator::Minus
            && matches!(set_quantifier, SetQuantifier::All | SetQuantifier::Distinct | SetQuantifier::None)
        {
            *op = SetOperator::Except;
        }
        minus_is_except(left);
        minus_is_except(right);
    }
}

/// Moves a modifier after GROUP BY into the keys.
fn grouping_sets(keys: &mut Vec<Expr>, modifiers: &mut Vec<GroupByWithModifier>) {
    let each = |keys: &mut Vec<Expr>| std::mem::take(keys).into_iter().map(|key| vec![key]).collect();
    let sets = match modifiers.as_slice() {
        [GroupByWithModifier::Rollup] => Expr::Rollup(each(keys)),
        [GroupByWithModifier::Cube] => Expr::Cube(each(keys)),
        [GroupByWithModifier::GroupingSets(sets)] => sets.clone(),
        _ => return,
    };
    modifiers.clear();
    *keys = vec![sets];
}
