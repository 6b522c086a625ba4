//! The metadata calls, as JDBC's `DatabaseMetaData` and DBeaver make them.

use std::io::Write as _;

use hs2::tcli::{
    TGetCatalogsReq, TGetColumnsReq, TGetCrossReferenceReq, TGetFunctionsReq, TGetInfoReq, TGetInfoType, TGetInfoValue,
    TGetPrimaryKeysReq, TGetSchemasReq, TGetTableTypesReq, TGetTablesReq, TGetTypeInfoReq, TOperationHandle,
};
use hs2::{Session, Value};

use crate::fixture::{DEADLINE, Fixture, run};

/// The rows of an operation, and its column names.
async fn answer(session: &mut Session, handle: Option<TOperationHandle>) -> (Vec<String>, Vec<Vec<Value>>) {
    let handle = handle.unwrap();
    assert!(handle.has_result_set);
    let mut statement = session.statement(handle);
    let table = statement.collect(DEADLINE).await.unwrap();
    statement.close().await.unwrap();
    (table.columns.into_iter().map(|column| column.name).collect(), table.rows)
}

fn texts(rows: &[Vec<Value>], column: usize) -> Vec<String> {
    rows.iter().map(|row| row[column].to_string()).collect()
}

#[tokio::test]
async fn the_metadata_calls_answer_in_jdbcs_columns() {
    let fixture = Fixture::new();
    let data = fixture.data().display().to_string();
    let engine = fixture.start("e-1").await;
    let mut session = engine.session().await;
    run(&mut session, "CREATE DATABASE sales").await;
    run(&mut session, "USE sales").await;
    run(&mut session, &format!("CREATE EXTERNAL TABLE orders (id BIGINT NOT NULL, price DECIMAL(10,2), tags VARCHAR, PRIMARY KEY (id)) STORED AS PARQUET LOCATION '{data}/orders/'")).await;
    run(&mut session, "CREATE VIEW cheap AS SELECT * FROM orders WHERE price < 10").await;
    let handle = session.handle().clone();

    let reply = session.client().get_catalogs(&TGetCatalogsReq { session_handle: handle.clone() }).await.unwrap();
    assert_eq!(answer(&mut session, reply.operation_handle).await.1, [[Value::from("datafusion")]]);

    let request =
        TGetSchemasReq { session_handle: handle.clone(), catalog_name: None, schema_name: Some("%al%".to_owned()) };
    let reply = session.client().get_schemas(&request).await.unwrap();
    let (columns, rows) = answer(&mut session, reply.operation_handle).await;
    assert_eq!(columns, ["TABLE_SCHEM", "TABLE_CATALOG"]);
    assert_eq!(texts(&rows, 0), ["sales"]);

    let tables = |types: Option<&[&str]>, name: &str| TGetTablesReq {
        session_handle: handle.clone(),
        catalog_name: None,
        schema_name: Some("sales".to_owned()),
        table_name: Some(name.to_owned()),
        table_types: types.map(|types| types.iter().map(|name| (*name).to_owned()).collect()),
    };
    for (request, expected) in [
        (tables(None, "%"), vec!["cheap", "orders"]),
        (tables(Some(&["TABLE"]), "%"), vec!["orders"]),
        (tables(Some(&["VIEW", "TABLE"]), "c%"), vec!["cheap"]),
        (tables(None, "order_"), vec!["orders"]),
        (tables(None, "order\\_"), vec![]),
    ] {
        let reply = session.client().get_tables(&request).await.unwrap();
        let (columns, rows) = answer(&mut session, reply.operation_handle).await;
        assert_eq!(columns[..5], ["TABLE_CAT", "TABLE_SCHEM", "TABLE_NAME", "TABLE_TYPE", "REMARKS"]);
        assert_eq!(texts(&rows, 2), expected);
    }

    let request = TGetColumnsReq {
        session_handle: handle.clone(),
        catalog_name: None,
        schema_name: Some("sales".to_owned()),
        table_name: Some("orders".to_owned()),
        column_name: Some("%".to_owned()),
    };
    let reply = session.client().get_columns(&request).await.unwrap();
    let (columns, rows) = answer(&mut session, reply.operation_handle).await;
    assert_eq!(columns.len(), 23);
    assert_eq!(texts(&rows, 3), ["id", "price", "tags"]);
    assert_eq!(texts(&rows, 4), ["-5", "3", "12"]);
    assert_eq!(texts(&rows, 5), ["BIGINT", "DECIMAL(10,2)", "STRING"]);
    assert_eq!((&rows[1][6], &rows[1][8]), (&Value::I32(10), &Value::I32(2)));
    assert_eq!(texts(&rows, 16), ["1", "2", "3"]);
    assert_eq!(texts(&rows, 17), ["NO", "YES", "YES"]);

    let reply = session.client().get_type_info(&TGetTypeInfoReq { session_handle: handle.clone() }).await.unwrap();
    let (columns, rows) = answer(&mut session, reply.operation_handle).await;
    assert_eq!(columns.len(), 18);
    assert!(texts(&rows, 0).contains(&"DECIMAL".to_owned()));

    let reply = session.client().get_table_types(&TGetTableTypesReq { session_handle: handle.clone() }).await.unwrap();
    assert_eq!(texts(&answer(&mut session, reply.operation_handle).await.1, 0), ["LOCAL TEMPORARY", "TABLE", "VIEW"]);

    let request = TGetFunctionsReq {
        session_handle: handle.clone(),
        catalog_name: None,
        schema_name: None,
        function_name: "current\\_d%".to_owned(),
    };
    let reply = session.client().get_functions(&request).await.unwrap();
    assert_eq!(texts(&answer(&mut session, reply.operation_handle).await.1, 2), ["current_database", "current_date"]);

    let request = TGetPrimaryKeysReq {
        session_handle: handle.clone(),
        catalog_name: None,
        schema_name: Some("sales".to_owned()),
        table_name: Some("orders".to_owned()),
    };
    let reply = session.client().get_primary_keys(&request).await.unwrap();
    let (columns, rows) = answer(&mut session, reply.operation_handle).await;
    assert_eq!(columns, ["TABLE_CAT", "TABLE_SCHEM", "TABLE_NAME", "COLUMN_NAME", "KEY_SEQ", "PK_NAME"]);
    assert_eq!(texts(&rows, 3), ["id"]);

    let request = TGetCrossReferenceReq {
        session_handle: handle.clone(),
        parent_catalog_name: None,
        parent_schema_name: None,
        parent_table_name: Some("orders".to_owned()),
        foreign_catalog_name: None,
        foreign_schema_name: None,
        foreign_table_name: None,
    };
    let reply = session.client().get_cross_reference(&request).await.unwrap();
    let (columns, rows) = answer(&mut session, reply.operation_handle).await;
    assert_eq!((columns.len(), rows.len()), (14, 0));

    let mut info = async |info_type| {
        let request = TGetInfoReq { session_handle: handle.clone(), info_type };
        session.client().get_info(&request).await.map(|answer| answer.info_value)
    };
    assert_eq!(
        info(TGetInfoType::CLI_DBMS_NAME).await.unwrap(),
        TGetInfoValue::StringValue("Apache DataFusion".to_owned())
    );
    assert!(
        matches!(info(TGetInfoType::CLI_DBMS_VER).await.unwrap(), TGetInfoValue::StringValue(version) if version.starts_with("55."))
    );
    assert_eq!(info(TGetInfoType::CLI_TXN_CAPABLE).await.unwrap_err().user_error().sqlstate(), "HYC00");
    engine.stop().await;
}

/// The definition is a named pipe: reading it blocks until the test writes.
#[tokio::test]
async fn a_slow_catalog_read_does_not_block_other_sessions() {
    let fixture = Fixture::new();
    let engine = fixture.start("e-1").await;
    let (mut slow, mut other) = (engine.session().await, engine.session().await);
    let file = fixture.root().join("catalog/schemas/default/slow.json");
    assert!(std::process::Command::new("mkfifo").arg(&file).status().unwrap().success());
    // The pipe opens when the engine reads it, and is written when the other session was served or timed out.
    let (begins, begun) = tokio::sync::oneshot::channel();
    let (served, waits) = std::sync::mpsc::sync_channel(1);
    let writer = std::thread::spawn(move || {
        let mut written = std::fs::File::create(&file).unwrap();
        let _ = begins.send(());
        let in_time = waits.recv_timeout(DEADLINE).is_ok();
        written.write_all(b"{}").unwrap();
        in_time
    });
    let request = TGetTablesReq {
        session_handle: slow.handle().clone(),
        catalog_name: None,
        schema_name: None,
        table_name: None,
        table_types: None,
    };
    let asking = tokio::spawn(async move {
        let reply = slow.client().get_tables(&request).await.unwrap();
        answer(&mut slow, reply.operation_handle).await
    });
    // From now on the read blocks.
    tokio::time::timeout(DEADLINE, begun).await.unwrap().unwrap();
    run(&mut other, "SELECT 'goes on'").await;
    let _ = served.send(());
    assert_eq!(texts(&asking.await.unwrap().1, 2), ["slow"]);
    assert!(writer.join().unwrap(), "the other session was blocked by the read of the catalog");
    engine.stop().await;
}
