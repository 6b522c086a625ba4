//! SHOW and DESCRIBE, with Spark's columns, which clients expect.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::arrow::util::display::array_value_to_string;
use datafusion::catalog::TableProvider;
use datafusion::catalog::information_schema::{INFORMATION_SCHEMA, INFORMATION_SCHEMA_TABLES};
use datafusion::common::Column;
use datafusion::dataframe::DataFrame;
use datafusion::datasource::listing::ListingTable;
use datafusion::datasource::provider_as_source;
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{Expr, LogicalPlanBuilder};
use model::error::{ErrorKind, UserError};

use super::command::{Command, TableName};
use super::table;
use crate::catalog::CATALOG;
use crate::catalog::definition::ObjectKind;
use crate::context::EngineContext;
use crate::error::{EngineError, no_schema};
use crate::rows::types::type_name;
use crate::session::Session;

/// Executes a SHOW or DESCRIBE.
pub async fn answer(engine: &EngineContext, session: &Session, command: Command) -> Result<RecordBatch, EngineError> {
    let definitions = engine.catalog().definitions();
    match command {
        Command::ShowCatalogs => table(&["catalog"], &[vec![CATALOG.to_owned()]]),
        Command::ShowSchemas(pattern) => {
            let names = definitions.schema_names()?.into_iter().filter(|name| matches(pattern.as_deref(), name));
            table(&["namespace"], &names.map(|name| vec![name]).collect::<Vec<_>>())
        }
        Command::ShowTables { schema, pattern, only_views } => {
            let schema = schema.unwrap_or_else(|| session.schema());
            if schema == INFORMATION_SCHEMA {
                let names = INFORMATION_SCHEMA_TABLES.iter().filter(|name| matches(pattern.as_deref(), name));
                return table(&["tab_name"], &names.map(|name| vec![(*name).to_owned()]).collect::<Vec<_>>());
            }
            if !definitions.has_schema(&schema) {
                return Err(no_schema(&schema).into());
            }
            let mut names: BTreeSet<_> = session.temporary.names(&schema).into_iter().collect();
            for name in definitions.table_names(&schema)? {
                let is_view = || {
                    definitions
                        .read(&schema, &name)
                        .is_ok_and(|found| found.is_some_and(|found| found.kind == ObjectKind::View))
                };
                if !only_views || is_view() {
                    names.insert(name);
                }
            }
            names.retain(|name| matches(pattern.as_deref(), name));
            // One column, as in HiveServer2. PyHive takes the first column as the name.
            table(&["tab_name"], &names.into_iter().map(|name| vec![name]).collect::<Vec<_>>())
        }
        Command::ShowColumns(name) => {
            let provider = find(engine, session, &name).await?;
            let names: Vec<_> = provider.schema().fields().iter().map(|field| vec![field.name().clone()]).collect();
            table(&["col_name"], &names)
        }
        Command::ShowPartitions(name) => partitions(engine, session, &name).await,
        Command::ShowFunctions(pattern) => {
            let names = function_names(session).into_iter().filter(|name| matches(pattern.as_deref(), name));
            table(&["function"], &names.map(|name| vec![name]).collect::<Vec<_>>())
        }
        Command::ShowCreate(name) => {
            let schema = name.schema.clone().unwrap_or_else(|| session.schema());
            let found = definitions.read(&schema, &name.name)?.ok_or_else(|| no_table(&schema, &name))?;
            table(&["createtab_stmt"], &[vec![found.statement]])
        }
        Command::Describe { table: name, extended } => describe(engine, session, &name, extended).await,
        Command::DescribeColumn { table, column } => describe_column(engine, session, &table, &column).await,
        Command::DescribeSchema(schema) => {
            if !definitions.has_schema(&schema) {
                return Err(no_schema(&schema).into());
            }
            let row = |name: &str, value: String| vec![name.to_owned(), value];
            let tables = definitions.table_names(&schema)?.len().to_string();
            let rows = vec![
                row("Catalog Name", CATALOG.to_owned()),
                row("Namespace Name", schema),
                row("Tables", tables),
                row("Owner", engine.config().tenant.clone()),
            ];
            table(&["info_name", "info_value"], &rows)
        }
        _ => Err(UserError::internal("statement is neither SHOW nor DESCRIBE").into()),
    }
}

async fn describe(
    engine: &EngineContext,
    session: &Session,
    name: &TableName,
    extended: bool,
) -> Result<RecordBatch, EngineError> {
    let provider = find(engine, session, name).await?;
    let row = |name: &str, value: &str| vec![name.to_owned(), value.to_owned(), String::new()];
    let mut rows: Vec<_> =
        provider.schema().fields().iter().map(|field| row(field.name(), &type_name(field.data_type()))).collect();
    let partitions = partition_columns(provider.as_ref());
    if !partitions.is_empty() {
        // As in Spark: PyHive and Superset search for these words.
        rows.push(row("# Partition Information", ""));
        rows.push(vec!["# col_name".to_owned(), "data_type".to_owned(), "comment".to_owned()]);
        rows.extend(partitions.iter().map(|(name, data_type)| row(name, &type_name(data_type))));
    }
    if extended {
        let schema = name.schema.clone().unwrap_or_else(|| session.schema());
        rows.push(row("", ""));
        rows.push(row("# Detailed Table Information", ""));
        rows.push(row("Catalog", CATALOG));
        rows.push(row("Database", &schema));
        rows.push(row("Table", &name.name));
        match engine.catalog().definitions().read(&schema, &name.name)? {
            Some(found) => {
                rows.push(row("Type", found.kind.jdbc_type()));
                rows.push(row("Created By", &found.created_by));
                rows.push(row("Statement", &found.statement));
            }
            None => rows.push(row("Type", "TEMPORARY")),
        }
    }
    table(&["col_name", "data_type", "comment"], &rows)
}

async fn find(
    engine: &EngineContext,
    session: &Session,
    name: &TableName,
) -> Result<Arc<dyn TableProvider>, EngineError> {
    let schema = name.schema.clone().unwrap_or_else(|| session.schema());
    if name.schema.is_none()
        && let Some(table) = session.temporary.named(&name.name)
    {
        return Ok(table);
    }
    if schema == INFORMATION_SCHEMA {
        let name = datafusion::common::TableReference::full(CATALOG, schema, name.name.clone());
        return Ok(session.context.table_provider(name).await?);
    }
    if !engine.catalog().definitions().has_schema(&schema) {
        return Err(no_schema(&schema).into());
    }
    let table = engine.catalog().table(&schema, &name.name).await?;
    table.ok_or_else(|| no_table(&schema, name).into())
}

/// The error for a missing table, with the words by which PyHive recognizes it in the reply to a DESCRIBE.
fn no_table(schema: &str, name: &TableName) -> UserError {
    let TableName { schema: written, name } = name;
    let full = written.as_ref().map_or_else(|| name.clone(), |schema| format!("{schema}.{name}"));
    UserError::new(ErrorKind::UndefinedTable, format!("table \"{name}\" does not exist"))
        .detail(format!("SemanticException: Table not found {full} (in schema \"{schema}\")"))
}

/// The partition columns of a table, which are in the names of its folders, with their types.
fn partition_columns(provider: &dyn TableProvider) -> &[(String, DataType)] {
    provider.downcast_ref::<ListingTable>().map_or(&[], |table| &table.options().table_partition_cols)
}

/// SHOW PARTITIONS: each existing combination of values, as `year=2026/month=1`.
async fn partitions(engine: &EngineContext, session: &Session, name: &TableName) -> Result<RecordBatch, EngineError> {
    let limit = engine.config().limits.partitions;
    let provider = find(engine, session, name).await?;
    let columns = partition_columns(provider.as_ref()).to_vec();
    if columns.is_empty() {
        return Err(UserError::new(ErrorKind::WrongState, format!("table \"{}\" is not partitioned", name.name))
            .with_sqlstate("42809")
            .into());
    }
    let names: Vec<_> = columns.iter().map(|(name, _)| Column::new_unqualified(name.clone())).collect();
    let plan = LogicalPlanBuilder::scan(name.name.as_str(), provider_as_source(provider), None)?
        .project(names.iter().map(|name| Expr::Column(name.clone())).collect::<Vec<_>>())?
        .distinct()?
        .limit(0, Some(limit.saturating_add(1)))?
        .build()?;
    let batches = DataFrame::new(session.context.state(), plan).collect().await?;
    if batches.iter().map(RecordBatch::num_rows).sum::<usize>() > limit {
        return Err(UserError::new(
            ErrorKind::ProgramLimit,
            format!("table \"{}\" has too many partitions", name.name),
        )
        .detail(format!("SHOW PARTITIONS returns at most {limit} rows."))
        .hint("Select the distinct values of the partition columns.")
        .into());
    }
    let mut rows = BTreeSet::new();
    for batch in &batches {
        for row in 0..batch.num_rows() {
            let mut parts = Vec::with_capacity(columns.len());
            for ((name, _), values) in columns.iter().zip(batch.columns()) {
                parts.push(format!("{name}={}", array_value_to_string(values, row).map_err(DataFusionError::from)?));
            }
            rows.insert(parts.join("/"));
        }
    }
    table(&["partition"], &rows.into_iter().map(|row| vec![row]).collect::<Vec<_>>())
}

/// DESCRIBE of one column, in Spark's format.
async fn describe_column(
    engine: &EngineContext,
    session: &Session,
    name: &TableName,
    column: &str,
) -> Result<RecordBatch, EngineError> {
    let provider = find(engine, session, name).await?;
    let schema = provider.schema();
    let lower = column.to_lowercase();
    let field = schema.field_with_name(column).ok();
    let field =
        field.or_else(|| schema.fields().iter().map(AsRef::as_ref).find(|field| field.name().to_lowercase() == lower));
    let Some(field) = field else {
        return Err(UserError::new(ErrorKind::UndefinedColumn, format!("column \"{column}\" does not exist"))
            .detail(format!("Table \"{}\" has no such column.", name.name))
            .into());
    };
    let row = |name: &str, value: &str| vec![name.to_owned(), value.to_owned()];
    let rows = [row("col_name", field.name()), row("data_type", &type_name(field.data_type())), row("comment", "NULL")];
    table(&["info_name", "info_value"], &rows)
}

/// The columns of a planned query, in the format of DESCRIBE QUERY.
pub fn columns(schema: &Schema) -> Result<RecordBatch, EngineError> {
    let row = |field: &Arc<Field>| vec![field.name().clone(), type_name(field.data_type()), String::new()];
    table(&["col_name", "data_type", "comment"], &schema.fields().iter().map(row).collect::<Vec<_>>())
}

/// All functions of a session, each name once.
pub fn function_names(session: &Session) -> BTreeSet<String> {
    let state = session.context.state_ref();
    let state = state.read();
    let names = state.scalar_functions().keys().chain(state.aggregate_functions().keys());
    names.chain(state.window_functions().keys()).chain(state.table_functions().keys()).cloned().collect()
}

/// Matches a pattern of Hive's SHOW: `*` (or `%`) is any text, `|` separates alternatives, case is ignored.
pub fn matches(pattern: Option<&str>, name: &str) -> bool {
    let Some(pattern) = pattern else { return true };
    let name: Vec<char> = name.to_lowercase().chars().collect();
    pattern.to_lowercase().split('|').any(|choice| {
        let choice: Vec<char> = choice.chars().map(|c| if c == '*' { '%' } else { c }).collect();
        matches_from(&choice, &name, None)
    })
}

/// Matches a JDBC pattern: `%` is any text, `_` any character, `\` escapes the next character, case is ignored. `.*`, which
/// impyla sends because Hive's patterns are regular expressions, is also any text.
pub fn matches_jdbc(pattern: Option<&str>, name: &str) -> bool {
    let Some(pattern) = pattern else { return true };
    // Some clients send `*` for all names.
    if pattern.is_empty() || pattern == "*" {
        return true;
    }
    let name: Vec<char> = name.to_lowercase().chars().collect();
    let pattern: Vec<char> = pattern.to_lowercase().replace(".*", "%").chars().collect();
    matches_from(&pattern, &name, Some('_'))
}

/// Matches with a single backtracking point, so that the number of steps is at most quadratic.
fn matches_from(pattern: &[char], name: &[char], one: Option<char>) -> bool {
    let (mut p, mut n) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while n < name.len() || p < pattern.len() {
        match pattern.get(p) {
            Some('%') => {
                retry = Some((p, n + 1));
                p += 1;
                continue;
            }
            Some('\\') if one.is_some() && p + 1 < pattern.len() && name.get(n) == pattern.get(p + 1) => {
                (p, n) = (p + 2, n + 1);
                continue;
            }
            Some(c) if n < name.len() && (Some(*c) == one || *c == name[n]) => {
                (p, n) = (p + 1, n + 1);
                continue;
            }
            _ => {}
        }
        match retry {
            Some((at, next)) if next <= name.len() => (p, n) = (at, next),
            _ => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    #[test]
    fn patterns_of_show_and_of_jdbc_differ() {
        for (pattern, name, expected) in [
            ("r*", "rides", true),
            ("R*", "rides", true),
            ("*d*s", "rides", true),
            ("r*|x", "x", true),
            ("r_des", "rides", false),
            ("rides", "rides2", false),
            ("", "rides", false),
            ("*", "", true),
        ] {
            assert_eq!(matches(Some(pattern), name), expected, "{pattern} {name}");
        }
        for (pattern, name, expected) in [
            ("%", "rides", true),
            ("r_des", "rides", true),
            ("r\\_des", "rides", false),
            ("r\\_des", "r_des", true),
            ("%a%b%c%", "xxaxxbxxcxx", true),
            ("%a%b%c", "xxaxxbxxcxx", false),
            ("rides", "ride", false),
            ("", "rides", true),
            (".*", "rides", true),
            ("ri.*", "rides", true),
            ("x.*", "rides", false),
        ] {
            assert_eq!(matches_jdbc(Some(pattern), name), expected, "{pattern} {name}");
        }
        assert!(matches(None, "x") && matches_jdbc(None, "x"));
    }

    #[test]
    fn a_hostile_pattern_ends() {
        let name = "a".repeat(2_000);
        assert!(!matches_jdbc(Some(&("%a".repeat(500) + "b")), &name));
    }
}
