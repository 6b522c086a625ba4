//! The recorded messages, and one way to do something with each in its own types.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs;
use std::path::Path;

/// One recorded message.
pub struct Recorded {
    /// `<client>/<file>`.
    pub name: String,
    pub bytes: Vec<u8>,
    pub is_request: bool,
    /// The method, or `sasl<status>`.
    pub method: String,
}

/// All of them, in the order of their names.
pub fn all() -> Vec<Recorded> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let mut found = Vec::new();
    for client in fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()) {
        for file in fs::read_dir(&client).unwrap().map(|entry| entry.unwrap().path()) {
            let file_name = file.file_stem().unwrap().to_str().unwrap().to_owned();
            let mut parts = file_name.split('-').skip(2);
            found.push(Recorded {
                name: format!("{}/{file_name}", client.file_name().unwrap().to_str().unwrap()),
                bytes: fs::read(&file).unwrap(),
                is_request: parts.next().unwrap() == "req",
                method: parts.next().unwrap().to_owned(),
            });
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    assert!(found.len() > 200, "the fixtures are gone");
    found
}

/// Those that are Thrift messages.
pub fn messages() -> Vec<Recorded> {
    all().into_iter().filter(|recorded| !recorded.method.starts_with("sasl")).collect()
}

/// Calls `$do!(Request, Response)` with the types of the method of that name, or `$otherwise`.
macro_rules! with_types {
    ($method:expr, $do:ident, $otherwise:expr) => {{
        use hs2::tcli::*;
        match $method {
            "OpenSession" => $do!(TOpenSessionReq, TOpenSessionResp),
            "CloseSession" => $do!(TCloseSessionReq, TCloseSessionResp),
            "GetInfo" => $do!(TGetInfoReq, TGetInfoResp),
            "ExecuteStatement" => $do!(TExecuteStatementReq, TExecuteStatementResp),
            "GetTypeInfo" => $do!(TGetTypeInfoReq, TGetTypeInfoResp),
            "GetCatalogs" => $do!(TGetCatalogsReq, TGetCatalogsResp),
            "GetSchemas" => $do!(TGetSchemasReq, TGetSchemasResp),
            "GetTables" => $do!(TGetTablesReq, TGetTablesResp),
            "GetTableTypes" => $do!(TGetTableTypesReq, TGetTableTypesResp),
            "GetColumns" => $do!(TGetColumnsReq, TGetColumnsResp),
            "GetFunctions" => $do!(TGetFunctionsReq, TGetFunctionsResp),
            "GetPrimaryKeys" => $do!(TGetPrimaryKeysReq, TGetPrimaryKeysResp),
            "GetCrossReference" => $do!(TGetCrossReferenceReq, TGetCrossReferenceResp),
            "GetOperationStatus" => $do!(TGetOperationStatusReq, TGetOperationStatusResp),
            "CancelOperation" => $do!(TCancelOperationReq, TCancelOperationResp),
            "CloseOperation" => $do!(TCloseOperationReq, TCloseOperationResp),
            "GetResultSetMetadata" => $do!(TGetResultSetMetadataReq, TGetResultSetMetadataResp),
            "FetchResults" => $do!(TFetchResultsReq, TFetchResultsResp),
            "GetDelegationToken" => $do!(TGetDelegationTokenReq, TGetDelegationTokenResp),
            "CancelDelegationToken" => $do!(TCancelDelegationTokenReq, TCancelDelegationTokenResp),
            "RenewDelegationToken" => $do!(TRenewDelegationTokenReq, TRenewDelegationTokenResp),
            "GetQueryId" => $do!(TGetQueryIdReq, TGetQueryIdResp),
            "SetClientInfo" => $do!(TSetClientInfoReq, TSetClientInfoResp),
            _ => $otherwise,
        }
    }};
}

pub(crate) use with_types;
