//! TEMPORARY tables and views. They belong to one session and end with it.
//!
//! The rows of a temporary table are in memory, which is reserved in the pool: creating a table that does not fit fails with
//! 53200, and the reservation is released when the last statement that reads the table has ended.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session as PlanSession, TableProvider};
use datafusion::dataframe::DataFrame;
use datafusion::datasource::MemTable;
use datafusion::error::Result;
use datafusion::execution::SessionState;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::logical_expr::{CreateMemoryTable, Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use futures::StreamExt;
use futures::future::BoxFuture;
use model::error::{ErrorKind, UserError};

use crate::catalog::temporary::TEMPORARY_MAX;
use crate::error::EngineError;
use crate::session::Session;

/// Rows in memory, with their memory reservation.
#[derive(Debug)]
struct TemporaryTable {
    rows: MemTable,
    _memory: MemoryReservation,
}

#[async_trait]
impl TableProvider for TemporaryTable {
    fn schema(&self) -> SchemaRef {
        self.rows.schema()
    }

    fn table_type(&self) -> TableType {
        TableType::Temporary
    }

    // An `async fn` that forwards its arguments without a future of its own: see `Catalog::table`.
    fn scan<'own, 'state, 'columns, 'filters, 'all>(
        &'own self,
        state: &'state dyn PlanSession,
        projection: Option<&'columns Vec<usize>>,
        filters: &'filters [Expr],
        limit: Option<usize>,
    ) -> BoxFuture<'all, Result<Arc<dyn ExecutionPlan>>>
    where
        'own: 'all,
        'state: 'all,
        'columns: 'all,
        'filters: 'all,
        Self: 'all,
    {
        self.rows.scan(state, projection, filters, limit)
    }
}

/// CREATE TEMPORARY TABLE … AS …
pub async fn create_table(
    session: &Session,
    state: &SessionState,
    command: CreateMemoryTable,
) -> std::result::Result<(), EngineError> {
    let name = command.name.table().to_owned();
    if session.temporary.get(&session.schema(), &name).is_some() && !command.or_replace {
        return if command.if_not_exists { Ok(()) } else { Err(already_exists(&name).into()) };
    }
    let memory = MemoryConsumer::new(format!("temporary table {name}")).register(&state.runtime_env().memory_pool);
    let frame = DataFrame::new(state.clone(), Arc::unwrap_or_clone(command.input));
    let mut stream = frame.execute_stream().await?;
    let schema = stream.schema();
    let mut batches = Vec::new();
    while let Some(batch) = stream.next().await {
        let batch = batch?;
        memory.try_grow(batch.get_array_memory_size())?;
        batches.push(batch);
    }
    let rows = MemTable::try_new(schema, vec![batches])?;
    keep(session, &name, Arc::new(TemporaryTable { rows, _memory: memory }), command.or_replace, command.if_not_exists)
}

/// Stores a temporary table or view under its name.
pub fn keep(
    session: &Session,
    name: &str,
    table: Arc<dyn TableProvider>,
    or_replace: bool,
    if_not_exists: bool,
) -> std::result::Result<(), EngineError> {
    if session.temporary.get(&session.schema(), name).is_some() && !or_replace {
        return if if_not_exists { Ok(()) } else { Err(already_exists(name).into()) };
    }
    if session.temporary.put(name, table) {
        return Ok(());
    }
    Err(UserError::new(ErrorKind::ProgramLimit, "too many temporary tables in the session")
        .detail(format!("The limit is {TEMPORARY_MAX}."))
        .into())
}

fn already_exists(name: &str) -> UserError {
    UserError::new(ErrorKind::DuplicateObject, format!("temporary table \"{name}\" already exists"))
        .with_sqlstate("42P07")
}
