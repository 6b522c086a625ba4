//! Dispatch: from a method's name to the call of a [`Service`] and its reply.

use crate::answer::encode_refusal;
use crate::message::Call;
use crate::method::Method;
use crate::service::{Context, Service};

/// Decodes a call, runs it, encodes the response. An argument that cannot be decoded is answered with
/// `PROTOCOL_ERROR`.
pub(crate) async fn dispatch<S: Service>(service: &S, cx: &Context, method: Method, call: &Call<'_>) -> Vec<u8> {
    macro_rules! calls {
        ($($method:ident => $call:ident,)*) => {
            match method {
                $(Method::$method => match call.decode() {
                    Ok(request) => match service.$call(cx, request).await {
                        Ok(answer) => call.reply(&answer),
                        Err(error) => encode_refusal(method, call.seqid, &error),
                    },
                    Err(error) => call.malformed(&error),
                },)*
            }
        };
    }
    calls! {
        OpenSession => open_session,
        CloseSession => close_session,
        GetInfo => get_info,
        ExecuteStatement => execute_statement,
        GetTypeInfo => get_type_info,
        GetCatalogs => get_catalogs,
        GetSchemas => get_schemas,
        GetTables => get_tables,
        GetTableTypes => get_table_types,
        GetColumns => get_columns,
        GetFunctions => get_functions,
        GetPrimaryKeys => get_primary_keys,
        GetCrossReference => get_cross_reference,
        GetOperationStatus => get_operation_status,
        CancelOperation => cancel_operation,
        CloseOperation => close_operation,
        GetResultSetMetadata => get_result_set_metadata,
        FetchResults => fetch_results,
        GetDelegationToken => get_delegation_token,
        CancelDelegationToken => cancel_delegation_token,
        RenewDelegationToken => renew_delegation_token,
        GetQueryId => get_query_id,
        SetClientInfo => set_client_info,
    }
}
