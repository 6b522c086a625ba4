//! Engines that are not ours: one that has closed its session, one that finds operations only by their type, one that
//! claims to be an agent.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use agent_api::{Caller, ClusterTls, EngineEndpoint};
use async_trait::async_trait;
use engine_agent::engine::{self, Backend, Ended, EngineAgentError, EngineRuntime, Key, Settings};
use hs2::answer::Answer as _;
use hs2::tcli::*;
use hs2::{
    Client, ClientError, ClientOptions, Column, Context, Credentials, Handle, Principal, Service, Session, SqlType,
    protocol, rowset, schema, status,
};
use model::cause::Cause;
use model::error::{ErrorKind, UserError};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::engines::engine_tls;
use crate::fixture::{Fixture, WAIT, drain, engine_name, eventually, permit, registered, slot, within};

/// Speaks as Spark does.
#[derive(Default)]
struct Odd {
    sessions: Mutex<Vec<Handle>>,
    operations: Mutex<HashMap<Handle, (TOperationType, bool)>>,
}

impl Odd {
    fn operation(&self, handle: &TOperationHandle) -> Result<(), UserError> {
        let (key, kind) = (Handle::try_from(handle).unwrap(), handle.operation_type);
        match self.operations.lock().get(&key) {
            Some((known, _)) if *known == kind => Ok(()),
            _ => Err(UserError::internal(format!("Invalid OperationHandle: {key}"))),
        }
    }

    fn begin(&self, kind: TOperationType) -> TOperationHandle {
        let handle = Handle::random();
        self.operations.lock().insert(handle, (kind, false));
        handle.operation(kind, true)
    }
}

#[async_trait]
impl Service for Odd {
    async fn authenticate(&self, _: SocketAddr, credentials: &Credentials) -> Result<Principal, UserError> {
        Ok(Principal::user(credentials.user.as_str()))
    }

    async fn open_session(&self, _: &Context, request: TOpenSessionReq) -> Result<TOpenSessionResp, UserError> {
        let handle = Handle::random();
        self.sessions.lock().push(handle);
        Ok(TOpenSessionResp {
            status: status::success(),
            server_protocol_version: protocol::negotiate(request.client_protocol)?,
            session_handle: Some(handle.session()),
            configuration: None,
        })
    }

    async fn close_session(&self, _: &Context, _: TCloseSessionReq) -> Result<TCloseSessionResp, UserError> {
        Ok(TCloseSessionResp { status: status::success() })
    }

    async fn get_info(&self, _: &Context, _: TGetInfoReq) -> Result<TGetInfoResp, UserError> {
        Err(hs2::service::not_supported(hs2::Method::GetInfo))
    }

    async fn execute_statement(
        &self,
        _: &Context,
        request: TExecuteStatementReq,
    ) -> Result<TExecuteStatementResp, UserError> {
        let session = Handle::try_from(&request.session_handle).unwrap();
        if !self.sessions.lock().contains(&session) {
            return Err(UserError::internal(format!("Invalid SessionHandle: SessionHandle [{session}]")));
        }
        match request.statement.as_str() {
            "SELECT 'idle'" => self.sessions.lock().retain(|open| *open != session),
            "SELECT 'drains'" => return Err(UserError::new(ErrorKind::EngineDraining, "engine is draining")),
            "SELECT 'lost'" => return Err(UserError::new(ErrorKind::EngineSessionLost, "session lost")),
            _ => {}
        }
        let operation_handle = Some(self.begin(TOperationType::EXECUTE_STATEMENT));
        Ok(TExecuteStatementResp { status: status::success(), operation_handle })
    }

    async fn get_tables(&self, _: &Context, _: TGetTablesReq) -> Result<TGetTablesResp, UserError> {
        let operation_handle = Some(self.begin(TOperationType::GET_TABLES));
        Ok(TGetTablesResp { status: status::success(), operation_handle })
    }

    async fn get_operation_status(
        &self,
        _: &Context,
        request: TGetOperationStatusReq,
    ) -> Result<TGetOperationStatusResp, UserError> {
        self.operation(&request.operation_handle)?;
        let mut answer = TGetOperationStatusResp::with_status(status::success());
        answer.operation_state = Some(TOperationState::FINISHED_STATE);
        answer.has_result_set = Some(true);
        Ok(answer)
    }

    async fn cancel_operation(
        &self,
        _: &Context,
        request: TCancelOperationReq,
    ) -> Result<TCancelOperationResp, UserError> {
        self.operation(&request.operation_handle)?;
        Ok(TCancelOperationResp { status: status::success() })
    }

    async fn close_operation(
        &self,
        _: &Context,
        request: TCloseOperationReq,
    ) -> Result<TCloseOperationResp, UserError> {
        self.operation(&request.operation_handle)?;
        Ok(TCloseOperationResp { status: status::success() })
    }

    async fn get_result_set_metadata(
        &self,
        _: &Context,
        _: TGetResultSetMetadataReq,
    ) -> Result<TGetResultSetMetadataResp, UserError> {
        let schema = Some(schema::table_schema(&[Column::new("line", SqlType::String)]));
        Ok(TGetResultSetMetadataResp { status: status::success(), schema })
    }

    async fn fetch_results(&self, _: &Context, request: TFetchResultsReq) -> Result<TFetchResultsResp, UserError> {
        self.operation(&request.operation_handle)?;
        let handle = Handle::try_from(&request.operation_handle).unwrap();
        let mut operations = self.operations.lock();
        let Some((_, fetched)) = operations.get_mut(&handle) else { return Err(UserError::internal("gone")) };
        let lines = if std::mem::replace(fetched, true) { vec![] } else { vec!["a table".to_owned()] };
        let results = Some(rowset::lines(0, lines));
        Ok(TFetchResultsResp { status: status::success(), has_more_rows: Some(false), results })
    }
}

#[async_trait]
impl EngineRuntime for Odd {
    async fn start(&self) -> Result<Backend, Cause> {
        let server = hs2::Server::bind("127.0.0.1:0", hs2::Limits::default()).await.unwrap();
        let address = server.local_addr().unwrap().to_string();
        tokio::spawn(server.serve(Arc::new(Self::default()), CancellationToken::new()));
        Ok(Backend { address, key: Key("any".to_owned()) })
    }

    async fn ended(&self) -> Cause {
        std::future::pending().await
    }

    async fn stop(&self) {}
}

struct Agent {
    login: ClientOptions,
    task: tokio::task::JoinHandle<Result<Ended, EngineAgentError>>,
}

impl Agent {
    async fn start(fixture: &Fixture, lock: &coordination::Lock) -> Self {
        let name = engine_name(1);
        let settings = Settings {
            engine: name.clone(),
            uid: "an-uid".to_owned(),
            listen: "127.0.0.1:0".parse().unwrap(),
            advertise_host: None,
            run_as: None,
            keys: keys::KeyGeneration::FIRST,
            tls: engine_tls(fixture, &name),
            callers: fixture.keys.master.get().engine(&name).callers,
            config: "0123456789abcdef".to_owned(),
            catalog: model::table_catalog::TableCatalog::Shared,
            zookeeper: fixture.coordination(fixture.engine_identity(&name)),
            start_deadline: WAIT,
            limits: hs2::Limits::default(),
        };
        let never = std::future::pending();
        let runtime = Arc::new(Odd::default());
        let task = tokio::spawn(engine::run(settings, runtime, fixture.clock.clone(), CancellationToken::new(), never));
        permit(lock, &slot("t_1", "rp_1", "uc_1"), &name, Some("an-uid")).await;
        let live = registered(lock, &name).await.ready().unwrap().content.clone().unwrap();
        let endpoint = EngineEndpoint { uid: live.uid, address: live.address, keys: live.keys, tls: live.tls };
        let caller = Caller::new(fixture.keys.proxy.clone(), ClusterTls::Required);
        Self { login: caller.engine(&name, &endpoint, "ann").unwrap(), task }
    }

    async fn open(&self) -> Session {
        let client = Client::connect(&self.login).await.unwrap();
        Session::open(client, &[]).await.unwrap()
    }
}

async fn refused(session: &mut Session, sql: &str) -> UserError {
    match session.execute(sql).await.map(drop) {
        Err(ClientError::Refused(error)) => error,
        other => panic!("{sql}: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_the_engine_has_closed_is_reported_as_lost() {
    let fixture = Fixture::new().await;
    let lock = fixture.master().await;
    let agent = Agent::start(&fixture, &lock).await;
    let mut session = agent.open().await;
    session.execute("SELECT 'idle'").await.unwrap();
    let error = refused(&mut session, "SELECT 1").await;
    assert_eq!((error.kind, error.sqlstate()), (ErrorKind::EngineSessionLost, "08S01"), "{}", error.text());
    assert!(error.text().contains("nothing of the statement was executed"), "{}", error.text());
    // The session ends with its connection, and a new one is served by the same engine.
    within("the end of the connection", session.client().closed()).await;
    agent.open().await.execute("SELECT 1").await.unwrap();

    // With state of its own, nothing may be sent elsewhere.
    let mut session = agent.open().await;
    session.execute("CREATE TEMPORARY VIEW v AS SELECT 1").await.unwrap();
    session.execute("SELECT 'idle'").await.unwrap();
    let error = refused(&mut session, "SELECT 1").await;
    assert_eq!((error.kind, error.sqlstate()), (ErrorKind::ConnectionLost, "08S01"), "{}", error.text());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_cannot_claim_that_nothing_was_executed() {
    let fixture = Fixture::new().await;
    let lock = fixture.master().await;
    let agent = Agent::start(&fixture, &lock).await;
    let mut session = agent.open().await;
    for sql in ["SELECT 'drains'", "SELECT 'lost'"] {
        let error = refused(&mut session, sql).await;
        assert_eq!((error.kind, error.kind.error_code()), (ErrorKind::Internal, 0), "{}", error.text());
    }
    session.execute("SELECT 1").await.unwrap();
}

/// As Spark's: `OperationHandle.equals` compares the type.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metadata_operations_keep_their_type_in_polls_and_cancels() {
    let fixture = Fixture::new().await;
    let lock = fixture.master().await;
    let agent = Agent::start(&fixture, &lock).await;
    let mut session = agent.open().await;
    let session_handle = session.handle().clone();
    let request =
        TGetTablesReq { session_handle, catalog_name: None, schema_name: None, table_name: None, table_types: None };
    let handle = session.client().get_tables(&request).await.unwrap().operation_handle.unwrap();
    assert_eq!(handle.operation_type, TOperationType::GET_TABLES);
    drain(&lock, &engine_name(1), "an-uid", WAIT).await;
    // The first round of questions about what is left comes a second after the drain began.
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(!agent.task.is_finished(), "a result waits");
    let mut tables = session.statement(handle.clone());
    assert_eq!(tables.fetch(10).await.unwrap().len(), 1);
    session.client().cancel_operation(&TCancelOperationReq { operation_handle: handle }).await.unwrap();
    session.close().await.unwrap();
    eventually("the end of the agent", async || agent.task.is_finished().then_some(())).await;
}
