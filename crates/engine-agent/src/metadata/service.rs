//! The `HiveServer2` service of a metadata agent: sessions of proxies, control statements as operations, masters' calls.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use agent_api::Audience;
use agent_api::overlay::{
    REQUEST_CLIENT, REQUEST_CREATOR, REQUEST_DEADLINE_MS, REQUEST_GROUPS, REQUEST_ID, REQUEST_METHOD, REQUEST_PROXY,
    REQUEST_PROXY_LACKS, REQUEST_VIA, groups_of,
};
use async_trait::async_trait;
use hs2::tcli::{
    TCancelOperationReq, TCancelOperationResp, TCloseOperationReq, TCloseOperationResp, TCloseSessionReq,
    TCloseSessionResp, TExecuteStatementReq, TExecuteStatementResp, TFetchOrientation, TFetchResultsReq,
    TFetchResultsResp, TGetInfoReq, TGetInfoResp, TGetInfoType, TGetInfoValue, TGetOperationStatusReq,
    TGetOperationStatusResp, TGetResultSetMetadataReq, TGetResultSetMetadataResp, TOpenSessionReq, TOpenSessionResp,
    TOperationHandle, TOperationType,
};
use hs2::{
    Call, Context as CallContext, Credentials, Handle, Principal, Service, ServiceProof, protocol, schema, status,
};
use model::alteration::{RequestId, Source};
use model::error::{ErrorKind, UserError};
use model::rights::Subject;
use model::text::cut;
use model::user_name::is_user_name;
use tokio::sync::Semaphore;

use super::api::Api;
use super::context::{Agent, Context};
use super::holders::HolderService;
use super::operation::Operation;
use super::sessions::Sessions;
use super::settings::{DEFAULT_DEADLINE, MAX_RUNNING};
use super::statement;

/// The most characters of the text about what a proxy cannot reach that are shown.
const MAX_PROXY_LACKS: usize = 500;
/// The most bytes of an entry about the client that are recorded.
const MAX_SOURCE_BYTES: usize = 255;
/// The creator of clients that name no application.
const DEFAULT_CREATOR: &str = "default";
/// The longest remaining time that is accepted.
const MAX_DEADLINE: Duration = Duration::from_hours(24);
/// How long a statement that the client waits for may run.
const SYNCHRONOUS_DEADLINE: Duration = Duration::from_hours(24);
/// How long `ExecuteStatement` waits for a quick statement, to save the client a poll.
const AT_ONCE: Duration = Duration::from_millis(50);
/// The most rows of one fetch.
const MAX_FETCH_ROWS: i64 = 100_000;

pub(super) struct ControlService {
    agent: Arc<Agent>,
    api: Api,
    holders: HolderService,
    sessions: Sessions,
    /// Permits of running statements: that of a closed operation may still run.
    running: Arc<Semaphore>,
}

impl ControlService {
    pub(super) fn new(agent: Arc<Agent>) -> Self {
        let running = Arc::new(Semaphore::new(MAX_RUNNING));
        let holders = HolderService::new(Arc::clone(&agent));
        Self { api: Api::new(Arc::clone(&agent)), holders, agent, sessions: Sessions::new(), running }
    }

    fn operation(&self, cx: &CallContext, handle: &TOperationHandle) -> Result<Arc<Operation>, UserError> {
        self.sessions.operation(cx, &operation_handle(handle)?)
    }
}

fn operation_handle(handle: &TOperationHandle) -> Result<Handle, UserError> {
    Handle::try_from(handle).map_err(|_| UserError::new(ErrorKind::WrongState, "operation does not exist"))
}

fn session_handle(handle: &hs2::tcli::TSessionHandle) -> Result<Handle, UserError> {
    Handle::try_from(handle).map_err(|_| UserError::new(ErrorKind::WrongState, "session does not exist"))
}

/// The id and the remaining time of the request.
fn request_of(overlay: &BTreeMap<String, String>) -> Result<(RequestId, Duration), UserError> {
    let id = match overlay.get(REQUEST_ID) {
        Some(id) => RequestId::new(id.clone())?,
        None => RequestId::new(uuid::Uuid::new_v4().simple().to_string())?,
    };
    let left =
        match overlay.get(REQUEST_DEADLINE_MS) {
            Some(ms) => Duration::from_millis(ms.parse().map_err(|_| {
                UserError::new(ErrorKind::InvalidValue, format!("invalid {REQUEST_DEADLINE_MS} \"{ms}\""))
            })?),
            None => DEFAULT_DEADLINE,
        };
    Ok((id, left.min(MAX_DEADLINE)))
}

/// What the proxy reports about its client; an earlier version reports nothing.
fn source_of(overlay: &BTreeMap<String, String>) -> Source {
    let entry = |key| overlay.get(key).map(|text| cut(text, MAX_SOURCE_BYTES).to_owned());
    Source {
        via: entry(REQUEST_VIA),
        method: entry(REQUEST_METHOD),
        proxy: entry(REQUEST_PROXY),
        client: entry(REQUEST_CLIENT),
    }
}

/// The client application; a default for a client that names none, and for a name that no quota can have.
fn creator_of(overlay: &BTreeMap<String, String>) -> String {
    let named = overlay.get(REQUEST_CREATOR).filter(|name| is_user_name(name) && !name.trim().is_empty());
    named.cloned().unwrap_or_else(|| DEFAULT_CREATOR.to_owned())
}

#[async_trait]
impl Service for ControlService {
    async fn authenticate(&self, _peer: SocketAddr, credentials: &Credentials) -> Result<Principal, UserError> {
        agent_api::authenticate_password(
            &self.agent.settings.keys.get().callers(),
            Audience::MetadataAgent,
            credentials,
        )
    }

    fn accepts_services(&self) -> bool {
        true
    }

    async fn authenticate_service(&self, _peer: SocketAddr, proof: &ServiceProof) -> Result<Principal, UserError> {
        agent_api::authenticate(&self.agent.settings.keys.get().callers(), Audience::MetadataAgent, proof)
    }

    /// An agent that is not registered is not found, and one without its database refuses every statement.
    fn unready(&self) -> Option<String> {
        if self.agent.supervisor.session().is_err() {
            return Some("the metadata agent is not registered in ZooKeeper".to_owned());
        }
        self.agent.database.lost().map(|reason| format!("the metadata database does not respond: {reason}"))
    }

    async fn connection_closed(&self, cx: &CallContext) {
        self.sessions.close_connection(cx.connection);
    }

    async fn open_session(&self, cx: &CallContext, request: TOpenSessionReq) -> Result<TOpenSessionResp, UserError> {
        let version = protocol::negotiate(request.client_protocol)?;
        let handle = self.sessions.open(cx)?;
        Ok(TOpenSessionResp {
            status: status::success(),
            server_protocol_version: version,
            session_handle: Some(handle.session()),
            configuration: Some(BTreeMap::new()),
        })
    }

    async fn close_session(&self, cx: &CallContext, request: TCloseSessionReq) -> Result<TCloseSessionResp, UserError> {
        let handle = session_handle(&request.session_handle)?;
        self.sessions.check(cx, &handle)?;
        self.sessions.close(&handle);
        Ok(TCloseSessionResp { status: status::success() })
    }

    async fn get_info(&self, _cx: &CallContext, request: TGetInfoReq) -> Result<TGetInfoResp, UserError> {
        let value = match request.info_type {
            TGetInfoType::CLI_DBMS_VER => env!("CARGO_PKG_VERSION"),
            _ => "Enginehouse metadata agent",
        };
        Ok(TGetInfoResp { status: status::success(), info_value: TGetInfoValue::StringValue(value.to_owned()) })
    }

    async fn execute_statement(
        &self,
        cx: &CallContext,
        request: TExecuteStatementReq,
    ) -> Result<TExecuteStatementResp, UserError> {
        let session = session_handle(&request.session_handle)?;
        self.sessions.check(cx, &session)?;
        let parsed = ddl::parse(&request.statement)?;
        let overlay = request.conf_overlay.unwrap_or_default();
        let (id, left) = request_of(&overlay)?;
        // An earlier version sends none: its users have no groups.
        let groups = overlay.get(REQUEST_GROUPS).map(|text| groups_of(text)).transpose()?.unwrap_or_default();
        let proxy_lacks = overlay.get(REQUEST_PROXY_LACKS).map(|lacks| lacks.chars().take(MAX_PROXY_LACKS).collect());
        let permit = Arc::clone(&self.running).try_acquire_owned().map_err(|_| {
            UserError::new(ErrorKind::ProgramLimit, "too many control statements are running")
                .detail(format!("The limit of the metadata agent is {MAX_RUNNING}."))
                .hint("Retry the statement later.")
        })?;
        let operation = Operation::new(cx.principal.user.clone());
        let handle = self.sessions.begin(&session, &operation)?;
        let now = self.agent.clock.boottime();
        let seconds =
            request.query_timeout.and_then(|seconds| u64::try_from(seconds).ok()).filter(|seconds| *seconds > 0);
        let timeout = seconds.map(|seconds| Duration::from_secs(seconds).min(MAX_DEADLINE));
        let context = Context {
            agent: Arc::clone(&self.agent),
            subject: Subject::new(cx.principal.user.clone(), groups, &self.agent.settings.roles),
            kind: parsed.kind(),
            source: source_of(&overlay),
            creator: creator_of(&overlay),
            id,
            deadline: now + timeout.map_or(left, |timeout| timeout.min(left)),
            timeout: timeout.map(|timeout| now + timeout),
            proxy_lacks,
            log: operation.log.clone(),
            cancelled: operation.cancelled.clone(),
        };
        // On a task of its own: the statement runs to its end even if the connection is closed.
        let running = Arc::clone(&operation);
        tokio::spawn(async move {
            let task = tokio::spawn(async move { statement::execute(&context, &parsed).await });
            let outcome = task.await.unwrap_or_else(|error| {
                tracing::error!(%error, "statement task panicked");
                Err(UserError::internal("the statement failed unexpectedly").hint("See the log of the metadata agent."))
            });
            running.end(outcome);
            drop(permit);
        });
        let patience = if request.run_async.unwrap_or(false) { AT_ONCE } else { SYNCHRONOUS_DEADLINE };
        let outcome = tokio::select! {
            outcome = operation.outcome(patience) => outcome,
            () = cx.hung_up.cancelled() => None,
        };
        if let Some(outcome) = outcome
            && let Err(error) = &*outcome
        {
            self.sessions.close_operation(&handle);
            return Err(error.clone());
        }
        let operation_handle = Some(handle.operation(TOperationType::EXECUTE_STATEMENT, true));
        Ok(TExecuteStatementResp { status: status::success(), operation_handle })
    }

    async fn get_operation_status(
        &self,
        cx: &CallContext,
        request: TGetOperationStatusReq,
    ) -> Result<TGetOperationStatusResp, UserError> {
        Ok(self.operation(cx, &request.operation_handle)?.status().await)
    }

    async fn cancel_operation(
        &self,
        cx: &CallContext,
        request: TCancelOperationReq,
    ) -> Result<TCancelOperationResp, UserError> {
        self.operation(cx, &request.operation_handle)?.cancelled.cancel();
        Ok(TCancelOperationResp { status: status::success() })
    }

    async fn close_operation(
        &self,
        cx: &CallContext,
        request: TCloseOperationReq,
    ) -> Result<TCloseOperationResp, UserError> {
        let handle = operation_handle(&request.operation_handle)?;
        self.sessions.operation(cx, &handle)?;
        self.sessions.close_operation(&handle);
        Ok(TCloseOperationResp { status: status::success() })
    }

    async fn get_result_set_metadata(
        &self,
        cx: &CallContext,
        request: TGetResultSetMetadataReq,
    ) -> Result<TGetResultSetMetadataResp, UserError> {
        let outcome = self.operation(cx, &request.operation_handle)?.ended().await?;
        let answer = (*outcome).as_ref().map_err(Clone::clone)?;
        let schema = Some(schema::table_schema(&answer.columns));
        Ok(TGetResultSetMetadataResp { status: status::success(), schema })
    }

    async fn fetch_results(&self, cx: &CallContext, request: TFetchResultsReq) -> Result<TFetchResultsResp, UserError> {
        let operation = self.operation(cx, &request.operation_handle)?;
        let from_start = request.orientation == TFetchOrientation::FETCH_FIRST;
        let max_rows = request.max_rows.clamp(1, MAX_FETCH_ROWS) as usize;
        let results = if request.fetch_type == Some(protocol::FETCH_LOG) {
            operation.log_lines(max_rows, from_start)
        } else {
            operation.rows(max_rows, from_start).await?
        };
        Ok(TFetchResultsResp { status: status::success(), has_more_rows: Some(false), results: Some(results) })
    }

    async fn extension(&self, cx: &CallContext, call: &Call<'_>) -> Option<Vec<u8>> {
        match agent_api::serve(&self.api, cx.principal.service.as_deref(), call).await {
            Some(reply) => Some(reply),
            None => agent_api::serve_reservations(&self.holders, call).await,
        }
    }
}
