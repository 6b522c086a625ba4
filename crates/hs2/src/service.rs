//! The typed service: one method per call of `TCLIService`, structs in, structs out.

use std::net::SocketAddr;

use async_trait::async_trait;
use model::error::{ErrorKind, UserError};
use tokio_util::sync::CancellationToken;

use crate::auth::{Credentials, Mechanism, Principal};
use crate::message::Call;
use crate::method::Method;
use crate::service_proof::ServiceProof;
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
    /// [`Connection::id`](crate::Connection::id).
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

            /// Whether components log in here; see
            /// [`Authenticator::accepts_services`](crate::Authenticator::accepts_services).
            fn accepts_services(&self) -> bool {
                false
            }

            /// Returns the principal of a component, or the error for the client.
            async fn authenticate_service(
                &self, peer: SocketAddr, proof: &ServiceProof,
            ) -> Result<Principal, UserError> {
                let _ = (peer, proof);
                Err(UserError::new(ErrorKind::InvalidAuthorization, "components of the installation are not accepted"))
            }

            /// Why no client should be sent here; see [`Authenticator::unready`](crate::Authenticator::unready).
            fn unready(&self) -> Option<String> {
                None
            }

            /// Whether this server is reachable under that name; see [`Authenticator::serves_host`](crate::Authenticator::serves_host).
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
