//! Checks that a statement has no clause that the parser accepts and DataFusion's planner ignores or cannot plan.
//!
//! The parser accepts the clauses of a dozen dialects. The planner of DataFusion 55 rejects many of them and ignores some,
//! which would silently return a wrong result. So each node of a statement's tree is checked before planning.
//!
//! Invariant: the structs of the tree are destructured without `..`, so that a new field of the parser does not compile
//! until it is marked here as planned (`_`), refused, or without effect on results (with a reason).

pub mod definition;
mod expression;
mod query;

use std::ops::ControlFlow;

use datafusion::execution::SessionState;
use datafusion::sql::parser::{CopyToSource, CopyToStatement, ExplainStatement, Statement};
use datafusion::sql::sqlparser::ast::{self, Expr, Query, Select, TableFactor, Visit, Visitor};
use model::error::{ErrorKind, UserError};

/// The result of checking one node.
type Checked = Result<(), UserError>;

/// Refuses a statement with a clause that would not be planned. `state` has the scalar functions.
pub fn check(statement: &Statement, state: &SessionState) -> Checked {
    let mut clauses = Clauses { state };
    match statement {
        Statement::Statement(statement) => clauses.walk(statement.as_ref()),
        Statement::CreateExternalTable(table) => {
            definition::external_table(table)?;
            table.order_exprs.iter().flatten().try_for_each(|order| clauses.walk(order))
        }
        Statement::CopyTo(CopyToStatement { source, target: _, partitioned_by: _, stored_as: _, options: _ }) => {
            match source {
                CopyToSource::Query(query) => clauses.walk(query.as_ref()),
                CopyToSource::Relation(_) => Ok(()),
            }
        }
        Statement::Explain(ExplainStatement { options: _, statement }) => check(statement, state),
        Statement::Reset(_) => Ok(()),
    }
}

/// The error for an unsupported clause.
fn refused(clause: &str) -> UserError {
    UserError::new(ErrorKind::NotSupported, format!("{clause} is not supported by this engine"))
}

/// Refuses a clause if it is present.
fn refuse(is_present: bool, clause: &str) -> Checked {
    if is_present { Err(refused(clause)) } else { Ok(()) }
}

/// Visits each node of a tree once.
struct Clauses<'a> {
    state: &'a SessionState,
}

impl Clauses<'_> {
    fn walk(&mut self, tree: &impl Visit) -> Checked {
        match tree.visit(self) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(error) => Err(*error),
        }
    }

    fn is_scalar(&self, name: &str) -> bool {
        name == "unnest" || self.state.scalar_functions().contains_key(name)
    }
}

/// Boxes the error: a tree is traversed recursively, and each stack frame contains several of them.
fn flow(checked: Checked) -> ControlFlow<Box<UserError>> {
    checked.map_or_else(|refused| ControlFlow::Break(Box::new(refused)), ControlFlow::Continue)
}

impl Visitor for Clauses<'_> {
    type Break = Box<UserError>;

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<Box<UserError>> {
        flow(query::query(query))
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<Box<UserError>> {
        flow(query::select(select))
    }

    fn pre_visit_table_factor(&mut self, table: &TableFactor) -> ControlFlow<Box<UserError>> {
        flow(query::table_factor(table))
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<Box<UserError>> {
        flow(expression::expression(expr, |name| self.is_scalar(name)))
    }

    fn pre_visit_statement(&mut self, statement: &ast::Statement) -> ControlFlow<Box<UserError>> {
        flow(definition::statement(statement))
    }
}

#[cfg(test)]
mod tests;
