//! Result sets and schemas: what is built is what is read, and what real servers send is read.
#![allow(clippy::unwrap_used, clippy::panic)]

use hs2::message::decode_reply;
use hs2::rowset::{self, ColumnBuilder, RowSetBuilder, RowSetError};
use hs2::schema::{self, Column};
use hs2::tcli::{TColumn, TFetchResultsResp, TGetResultSetMetadataResp, TI32Column};
use hs2::{SqlType, Value};
use proptest::prelude::*;

use crate::corpus;

fn types() -> Vec<SqlType> {
    vec![
        SqlType::Boolean,
        SqlType::TinyInt,
        SqlType::SmallInt,
        SqlType::Int,
        SqlType::BigInt,
        SqlType::Float,
        SqlType::Double,
        SqlType::String,
        SqlType::Varchar(20),
        SqlType::Char(3),
        SqlType::Binary,
        SqlType::Decimal { precision: 38, scale: 9 },
        SqlType::Date,
        SqlType::Timestamp,
        SqlType::IntervalYearMonth,
        SqlType::IntervalDayTime,
        SqlType::Array,
        SqlType::Map,
        SqlType::Struct,
        SqlType::Null,
    ]
}

fn columns() -> Vec<Column> {
    types().into_iter().map(|sql_type| Column::new(sql_type.to_string(), sql_type)).collect()
}

fn value(sql_type: SqlType) -> BoxedStrategy<Value> {
    let some = match sql_type {
        SqlType::Boolean => any::<bool>().prop_map(Value::Bool).boxed(),
        SqlType::TinyInt => any::<i8>().prop_map(Value::I8).boxed(),
        SqlType::SmallInt => any::<i16>().prop_map(Value::I16).boxed(),
        SqlType::Int => any::<i32>().prop_map(Value::I32).boxed(),
        SqlType::BigInt => any::<i64>().prop_map(Value::I64).boxed(),
        SqlType::Float | SqlType::Double => (-1e300..1e300).prop_map(Value::F64).boxed(),
        SqlType::Binary => proptest::collection::vec(any::<u8>(), 0..9).prop_map(Value::Bytes).boxed(),
        _ => "\\PC{0,9}".prop_map(Value::Text).boxed(),
    };
    prop_oneof![1 => Just(Value::Null), 3 => some].boxed()
}

fn rows() -> impl Strategy<Value = Vec<Vec<Value>>> {
    let row: Vec<BoxedStrategy<Value>> = types().into_iter().map(value).collect();
    proptest::collection::vec(row, 0..40)
}

proptest! {
    #[test]
    fn rows_that_are_written_are_read_again(rows in rows(), start in 0_i64..1000) {
        let mut builder = RowSetBuilder::new(&columns(), start);
        for row in &rows {
            builder.push_row(row.clone()).unwrap();
        }
        let answer = TFetchResultsResp {
            status: hs2::status::success(),
            has_more_rows: Some(false),
            results: Some(builder.finish()),
        };
        let bytes = hs2::message::encode_reply("FetchResults", 1, &answer);
        let set = decode_reply::<TFetchResultsResp>(&bytes).unwrap().results.unwrap();
        prop_assert_eq!(set.start_row_offset, start);
        prop_assert_eq!(rowset::row_count(&set).unwrap(), rows.len());
        prop_assert_eq!(rowset::rows(&set).unwrap(), rows);
    }
}

#[test]
fn a_schema_that_is_written_is_read_again() {
    let mut columns = columns();
    columns[3].comment = Some("a comment".to_owned());
    let schema = schema::table_schema(&columns);
    assert_eq!(schema.columns.iter().map(|column| column.position).collect::<Vec<_>>(), (1..=20).collect::<Vec<_>>());
    assert_eq!(schema::columns(&schema), columns);
}

#[test]
fn what_real_servers_send_is_read() {
    let (mut sets, mut schemas, mut rows) = (0, 0, 0);
    for recorded in corpus::messages().into_iter().filter(|recorded| !recorded.is_request) {
        match recorded.method.as_str() {
            "FetchResults" => {
                let answer: TFetchResultsResp = decode_reply(&recorded.bytes).unwrap();
                let Some(set) = answer.results else { continue };
                rows += rowset::rows(&set).unwrap().len();
                sets += 1;
            }
            "GetResultSetMetadata" => {
                let answer: TGetResultSetMetadataResp = decode_reply(&recorded.bytes).unwrap();
                let Some(schema) = answer.schema else { continue };
                let columns = schema::columns(&schema);
                assert!(!columns.is_empty() && columns.iter().all(|column| !column.name.is_empty()));
                // Written again it is what was sent, but for types that we have no name of.
                let again = schema::table_schema(&columns);
                assert_eq!(schema::columns(&again), columns);
                schemas += 1;
            }
            _ => {}
        }
    }
    assert!(sets > 20 && schemas > 15 && rows > 100, "{sets} {schemas} {rows}");
}

fn recorded<T: thrift::protocol::TSerializable>(name: &str) -> T {
    let found = corpus::messages().into_iter().find(|recorded| recorded.name == name).unwrap();
    decode_reply(&found.bytes).unwrap()
}

/// The recorded statement with a column of each type, as Spark 3.5.9 answered it to Hive JDBC.
#[test]
fn every_type_is_read_and_written_as_by_spark() {
    let schema = recorded::<TGetResultSetMetadataResp>("meta/0178-c2-resp-GetResultSetMetadata").schema.unwrap();
    let set = recorded::<TFetchResultsResp>("meta/0180-c2-resp-FetchResults").results.unwrap();
    let columns = schema::columns(&schema);
    let text = |text: &str| Value::Text(text.to_owned());
    let expected = [
        (SqlType::TinyInt, Value::I8(1)),
        (SqlType::SmallInt, Value::I16(1)),
        (SqlType::Int, Value::I32(1)),
        (SqlType::BigInt, Value::I64(1)),
        (SqlType::Float, Value::F64(1.5)),
        (SqlType::Double, Value::F64(1.5)),
        (SqlType::Decimal { precision: 2, scale: 1 }, text("1.5")),
        (SqlType::Boolean, Value::Bool(true)),
        (SqlType::String, text("s")),
        (SqlType::Binary, Value::Bytes(b"b".to_vec())),
        (SqlType::Date, text("2020-01-01")),
        (SqlType::Timestamp, text("2020-01-01 00:00:00")),
        (SqlType::Array, text("[1]")),
        (SqlType::Map, text("{1:2}")),
        (SqlType::Struct, text("{\"a\":1}")),
        (SqlType::Null, Value::Null),
        (SqlType::IntervalDayTime, text("1 00:00:00.000000000")),
        (SqlType::IntervalYearMonth, text("1-0")),
        (SqlType::Int, Value::Null),
    ];
    let types: Vec<SqlType> = columns.iter().map(|column| column.sql_type).collect();
    assert_eq!(types, expected.iter().map(|(sql_type, _)| *sql_type).collect::<Vec<_>>());
    let row: Vec<Value> = expected.into_iter().map(|(_, value)| value).collect();
    assert_eq!(rowset::rows(&set).unwrap(), vec![row.clone()]);
    // Spark counts positions from 0 and writes empty qualifiers; Hive, from 1 and none. Clients take both.
    assert_eq!(schema::columns(&schema::table_schema(&columns)), columns);
    let mut again = RowSetBuilder::new(&columns, 0);
    again.push_row(row).unwrap();
    assert_eq!(again.finish(), set);
}

#[test]
fn a_value_that_does_not_fit_is_refused_and_a_smaller_integer_is_widened() {
    let mut column = ColumnBuilder::new(SqlType::BigInt);
    column.push(Value::I32(-5)).unwrap();
    column.push(Value::I8(7)).unwrap();
    assert_eq!(
        column.push(Value::Text("x".to_owned())),
        Err(RowSetError::WrongType { wanted: "bigint", found: "string" })
    );
    assert_eq!(column.len(), 2);
    let TColumn::I64Val(column) = column.finish() else { panic!("a column of BIGINT") };
    assert_eq!((column.values, column.nulls), (vec![-5, 7], vec![]));
    let mut set = RowSetBuilder::new(&[Column::new("a", SqlType::Int)], 0);
    assert_eq!(set.push_row(vec![]), Err(RowSetError::WrongWidth { wanted: 1, found: 0 }));
}

#[test]
fn sets_that_are_no_columns_are_refused_and_ragged_ones_too() {
    let column = |values: Vec<i32>, nulls: Vec<u8>| TColumn::I32Val(TI32Column { values, nulls });
    let mut set = rowset::from_columns(0, vec![column(vec![1, 2], vec![]), column(vec![1], vec![])]);
    assert_eq!(rowset::rows(&set), Err(RowSetError::Ragged));
    // A bitmap may end early or late.
    set.columns = Some(vec![column((0..10).collect(), vec![0b10]), column((0..10).collect(), vec![0, 0b10, 0, 255])]);
    let rows = rowset::rows(&set).unwrap();
    assert_eq!((&rows[1][0], &rows[9][0], &rows[9][1]), (&Value::Null, &Value::I32(9), &Value::Null));
    set.binary_columns = Some(vec![1]);
    assert_eq!(rowset::rows(&set), Err(RowSetError::Encoded));
    set.binary_columns = None;
    set.rows = vec![hs2::tcli::TRow { col_vals: vec![] }];
    assert_eq!(rowset::rows(&set), Err(RowSetError::InRows));
    assert_eq!(rowset::row_count(&rowset::empty(&columns(), 3)), Ok(0));
}
