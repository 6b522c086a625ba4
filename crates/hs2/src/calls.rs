//! The client's typed calls, one per method of `TCLIService`.

use crate::client::{Client, ClientError};
use crate::method::Method;
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

macro_rules! calls {
    ($($call:ident($request:ident) -> $answer:ident = $method:ident;)*) => {
        /// The calls of `TCLIService`. An error in the response's status is [`ClientError::Refused`].
        impl Client {
            $(
                #[doc = concat!("`", stringify!($method), "` within the connection's own deadline.")]
                pub async fn $call(&mut self, request: &$request) -> Result<$answer, ClientError> {
                    self.checked(Method::$method, request).await
                }
            )*

            /// `GetQueryId` within the connection's own deadline; its response has no status.
            pub async fn get_query_id(&mut self, request: &TGetQueryIdReq) -> Result<TGetQueryIdResp, ClientError> {
                let deadline = self.call_deadline();
                self.call(Method::GetQueryId.name(), request, deadline).await
            }
        }
    };
}

calls! {
    open_session(TOpenSessionReq) -> TOpenSessionResp = OpenSession;
    close_session(TCloseSessionReq) -> TCloseSessionResp = CloseSession;
    get_info(TGetInfoReq) -> TGetInfoResp = GetInfo;
    execute_statement(TExecuteStatementReq) -> TExecuteStatementResp = ExecuteStatement;
    get_type_info(TGetTypeInfoReq) -> TGetTypeInfoResp = GetTypeInfo;
    get_catalogs(TGetCatalogsReq) -> TGetCatalogsResp = GetCatalogs;
    get_schemas(TGetSchemasReq) -> TGetSchemasResp = GetSchemas;
    get_tables(TGetTablesReq) -> TGetTablesResp = GetTables;
    get_table_types(TGetTableTypesReq) -> TGetTableTypesResp = GetTableTypes;
    get_columns(TGetColumnsReq) -> TGetColumnsResp = GetColumns;
    get_functions(TGetFunctionsReq) -> TGetFunctionsResp = GetFunctions;
    get_primary_keys(TGetPrimaryKeysReq) -> TGetPrimaryKeysResp = GetPrimaryKeys;
    get_cross_reference(TGetCrossReferenceReq) -> TGetCrossReferenceResp = GetCrossReference;
    get_operation_status(TGetOperationStatusReq) -> TGetOperationStatusResp = GetOperationStatus;
    cancel_operation(TCancelOperationReq) -> TCancelOperationResp = CancelOperation;
    close_operation(TCloseOperationReq) -> TCloseOperationResp = CloseOperation;
    get_result_set_metadata(TGetResultSetMetadataReq) -> TGetResultSetMetadataResp = GetResultSetMetadata;
    fetch_results(TFetchResultsReq) -> TFetchResultsResp = FetchResults;
    get_delegation_token(TGetDelegationTokenReq) -> TGetDelegationTokenResp = GetDelegationToken;
    cancel_delegation_token(TCancelDelegationTokenReq) -> TCancelDelegationTokenResp = CancelDelegationToken;
    renew_delegation_token(TRenewDelegationTokenReq) -> TRenewDelegationTokenResp = RenewDelegationToken;
    set_client_info(TSetClientInfoReq) -> TSetClientInfoResp = SetClientInfo;
}
