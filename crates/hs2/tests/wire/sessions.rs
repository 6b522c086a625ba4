//! Client and server over a socket: sessions, statements, errors, extension calls.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::time::Duration;

use crate::number_server::{Running, columns, row, start, wait};
use hs2::session::StatementProgress;
use hs2::tcli::{TI64Value, TOpenSessionReq, TProtocolVersion};
use hs2::{Auth, Client, ClientError, Limits, Session, Value, WireError};
use model::error::{ENGINE_DRAINING, ErrorKind};

const DEADLINE: Duration = Duration::from_secs(10);

async fn session(server: &Running) -> Session {
    Session::open(server.client("alice").await, &[("use:database".to_owned(), "d".to_owned())]).await.unwrap()
}

#[tokio::test]
async fn a_statement_is_executed_polled_fetched_and_closed() {
    let server = start(Limits::default()).await;
    let mut session = session(&server).await;
    assert_eq!(session.configuration()["hive.server2.thrift.resultset.default.fetch.size"], "1000");
    let table = session.run("numbers 2500", DEADLINE).await.unwrap();
    assert_eq!(table.columns, columns());
    assert_eq!(table.rows, (0..2500).map(row).collect::<Vec<_>>());
    assert_eq!(table.get(3, "TEXT"), Some(&Value::Null));
    assert_eq!(session.run("numbers 0", DEADLINE).await.unwrap().rows.len(), 0);
    session.close().await.unwrap();
    server.stop().await;
}

#[tokio::test]
async fn errors_arrive_with_sqlstate_detail_and_hint() {
    let server = start(Limits::default()).await;
    let mut session = session(&server).await;
    let Err(ClientError::Refused(error)) = session.execute("fail").await else { panic!("an error was expected") };
    assert_eq!((error.kind, error.sqlstate()), (ErrorKind::UndefinedTable, "42P01"));
    assert_eq!(error.message, "table \"x\" does not exist");
    assert_eq!(error.detail.as_deref(), Some("there are 2 tables"));
    assert_eq!(error.hint.as_deref(), Some("SHOW TABLES"));
    // Of an operation that was accepted first.
    let Err(ClientError::Refused(error)) = session.run("nonsense", DEADLINE).await else { panic!("no error") };
    assert_eq!((error.kind, error.message.as_str()), (ErrorKind::Syntax, "no such statement"));
    // The one error that lets a caller go elsewhere.
    let Err(ClientError::Refused(error)) = session.execute("drain").await else { panic!("no error") };
    assert_eq!((error.kind, error.kind.error_code()), (ErrorKind::EngineDraining, ENGINE_DRAINING));
    // The session goes on.
    assert_eq!(session.run("numbers 1", DEADLINE).await.unwrap().rows, vec![row(0)]);
    server.stop().await;
}

#[tokio::test]
async fn a_statement_that_waits_is_cancelled_and_its_log_is_read() {
    let server = start(Limits::default()).await;
    let mut session = session(&server).await;
    let mut statement = session.execute("wait").await.unwrap();
    assert_eq!(statement.poll().await.unwrap(), StatementProgress::Running);
    let late = statement.wait(Duration::from_millis(30)).await;
    assert!(matches!(late, Err(ClientError::Timeout { .. })), "{late:?}");
    assert_eq!(statement.logs().await.unwrap(), ["line 0 of wait", "line 1 of wait", "line 2 of wait"]);
    assert_eq!(statement.logs().await.unwrap(), [""; 0]);
    statement.cancel().await.unwrap();
    let Err(ClientError::Refused(error)) = statement.wait(DEADLINE).await else { panic!("it was cancelled") };
    assert_eq!(error.kind, ErrorKind::Canceled);
    statement.close().await.unwrap();
    server.stop().await;
}

#[tokio::test]
async fn a_session_over_plain_thrift_is_authenticated_by_its_first_call() {
    let server = start(Limits::default()).await;
    let connect = || async { Client::connect(&server.options(Auth::None)).await.unwrap() };
    let mut session = Session::open_as(connect().await, Some(("bob", "x")), &[]).await.unwrap();
    assert_eq!(session.run("numbers 1500", DEADLINE).await.unwrap().rows.len(), 1500);
    // A second session of the same user may share the connection, one of another may not.
    let open = |user: &str| TOpenSessionReq {
        client_protocol: TProtocolVersion::HIVE_CLI_SERVICE_PROTOCOL_V8,
        username: Some(user.to_owned()),
        password: None,
        configuration: None,
    };
    session.client().open_session(&open("bob")).await.unwrap();
    let Err(ClientError::Refused(error)) = session.client().open_session(&open("alice")).await else {
        panic!("the connection is bob's");
    };
    assert_eq!(error.kind, ErrorKind::InvalidAuthorization);
    let refused = Session::open_as(connect().await, Some(("mallory", "x")), &[]).await;
    assert!(matches!(refused, Err(ClientError::Refused(error)) if error.kind == ErrorKind::InvalidAuthorization));
    // Nothing before OpenSession.
    let mut early = connect().await;
    let handle = session.handle().clone();
    let refused = early.close_session(&hs2::tcli::TCloseSessionReq { session_handle: handle }).await;
    assert!(matches!(refused, Err(ClientError::Refused(error)) if error.kind == ErrorKind::InvalidAuthorization));
    server.stop().await;
}

#[tokio::test]
async fn a_session_belongs_to_one_user() {
    let server = start(Limits::default()).await;
    let alice = session(&server).await;
    let mut bob = server.client("bob").await;
    let request = hs2::tcli::TCloseSessionReq { session_handle: alice.handle().clone() };
    let refused = bob.close_session(&request).await;
    assert!(matches!(refused, Err(ClientError::Refused(error)) if error.kind == ErrorKind::WrongState));
    server.stop().await;
}

#[tokio::test]
async fn a_client_below_v6_gets_a_clear_error() {
    let server = start(Limits::default()).await;
    let mut client = server.client("alice").await;
    let mut open = TOpenSessionReq {
        client_protocol: TProtocolVersion::HIVE_CLI_SERVICE_PROTOCOL_V5,
        username: None,
        password: None,
        configuration: None,
    };
    let Err(ClientError::Refused(error)) = client.open_session(&open).await else { panic!("V5 is too old") };
    assert_eq!(error.message, "protocol version V5 of the client is too old");
    assert_eq!(error.sqlstate(), "0A000");
    for (client_protocol, answered) in [
        (TProtocolVersion::HIVE_CLI_SERVICE_PROTOCOL_V6, TProtocolVersion::HIVE_CLI_SERVICE_PROTOCOL_V6),
        (TProtocolVersion::HIVE_CLI_SERVICE_PROTOCOL_V11, TProtocolVersion::HIVE_CLI_SERVICE_PROTOCOL_V10),
    ] {
        open.client_protocol = client_protocol;
        assert_eq!(client.open_session(&open).await.unwrap().server_protocol_version, answered);
    }
    server.stop().await;
}

#[tokio::test]
async fn unknown_methods_are_refused_and_extension_calls_served() {
    let server = start(Limits::default()).await;
    let mut session = session(&server).await;
    for unknown in ["GetLog", "CloseImpalaOperation"] {
        let answer: Result<TI64Value, _> = session.client().call(unknown, &TI64Value { value: None }, DEADLINE).await;
        let Err(ClientError::Wire(WireError::Application { kind: 1, text })) = answer else { panic!("{unknown}") };
        assert_eq!(text, format!("Invalid method name: '{unknown}'"));
    }
    let answer: TI64Value = session.client().call("Double", &TI64Value { value: Some(21) }, DEADLINE).await.unwrap();
    assert_eq!(answer.value, Some(42));
    // Known to the protocol, not to this server.
    let request = hs2::tcli::TGetTypeInfoReq { session_handle: session.handle().clone() };
    let Err(ClientError::Refused(error)) = session.client().get_type_info(&request).await else { panic!("refused") };
    assert_eq!((error.kind, error.message.as_str()), (ErrorKind::NotSupported, "call GetTypeInfo is not supported"));
    // An argument that is none.
    let answer: Result<TI64Value, _> =
        session.client().call("CloseSession", &TI64Value { value: Some(1) }, DEADLINE).await;
    assert!(matches!(answer, Err(ClientError::Wire(WireError::Application { kind: 7, .. }))), "{answer:?}");
    assert_eq!(session.run("numbers 1", DEADLINE).await.unwrap().rows.len(), 1);
    server.stop().await;
}

#[tokio::test]
async fn a_role_speaks_for_a_user() {
    let server = start(Limits::default()).await;
    let mut events = server.service.events();
    let auth = Auth::service("proxy", "derived", "carol");
    let client = Client::connect(&server.options(auth)).await.unwrap();
    let _session = Session::open(client, &[]).await.unwrap();
    assert_eq!(events.recv().await.unwrap(), "open carol");
    server.stop().await;
}

#[tokio::test]
async fn a_call_that_got_no_answer_in_time_breaks_the_connection() {
    let server = start(Limits::default()).await;
    let mut session = session(&server).await;
    let request = wait(&session);
    session.client().set_call_deadline(Duration::from_millis(50));
    let late = session.client().execute_statement(&request).await;
    assert!(matches!(late, Err(ClientError::Timeout { .. })), "{late:?}");
    assert!(session.client().is_broken());
    let broken = session.client().execute_statement(&request).await;
    assert!(matches!(broken, Err(ClientError::Broken)), "{broken:?}");
    drop(session);
    server.stop().await;
}

#[tokio::test]
async fn a_client_that_hangs_up_during_a_call_is_noticed_by_the_call() {
    let server = start(Limits::default()).await;
    let mut events = server.service.events();
    let mut session = session(&server).await;
    assert_eq!(events.recv().await.unwrap(), "open alice");
    let request = wait(&session);
    let call = tokio::spawn(async move { session.client().execute_statement(&request).await.map(drop) });
    server.service.waiting.notified().await;
    call.abort();
    assert_eq!(events.recv().await.unwrap(), "hung up");
    assert_eq!(events.recv().await.unwrap(), "closed alice");
    server.stop().await;
}

#[tokio::test]
async fn a_call_that_panics_ends_its_connection_and_no_other() {
    let server = start(Limits::default()).await;
    let mut events = server.service.events();
    let (mut one, mut two) = (session(&server).await, session(&server).await);
    let lost = one.execute("panic").await.map(drop);
    assert!(matches!(lost, Err(ClientError::Wire(_))), "{lost:?}");
    assert_eq!(events.recv().await.unwrap(), "open alice");
    assert_eq!(events.recv().await.unwrap(), "open alice");
    assert_eq!(events.recv().await.unwrap(), "closed alice");
    assert_eq!(two.run("numbers 5", DEADLINE).await.unwrap().rows.len(), 5);
    server.stop().await;
}

#[tokio::test]
async fn a_stopped_server_closes_idle_connections_and_notifies_its_service() {
    let server = start(Limits::default()).await;
    let mut events = server.service.events();
    let mut session = session(&server).await;
    let address = server.address;
    server.stop().await;
    assert_eq!(events.recv().await.unwrap(), "open alice");
    assert_eq!(events.recv().await.unwrap(), "closed alice");
    session.client().closed().await;
    assert!(session.execute("numbers 1").await.is_err());
    assert!(tokio::net::TcpStream::connect(address).await.is_err());
}
