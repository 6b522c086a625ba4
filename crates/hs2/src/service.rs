//! The typed service: one method per call of `TCLIService`, structs in, structs out.
//!
//! Calls of one connection run one after the other, as clients send them. An error becomes the call's own response
//! with `TStatus` ERROR; an unknown method gets `UNKNOWN_METHOD`, and the connection stays open. A call whose client
//! hangs up runs to its end; [`Context::hung_up`] signals it.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use model::error::{ErrorKind, UserError};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::debug;

use crate::auth::{Authenticator, Credentials, Mechanism, Principal};
use crate::connection::Connection;
use crate::dispatch::dispatch;
use crate::error::{WireError, WireErrorKind};
use crate::message::{Call, ExceptionKind, Message, encode_exception, encode_refusal};
use crate::method::Method;
use crate::scan::MessageKind;
use crate::server::Handler;
use crate::tcli::{
    TCancelDelegationTokenReq, TCancelDelegationTokenResp, TCancelOperationReq, TCancelOperationResp,
    TCloseOperationReq, TCloseOperationResp, TCloseSessionReq, TCloseSessionResp, TExecuteStatementReq,
    TExecuteStatementResp, TFetchResultsReq, TFetchResultsResp, TGetCatalogsReq, TGetCatalogsResp, TGetColumnsReq,
    TGetColumnsResp, TGetCrossReferenceReq, TGetCrossReferenceResp, TGetDelegationTokenReq, TGetDelegationTokenResp,
    TGetFunctionsReq, TGetFunctionsResp, TGetInfoReq, TGetInfoResp, TGetOperationStatusReq, TGetOperationStatusResp,
    TGetPrimaryKeysReq, TGetPrimaryKeysResp, TGetQueryIdReq, TGetQueryIdResp, TGetResultSetMetadataReq,
    TGetResultSetMetadataResp, TGetSchemasReq, TGetSchemasResp, TGetTableTypesReq, TGetTableTypesResp, TGetTablesReq,
    TGetTablesResp, TGetTypeInfoReq, TGetTypeInfoResp, TOpenSessionReq, TOpenSessionResp, TRenewDelegationTokenReq,
    TRenewDelegationTokenResp, TSetClientInfoReq, TSetClientInfoResp,
};

/// The origin of a call.
#[derive(Debug, Clone)]
pub struct Context {
    /// [`Connection::id`].
    pub connection: u64,
    pub peer: SocketAddr,
    /// With HTTP a session may be used from any connection, otherwise only from its own.
    pub mechanism: Mechanism,
    pub principal: Principal,
    /// Cancelled when the client hangs up; long calls may wait for it.
    pub hung_up: CancellationToken,
}

macro_rules! unsupported {
    ($($(#[$doc:meta])* $call:ident($request:ident) -> $answer:ident = $method:ident;)*) => {
        /// A HiveServer2 server.
        ///
        /// Methods whose default is *not supported* are optional.
        #[async_trait]
        pub trait Service: Send + Sync + 'static {
            /// Returns the principal, or the error for the client. Called once per connection, with HTTP once per
            /// request.
            async fn authenticate(&self, peer: SocketAddr, credentials: &Credentials) -> Result<Principal, UserError>;

            /// Why no client should be sent here; see [`Authenticator::unready`].
            fn unready(&self) -> Option<String> {
                None
            }

            /// Whether this server is reachable under that name; see [`Authenticator::serves_host`].
            fn serves_host(&self, name: &str) -> bool {
                let _ = name;
                false
            }

            /// An authenticated connection has ended. Sessions opened over SASL or plain Thrift end with it. Called
            /// once for each connection, also when the server stops.
            async fn connection_closed(&self, cx: &Context) {
                let _ = cx;
            }

            /// Opens a session; see [`crate::protocol::negotiate`].
            async fn open_session(&self, cx: &Context, request: TOpenSessionReq) -> Result<TOpenSessionResp, UserError>;

            /// Closes a session.
            async fn close_session(
                &self, cx: &Context, request: TCloseSessionReq,
            ) -> Result<TCloseSessionResp, UserError>;

            /// A fact about the server.
            async fn get_info(&self, cx: &Context, request: TGetInfoReq) -> Result<TGetInfoResp, UserError>;

            /// Begins a statement.
            async fn execute_statement(
                &self, cx: &Context, request: TExecuteStatementReq,
            ) -> Result<TExecuteStatementResp, UserError>;

            /// The state of an operation.
            async fn get_operation_status(
                &self, cx: &Context, request: TGetOperationStatusReq,
            ) -> Result<TGetOperationStatusResp, UserError>;

            /// Ends an operation before it has finished.
            async fn cancel_operation(
                &self, cx: &Context, request: TCancelOperationReq,
            ) -> Result<TCancelOperationResp, UserError>;

            /// Drops an operation and its result.
            async fn close_operation(
                &self, cx: &Context, request: TCloseOperationReq,
            ) -> Result<TCloseOperationResp, UserError>;

            /// The columns of an operation's result.
            async fn get_result_set_metadata(
                &self, cx: &Context, request: TGetResultSetMetadataReq,
            ) -> Result<TGetResultSetMetadataResp, UserError>;

            /// The next rows of an operation's result, or lines of its log.
            async fn fetch_results(
                &self, cx: &Context, request: TFetchResultsReq,
            ) -> Result<TFetchResultsResp, UserError>;

            $($(#[$doc])*
            ///
            /// Not supported by default.
            async fn $call(&self, cx: &Context, request: $request) -> Result<$answer, UserError> {
                let _ = (cx, request);
                Err(not_supported(Method::$method))
            })*

            /// A call of a method that `TCLIService` does not have: the whole reply
            /// ([`Call::reply`](crate::message::Call::reply)), or `None` for an unknown method.
            async fn extension(&self, cx: &Context, call: &Call<'_>) -> Option<Vec<u8>> {
                let _ = (cx, call);
                None
            }
        }
    };
}

unsupported! {
    /// The column types, as an operation.
    get_type_info(TGetTypeInfoReq) -> TGetTypeInfoResp = GetTypeInfo;
    /// The catalogs, as an operation.
    get_catalogs(TGetCatalogsReq) -> TGetCatalogsResp = GetCatalogs;
    /// The schemas that match, as an operation.
    get_schemas(TGetSchemasReq) -> TGetSchemasResp = GetSchemas;
    /// The tables that match, as an operation.
    get_tables(TGetTablesReq) -> TGetTablesResp = GetTables;
    /// The kinds of tables, as an operation.
    get_table_types(TGetTableTypesReq) -> TGetTableTypesResp = GetTableTypes;
    /// The columns that match, as an operation.
    get_columns(TGetColumnsReq) -> TGetColumnsResp = GetColumns;
    /// The functions that match, as an operation.
    get_functions(TGetFunctionsReq) -> TGetFunctionsResp = GetFunctions;
    /// A table's primary key, as an operation.
    get_primary_keys(TGetPrimaryKeysReq) -> TGetPrimaryKeysResp = GetPrimaryKeys;
    /// The foreign keys between two tables, as an operation.
    get_cross_reference(TGetCrossReferenceReq) -> TGetCrossReferenceResp = GetCrossReference;
    /// A token that stands for a Kerberos user.
    get_delegation_token(TGetDelegationTokenReq) -> TGetDelegationTokenResp = GetDelegationToken;
    /// Ends such a token.
    cancel_delegation_token(TCancelDelegationTokenReq) -> TCancelDelegationTokenResp = CancelDelegationToken;
    /// Extends the lifetime of such a token.
    renew_delegation_token(TRenewDelegationTokenReq) -> TRenewDelegationTokenResp = RenewDelegationToken;
    /// The engine's own id of a statement.
    get_query_id(TGetQueryIdReq) -> TGetQueryIdResp = GetQueryId;
    /// Facts about the client.
    set_client_info(TSetClientInfoReq) -> TSetClientInfoResp = SetClientInfo;
}

/// The error for a call that this server does not support.
pub fn not_supported(method: Method) -> UserError {
    UserError::new(ErrorKind::NotSupported, format!("call {method} is not supported"))
}

/// Serves a [`Service`] over connections.
pub struct Typed<S> {
    service: Arc<S>,
}

impl<S: Service> Typed<S> {
    pub fn new(service: Arc<S>) -> Self {
        Self { service }
    }
}

#[async_trait]
impl<S: Service> Authenticator for Typed<S> {
    async fn authenticate(&self, peer: SocketAddr, credentials: &Credentials) -> Result<Principal, UserError> {
        self.service.authenticate(peer, credentials).await
    }

    fn serves_host(&self, name: &str) -> bool {
        self.service.serves_host(name)
    }

    fn unready(&self) -> Option<String> {
        self.service.unready()
    }
}

#[async_trait]
impl<S: Service> Handler for Typed<S> {
    async fn connection(self: Arc<Self>, connection: Connection, stop: CancellationToken) {
        let known = Arc::new(OnceLock::new());
        let calls = tokio::spawn(serve(Arc::clone(&self.service), connection, Arc::clone(&known), stop));
        let ended = AbortOnDropHandle::new(calls).await;
        if let Some(cx) = known.get() {
            self.service.connection_closed(cx).await;
        }
        if let Err(error) = ended
            && error.is_panic()
        {
            tracing::error!(%error, "call panicked");
        }
    }
}

/// Serves one call after the other. `known` receives the context once the client is authenticated.
async fn serve<S: Service>(
    service: Arc<S>,
    mut connection: Connection,
    known: Arc<OnceLock<Context>>,
    stop: CancellationToken,
) {
    let hung_up = CancellationToken::new();
    let _end = hung_up.clone().drop_guard();
    if let Some(principal) = connection.principal() {
        let _ = known.set(context(&connection, principal.clone(), &hung_up));
    }
    loop {
        let next = tokio::select! {
            () = stop.cancelled() => return,
            next = connection.next() => next,
        };
        let message = match next {
            Ok(Some(message)) => message,
            Ok(None) => return,
            Err(error) => {
                lost(&connection, &error);
                return;
            }
        };
        let reply = match principal_of(&mut connection, &message).await {
            Ok(principal) => {
                let cx = context(&connection, principal, &hung_up);
                let _ = known.set(cx.clone());
                // Boxed, so that an idle connection does not hold the future of all calls.
                let answered = Box::pin(answer(&*service, &cx, &message));
                let watched = async {
                    connection.closed().await;
                    hung_up.cancel();
                    std::future::pending::<()>().await;
                };
                tokio::select! { reply = answered => reply, () = watched => return }
            }
            Err(reply) => reply,
        };
        if let Err(error) = connection.send(&reply).await {
            lost(&connection, &error);
            return;
        }
    }
}

/// At debug level: a client can cause any number of these lines.
fn lost(connection: &Connection, error: &WireError) {
    let what = if error.kind() == WireErrorKind::Gone { "connection lost" } else { "connection refused" };
    debug!(connection = connection.id(), peer = %connection.peer(), %error, "{what}");
}

fn context(connection: &Connection, principal: Principal, hung_up: &CancellationToken) -> Context {
    Context {
        connection: connection.id(),
        peer: connection.peer(),
        mechanism: connection.mechanism(),
        principal,
        hung_up: hung_up.clone(),
    }
}

/// The principal of a call. Over plain Thrift `OpenSession` authenticates; a second one must have the same principal.
async fn principal_of(connection: &mut Connection, message: &Message) -> Result<Principal, Vec<u8>> {
    let method = message.method();
    if connection.mechanism() != Mechanism::PlainThrift || method != Some(Method::OpenSession) {
        return connection.principal().cloned().ok_or_else(|| {
            let error = UserError::new(ErrorKind::InvalidAuthorization, "no session is open on this connection");
            refusal(message, method, &error)
        });
    }
    let call = message.call();
    let request: TOpenSessionReq = call.decode().map_err(|error| call.malformed(&error))?;
    let credentials = open_session_credentials(&request);
    let authenticator = Arc::clone(connection.authenticator());
    let principal = authenticator
        .authenticate(connection.peer(), &credentials)
        .await
        .map_err(|error| refusal(message, method, &error))?;
    match connection.principal() {
        Some(known) if *known != principal => {
            let error = UserError::new(ErrorKind::InvalidAuthorization, "this connection belongs to another user");
            Err(refusal(message, method, &error))
        }
        _ => {
            connection.set_principal(principal.clone());
            Ok(principal)
        }
    }
}

/// The credentials in a plain Thrift client's `OpenSession`; without a user name it is `anonymous`.
pub fn open_session_credentials(request: &TOpenSessionReq) -> Credentials {
    let user = request.username.clone().filter(|user| !user.is_empty());
    Credentials {
        mechanism: Mechanism::PlainThrift,
        authzid: String::new(),
        user: user.unwrap_or_else(|| "anonymous".to_owned()),
        password: request.password.clone().unwrap_or_default(),
    }
}

fn refusal(message: &Message, method: Option<Method>, error: &UserError) -> Vec<u8> {
    match method {
        Some(method) => encode_refusal(method, message.seqid(), error),
        None => encode_exception(message.name(), message.seqid(), ExceptionKind::InternalError, &error.text()),
    }
}

async fn answer<S: Service>(service: &S, cx: &Context, message: &Message) -> Vec<u8> {
    let call = message.call();
    if message.header().kind != MessageKind::Call {
        return encode_exception(call.name, call.seqid, ExceptionKind::InvalidMessageType, "a call was expected");
    }
    match message.method() {
        Some(method) => dispatch(service, cx, method, &call).await,
        None => service.extension(cx, &call).await.unwrap_or_else(|| call.unknown()),
    }
}
