//! A small HiveServer2 server of numbers, built on the typed level, for tests of what lies between two ends.
//!
//! Statements: `numbers N` (N rows: n BIGINT, text STRING), `USE x`, `fail`, `wait` (until cancelled), `panic`.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use hs2::message::Call;
use hs2::tcli::*;
use hs2::{
    Auth, Client, ClientOptions, Column, Context, Credentials, Handle, Limits, Principal, Server, Service, Session,
    SqlType, Value, protocol, rowset, schema, status,
};
use model::error::{ErrorKind, UserError};
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub struct Operation {
    rows: i64,
    next: i64,
    log: Vec<String>,
    state: TOperationState,
}

#[derive(Default)]
pub struct Numbers {
    sessions: Mutex<HashMap<Handle, Principal>>,
    operations: Mutex<HashMap<Handle, Operation>>,
    /// Notified when a synchronous `wait` has begun.
    pub waiting: Notify,
    /// Why it is not ready.
    pub unready: Mutex<Option<String>>,
    /// What happened, in order: `open alice`, `closed alice`, `hung up`.
    events: Mutex<Option<mpsc::UnboundedSender<String>>>,
}

impl Numbers {
    fn event(&self, event: String) {
        if let Some(events) = &*self.events.lock() {
            let _ = events.send(event);
        }
    }

    #[allow(clippy::disallowed_methods, reason = "a test reads them all")]
    pub fn events(&self) -> mpsc::UnboundedReceiver<String> {
        let (sender, receiver) = mpsc::unbounded_channel();
        *self.events.lock() = Some(sender);
        receiver
    }

    fn session(&self, cx: &Context, handle: &TSessionHandle) -> Result<(), UserError> {
        let handle = Handle::try_from(handle).map_err(|error| UserError::internal(error.to_string()))?;
        match self.sessions.lock().get(&handle) {
            Some(principal) if *principal == cx.principal => Ok(()),
            _ => Err(UserError::new(ErrorKind::WrongState, "session does not exist")),
        }
    }

    fn operation<T>(&self, handle: &TOperationHandle, with: impl FnOnce(&mut Operation) -> T) -> Result<T, UserError> {
        let handle = Handle::try_from(handle).map_err(|error| UserError::internal(error.to_string()))?;
        let mut operations = self.operations.lock();
        operations
            .get_mut(&handle)
            .map(with)
            .ok_or_else(|| UserError::new(ErrorKind::WrongState, "operation does not exist"))
    }
}

pub fn columns() -> Vec<Column> {
    vec![Column::new("n", SqlType::BigInt), Column::new("text", SqlType::String).comment("n in words, or nothing")]
}

pub fn row(n: i64) -> Vec<Value> {
    vec![Value::I64(n), if n % 3 == 0 { Value::Null } else { Value::Text(format!("number {n}")) }]
}

#[async_trait]
impl Service for Numbers {
    fn unready(&self) -> Option<String> {
        self.unready.lock().clone()
    }

    fn serves_host(&self, name: &str) -> bool {
        name == "numbers.example"
    }

    async fn authenticate(&self, _: SocketAddr, credentials: &Credentials) -> Result<Principal, UserError> {
        match (credentials.user.as_str(), credentials.password.as_str()) {
            ("mallory", _) => Err(UserError::new(ErrorKind::InvalidAuthorization, "user \"mallory\" may not connect")
                .hint("ask an admin")),
            ("proxy", "derived") => Ok(Principal::service("proxy", credentials.authzid.clone())),
            ("sleepy", _) => std::future::pending().await,
            (user, _) => Ok(Principal::user(user)),
        }
    }

    async fn connection_closed(&self, cx: &Context) {
        self.event(format!("closed {}", cx.principal.user));
    }

    async fn open_session(&self, cx: &Context, request: TOpenSessionReq) -> Result<TOpenSessionResp, UserError> {
        let server_protocol_version = protocol::negotiate(request.client_protocol)?;
        let handle = Handle::random();
        self.sessions.lock().insert(handle, cx.principal.clone());
        self.event(format!("open {}", cx.principal.user));
        Ok(TOpenSessionResp {
            status: status::success(),
            server_protocol_version,
            session_handle: Some(handle.session()),
            configuration: Some(BTreeMap::from([(protocol::FETCH_SIZE_KEY.to_owned(), "1000".to_owned())])),
        })
    }

    async fn close_session(&self, cx: &Context, request: TCloseSessionReq) -> Result<TCloseSessionResp, UserError> {
        self.session(cx, &request.session_handle)?;
        self.sessions.lock().remove(&Handle::try_from(&request.session_handle).unwrap());
        Ok(TCloseSessionResp { status: status::success() })
    }

    async fn get_info(&self, cx: &Context, request: TGetInfoReq) -> Result<TGetInfoResp, UserError> {
        self.session(cx, &request.session_handle)?;
        let info_value = TGetInfoValue::StringValue("numbers".to_owned());
        Ok(TGetInfoResp { status: status::success(), info_value })
    }

    async fn execute_statement(
        &self,
        cx: &Context,
        request: TExecuteStatementReq,
    ) -> Result<TExecuteStatementResp, UserError> {
        self.session(cx, &request.session_handle)?;
        let (verb, number) = request.statement.split_once(' ').unwrap_or((&request.statement, "0"));
        let (rows, state) = match verb {
            "numbers" => (number.parse().unwrap(), TOperationState::FINISHED_STATE),
            "USE" => (0, TOperationState::FINISHED_STATE),
            "fail" => {
                return Err(UserError::new(ErrorKind::UndefinedTable, "table \"x\" does not exist")
                    .detail("there are 2 tables")
                    .hint("SHOW TABLES"));
            }
            "drain" => return Err(UserError::new(ErrorKind::EngineDraining, "engine \"e\" is draining")),
            "wait" if request.run_async != Some(true) => {
                self.waiting.notify_one();
                cx.hung_up.cancelled().await;
                self.event("hung up".to_owned());
                (0, TOperationState::FINISHED_STATE)
            }
            "wait" => (0, TOperationState::RUNNING_STATE),
            "panic" => panic!("asked to"),
            _ => (0, TOperationState::ERROR_STATE),
        };
        let handle = Handle::random();
        let log = (0..3).map(|line| format!("line {line} of {verb}")).collect();
        self.operations.lock().insert(handle, Operation { rows, next: 0, log, state });
        Ok(TExecuteStatementResp {
            status: status::success(),
            operation_handle: Some(handle.operation(TOperationType::EXECUTE_STATEMENT, verb == "numbers")),
        })
    }

    async fn get_operation_status(
        &self,
        _: &Context,
        request: TGetOperationStatusReq,
    ) -> Result<TGetOperationStatusResp, UserError> {
        let state = self.operation(&request.operation_handle, |operation| operation.state)?;
        let mut answer = <TGetOperationStatusResp as hs2::answer::Answer>::with_status(status::success());
        answer.operation_state = Some(state);
        if state == TOperationState::ERROR_STATE {
            status::operation_error(&UserError::new(ErrorKind::Syntax, "no such statement"), &mut answer);
        }
        Ok(answer)
    }

    async fn cancel_operation(
        &self,
        _: &Context,
        request: TCancelOperationReq,
    ) -> Result<TCancelOperationResp, UserError> {
        self.operation(&request.operation_handle, |operation| operation.state = TOperationState::CANCELED_STATE)?;
        Ok(TCancelOperationResp { status: status::success() })
    }

    async fn close_operation(
        &self,
        _: &Context,
        request: TCloseOperationReq,
    ) -> Result<TCloseOperationResp, UserError> {
        self.operation(&request.operation_handle, |_| ())?;
        self.operations.lock().remove(&Handle::try_from(&request.operation_handle).unwrap());
        Ok(TCloseOperationResp { status: status::success() })
    }

    async fn get_result_set_metadata(
        &self,
        _: &Context,
        request: TGetResultSetMetadataReq,
    ) -> Result<TGetResultSetMetadataResp, UserError> {
        self.operation(&request.operation_handle, |_| ())?;
        Ok(TGetResultSetMetadataResp { status: status::success(), schema: Some(schema::table_schema(&columns())) })
    }

    async fn fetch_results(&self, _: &Context, request: TFetchResultsReq) -> Result<TFetchResultsResp, UserError> {
        let results = self.operation(&request.operation_handle, |operation| {
            if request.fetch_type == Some(1) {
                return rowset::lines(0, std::mem::take(&mut operation.log));
            }
            let (from, to) = (operation.next, (operation.next + request.max_rows).min(operation.rows));
            operation.next = to;
            let mut set = rowset::RowSetBuilder::new(&columns(), from);
            (from..to).for_each(|n| set.push_row(row(n)).unwrap());
            set.finish()
        })?;
        Ok(TFetchResultsResp { status: status::success(), has_more_rows: Some(false), results: Some(results) })
    }

    async fn extension(&self, cx: &Context, call: &Call<'_>) -> Option<Vec<u8>> {
        if call.name != "Double" {
            return None;
        }
        // Any structs do; these are at hand.
        let Ok(TI64Value { value }) = call.decode() else { return Some(call.unknown()) };
        assert!(!cx.principal.user.is_empty());
        Some(call.reply(&TI64Value { value: value.map(|value| value * 2) }))
    }
}

/// A call that lasts until its client hangs up.
pub fn wait(session: &Session) -> TExecuteStatementReq {
    TExecuteStatementReq {
        session_handle: session.handle().clone(),
        statement: "wait".to_owned(),
        conf_overlay: None,
        run_async: Some(false),
        query_timeout: None,
    }
}

/// A server that runs.
pub struct Running {
    pub service: Arc<Numbers>,
    pub address: SocketAddr,
    pub stop: CancellationToken,
    pub task: JoinHandle<()>,
}

pub async fn start(limits: Limits) -> Running {
    start_on(Server::bind("127.0.0.1:0", limits).await.unwrap())
}

pub fn start_on(server: Server) -> Running {
    let service = Arc::new(Numbers::default());
    let address = server.local_addr().unwrap();
    let stop = CancellationToken::new();
    let task = tokio::spawn(server.serve(Arc::clone(&service), stop.clone()));
    Running { service, address, stop, task }
}

impl Running {
    pub fn options(&self, auth: Auth) -> ClientOptions {
        ClientOptions::new(self.address.to_string(), auth)
    }

    pub async fn client(&self, user: &str) -> Client {
        Client::connect(&self.options(Auth::user(user, "x"))).await.unwrap()
    }

    /// Stops it and waits until all its connections have ended.
    pub async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap();
    }
}
