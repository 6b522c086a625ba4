//! A limit on the number of relations that one query joins.
//!
//! DataFusion's time for planning a join grows with more than the third power of its relations, and planning can be neither
//! cancelled nor timed out. The branches of a UNION are planned separately and counted separately.

use std::ops::ControlFlow;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::DataFusionError;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::parser::{CopyToSource, Statement};
use datafusion::sql::sqlparser::ast::{Select, Visit, Visitor};
use model::error::{ErrorKind, UserError};

/// The most joined relations: tables, views, subqueries. DataFusion plans this many in less than a second.
pub const RELATIONS_MAX: usize = 256;

/// Refuses a statement with a longer FROM clause before planning.
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

/// Refuses a plan that joins more relations, including those of its views, common table expressions and subqueries.
pub fn check_plan(plan: &LogicalPlan) -> Result<(), DataFusionError> {
    if count(plan)? > RELATIONS_MAX {
        return Err(DataFusionError::External(Box::new(too_many())));
    }
    Ok(())
}

fn too_many() -> UserError {
    UserError::new(ErrorKind::ProgramLimit, "statement joins too many relations")
        .detail(format!("The limit is {RELATIONS_MAX}, including relations in subqueries and views."))
        .hint("Join in steps, and store intermediate results with CREATE TEMPORARY TABLE or COPY.")
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

/// The joined relations below a plan's node; counting stops above [`RELATIONS_MAX`].
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
