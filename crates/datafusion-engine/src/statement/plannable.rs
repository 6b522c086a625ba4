//! Removal of clauses that DataFusion's planner rejects and that the engine implements itself.

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast;

/// The clauses that [`plannable`] removed from a statement.
#[derive(Debug, Clone, Copy, Default)]
pub struct RemovedClauses {
    /// IF NOT EXISTS of a CREATE VIEW.
    pub if_not_exists: bool,
    /// TEMPORARY of a CREATE TABLE.
    pub temporary: bool,
}

/// The statement without the clauses that DataFusion does not plan.
pub fn plannable(mut statement: Statement) -> (Statement, RemovedClauses) {
    let mut removed = RemovedClauses::default();
    if let Statement::Statement(statement) = &mut statement {
        match statement.as_mut() {
            ast::Statement::CreateView(view) => removed.if_not_exists = std::mem::take(&mut view.if_not_exists),
            ast::Statement::CreateTable(table) => removed.temporary = std::mem::take(&mut table.temporary),
            _ => {}
        }
    }
    (statement, removed)
}
