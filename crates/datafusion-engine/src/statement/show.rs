//! SHOW and DESCRIBE, with the columns that Spark gives them, because clients look for those.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::arrow::record_batch::RecordBatch;
use datafusion::catalog::TableProvider;
use datafusion::catalog::information_schema::{INFORMATION_SCHEMA, INFORMATION_SCHEMA_TABLES};
use model::error::{ErrorKind, UserError};

use super::command::{Command, TableName};
use super::table;
use crate::catalog::CATALOG;
use crate::catalog::definition::Kind;
use crate::engine::Engine;
use crate::error::{EngineError, no_schema};
use crate::rows::types::type_name;
use crate::session::Session;

/// Answers a SHOW or DESCRIBE.
pub async fn answer(engine: &Engine, session: &Session, command: Command) -> Result<RecordBatch, EngineError> {
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
                let rows: Vec<_> =
                    names.map(|name| vec![schema.clone(), (*name).to_owned(), "false".to_owned()]).collect();
                return table(&["namespace", "tableName", "isTemporary"], &rows);
            }
            if !definitions.has_schema(&schema) {
                return Err(no_schema(&schema).into());
            }
            let mut rows = Vec::new();
            for name in session.temporary.names(&schema) {
                rows.push(vec![schema.clone(), name, "true".to_owned()]);
            }
            for name in definitions.table_names(&schema)? {
                let is_view = || {
                    definitions
                        .read(&schema, &name)
                        .is_ok_and(|found| found.is_some_and(|found| found.kind == Kind::View))
                };
                if !only_views || is_view() {
                    rows.push(vec![schema.clone(), name, "false".to_owned()]);
                }
            }
            rows.retain(|row| matches(pattern.as_deref(), &row[1]));
            table(&["namespace", if only_views { "viewName" } else { "tableName" }, "isTemporary"], &rows)
        }
        Command::ShowColumns(name) => {
            let provider = find(engine, session, &name).await?;
            let names: Vec<_> = provider.schema().fields().iter().map(|field| vec![field.name().clone()]).collect();
            table(&["col_name"], &names)
        }
        Command::ShowFunctions(pattern) => {
            let names = function_names(session).into_iter().filter(|name| matches(pattern.as_deref(), name));
            table(&["function"], &names.map(|name| vec![name]).collect::<Vec<_>>())
        }
        Command::ShowCreate(name) => {
            let schema = name.schema.clone().unwrap_or_else(|| session.schema());
            let found = definitions.read(&schema, &name.name)?.ok_or_else(|| no_table(&schema, &name.name))?;
            table(&["createtab_stmt"], &[vec![found.statement]])
        }
        Command::Describe { table: name, extended } => describe(engine, session, &name, extended).await,
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
        other => Err(UserError::internal(format!("{other:?} is no SHOW")).into()),
    }
}

async fn describe(
    engine: &Engine,
    session: &Session,
    name: &TableName,
    extended: bool,
) -> Result<RecordBatch, EngineError> {
    let provider = find(engine, session, name).await?;
    let row = |name: &str, value: &str| vec![name.to_owned(), value.to_owned(), String::new()];
    let mut rows: Vec<_> =
        provider.schema().fields().iter().map(|field| row(field.name(), &type_name(field.data_type()))).collect();
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

async fn find(engine: &Engine, session: &Session, name: &TableName) -> Result<Arc<dyn TableProvider>, EngineError> {
    let schema = name.schema.clone().unwrap_or_else(|| session.schema());
    if let Some(table) = session.temporary.get(&schema, &name.name) {
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
    table.ok_or_else(|| no_table(&schema, &name.name).into())
}

fn no_table(schema: &str, name: &str) -> UserError {
    UserError::new(ErrorKind::UndefinedTable, format!("table \"{name}\" does not exist"))
        .detail(format!("looked for in schema \"{schema}\""))
}

/// All functions of a session, each name once.
pub fn function_names(session: &Session) -> BTreeSet<String> {
    let state = session.context.state_ref();
    let state = state.read();
    let names = state.scalar_functions().keys().chain(state.aggregate_functions().keys());
    names.chain(state.window_functions().keys()).chain(state.table_functions().keys()).cloned().collect()
}

/// A pattern as Hive's SHOW has it: `*` (or `%`) is any text, `|` separates choices, case does not count.
pub fn matches(pattern: Option<&str>, name: &str) -> bool {
    let Some(pattern) = pattern else { return true };
    let name: Vec<char> = name.to_lowercase().chars().collect();
    pattern.to_lowercase().split('|').any(|choice| {
        let choice: Vec<char> = choice.chars().map(|c| if c == '*' { '%' } else { c }).collect();
        matches_from(&choice, &name, None)
    })
}

/// A JDBC pattern: `%` is any text, `_` any character, `\` makes the next one plain. Case does not count. `.*`, which
/// impyla sends because Hive reads patterns as regular expressions, is any text too: no name has both characters.
pub fn matches_jdbc(pattern: Option<&str>, name: &str) -> bool {
    let Some(pattern) = pattern else { return true };
    // `*` is what some clients send for everything.
    if pattern.is_empty() || pattern == "*" {
        return true;
    }
    let name: Vec<char> = name.to_lowercase().chars().collect();
    let pattern: Vec<char> = pattern.to_lowercase().replace(".*", "%").chars().collect();
    matches_from(&pattern, &name, Some('_'))
}

/// Matches with one point to go back to, so that no pattern takes more than length times length steps.
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
