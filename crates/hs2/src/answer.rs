//! The responses of `TCLIService` behind one trait, so that each can carry an error.

use model::error::UserError;
use thrift::protocol::TSerializable;

use crate::message::{ExceptionKind, encode_exception, encode_reply};
use crate::method::Method;
use crate::protocol;
use crate::status;
use crate::tcli::{
    TCancelDelegationTokenResp, TCancelOperationResp, TCloseOperationResp, TCloseSessionResp, TExecuteStatementResp,
    TFetchResultsResp, TGetCatalogsResp, TGetColumnsResp, TGetCrossReferenceResp, TGetDelegationTokenResp,
    TGetFunctionsResp, TGetInfoResp, TGetInfoValue, TGetOperationStatusResp, TGetPrimaryKeysResp,
    TGetResultSetMetadataResp, TGetSchemasResp, TGetTableTypesResp, TGetTablesResp, TGetTypeInfoResp, TOpenSessionResp,
    TRenewDelegationTokenResp, TSetClientInfoResp, TStatus,
};

/// A response that has a status.
pub trait Answer: TSerializable {
    /// The response with this status and nothing else.
    fn with_status(status: TStatus) -> Self;

    fn status(&self) -> &TStatus;
}

macro_rules! answers {
    ($($answer:ident { $($field:ident: $value:expr),* },)*) => {
        $(impl Answer for $answer {
            fn with_status(status: TStatus) -> Self {
                Self { status, $($field: $value),* }
            }

            fn status(&self) -> &TStatus {
                &self.status
            }
        })*
    };
}

answers! {
    TOpenSessionResp { server_protocol_version: protocol::NEWEST, session_handle: None, configuration: None },
    TCloseSessionResp {},
    TSetClientInfoResp {},
    TGetInfoResp { info_value: TGetInfoValue::StringValue(String::new()) },
    TExecuteStatementResp { operation_handle: None },
    TGetTypeInfoResp { operation_handle: None },
    TGetCatalogsResp { operation_handle: None },
    TGetSchemasResp { operation_handle: None },
    TGetTablesResp { operation_handle: None },
    TGetTableTypesResp { operation_handle: None },
    TGetColumnsResp { operation_handle: None },
    TGetFunctionsResp { operation_handle: None },
    TGetPrimaryKeysResp { operation_handle: None },
    TGetCrossReferenceResp { operation_handle: None },
    TGetOperationStatusResp {
        operation_state: None,
        sql_state: None,
        error_code: None,
        error_message: None,
        task_status: None,
        operation_started: None,
        operation_completed: None,
        has_result_set: None,
        progress_update_response: None,
        num_modified_rows: None
    },
    TCancelOperationResp {},
    TCloseOperationResp {},
    TGetResultSetMetadataResp { schema: None },
    TFetchResultsResp { has_more_rows: None, results: None },
    TGetDelegationTokenResp { delegation_token: None },
    TCancelDelegationTokenResp {},
    TRenewDelegationTokenResp {},
}

/// The reply that rejects a call: the method's own response with the error in its status. `GetQueryId`, which has no
/// status, is answered with an exception.
pub fn encode_refusal(method: Method, seqid: i32, error: &UserError) -> Vec<u8> {
    macro_rules! refused {
        ($($method:ident => $answer:ident,)*) => {
            match method {
                $(Method::$method => {
                    encode_reply(method.name(), seqid, &$answer::with_status(status::refusal(error)))
                })*
                Method::GetQueryId => {
                    encode_exception(method.name(), seqid, ExceptionKind::InternalError, &error.text())
                }
            }
        };
    }
    refused! {
        OpenSession => TOpenSessionResp,
        CloseSession => TCloseSessionResp,
        SetClientInfo => TSetClientInfoResp,
        GetInfo => TGetInfoResp,
        ExecuteStatement => TExecuteStatementResp,
        GetTypeInfo => TGetTypeInfoResp,
        GetCatalogs => TGetCatalogsResp,
        GetSchemas => TGetSchemasResp,
        GetTables => TGetTablesResp,
        GetTableTypes => TGetTableTypesResp,
        GetColumns => TGetColumnsResp,
        GetFunctions => TGetFunctionsResp,
        GetPrimaryKeys => TGetPrimaryKeysResp,
        GetCrossReference => TGetCrossReferenceResp,
        GetOperationStatus => TGetOperationStatusResp,
        CancelOperation => TCancelOperationResp,
        CloseOperation => TCloseOperationResp,
        GetResultSetMetadata => TGetResultSetMetadataResp,
        FetchResults => TFetchResultsResp,
        GetDelegationToken => TGetDelegationTokenResp,
        CancelDelegationToken => TCancelDelegationTokenResp,
        RenewDelegationToken => TRenewDelegationTokenResp,
    }
}
