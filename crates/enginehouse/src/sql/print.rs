//! Results as a table, as CSV or as JSON lines.

use std::collections::HashSet;
use std::fmt::Write as _;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use hs2::{Column, SqlType, Value};

use crate::output::printable;

/// How results are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// A table with aligned columns.
    Table,
    /// Comma-separated values with a header line (RFC 4180).
    Csv,
    /// One JSON object per row.
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
    table.set_header(columns.iter().map(|column| printable(&column.name)));
    for row in rows {
        table.add_row(row.iter().map(|value| printable(&text(value))));
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

/// A smaller reported width is ignored.
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

/// One row of values as a line of CSV; NULL is empty, and an empty text is `""`.
pub fn csv_row(row: &[Value]) -> String {
    let cells = row.iter().map(|value| match value {
        Value::Null => String::new(),
        value => match text(value) {
            empty if empty.is_empty() => "\"\"".to_owned(),
            cell => csv_line([cell.as_str()]),
        },
    });
    cells.collect::<Vec<_>>().join(",")
}

/// The keys of a row's JSON object, quoted: the names of the columns, a repeated one with `_2`, `_3`, … behind it, so
/// that no value hides another.
pub fn json_keys(columns: &[Column]) -> Vec<String> {
    let mut taken: HashSet<String> = columns.iter().map(|column| column.name.clone()).collect();
    let mut seen = HashSet::new();
    let mut keys = Vec::new();
    for column in columns {
        let mut key = column.name.clone();
        if !seen.insert(key.clone()) {
            let mut number = 2_u32;
            while !taken.insert(format!("{key}_{number}")) {
                number += 1;
            }
            key = format!("{key}_{number}");
        }
        keys.push(serde_json::Value::from(key).to_string());
    }
    keys
}

/// One row as a JSON object, in the order of the columns.
pub fn json_row(keys: &[String], row: &[Value]) -> String {
    let members: Vec<String> = keys.iter().zip(row).map(|(key, value)| format!("{key}:{}", json(value))).collect();
    format!("{{{}}}", members.join(","))
}

fn json(value: &Value) -> serde_json::Value {
    match value {
        Value::Null => serde_json::Value::Null,
        Value::Bool(value) => (*value).into(),
        Value::I8(number) => (*number).into(),
        Value::I16(number) => (*number).into(),
        Value::I32(number) => (*number).into(),
        Value::I64(number) => (*number).into(),
        Value::F64(number) => {
            serde_json::Number::from_f64(*number).map_or_else(|| number.to_string().into(), Into::into)
        }
        Value::Text(_) | Value::Bytes(_) => text(value).into(),
    }
}

/// A value as text; bytes in hex, as PostgreSQL writes them, because not all of them are letters.
fn text(value: &Value) -> String {
    match value {
        Value::Bytes(bytes) => {
            let mut hex = String::with_capacity(2 + 2 * bytes.len());
            hex.push_str("\\x");
            for byte in bytes {
                let _ = write!(hex, "{byte:02x}");
            }
            hex
        }
        value => value.to_string(),
    }
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
        let texts = ["x", "", "a,b"].map(|text| Value::Text(text.to_owned()));
        let [x, empty, comma] = texts;
        assert_eq!(csv_row(&[Value::Null, Value::I64(1), x, empty, comma]), ",1,x,\"\",\"a,b\"");
    }

    #[test]
    fn bytes_are_printed_so_that_none_is_lost() {
        let row = [Value::Bytes(vec![0, 0xff, b'a']), Value::Bytes(Vec::new())];
        assert_eq!(csv_row(&row), r"\x00ff61,\x");
        let columns = ["a", "b"].map(|name| Column::new(name, SqlType::Binary));
        assert_eq!(json_row(&json_keys(&columns), &row), r#"{"a":"\\x00ff61","b":"\\x"}"#);
        assert!(table(&columns, &[row.to_vec()]).contains(r"\x00ff61"));
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
    fn a_table_shows_no_control_characters_of_names_and_values() {
        let columns = [Column::new("a\u{1b}]0;x\u{7}", SqlType::String)];
        let shown = table(&columns, &[vec![Value::Text("\u{1b}[2J".to_owned())]]);
        assert!(shown.contains("a ]0;x") && !shown.contains(['\u{1b}', '\u{7}']), "{shown:?}");
    }

    #[test]
    fn json_keeps_types_and_the_order_of_columns_and_hides_none() {
        let columns = ["b", "a", "b", "b_2", "b"].map(|name| Column::new(name, SqlType::BigInt));
        let row = [Value::I64(1), Value::Null, Value::I64(3), Value::I64(4), Value::Text("x".to_owned())];
        assert_eq!(json_row(&json_keys(&columns), &row), r#"{"b":1,"a":null,"b_3":3,"b_2":4,"b_4":"x"}"#);
    }
}
