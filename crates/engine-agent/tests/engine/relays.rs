//! The relay: handles, cancel, dead connections, and the counts of the status call.

use std::time::Duration;

use coordination::Lock;
use hs2::ClientError;
use hs2::tcli::{TCancelOperationReq, TExecuteStatementReq, TGetOperationStatusReq, TOperationState};
use model::error::ErrorKind;

use crate::engines::RunningEngine;
use crate::fixture::{Fixture, WAIT, engine_name, eventually, permit, registered, slot, within};

const FOR_EVER: &str = "SELECT count(*) FROM generate_series(1, 100000000000)";

async fn ready(fixture: &Fixture, lock: &Lock) -> (RunningEngine, String) {
    let engine = RunningEngine::start(fixture, engine_name(1));
    permit(lock, &slot("t_1", "rp_1", "uc_1"), &engine.name, Some(&engine.uid)).await;
    let node = registered(lock, &engine.name).await;
    (engine, node.ready().unwrap().content.clone().unwrap().address)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_on_another_connection_ends_the_statement() {
    let fixture = Fixture::new().await;
    let lock = fixture.master().await;
    let (engine, address) = ready(&fixture, &lock).await;
    let mut session = engine.open(&address, "ann").await;
    let mut statement = session.execute(FOR_EVER).await.unwrap();
    let operation_handle = statement.handle().clone();
    let mut stranger = engine.connect(&address, "bob").await;
    let request = TCancelOperationReq { operation_handle };
    let Err(ClientError::Refused(error)) = stranger.cancel_operation(&request).await else {
        panic!("another user's statement is cancelled")
    };
    assert_eq!(error.kind, ErrorKind::WrongState);
    let mut aside = engine.connect(&address, "ann").await;
    let (canceled, ended) = tokio::join!(aside.cancel_operation(&request), statement.wait(WAIT));
    canceled.unwrap();
    let Err(ClientError::Refused(error)) = ended else { panic!("it was cancelled") };
    assert_eq!(error.sqlstate(), "57014");
    eventually("the engine's rest", async || (engine.datafusion.load().1 == 0).then_some(())).await;
    eventually("the count of the agent", async || (engine.status(&address).await.running == 0).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_a_connection_ends_its_sessions_and_cancels_what_runs() {
    let fixture = Fixture::new().await;
    let lock = fixture.master().await;
    let (engine, address) = ready(&fixture, &lock).await;
    let mut session = engine.open(&address, "ann").await;
    session.execute(FOR_EVER).await.unwrap();
    eventually("a running statement", async || (engine.datafusion.load() == (1, 1)).then_some(())).await;
    drop(session);
    eventually("the end of the session", async || (engine.datafusion.load() == (0, 0)).then_some(())).await;
    eventually("the count of the agent", async || (engine.status(&address).await.sessions == 0).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_that_is_waited_for_ends_with_its_connection() {
    let fixture = Fixture::new().await;
    let lock = fixture.master().await;
    let (engine, address) = ready(&fixture, &lock).await;
    let mut session = engine.open(&address, "ann").await;
    let request = TExecuteStatementReq {
        session_handle: session.handle().clone(),
        statement: FOR_EVER.to_owned(),
        conf_overlay: None,
        run_async: Some(false),
        query_timeout: None,
    };
    let waiting = tokio::spawn(async move { session.client().execute_statement(&request).await.map(drop) });
    eventually("the count of the status call", async || {
        let status = engine.status(&address).await;
        (status.sessions == 1 && status.running == 1).then_some(())
    })
    .await;
    waiting.abort();
    eventually("the end of the session", async || (engine.datafusion.load() == (0, 0)).then_some(())).await;
    eventually("the count of the agent", async || (engine.status(&address).await.running == 0).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_status_call_counts_sessions_and_statements() {
    let fixture = Fixture::new().await;
    let lock = fixture.master().await;
    let (engine, address) = ready(&fixture, &lock).await;
    let (mut one, _two) = (engine.open(&address, "ann").await, engine.open(&address, "bob").await);
    let statement = one.execute(FOR_EVER).await.unwrap();
    let status = engine.status(&address).await;
    assert_eq!((status.sessions, status.running, status.draining), (2, 1, false));
    statement.close().await.unwrap();
    eventually("the end of the statement", async || (engine.status(&address).await.running == 0).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handles_of_another_connection_or_user_do_not_exist() {
    let fixture = Fixture::new().await;
    let lock = fixture.master().await;
    let (engine, address) = ready(&fixture, &lock).await;
    let mut session = engine.open(&address, "ann").await;
    let session_handle = session.handle().clone();
    let statement = session.execute("SELECT 1").await.unwrap();
    let operation_handle = statement.handle().clone();
    for user in ["ann", "bob"] {
        let mut other = engine.connect(&address, user).await;
        let request = TExecuteStatementReq {
            session_handle: session_handle.clone(),
            statement: "SELECT 1".to_owned(),
            conf_overlay: None,
            run_async: Some(true),
            query_timeout: None,
        };
        let Err(ClientError::Refused(error)) = other.execute_statement(&request).await else {
            panic!("{user} gets in")
        };
        assert_eq!(error.kind, ErrorKind::WrongState);
        let request = TGetOperationStatusReq { operation_handle: operation_handle.clone(), get_progress_update: None };
        let Err(ClientError::Refused(error)) = other.get_operation_status(&request).await else {
            panic!("{user} sees the statement")
        };
        assert_eq!(error.kind, ErrorKind::WrongState);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_of_the_engine_come_through_as_they_are() {
    let fixture = Fixture::new().await;
    let lock = fixture.master().await;
    let (engine, address) = ready(&fixture, &lock).await;
    let mut session = engine.open(&address, "ann").await;
    let Err(ClientError::Refused(error)) = session.run("SELECT * FROM nowhere", WAIT).await else {
        panic!("there is no such table")
    };
    assert_eq!(error.sqlstate(), "42P01");
    let mut statement = session.execute("SELECT arrow_cast('x', 'Int64')").await.unwrap();
    let state = within("the error", async {
        loop {
            let request =
                TGetOperationStatusReq { operation_handle: statement.handle().clone(), get_progress_update: None };
            match statement.poll().await {
                Ok(_) => tokio::time::sleep(Duration::from_millis(10)).await,
                Err(_) => return request,
            }
        }
    })
    .await;
    let answer = session.client().get_operation_status(&state).await.unwrap();
    assert_eq!(answer.operation_state, Some(TOperationState::ERROR_STATE));
    assert_eq!(answer.sql_state.as_deref(), Some("22018"));
}
