//! Results as a table, as CSV or as JSON lines.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use hs2::{Column, SqlType, Value};

/// How results are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// A table with aligned columns.
    Table,
    /// Comma-separated values with a header line (RFC 4180).
    Csv,
    /// One JSON object a row.
    Json,
}

/// The result as a table, with a last line that counts the rows.
pub fn table(columns: &[Column], rows: &[Vec<Value>]) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    // On a terminal long cells are folded, so that a row stays readable; in a file every row is one line.
    if let Some(width) = terminal_width() {
        table.set_content_arrangement(ContentArrangement::Dynamic);
        table.set_width(width);
    }
    table.set_header(columns.iter().map(|column| column.name.clone()));
    for row in rows {
        table.add_row(row.iter().map(|value| visible(&text(value))));
    }
    for (at, column) in columns.iter().enumerate() {
        if is_number(&column.sql_type)
            && let Some(column) = table.column_mut(at)
        {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let count = if rows.len() == 1 { "1 row".to_owned() } else { format!("{} rows", rows.len()) };
    format!("{table}\n{count}")
}

/// The columns of the terminal; `None` if standard output is none.
fn terminal_width() -> Option<u16> {
    let (width, _) = terminal_size::terminal_size_of(std::io::stdout())?;
    (width.0 >= MIN_WIDTH).then_some(width.0)
}

/// A narrower terminal is not believed.
const MIN_WIDTH: u16 = 40;

/// One row as a line of CSV.
pub fn csv_line<'a>(cells: impl IntoIterator<Item = &'a str>) -> String {
    let quoted: Vec<String> = cells
        .into_iter()
        .map(|cell| {
            if cell.contains([',', '"', '\n', '\r']) {
                format!("\"{}\"", cell.replace('"', "\"\""))
            } else {
                cell.to_owned()
            }
        })
        .collect();
    quoted.join(",")
}

/// One row of values as a line of CSV; NULL is empty.
pub fn csv_row(row: &[Value]) -> String {
    let cells: Vec<String> =
        row.iter().map(|value| if *value == Value::Null { String::new() } else { text(value) }).collect();
    csv_line(cells.iter().map(String::as_str))
}

/// One row as a JSON object.
pub fn json_row(columns: &[Column], row: &[Value]) -> String {
    let mut object = serde_json::Map::new();
    for (column, value) in columns.iter().zip(row) {
        object.insert(column.name.clone(), json(value));
    }
    serde_json::Value::Object(object).to_string()
}

fn json(value: &Value) -> serde_json::Value {
    match value {
        Value::Null => serde_json::Value::Null,
        Value::Bool(it) => (*it).into(),
        Value::I8(it) => (*it).into(),
        Value::I16(it) => (*it).into(),
        Value::I32(it) => (*it).into(),
        Value::I64(it) => (*it).into(),
        Value::F64(it) => serde_json::Number::from_f64(*it).map_or_else(|| it.to_string().into(), Into::into),
        Value::Text(_) | Value::Bytes(_) => text(value).into(),
    }
}

fn text(value: &Value) -> String {
    value.to_string()
}

/// Control characters would break the table's frame or the terminal.
fn visible(cell: &str) -> String {
    cell.chars().map(|c| if c.is_control() && c != '\n' { ' ' } else { c }).collect()
}

const fn is_number(of: &SqlType) -> bool {
    matches!(
        of,
        SqlType::TinyInt
            | SqlType::SmallInt
            | SqlType::Int
            | SqlType::BigInt
            | SqlType::Float
            | SqlType::Double
            | SqlType::Decimal { .. }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_quotes_what_needs_it() {
        assert_eq!(csv_line(["a", "b,c", "d\"e", "f\ng"]), "a,\"b,c\",\"d\"\"e\",\"f\ng\"");
        assert_eq!(csv_row(&[Value::Null, Value::I64(1), Value::Text("x".to_owned())]), ",1,x");
    }

    #[test]
    fn numbers_stand_on_the_right_and_rows_are_counted() {
        let columns = [Column::new("name", SqlType::String), Column::new("n", SqlType::BigInt)];
        let rows =
            [vec![Value::Text("a".to_owned()), Value::I64(1)], vec![Value::Text("b".to_owned()), Value::I64(100)]];
        let shown = table(&columns, &rows);
        assert!(shown.contains("│ a    ┆   1 │") && shown.ends_with("2 rows"), "{shown}");
    }

    #[test]
    fn json_keeps_types() {
        let columns = [Column::new("a", SqlType::BigInt), Column::new("b", SqlType::String)];
        assert_eq!(json_row(&columns, &[Value::I64(1), Value::Null]), r#"{"a":1,"b":null}"#);
    }
}
