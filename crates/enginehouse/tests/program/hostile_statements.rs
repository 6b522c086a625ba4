//! Foreign handles, missing names and options, and statements at the limits: each has its own error, and nothing changes.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::time::Duration;

use crate::installation::{Installation, catalog, state};
use hs2::tcli::{
    TCancelOperationReq, TCloseOperationReq, TCloseSessionReq, TExecuteStatementReq, TFetchOrientation,
    TFetchResultsReq, TGetOperationStatusReq, THandleIdentifier, TOperationHandle, TSessionHandle,
};
use hs2::{Auth, Client, ClientOptions, Session};

const PATIENCE: Duration = Duration::from_secs(15);

async fn session(server: &Installation, user: &str) -> Session {
    let options = ClientOptions::new(server.address.clone(), Auth::user(user, ""));
    Session::open(Client::connect(&options).await.unwrap(), &[]).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handle_opens_nothing_for_anybody_else() {
    let server = Installation::with_an_engine();
    let owner = session(&server, "admin").await;
    let stolen = owner.handle().clone();
    let mut thief = session(&server, "ann").await;
    let mut twin = session(&server, "admin").await;
    let made_up = |guid: &[u8], secret: &[u8]| TSessionHandle {
        session_id: THandleIdentifier { guid: guid.to_vec(), secret: secret.to_vec() },
    };
    let wrong = [
        stolen.clone(),
        made_up(&stolen.session_id.guid, &[0; 16]),
        made_up(&[7; 16], &[7; 16]),
        made_up(b"short", b""),
    ];
    for handle in wrong {
        for other in [&mut thief, &mut twin] {
            let request = TExecuteStatementReq {
                session_handle: handle.clone(),
                statement: "SHOW TENANTS".to_owned(),
                conf_overlay: None,
                run_async: Some(true),
                query_timeout: None,
            };
            let error = other.client().execute_statement(&request).await.unwrap_err();
            assert!(!error.to_string().contains("panicked"), "{error}");
            let close = TCloseSessionReq { session_handle: handle.clone() };
            let closed = other.client().close_session(&close).await;
            assert!(closed.is_err(), "a session was closed by another user");
        }
    }
    let mut owner = owner;
    let table = owner.run("SHOW TENANTS", PATIENCE).await.unwrap();
    assert_eq!(table.rows.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_at_the_limits_are_answered() {
    let server = Installation::with_an_engine();
    let mut admin = session(&server, "admin").await;
    let before = state(&server);
    let long = |letters: usize| "x".repeat(letters);
    let huge = format!("CREATE TENANT big COMMENT '{}'", long(600 << 10));
    for (statement, sqlstate) in [
        (format!("CREATE TENANT {}", long(64)), "42602"),
        (format!("CREATE TENANT \"{}\"", "é".repeat(10)), "42602"),
        (huge, "54000"),
        (format!("SHOW ENGINES {}", long(5_000)), "42602"),
        ("SHOW ENGINES missing".to_owned(), "42704"),
        (format!("ALTER TENANT t USER_LIST ({}'a')", "'a',".repeat(200_000)), "54000"),
        (format!("SELECT {}1", "(".repeat(50_000)), "54001"),
    ] {
        let shown: String = statement.chars().take(60).collect();
        let error = admin.run(&statement, PATIENCE).await.unwrap_err();
        assert_eq!(error.user_error().sqlstate(), sqlstate, "{shown}: {error}");
    }
    assert_eq!(state(&server), before);
    // The longest name is a name.
    let name = long(63);
    admin.run(&format!("CREATE TENANT {name}"), PATIENCE).await.unwrap();
    admin.run(&format!("DROP TENANT {name}"), PATIENCE).await.unwrap();
    // Users who are not admins receive one error for existing and missing tenants.
    let mut eve = session(&server, "eve").await;
    let mut refusals = Vec::new();
    for tenant in ["t", "missing"] {
        let error = eve.run(&format!("SHOW ENGINES {tenant}"), PATIENCE).await.unwrap_err().user_error();
        assert_eq!(error.sqlstate(), "42501", "{}", error.text());
        refusals.push(error.text().replace(&format!("\"{tenant}\""), "X"));
    }
    assert_eq!(refusals[0], refusals[1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_exist_is_named_with_what_does() {
    let server = Installation::with_an_engine();
    let mut admin = session(&server, "admin").await;
    let before = catalog(&server);
    let mut wrong = Vec::new();
    for (statement, sqlstate, named) in [
        ("CREATE RESOURCE UNIT x DRIVER_MEMROY '1G'", "42601", "DRIVER_MEMORY"),
        ("ALTER RESOURCE UNIT u EXECUTORS 'many'", "42601", "EXECUTORS"),
        ("ALTER RESOURCE UNIT u DRIVER_MEMORY 'much'", "22023", "much"),
        ("CREATE RESOURCE POOL x UNIT_LIST ('missing')", "42704", "missing"),
        ("CREATE TENANT x RESOURCE_POOL_LIST ('nowhere')", "42704", "nowhere"),
        ("CREATE TENANT x RESOURCE_POOL_LIST ('p', 'p')", "22023", "\"p\""),
        ("ALTER TENANT x USER_LIST ('a')", "42704", "\"x\""),
        ("START ENGINE t p nothing", "42704", "nothing"),
        ("STOP ENGINE p 'no-such-engine'", "42704", "no-such-engine"),
        ("DROP RESOURCE UNIT u", "2BP01", "\"p\""),
        ("SHOW ENIGNES", "42000", "enignes"),
        ("SET enginehouse.tenent=t", "22023", "enginehouse.tenant"),
        ("SET enginehouse.tenant=missing", "00000", ""),
        ("SELECT 1", "42704", "missing"),
        ("SET enginehouse.tenant=t", "00000", ""),
        ("SELECT no_such_function(1)", "42883", "no_such_function"),
        ("SELECT * FROM no_such_table", "42P01", "no_such_table"),
        ("SET datafusion.execution.batch_sise=1", "22023", "batch_sise"),
    ] {
        let outcome = admin.run(statement, PATIENCE).await;
        let (found, shown) = match outcome {
            Ok(_) => ("00000".to_owned(), String::new()),
            Err(error) => (error.user_error().sqlstate().to_owned(), error.user_error().text()),
        };
        if found != sqlstate || !shown.contains(named) {
            wrong.push(format!("{statement}: {found} and not {sqlstate}, or without {named}: {shown}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(catalog(&server), before);
}

/// Every call about an operation, for a handle: who is answered otherwise than with an error?
async fn calls_that_succeed(client: &mut Client, operation: &TOperationHandle) -> Vec<&'static str> {
    let mut succeeded = Vec::new();
    let operation_handle = operation.clone();
    let status = TGetOperationStatusReq { operation_handle: operation_handle.clone(), get_progress_update: None };
    if client.get_operation_status(&status).await.is_ok() {
        succeeded.push("status");
    }
    let fetch = TFetchResultsReq {
        operation_handle: operation_handle.clone(),
        orientation: TFetchOrientation::FETCH_NEXT,
        max_rows: 10,
        fetch_type: None,
    };
    if client.fetch_results(&fetch).await.is_ok() {
        succeeded.push("fetch");
    }
    if client.cancel_operation(&TCancelOperationReq { operation_handle: operation_handle.clone() }).await.is_ok() {
        succeeded.push("cancel");
    }
    if client.close_operation(&TCloseOperationReq { operation_handle }).await.is_ok() {
        succeeded.push("close");
    }
    succeeded
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operation_is_its_sessions_alone_and_gone_once_it_is_closed() {
    let server = Installation::with_an_engine();
    let mut owner = session(&server, "admin").await;
    for statement in ["SELECT 1", "SHOW TENANTS"] {
        let operation = owner.execute(statement).await.unwrap().handle().clone();
        let mut made_up = operation.clone();
        made_up.operation_id.secret = vec![9; 16];
        for user in ["ann", "admin"] {
            let mut other = session(&server, user).await;
            for handle in [&operation, &made_up] {
                assert_eq!(calls_that_succeed(other.client(), handle).await, Vec::<&str>::new(), "{user}: {statement}");
            }
        }
        assert_eq!(calls_that_succeed(owner.client(), &made_up).await, Vec::<&str>::new());
        let table = owner.statement(operation.clone()).collect(PATIENCE).await.unwrap();
        assert_eq!(table.rows.len(), 1, "another user has cancelled or read it");
        let closed = TCloseOperationReq { operation_handle: operation.clone() };
        owner.client().close_operation(&closed).await.unwrap();
        assert_eq!(calls_that_succeed(owner.client(), &operation).await, Vec::<&str>::new(), "it is closed");
    }
}
