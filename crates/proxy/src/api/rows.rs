//! Rows as JSON: one object for each row, with the columns in the order of the statement's result.

use bytes::Bytes;
use hs2::{Column, Value};
use serde_json::json;

/// A row as the text of a JSON object. Numbers are numbers, NULL is null, and times are texts as SHOW prints them.
pub(super) fn object(columns: &[Column], row: &[Value]) -> String {
    let mut text = "{".to_owned();
    for (column, value) in columns.iter().zip(row) {
        if text.len() > 1 {
            text.push(',');
        }
        text.push_str(&json!(column.name).to_string());
        text.push(':');
        text.push_str(&json_value(value).to_string());
    }
    text.push('}');
    text
}

fn json_value(value: &Value) -> serde_json::Value {
    match value {
        Value::Null => serde_json::Value::Null,
        Value::Bool(value) => json!(value),
        Value::I8(value) => json!(value),
        Value::I16(value) => json!(value),
        Value::I32(value) => json!(value),
        Value::I64(value) => json!(value),
        // A number that is not finite has no form in JSON and becomes null.
        Value::F64(value) => json!(value),
        Value::Text(text) => json!(text),
        Value::Bytes(bytes) => json!(String::from_utf8_lossy(bytes)),
    }
}

/// The body of a successful response.
pub(super) fn body<'a>(rows: impl IntoIterator<Item = &'a str>, warnings: &[String], next: Option<&str>) -> Bytes {
    let mut text = r#"{"rows":["#.to_owned();
    let mut is_first = true;
    for row in rows {
        if !is_first {
            text.push(',');
        }
        is_first = false;
        text.push_str(row);
    }
    text.push_str(r#"],"warnings":"#);
    text.push_str(&json!(warnings).to_string());
    text.push_str(r#","next":"#);
    text.push_str(&json!(next).to_string());
    text.push('}');
    text.into()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;
    use hs2::SqlType;

    #[test]
    fn values_keep_their_types_and_columns_their_order() {
        let columns = [
            Column::new("z", SqlType::BigInt),
            Column::new("a\"", SqlType::String),
            Column::new("n", SqlType::String),
            Column::new("b", SqlType::Boolean),
            Column::new("f", SqlType::Double),
        ];
        let row = [Value::I64(7), "x\n\u{1b}".into(), Value::Null, Value::Bool(true), Value::F64(f64::NAN)];
        let text = object(&columns, &row);
        assert_eq!(text, r#"{"z":7,"a\"":"x\n\u001b","n":null,"b":true,"f":null}"#);
        let body = body([text.as_str(), text.as_str()], &["old".to_owned()], Some("c"));
        let parsed: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(parsed["rows"].as_array().unwrap().len(), 2);
        assert_eq!((&parsed["warnings"], &parsed["next"]), (&json!(["old"]), &json!("c")));
    }
}
