//! The HiveServer2 service of an engine: one method per call, each a thin adapter between wire and engine.
//!
//! A caller must present the engine's credential; it also supplies the user's name (the engine agent has it from the
//! proxy, which authenticated the user). Sessions end with their connection. A call that waits for a statement, for rows
//! or for the catalog's files stops waiting when its client disconnects.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::error::DataFusionError;
use hs2::tcli::{
    TCancelOperationReq, TCancelOperationResp, TCloseOperationReq, TCloseOperationResp, TCloseSessionReq,
    TCloseSessionResp, TExecuteStatementReq, TExecuteStatementResp, TFetchOrientation, TFetchResultsReq,
    TFetchResultsResp, TGetCatalogsReq, TGetCatalogsResp, TGetColumnsReq, TGetColumnsResp, TGetCrossReferenceReq,
    TGetCrossReferenceResp, TGetFunctionsReq, TGetFunctionsResp, TGetInfoReq, TGetInfoResp, TGetInfoType,
    TGetInfoValue, TGetOperationStatusReq, TGetOperationStatusResp, TGetPrimaryKeysReq, TGetPrimaryKeysResp,
    TGetQueryIdReq, TGetQueryIdResp, TGetResultSetMetadataReq, TGetResultSetMetadataResp, TGetSchemasReq,
    TGetSchemasResp, TGetTableTypesReq, TGetTableTypesResp, TGetTablesReq, TGetTablesResp, TGetTypeInfoReq,
    TGetTypeInfoResp, TOpenSessionReq, TOpenSessionResp, TOperationHandle, TOperationState, TOperationType,
    TSessionHandle, TSetClientInfoReq, TSetClientInfoResp,
};
use hs2::{Context, Credentials, Handle, Mechanism, Principal, Service, protocol, rowset, schema, status};
use model::error::{ErrorKind, UserError};
use model::failpoint;
use sha2::{Digest as _, Sha256};

use crate::engine::Engine;
use crate::error::EngineError;
use crate::execution::panic_text;
use crate::failpoints;
use crate::metadata_calls as metadata;
use crate::operation::{LOG_LINES_MAX, Operation, Phase, canceled};
use crate::rows::{bytes_of, row_set, types};
use crate::session::Session;

/// The fetch size that drivers are advised to use.
const DEFAULT_FETCH_ROWS: &str = "10000";
/// The longest identifier, as reported by `GetInfo`.
const NAME_LENGTH: i64 = 80;

/// Logs the hash of a statement, not its text: the sender can verify that it arrived byte for byte.
fn log_received(statement: &str) {
    if tracing::enabled!(tracing::Level::DEBUG) {
        let hash =
            Sha256::digest(statement.as_bytes()).iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"));
        tracing::debug!(bytes = statement.len(), sha256 = hash, "statement received");
    }
}

/// The calls of HiveServer2 over one engine.
pub struct EngineService(Arc<Engine>);

impl EngineService {
    /// The service of this engine.
    pub const fn new(engine: Arc<Engine>) -> Self {
        Self(engine)
    }

    fn session(&self, handle: &TSessionHandle) -> Result<Arc<Session>, UserError> {
        self.0.session(&Handle::try_from(handle).map_err(|_| bad_handle())?)
    }

    fn operation(&self, cx: &Context, handle: &TOperationHandle) -> Result<Arc<Operation>, UserError> {
        self.0.operation(&Handle::try_from(handle).map_err(|_| bad_handle())?, cx.connection)
    }

    fn answer(
        &self,
        session: &Session,
        kind: TOperationType,
        name: &str,
        rows: Result<RecordBatch, EngineError>,
    ) -> Result<TOperationHandle, UserError> {
        let operation = self.0.answer(session, name, rows.map_err(EngineError::into_user)?)?;
        Ok(operation.handle.operation(kind, true))
    }
}

fn bad_handle() -> UserError {
    UserError::new(ErrorKind::InvalidValue, "malformed handle")
}

/// Runs `work` until the client disconnects.
async fn unless_hung_up<T>(cx: &Context, work: impl Future<Output = T>) -> Result<T, UserError> {
    tokio::select! {
        done = work => Ok(done),
        () = cx.hung_up.cancelled() => Err(UserError::new(ErrorKind::ConnectionLost, "connection to client lost")),
    }
}

#[async_trait]
impl Service for EngineService {
    async fn authenticate(&self, _peer: SocketAddr, credentials: &Credentials) -> Result<Principal, UserError> {
        if !self.0.config().credential.matches(&credentials.password) {
            return Err(UserError::new(
                ErrorKind::InvalidAuthorization,
                "engine accepts connections only from its engine agent",
            ));
        }
        Ok(if credentials.authzid.is_empty() {
            Principal::user(credentials.user.clone())
        } else {
            Principal::service(credentials.user.clone(), credentials.authzid.clone())
        })
    }

    async fn connection_closed(&self, cx: &Context) {
        self.0.close_connection(cx.connection);
    }

    async fn open_session(&self, cx: &Context, request: TOpenSessionReq) -> Result<TOpenSessionResp, UserError> {
        if cx.mechanism == Mechanism::Http {
            return Err(UserError::new(ErrorKind::NotSupported, "HTTP is not supported by the engine"));
        }
        let version = protocol::negotiate(request.client_protocol)?;
        let session = self.0.open_session(&cx.principal.user, cx.connection)?;
        let configuration = request.configuration.unwrap_or_default();
        if let Err(error) = session.configure(self.0.catalog(), &configuration).await {
            self.0.close_session(&session.handle);
            return Err(error.into_user());
        }
        let facts = BTreeMap::from([(
            "hive.server2.thrift.resultset.default.fetch.size".to_owned(),
            DEFAULT_FETCH_ROWS.to_owned(),
        )]);
        Ok(TOpenSessionResp::new(status::success(), version, session.handle.session(), facts))
    }

    async fn close_session(&self, _cx: &Context, request: TCloseSessionReq) -> Result<TCloseSessionResp, UserError> {
        let session = self.session(&request.session_handle)?;
        self.0.close_session(&session.handle);
        Ok(TCloseSessionResp::new(status::success()))
    }

    async fn get_info(&self, _cx: &Context, request: TGetInfoReq) -> Result<TGetInfoResp, UserError> {
        self.session(&request.session_handle)?;
        let text = |text: &str| Ok(TGetInfoValue::StringValue(text.to_owned()));
        let value = match request.info_type {
            TGetInfoType::CLI_SERVER_NAME => text("Enginehouse"),
            TGetInfoType::CLI_DBMS_NAME => text("Apache DataFusion"),
            TGetInfoType::CLI_DBMS_VER => text(datafusion::DATAFUSION_VERSION),
            TGetInfoType::CLI_IDENTIFIER_QUOTE_CHAR => text("`"),
            TGetInfoType::CLI_SEARCH_PATTERN_ESCAPE => text("\\"),
            TGetInfoType::CLI_MAX_COLUMN_NAME_LEN
            | TGetInfoType::CLI_MAX_SCHEMA_NAME_LEN
            | TGetInfoType::CLI_MAX_CATALOG_NAME_LEN
            | TGetInfoType::CLI_MAX_IDENTIFIER_LEN
            | TGetInfoType::CLI_MAX_TABLE_NAME_LEN => Ok(TGetInfoValue::LenValue(NAME_LENGTH)),
            TGetInfoType::CLI_MAX_STATEMENT_LEN => {
                Ok(TGetInfoValue::LenValue(self.0.config().limits.statement_bytes as i64))
            }
            TGetInfoType::CLI_DATA_SOURCE_READ_ONLY => text("N"),
            TGetInfoType::CLI_ODBC_KEYWORDS => text("COPY,DATABASES,EXPLAIN,EXTERNAL,LOCATION,RESET,SHOW,STORED"),
            other => Err(UserError::new(ErrorKind::NotSupported, format!("info type {} is not supported", other.0))
                .with_sqlstate("HYC00")),
        }?;
        Ok(TGetInfoResp::new(status::success(), value))
    }

    async fn execute_statement(
        &self,
        cx: &Context,
        request: TExecuteStatementReq,
    ) -> Result<TExecuteStatementResp, UserError> {
        let session = self.session(&request.session_handle)?;
        let timeout =
            request.query_timeout.and_then(|seconds| u64::try_from(seconds).ok()).filter(|seconds| *seconds > 0);
        let overlay = request.conf_overlay.unwrap_or_default();
        log_received(&request.statement);
        let operation = self.0.execute(&session, request.statement, overlay, timeout.map(Duration::from_secs))?;
        if !request.run_async.unwrap_or(false) {
            let failure = match unless_hung_up(cx, operation.wait(Duration::MAX)).await {
                Ok(Phase::Failed(error)) => Some(UserError::clone(&error)),
                Ok(Phase::Canceled) => Some(canceled()),
                Ok(_) => None,
                Err(error) => Some(error),
            };
            if let Some(error) = failure {
                self.0.close_operation(&operation.handle);
                return Err(error);
            }
        }
        let handle = operation.handle.operation(TOperationType::EXECUTE_STATEMENT, operation.has_result_set);
        Ok(TExecuteStatementResp::new(status::success(), handle))
    }

    async fn get_operation_status(
        &self,
        cx: &Context,
        request: TGetOperationStatusReq,
    ) -> Result<TGetOperationStatusResp, UserError> {
        let operation = self.operation(cx, &request.operation_handle)?;
        let poll = match self.0.session(&operation.session) {
            Ok(session) => session.long_poll().await,
            Err(_) => None,
        };
        let phase = unless_hung_up(cx, operation.wait(poll.unwrap_or(self.0.config().limits.long_poll))).await?;
        let state = match &phase {
            Phase::Running => TOperationState::RUNNING_STATE,
            Phase::Ready | Phase::Complete => TOperationState::FINISHED_STATE,
            Phase::Canceled => TOperationState::CANCELED_STATE,
            Phase::Failed(_) => TOperationState::ERROR_STATE,
        };
        let mut answer = TGetOperationStatusResp {
            operation_started: Some(operation.started_ms),
            operation_completed: operation.ended_ms(),
            has_result_set: Some(operation.has_result_set),
            num_modified_rows: operation.written_rows(),
            ..status::operation(state)
        };
        if let Phase::Failed(error) = &phase {
            status::operation_error(error, &mut answer);
            if error.kind == ErrorKind::Timeout {
                // Drivers map this state to their timeout error, such as JDBC's SQLTimeoutException.
                answer.operation_state = Some(TOperationState::TIMEDOUT_STATE);
            }
        }
        Ok(answer)
    }

    async fn cancel_operation(
        &self,
        cx: &Context,
        request: TCancelOperationReq,
    ) -> Result<TCancelOperationResp, UserError> {
        let operation = self.operation(cx, &request.operation_handle)?;
        operation.cancel(self.0.clock().wall_ms());
        Ok(TCancelOperationResp::new(status::success()))
    }

    async fn close_operation(
        &self,
        cx: &Context,
        request: TCloseOperationReq,
    ) -> Result<TCloseOperationResp, UserError> {
        let operation = self.operation(cx, &request.operation_handle)?;
        self.0.close_operation(&operation.handle);
        Ok(TCloseOperationResp::new(status::success()))
    }

    async fn get_result_set_metadata(
        &self,
        cx: &Context,
        request: TGetResultSetMetadataReq,
    ) -> Result<TGetResultSetMetadataResp, UserError> {
        let operation = self.operation(cx, &request.operation_handle)?;
        let phase = unless_hung_up(cx, operation.wait(Duration::MAX)).await?;
        let columns = match (operation.schema(), phase) {
            (_, Phase::Failed(error)) => return Err(UserError::clone(&error)),
            (None, Phase::Canceled) => return Err(canceled()),
            (Some(schema), _) => types::columns(&schema),
            (None, _) => Vec::new(),
        };
        Ok(TGetResultSetMetadataResp::new(status::success(), schema::table_schema(&columns)))
    }

    async fn fetch_results(&self, cx: &Context, request: TFetchResultsReq) -> Result<TFetchResultsResp, UserError> {
        let operation = self.operation(cx, &request.operation_handle)?;
        let again = match request.orientation {
            TFetchOrientation::FETCH_NEXT => false,
            TFetchOrientation::FETCH_FIRST => true,
            other => {
                return Err(UserError::new(
                    ErrorKind::NotSupported,
                    format!("fetch orientation {} is not supported", other.0),
                )
                .with_sqlstate("HY106"));
            }
        };
        let max_rows = usize::try_from(request.max_rows).unwrap_or_default();
        if request.fetch_type == Some(protocol::FETCH_LOG) {
            let lines = operation.log_lines(again, max_rows.clamp(1, LOG_LINES_MAX));
            let more = !lines.is_empty();
            return Ok(TFetchResultsResp::new(status::success(), more, rowset::lines(0, lines)));
        }
        let fetched = unless_hung_up(cx, operation.fetch(max_rows, again)).await??;
        let converted = catch_unwind(AssertUnwindSafe(|| {
            failpoint!(failpoints::ROWS_FETCHED);
            row_set(&fetched.schema, &fetched.batches, fetched.start)
        }));
        let rows = match converted {
            Ok(rows) => rows.map_err(|error| EngineError::from(DataFusionError::from(error)).into_user())?,
            Err(panic) => return Err(EngineError::Panicked(panic_text(panic.as_ref())).into_user()),
        };
        let (bytes, limit) = (bytes_of(&rows), self.0.config().limits.row_bytes);
        let count: usize = fetched.batches.iter().map(RecordBatch::num_rows).sum();
        if bytes > limit && count == 1 {
            return Err(UserError::new(ErrorKind::ProgramLimit, "row is too long")
                .detail(format!("Row {} has {bytes} bytes; the limit is {limit}.", fetched.start + 1))
                .hint("Select a part of the long value, for example with substr."));
        }
        self.0.operation(&operation.handle, cx.connection)?;
        Ok(TFetchResultsResp::new(status::success(), !fetched.batches.is_empty(), rows))
    }

    async fn get_type_info(&self, _cx: &Context, request: TGetTypeInfoReq) -> Result<TGetTypeInfoResp, UserError> {
        let session = self.session(&request.session_handle)?;
        let handle = self.answer(&session, TOperationType::GET_TYPE_INFO, "GetTypeInfo", metadata::type_info())?;
        Ok(TGetTypeInfoResp::new(status::success(), handle))
    }

    async fn get_catalogs(&self, _cx: &Context, request: TGetCatalogsReq) -> Result<TGetCatalogsResp, UserError> {
        let session = self.session(&request.session_handle)?;
        let handle = self.answer(&session, TOperationType::GET_CATALOGS, "GetCatalogs", metadata::catalogs())?;
        Ok(TGetCatalogsResp::new(status::success(), handle))
    }

    async fn get_schemas(&self, cx: &Context, request: TGetSchemasReq) -> Result<TGetSchemasResp, UserError> {
        let session = self.session(&request.session_handle)?;
        let engine = Arc::clone(&self.0);
        // Schemas are folders and tables are files: read them on the executor, as below.
        let rows = self.0.on_executor(async move {
            metadata::get_schemas(&engine, request.catalog_name.as_deref(), request.schema_name.as_deref())
        });
        let handle =
            self.answer(&session, TOperationType::GET_SCHEMAS, "GetSchemas", unless_hung_up(cx, rows).await?)?;
        Ok(TGetSchemasResp::new(status::success(), handle))
    }

    async fn get_tables(&self, cx: &Context, request: TGetTablesReq) -> Result<TGetTablesResp, UserError> {
        let session = self.session(&request.session_handle)?;
        let (engine, caller) = (Arc::clone(&self.0), Arc::clone(&session));
        let rows = self.0.on_executor(async move {
            metadata::get_tables(
                &engine,
                &caller,
                request.catalog_name.as_deref(),
                request.schema_name.as_deref(),
                request.table_name.as_deref(),
                request.table_types.as_deref(),
            )
        });
        let handle = self.answer(&session, TOperationType::GET_TABLES, "GetTables", unless_hung_up(cx, rows).await?)?;
        Ok(TGetTablesResp::new(status::success(), handle))
    }

    async fn get_table_types(
        &self,
        _cx: &Context,
        request: TGetTableTypesReq,
    ) -> Result<TGetTableTypesResp, UserError> {
        let session = self.session(&request.session_handle)?;
        let handle =
            self.answer(&session, TOperationType::GET_TABLE_TYPES, "GetTableTypes", metadata::table_types())?;
        Ok(TGetTableTypesResp::new(status::success(), handle))
    }

    async fn get_columns(&self, cx: &Context, request: TGetColumnsReq) -> Result<TGetColumnsResp, UserError> {
        let session = self.session(&request.session_handle)?;
        let (engine, caller) = (Arc::clone(&self.0), Arc::clone(&session));
        // Columns are read from files, on the executor.
        let rows = self.0.on_executor(async move {
            metadata::get_columns(
                &engine,
                &caller,
                request.catalog_name.as_deref(),
                request.schema_name.as_deref(),
                request.table_name.as_deref(),
                request.column_name.as_deref(),
            )
            .await
        });
        let handle =
            self.answer(&session, TOperationType::GET_COLUMNS, "GetColumns", unless_hung_up(cx, rows).await?)?;
        Ok(TGetColumnsResp::new(status::success(), handle))
    }

    async fn get_functions(&self, _cx: &Context, request: TGetFunctionsReq) -> Result<TGetFunctionsResp, UserError> {
        let session = self.session(&request.session_handle)?;
        let rows = metadata::functions(&session, request.catalog_name.as_deref(), &request.function_name);
        let handle = self.answer(&session, TOperationType::GET_FUNCTIONS, "GetFunctions", rows)?;
        Ok(TGetFunctionsResp::new(status::success(), handle))
    }

    async fn get_primary_keys(
        &self,
        cx: &Context,
        request: TGetPrimaryKeysReq,
    ) -> Result<TGetPrimaryKeysResp, UserError> {
        let session = self.session(&request.session_handle)?;
        let (engine, caller) = (Arc::clone(&self.0), Arc::clone(&session));
        let rows = self.0.on_executor(async move {
            metadata::primary_keys(
                &engine,
                &caller,
                request.catalog_name.as_deref(),
                request.schema_name.as_deref(),
                request.table_name.as_deref(),
            )
            .await
        });
        let handle =
            self.answer(&session, TOperationType::UNKNOWN, "GetPrimaryKeys", unless_hung_up(cx, rows).await?)?;
        Ok(TGetPrimaryKeysResp::new(status::success(), handle))
    }

    async fn get_cross_reference(
        &self,
        _cx: &Context,
        request: TGetCrossReferenceReq,
    ) -> Result<TGetCrossReferenceResp, UserError> {
        let session = self.session(&request.session_handle)?;
        let handle =
            self.answer(&session, TOperationType::UNKNOWN, "GetCrossReference", metadata::cross_reference())?;
        Ok(TGetCrossReferenceResp::new(status::success(), handle))
    }

    async fn get_query_id(&self, cx: &Context, request: TGetQueryIdReq) -> Result<TGetQueryIdResp, UserError> {
        let operation = self.operation(cx, &request.operation_handle)?;
        let guid = uuid::Uuid::from_bytes(operation.handle.guid).to_string();
        Ok(TGetQueryIdResp::new(guid))
    }

    async fn set_client_info(
        &self,
        _cx: &Context,
        request: TSetClientInfoReq,
    ) -> Result<TSetClientInfoResp, UserError> {
        let session = self.session(&request.session_handle)?;
        let facts = request.configuration.unwrap_or_default();
        tracing::debug!(user = session.user, count = facts.len(), "client info received");
        Ok(TSetClientInfoResp::new(status::success()))
    }
}
