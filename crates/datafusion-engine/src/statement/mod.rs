//! Execution of a statement, from its text to its rows.
//!
//! [`command`] parses statements that DataFusion does not support; [`show`] executes SHOW and DESCRIBE; [`define`] changes the
//! tenant's catalog; everything else is planned by DataFusion in the session's state and executed as a stream. The state is
//! copied when the statement begins: a concurrent SET or USE does not affect it.

pub mod clauses;
pub mod command;
pub mod define;
pub mod depth;
pub mod head;
pub mod plannable;
pub mod relations;
pub mod show;
pub mod temporary;

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema, UInt64Type};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::dataframe::DataFrame;
use datafusion::error::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::logical_expr::{LogicalPlan, Statement};
use datafusion::prelude::SessionContext;
use futures::StreamExt;
use model::error::{ErrorKind, UserError};

use crate::catalog::build;
use crate::context::EngineContext;
use crate::dialect::SqlDialect;
use crate::error::EngineError;
use crate::operation::Operation;
use crate::session::{Session, settings};
use crate::storage::Locations;
use command::Command;
use plannable::plannable;

/// The most nested EXECUTE statements.
const PREPARED_DEPTH_MAX: usize = 4;

/// The result of a statement.
pub enum Outcome {
    /// No rows.
    Done,
    /// A few rows, computed at once.
    Answer(RecordBatch),
    /// A stream of rows.
    Rows(SendableRecordBatchStream),
}

/// Executes a statement in its session.
pub async fn run(
    engine: &EngineContext,
    session: &Arc<Session>,
    operation: &Operation,
) -> Result<Outcome, EngineError> {
    let text = operation.statement.as_str();
    let catalog = engine.catalog();
    let dialect = SqlDialect::from_options(session.context.state_ref().read().config_options());
    match Command::read(text, dialect)? {
        Command::Sql => sql(engine, session, operation, text).await,
        Command::DescribeQuery(query) => describe_query(session, &query, dialect).await.map(Outcome::Answer),
        Command::Use(schema) => session.use_schema(catalog, &schema).map(|()| Outcome::Done),
        Command::Set(key, value) => {
            session.set(catalog, &key, &value).await?;
            Ok(Outcome::Answer(table(&["key", "value"], &[vec![key, value]])?))
        }
        Command::SetGet(key) => {
            let value = setting(session, &key).await.unwrap_or_else(|| "<undefined>".to_owned());
            Ok(Outcome::Answer(table(&["key", "value"], &[vec![key, value]])?))
        }
        Command::SetShow { verbose } => {
            Ok(Outcome::Answer(table(&["key", "value"], &settings_of(session, verbose).await)?))
        }
        Command::Reset(key) => {
            let mut variables = session.variables.lock().await;
            settings::reset(&session.context, engine.initial_settings(), &mut variables, key.as_deref()).await?;
            let first = session.first_variables.iter();
            let restored = first.filter(|(name, _)| key.as_deref().is_none_or(|key| settings::plain_key(key) == *name));
            variables.extend(restored.map(|(name, value)| (name.clone(), value.clone())));
            Ok(Outcome::Done)
        }
        Command::CreateSchema { name, if_not_exists } => {
            define::create_schema(catalog, &name, if_not_exists).map(|()| Outcome::Done)
        }
        Command::DropSchema { name, if_exists, cascade } => {
            define::drop_schema(catalog, &name, if_exists, cascade).map(|()| Outcome::Done)
        }
        other => show::answer(engine, session, other).await.map(Outcome::Answer),
    }
}

/// Plans a query and returns its columns as rows.
async fn describe_query(session: &Session, query: &str, dialect: SqlDialect) -> Result<RecordBatch, EngineError> {
    depth::check(query, dialect)?;
    let mut state = session.context.state();
    let statement = dialect.statement(query, state.config_options())?;
    match build::plan(&mut state, statement).await? {
        LogicalPlan::Ddl(_) | LogicalPlan::Dml(_) | LogicalPlan::Copy(_) | LogicalPlan::Statement(_) => {
            Err(UserError::new(ErrorKind::Syntax, "syntax error: DESCRIBE QUERY takes a query").into())
        }
        plan => show::columns(plan.schema().as_arrow()),
    }
}

async fn setting(session: &Session, key: &str) -> Option<String> {
    let key = settings::plain_key(key);
    if let Some(value) = session.variables.lock().await.get(key) {
        return Some(value.clone());
    }
    settings::value_of(&session.context, &key.to_ascii_lowercase())
}

async fn settings_of(session: &Session, verbose: bool) -> Vec<Vec<String>> {
    let kept = session.variables.lock().await;
    // The relay sets the poll's wait, not the client.
    let listed = kept.iter().filter(|(key, _)| verbose || *key != settings::LONG_POLL);
    let mut rows: Vec<_> = listed.map(|(key, value)| vec![key.clone(), value.clone()]).collect();
    if verbose {
        let state = session.context.state_ref();
        let entries = state.read().config_options().entries();
        rows.extend(entries.into_iter().map(|entry| vec![entry.key, entry.value.unwrap_or_default()]));
    }
    rows.sort();
    rows
}

async fn sql(
    engine: &EngineContext,
    session: &Arc<Session>,
    operation: &Operation,
    text: &str,
) -> Result<Outcome, EngineError> {
    let mut state = session.context.state();
    if !operation.overlay.is_empty() {
        // The settings of this statement are applied to a copy of the session.
        let context = SessionContext::new_with_state(state);
        let mut ignored = BTreeMap::new();
        for (key, value) in &operation.overlay {
            settings::set(&context, &mut ignored, key, value).await?;
        }
        state = context.state();
    }
    let dialect = SqlDialect::from_options(state.config_options());
    depth::check(text, dialect)?;
    let statement = dialect.statement(text, state.config_options())?;
    let statement = match define::schema_change(&statement)? {
        Some(changed) => return changed.apply(engine.catalog()).map(|()| Outcome::Done),
        None => statement,
    };
    operation.log_line("planning");
    let (statement, removed) = plannable(statement);
    let plan = build::plan(&mut state, statement).await?;
    let mut frame = DataFrame::new(state, plan);
    for _ in 0..PREPARED_DEPTH_MAX {
        let (state, plan) = frame.into_parts();
        match plan {
            LogicalPlan::Ddl(change) => {
                return Box::pin(define::apply(engine, session, &state, change, text, removed))
                    .await
                    .map(|()| Outcome::Done);
            }
            LogicalPlan::Statement(prepared @ (Statement::Prepare(_) | Statement::Deallocate(_))) => {
                session.context.execute_logical_plan(LogicalPlan::Statement(prepared)).await?;
                return Ok(Outcome::Done);
            }
            LogicalPlan::Statement(execute @ Statement::Execute(_)) => {
                frame = session.context.execute_logical_plan(LogicalPlan::Statement(execute)).await?;
            }
            LogicalPlan::Statement(other) => {
                return Err(UserError::new(
                    ErrorKind::NotSupported,
                    format!("statement {} is not supported by this engine", other.name()),
                )
                .into());
            }
            query => {
                let query = confine_copies(engine.catalog().locations(), query)?;
                let stream = DataFrame::new(state, query).execute_stream().await?;
                if operation.has_result_set {
                    return Ok(Outcome::Rows(stream));
                }
                return run_write(stream, operation).await.map(|()| Outcome::Done);
            }
        }
    }
    Err(UserError::new(ErrorKind::ProgramLimit, "prepared statements are nested too deeply").into())
}

/// Runs an INSERT or COPY to its end. The plan returns the number of rows; HiveServer2's clients expect no result set.
async fn run_write(mut stream: SendableRecordBatchStream, operation: &Operation) -> Result<(), EngineError> {
    let mut rows = 0_i64;
    while let Some(batch) = stream.next().await {
        let batch = batch?;
        if let Some(counts) = batch.columns().first().and_then(|column| column.as_primitive_opt::<UInt64Type>()) {
            rows += counts.iter().flatten().map(|count| i64::try_from(count).unwrap_or(i64::MAX)).sum::<i64>();
        }
    }
    operation.set_written_rows(rows);
    operation.log_line(format!("executed, {rows} rows written"));
    Ok(())
}

/// Resolves the target of every COPY, including an explained one, or refuses it.
fn confine_copies(locations: &Locations, plan: LogicalPlan) -> Result<LogicalPlan, EngineError> {
    let confine = |plan| match plan {
        LogicalPlan::Copy(mut copy) => match locations.confine(&copy.output_url) {
            Ok(target) => {
                copy.output_url = target.text;
                Ok(Transformed::yes(LogicalPlan::Copy(copy)))
            }
            Err(refused) => Err(DataFusionError::External(Box::new(refused))),
        },
        other => Ok(Transformed::no(other)),
    };
    Ok(plan.transform_up(confine)?.data)
}

/// Rows of texts, the result format of SHOW.
pub fn table(columns: &[&str], rows: &[Vec<String>]) -> Result<RecordBatch, EngineError> {
    let fields: Vec<_> = columns.iter().map(|name| Field::new(*name, DataType::Utf8, true)).collect();
    let arrays = (0..columns.len())
        .map(|column| Arc::new(rows.iter().map(|row| row.get(column)).collect::<StringArray>()) as ArrayRef)
        .collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)
        .map_err(|error| UserError::internal(format!("could not build rows: {error}")).into())
}
