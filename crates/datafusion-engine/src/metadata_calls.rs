//! The metadata calls (`GetCatalogs`, `GetSchemas`, `GetTables`, `GetColumns` …) in the format of JDBC's `DatabaseMetaData`.
//!
//! The columns and their order are JDBC's; drivers read them by position. A table whose definition can no longer be
//! built is listed by `GetTables` and has no columns. Patterns are JDBC's; a missing identifier matches all.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, BooleanArray, Int8Array, Int16Array, Int32Array, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::catalog::TableProvider;
use datafusion::common::Constraint;
use hs2::SqlType;
use model::cause::chain;
use model::error::UserError;

use crate::catalog::CATALOG;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::rows::types::{sql_type, type_name};
use crate::session::Session;
use crate::statement::show::{function_names, matches_jdbc};

/// One value of a metadata result.
#[derive(Debug, Clone)]
enum Cell {
    Text(String),
    Number(i32),
    Boolean(bool),
    Null,
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<Option<i32>> for Cell {
    fn from(number: Option<i32>) -> Self {
        number.map_or(Self::Null, Self::Number)
    }
}

/// The columns of a metadata result: names and types.
type Shape = [(&'static str, DataType)];

const TEXT: DataType = DataType::Utf8;
const INT: DataType = DataType::Int32;
const SMALL: DataType = DataType::Int16;
const TINY: DataType = DataType::Int8;
const BOOLEAN: DataType = DataType::Boolean;

fn batch(shape: &Shape, rows: &[Vec<Cell>]) -> Result<RecordBatch, EngineError> {
    let fields: Vec<_> = shape.iter().map(|(name, data_type)| Field::new(*name, data_type.clone(), true)).collect();
    let number = |row: &Vec<Cell>, at: usize| match row.get(at) {
        Some(Cell::Number(number)) => Some(*number),
        _ => None,
    };
    let column = |at: usize, data_type: &DataType| -> ArrayRef {
        match data_type {
            DataType::Int32 => Arc::new(rows.iter().map(|row| number(row, at)).collect::<Int32Array>()),
            DataType::Int16 => {
                Arc::new(rows.iter().map(|row| number(row, at).map(|n| n as i16)).collect::<Int16Array>())
            }
            DataType::Int8 => Arc::new(rows.iter().map(|row| number(row, at).map(|n| n as i8)).collect::<Int8Array>()),
            DataType::Boolean => {
                let boolean = |row: &Vec<Cell>| {
                    if let Some(Cell::Boolean(boolean)) = row.get(at) { Some(*boolean) } else { None }
                };
                Arc::new(rows.iter().map(boolean).collect::<BooleanArray>())
            }
            _ => {
                let text =
                    |row: &Vec<Cell>| if let Some(Cell::Text(text)) = row.get(at) { Some(text.clone()) } else { None };
                Arc::new(rows.iter().map(text).collect::<StringArray>())
            }
        }
    };
    let columns = shape.iter().enumerate().map(|(at, (_, data_type))| column(at, data_type)).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)
        .map_err(|error| UserError::internal(format!("could not build metadata rows: {error}")).into())
}

fn has_catalog(catalog: Option<&str>) -> bool {
    catalog.is_none_or(|name| matches_jdbc(Some(name), CATALOG))
}

fn schemas(engine: &Engine, catalog: Option<&str>, schema: Option<&str>) -> Result<Vec<String>, EngineError> {
    if !has_catalog(catalog) {
        return Ok(Vec::new());
    }
    let names = engine.catalog().definitions().schema_names()?;
    Ok(names.into_iter().filter(|name| matches_jdbc(schema, name)).collect())
}

/// The tables of a schema: name and JDBC type. An unreadable definition counts as a table.
fn tables(
    engine: &Engine,
    session: &Session,
    schema: &str,
    pattern: Option<&str>,
) -> Result<Vec<(String, &'static str)>, EngineError> {
    let definitions = engine.catalog().definitions();
    let mut found: Vec<_> = session.temporary.names(schema).into_iter().map(|name| (name, "LOCAL TEMPORARY")).collect();
    for name in definitions.table_names(schema)? {
        if matches_jdbc(pattern, &name) && !found.iter().any(|(other, _)| *other == name) {
            let kind = definitions.read(schema, &name).ok().flatten().map_or("TABLE", |found| found.kind.jdbc_type());
            found.push((name, kind));
        }
    }
    found.retain(|(name, _)| matches_jdbc(pattern, name));
    found.sort();
    Ok(found)
}

/// `GetCatalogs`.
pub fn catalogs() -> Result<RecordBatch, EngineError> {
    batch(&[("TABLE_CAT", TEXT)], &[vec![CATALOG.into()]])
}

/// `GetTableTypes`.
pub fn table_types() -> Result<RecordBatch, EngineError> {
    let types = ["LOCAL TEMPORARY", "TABLE", "VIEW"];
    batch(&[("TABLE_TYPE", TEXT)], &types.map(|name| vec![name.into()]))
}

/// `GetSchemas`.
pub fn get_schemas(engine: &Engine, catalog: Option<&str>, schema: Option<&str>) -> Result<RecordBatch, EngineError> {
    let names = schemas(engine, catalog, schema)?;
    let rows: Vec<_> = names.iter().map(|name| vec![name.as_str().into(), CATALOG.into()]).collect();
    batch(&[("TABLE_SCHEM", TEXT), ("TABLE_CATALOG", TEXT)], &rows)
}

/// `GetTables`.
pub fn get_tables(
    engine: &Engine,
    session: &Session,
    catalog: Option<&str>,
    schema: Option<&str>,
    table: Option<&str>,
    types: Option<&[String]>,
) -> Result<RecordBatch, EngineError> {
    let mut rows = Vec::new();
    for schema in schemas(engine, catalog, schema)? {
        for (name, kind) in tables(engine, session, &schema, table)? {
            let wanted = types
                .is_none_or(|types| types.is_empty() || types.iter().any(|wanted| wanted.eq_ignore_ascii_case(kind)));
            if wanted {
                let mut row: Vec<Cell> =
                    vec![CATALOG.into(), schema.as_str().into(), name.as_str().into(), kind.into(), "".into()];
                row.resize(10, Cell::Null);
                rows.push(row);
            }
        }
    }
    let shape = [
        ("TABLE_CAT", TEXT),
        ("TABLE_SCHEM", TEXT),
        ("TABLE_NAME", TEXT),
        ("TABLE_TYPE", TEXT),
        ("REMARKS", TEXT),
        ("TYPE_CAT", TEXT),
        ("TYPE_SCHEM", TEXT),
        ("TYPE_NAME", TEXT),
        ("SELF_REFERENCING_COL_NAME", TEXT),
        ("REF_GENERATION", TEXT),
    ];
    batch(&shape, &rows)
}

async fn build(engine: &Engine, session: &Session, schema: &str, name: &str) -> Option<Arc<dyn TableProvider>> {
    if let Some(table) = session.temporary.get(schema, name) {
        return Some(table);
    }
    match engine.catalog().table(schema, name).await {
        Ok(table) => table,
        Err(error) => {
            tracing::debug!(schema, name, error = %chain(&error), "left out of GetColumns");
            None
        }
    }
}

/// JDBC's description of a type: code, column size, decimal digits, radix.
fn jdbc_type(sql_type: &SqlType) -> (i32, Option<i32>, Option<i32>, Option<i32>) {
    match sql_type {
        SqlType::Boolean => (16, Some(1), None, None),
        SqlType::TinyInt => (-6, Some(3), Some(0), Some(10)),
        SqlType::SmallInt => (5, Some(5), Some(0), Some(10)),
        SqlType::Int => (4, Some(10), Some(0), Some(10)),
        SqlType::BigInt => (-5, Some(19), Some(0), Some(10)),
        SqlType::Float => (6, Some(7), Some(7), Some(10)),
        SqlType::Double => (8, Some(15), Some(15), Some(10)),
        SqlType::Decimal { precision, scale } => (3, Some(*precision as i32), Some(*scale as i32), Some(10)),
        SqlType::Varchar(length) => (12, Some(*length as i32), None, None),
        SqlType::Char(length) => (1, Some(*length as i32), None, None),
        SqlType::String => (12, Some(i32::MAX), None, None),
        SqlType::Binary => (-2, Some(i32::MAX), None, None),
        SqlType::Date => (91, Some(10), None, None),
        SqlType::Timestamp => (93, Some(29), Some(9), None),
        SqlType::IntervalYearMonth | SqlType::IntervalDayTime => (1111, None, None, None),
        SqlType::Array => (2003, None, None, None),
        SqlType::Map => (2000, None, None, None),
        SqlType::Struct => (2002, None, None, None),
        SqlType::Null => (0, None, None, None),
    }
}

/// `GetColumns`.
pub async fn get_columns(
    engine: &Engine,
    session: &Session,
    catalog: Option<&str>,
    schema: Option<&str>,
    table: Option<&str>,
    column: Option<&str>,
) -> Result<RecordBatch, EngineError> {
    let mut rows = Vec::new();
    for schema in schemas(engine, catalog, schema)? {
        for (name, _) in tables(engine, session, &schema, table)? {
            let Some(provider) = build(engine, session, &schema, &name).await else { continue };
            for (at, field) in provider.schema().fields().iter().enumerate() {
                if matches_jdbc(column, field.name()) {
                    rows.push(column_row(&schema, &name, field, at as i32 + 1));
                }
            }
        }
    }
    let shape = [
        ("TABLE_CAT", TEXT),
        ("TABLE_SCHEM", TEXT),
        ("TABLE_NAME", TEXT),
        ("COLUMN_NAME", TEXT),
        ("DATA_TYPE", INT),
        ("TYPE_NAME", TEXT),
        ("COLUMN_SIZE", INT),
        ("BUFFER_LENGTH", TINY),
        ("DECIMAL_DIGITS", INT),
        ("NUM_PREC_RADIX", INT),
        ("NULLABLE", INT),
        ("REMARKS", TEXT),
        ("COLUMN_DEF", TEXT),
        ("SQL_DATA_TYPE", INT),
        ("SQL_DATETIME_SUB", INT),
        ("CHAR_OCTET_LENGTH", INT),
        ("ORDINAL_POSITION", INT),
        ("IS_NULLABLE", TEXT),
        ("SCOPE_CATALOG", TEXT),
        ("SCOPE_SCHEMA", TEXT),
        ("SCOPE_TABLE", TEXT),
        ("SOURCE_DATA_TYPE", SMALL),
        ("IS_AUTO_INCREMENT", TEXT),
    ];
    batch(&shape, &rows)
}

fn column_row(schema: &str, table: &str, field: &Field, position: i32) -> Vec<Cell> {
    let (code, size, digits, radix) = jdbc_type(&sql_type(field.data_type()));
    vec![
        CATALOG.into(),
        schema.into(),
        table.into(),
        field.name().as_str().into(),
        Cell::Number(code),
        Cell::Text(upper_type(&type_name(field.data_type()))),
        size.into(),
        Cell::Null,
        digits.into(),
        radix.into(),
        Cell::Number(i32::from(field.is_nullable())),
        "".into(),
        Cell::Null,
        Cell::Null,
        Cell::Null,
        Cell::Null,
        Cell::Number(position),
        if field.is_nullable() { "YES" } else { "NO" }.into(),
        Cell::Null,
        Cell::Null,
        Cell::Null,
        Cell::Null,
        "NO".into(),
    ]
}

/// A type's name as JDBC tools show it: in upper case, except for a nested type, whose fields' names are data.
fn upper_type(name: &str) -> String {
    if name.contains('<') { name.to_owned() } else { name.to_uppercase() }
}

/// `GetTypeInfo`.
pub fn type_info() -> Result<RecordBatch, EngineError> {
    let types = [
        ("VOID", SqlType::Null),
        ("BOOLEAN", SqlType::Boolean),
        ("TINYINT", SqlType::TinyInt),
        ("SMALLINT", SqlType::SmallInt),
        ("INT", SqlType::Int),
        ("BIGINT", SqlType::BigInt),
        ("FLOAT", SqlType::Float),
        ("DOUBLE", SqlType::Double),
        ("DECIMAL", SqlType::Decimal { precision: 38, scale: 0 }),
        ("STRING", SqlType::String),
        ("BINARY", SqlType::Binary),
        ("DATE", SqlType::Date),
        ("TIMESTAMP", SqlType::Timestamp),
        ("INTERVAL_YEAR_MONTH", SqlType::IntervalYearMonth),
        ("INTERVAL_DAY_TIME", SqlType::IntervalDayTime),
        ("ARRAY", SqlType::Array),
        ("MAP", SqlType::Map),
        ("STRUCT", SqlType::Struct),
    ];
    let rows: Vec<Vec<Cell>> = types
        .iter()
        .map(|(name, sql_type)| {
            let (code, size, _, radix) = jdbc_type(sql_type);
            let is_text = matches!(sql_type, SqlType::String);
            vec![
                (*name).into(),
                Cell::Number(code),
                size.into(),
                Cell::Null,
                Cell::Null,
                Cell::Null,
                Cell::Number(1),
                Cell::Boolean(is_text),
                Cell::Number(3),
                Cell::Boolean(radix.is_none()),
                Cell::Boolean(false),
                Cell::Boolean(false),
                Cell::Null,
                Cell::Number(0),
                Cell::Number(0),
                Cell::Null,
                Cell::Null,
                radix.into(),
            ]
        })
        .collect();
    let shape = [
        ("TYPE_NAME", TEXT),
        ("DATA_TYPE", INT),
        ("PRECISION", INT),
        ("LITERAL_PREFIX", TEXT),
        ("LITERAL_SUFFIX", TEXT),
        ("CREATE_PARAMS", TEXT),
        ("NULLABLE", SMALL),
        ("CASE_SENSITIVE", BOOLEAN),
        ("SEARCHABLE", SMALL),
        ("UNSIGNED_ATTRIBUTE", BOOLEAN),
        ("FIXED_PREC_SCALE", BOOLEAN),
        ("AUTO_INCREMENT", BOOLEAN),
        ("LOCAL_TYPE_NAME", TEXT),
        ("MINIMUM_SCALE", SMALL),
        ("MAXIMUM_SCALE", SMALL),
        ("SQL_DATA_TYPE", INT),
        ("SQL_DATETIME_SUB", INT),
        ("NUM_PREC_RADIX", INT),
    ];
    batch(&shape, &rows)
}

/// `GetFunctions`.
pub fn functions(session: &Session, catalog: Option<&str>, pattern: &str) -> Result<RecordBatch, EngineError> {
    let names =
        function_names(session).into_iter().filter(|name| has_catalog(catalog) && matches_jdbc(Some(pattern), name));
    let rows: Vec<Vec<Cell>> = names
        .map(|name| {
            // 1: returns no table. The specific name is the name, because functions have no overloads here.
            vec![Cell::Null, Cell::Null, name.as_str().into(), "".into(), Cell::Number(1), name.as_str().into()]
        })
        .collect();
    let shape = [
        ("FUNCTION_CAT", TEXT),
        ("FUNCTION_SCHEM", TEXT),
        ("FUNCTION_NAME", TEXT),
        ("REMARKS", TEXT),
        ("FUNCTION_TYPE", INT),
        ("SPECIFIC_NAME", TEXT),
    ];
    batch(&shape, &rows)
}

/// `GetPrimaryKeys`: the keys that a table's definition declares. They are not enforced.
pub async fn primary_keys(
    engine: &Engine,
    session: &Session,
    catalog: Option<&str>,
    schema: Option<&str>,
    table: Option<&str>,
) -> Result<RecordBatch, EngineError> {
    let schema = schema.filter(|name| !name.is_empty()).map_or_else(|| session.schema(), str::to_owned);
    let mut rows = Vec::new();
    if let Some(table) = table
        && has_catalog(catalog)
        && let Some(provider) = build(engine, session, &schema, table).await
    {
        let columns = provider.schema();
        for constraint in provider.constraints().into_iter().flat_map(|constraints| constraints.iter()) {
            let Constraint::PrimaryKey(indices) = constraint else { continue };
            for (sequence, index) in indices.iter().enumerate() {
                let name = columns.field(*index).name().as_str();
                rows.push(vec![
                    CATALOG.into(),
                    schema.as_str().into(),
                    table.into(),
                    name.into(),
                    Cell::Number(sequence as i32 + 1),
                    Cell::Null,
                ]);
            }
        }
    }
    let shape = [
        ("TABLE_CAT", TEXT),
        ("TABLE_SCHEM", TEXT),
        ("TABLE_NAME", TEXT),
        ("COLUMN_NAME", TEXT),
        ("KEY_SEQ", INT),
        ("PK_NAME", TEXT),
    ];
    batch(&shape, &rows)
}

/// `GetCrossReference`: this engine has no foreign keys, so there is no row.
pub fn cross_reference() -> Result<RecordBatch, EngineError> {
    let shape = [
        ("PKTABLE_CAT", TEXT),
        ("PKTABLE_SCHEM", TEXT),
        ("PKTABLE_NAME", TEXT),
        ("PKCOLUMN_NAME", TEXT),
        ("FKTABLE_CAT", TEXT),
        ("FKTABLE_SCHEM", TEXT),
        ("FKTABLE_NAME", TEXT),
        ("FKCOLUMN_NAME", TEXT),
        ("KEY_SEQ", INT),
        ("UPDATE_RULE", INT),
        ("DELETE_RULE", INT),
        ("FK_NAME", TEXT),
        ("PK_NAME", TEXT),
        ("DEFERRABILITY", INT),
    ];
    batch(&shape, &[])
}
