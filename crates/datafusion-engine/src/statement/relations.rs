//! How many relations one query may join.
//!
//! The time that DataFusion needs to plan a join grows with more than the third power of its relations, and planning can
//! be neither cancelled nor timed out. The branches of a UNION are planned one by one, and count one by one.

use std::ops::ControlFlow;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::DataFusionError;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::parser::{CopyToSource, Statement};
use datafusion::sql::sqlparser::ast::{Select, Visit, Visitor};
use model::error::{ErrorKind, UserError};

/// The most relations that are joined: tables, views, subqueries. DataFusion plans this many in less than a second.
pub const RELATIONS_MAX: usize = 256;

/// Refuses a statement with a longer FROM clause, before it is planned at all.
pub fn check_statement(statement: &Statement) -> Result<(), UserError> {
    let flow = match statement {
        Statement::Statement(statement) => Visit::visit(statement.as_ref(), &mut Counter),
        Statement::Explain(explain) => return check_statement(&explain.statement),
        Statement::CopyTo(copy) => match &copy.source {
            CopyToSource::Query(query) => Visit::visit(query, &mut Counter),
            CopyToSource::Relation(_) => ControlFlow::Continue(()),
        },
        _ => ControlFlow::Continue(()),
    };
    if flow.is_break() { Err(too_many()) } else { Ok(()) }
}

/// Refuses a plan that joins more relations, those of its views, common table expressions and subqueries included.
pub fn check_plan(plan: &LogicalPlan) -> Result<(), DataFusionError> {
    if count(plan)? > RELATIONS_MAX {
        return Err(DataFusionError::External(Box::new(too_many())));
    }
    Ok(())
}

fn too_many() -> UserError {
    UserError::new(ErrorKind::ProgramLimit, "statement joins too many relations")
        .detail(format!("The limit is {RELATIONS_MAX}, those in its subqueries and views included."))
        .hint("Join in steps: write intermediate results with CREATE TEMPORARY TABLE or COPY.")
        .with_sqlstate("54001")
}

struct Counter;

impl Visitor for Counter {
    type Break = ();

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
        let relations: usize = select.from.iter().map(|item| 1 + item.joins.len()).sum();
        if relations > RELATIONS_MAX { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

/// The relations that are joined below a plan's node; more than [`RELATIONS_MAX`] are not counted to the end.
fn count(plan: &LogicalPlan) -> Result<usize, DataFusionError> {
    let inputs = plan.inputs();
    let mut joined = 0;
    let mut widest = 0;
    for input in &inputs {
        let below = count(input)?;
        joined += below;
        widest = widest.max(below);
        if widest > RELATIONS_MAX || (joined > RELATIONS_MAX && !matches!(plan, LogicalPlan::Union(_))) {
            return Ok(RELATIONS_MAX + 1);
        }
    }
    if matches!(plan, LogicalPlan::Union(_)) {
        joined = widest;
    }
    if inputs.is_empty() {
        joined = 1;
    }
    plan.apply_subqueries(|subquery| {
        joined += count(subquery)?;
        Ok(if joined > RELATIONS_MAX { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(joined)
}
