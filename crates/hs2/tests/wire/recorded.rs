//! Recorded messages of real clients and a real server, read by every reader of this crate.
#![allow(clippy::unwrap_used, clippy::panic)]

use hs2::message::{ExceptionKind, decode_call, decode_reply, encode_call, encode_exception, encode_reply};
use hs2::scan::{self, MessageKind, WalkProgress, Walker};
use hs2::tcli::{TExecuteStatementReq, TFetchResultsReq, TOpenSessionResp};
use hs2::{Handle, Method, Scope, WireError};

use crate::corpus::{self, with_types};

/// Encodes again what was decoded. Maps are written in the order of their keys, so a message with a map of several
/// entries may come out in another order: then it must be as long and mean the same.
#[test]
fn every_recorded_message_decodes_and_encodes_to_the_same_bytes() {
    let (mut same, mut reordered, mut exceptions) = (0, Vec::new(), 0);
    for recorded in corpus::messages() {
        let header = scan::header(&recorded.bytes).unwrap();
        let (name, seqid) = (header.name_in(&recorded.bytes), header.seqid);
        if header.kind == MessageKind::Exception {
            let Err(WireError::Application { kind, text }) = decode_reply::<TOpenSessionResp>(&recorded.bytes) else {
                panic!("{}: an exception was expected", recorded.name);
            };
            assert_eq!(kind, ExceptionKind::UnknownMethod as i32);
            assert_eq!(encode_exception(name, seqid, ExceptionKind::UnknownMethod, &text), recorded.bytes);
            exceptions += 1;
            continue;
        }
        macro_rules! again {
            ($request:ident, $response:ident) => {
                if recorded.is_request {
                    let value: $request =
                        decode_call(&recorded.bytes).unwrap_or_else(|e| panic!("{}: {e}", recorded.name));
                    let bytes = encode_call(name, seqid, &value).unwrap();
                    assert_eq!(decode_call::<$request>(&bytes).unwrap(), value, "{}", recorded.name);
                    bytes
                } else {
                    let value: $response =
                        decode_reply(&recorded.bytes).unwrap_or_else(|e| panic!("{}: {e}", recorded.name));
                    let bytes = encode_reply(name, seqid, &value);
                    assert_eq!(decode_reply::<$response>(&bytes).unwrap(), value, "{}", recorded.name);
                    bytes
                }
            };
        }
        let bytes = with_types!(name, again, panic!("{}: unknown method {name}", recorded.name));
        if bytes == recorded.bytes {
            same += 1;
        } else {
            assert_eq!(bytes.len(), recorded.bytes.len(), "{}", recorded.name);
            reordered.push(recorded.name);
        }
    }
    println!("{same} byte for byte, {} with a map in another order, {exceptions} exceptions", reordered.len());
    assert!(same > 180 && exceptions >= 6);
    assert!(reordered.iter().all(|name| name.ends_with("OpenSession")), "{reordered:?}");
}

/// The generated decoder is the judge of what the scanner says.
#[test]
fn scanner_and_generated_decoder_agree_on_recorded_messages() {
    let mut handles = 0;
    for recorded in corpus::messages() {
        let bytes = &recorded.bytes;
        let method = Method::from_name(&recorded.method);
        if recorded.is_request {
            let request = scan::request(bytes).unwrap_or_else(|e| panic!("{}: {e}", recorded.name));
            assert_eq!(request.method, method);
            let method = method.unwrap();
            assert_eq!(request.handle.is_some(), method.scope() != Scope::New, "{}", recorded.name);
            if let Some(at) = request.handle {
                assert_eq!(at.read(bytes).unwrap(), decoded_handle(&recorded), "{}", recorded.name);
                handles += 1;
            }
            match method {
                Method::ExecuteStatement => {
                    let decoded: TExecuteStatementReq = decode_call(bytes).unwrap();
                    assert_eq!(request.statement_in(bytes), Some(decoded.statement.as_bytes()));
                    assert_eq!(request.run_async, decoded.run_async.unwrap_or(false));
                    assert_eq!(request.query_timeout, decoded.query_timeout.unwrap_or(0));
                }
                Method::FetchResults => {
                    let decoded: TFetchResultsReq = decode_call(bytes).unwrap();
                    assert_eq!(request.orientation, decoded.orientation.0);
                    assert_eq!(request.max_rows, decoded.max_rows);
                    assert_eq!(request.fetch_type, decoded.fetch_type.unwrap_or(0));
                }
                _ => assert!(request.statement.is_none()),
            }
        } else {
            agree_on_reply(&recorded);
        }
    }
    assert!(handles > 80);
}

fn decoded_handle(recorded: &corpus::Recorded) -> Handle {
    macro_rules! session {
        ($($method:literal $request:ident),*) => {
            match recorded.method.as_str() {
                $($method => {
                    let decoded: hs2::tcli::$request = decode_call(&recorded.bytes).unwrap();
                    Some(Handle::try_from(&decoded.session_handle).unwrap())
                })*
                _ => None,
            }
        };
    }
    macro_rules! operation {
        ($($method:literal $request:ident),*) => {
            match recorded.method.as_str() {
                $($method => {
                    let decoded: hs2::tcli::$request = decode_call(&recorded.bytes).unwrap();
                    Some(Handle::try_from(&decoded.operation_handle).unwrap())
                })*
                _ => None,
            }
        };
    }
    session!(
        "CloseSession" TCloseSessionReq, "GetInfo" TGetInfoReq, "ExecuteStatement" TExecuteStatementReq,
        "GetTypeInfo" TGetTypeInfoReq, "GetCatalogs" TGetCatalogsReq, "GetSchemas" TGetSchemasReq,
        "GetTables" TGetTablesReq, "GetTableTypes" TGetTableTypesReq, "GetColumns" TGetColumnsReq,
        "GetFunctions" TGetFunctionsReq, "GetPrimaryKeys" TGetPrimaryKeysReq,
        "GetCrossReference" TGetCrossReferenceReq
    )
    .or(operation!(
        "GetOperationStatus" TGetOperationStatusReq, "CancelOperation" TCancelOperationReq,
        "CloseOperation" TCloseOperationReq, "GetResultSetMetadata" TGetResultSetMetadataReq,
        "FetchResults" TFetchResultsReq
    ))
    .unwrap()
}

#[allow(clippy::wildcard_imports)]
fn agree_on_reply(recorded: &corpus::Recorded) {
    use hs2::tcli::*;
    let bytes = &recorded.bytes;
    let reply = scan::reply(bytes).unwrap_or_else(|e| panic!("{}: {e}", recorded.name));
    if reply.header.kind == MessageKind::Exception {
        assert_eq!(reply.status, None);
        assert_eq!(reply.error_code, Some(ExceptionKind::UnknownMethod as i32));
        return;
    }
    macro_rules! status {
        ($request:ident, $response:ident) => {{
            let decoded: $response = decode_reply(bytes).unwrap();
            decoded.status
        }};
    }
    macro_rules! with_status {
        ($($method:literal $response:ident),*) => {
            match recorded.method.as_str() {
                $($method => status!(None, $response),)*
                other => panic!("no status is read of {other}"),
            }
        };
    }
    let status = with_status!(
        "OpenSession" TOpenSessionResp, "CloseSession" TCloseSessionResp, "GetInfo" TGetInfoResp,
        "ExecuteStatement" TExecuteStatementResp, "GetTypeInfo" TGetTypeInfoResp, "GetCatalogs" TGetCatalogsResp,
        "GetSchemas" TGetSchemasResp, "GetTables" TGetTablesResp, "GetTableTypes" TGetTableTypesResp,
        "GetColumns" TGetColumnsResp, "GetFunctions" TGetFunctionsResp, "GetPrimaryKeys" TGetPrimaryKeysResp,
        "GetCrossReference" TGetCrossReferenceResp, "GetOperationStatus" TGetOperationStatusResp,
        "CancelOperation" TCancelOperationResp, "CloseOperation" TCloseOperationResp,
        "GetResultSetMetadata" TGetResultSetMetadataResp, "FetchResults" TFetchResultsResp
    );
    let text = |range: &Option<std::ops::Range<usize>>| {
        range.clone().map(|range| String::from_utf8(bytes[range].to_vec()).unwrap())
    };
    assert_eq!(reply.status, Some(status.status_code.0), "{}", recorded.name);
    assert_eq!(text(&reply.sql_state), status.sql_state);
    assert_eq!(reply.error_code, status.error_code);
    assert_eq!(text(&reply.error_message), status.error_message);
    match recorded.method.as_str() {
        "OpenSession" => {
            let decoded: TOpenSessionResp = decode_reply(bytes).unwrap();
            let handle = decoded.session_handle.map(|handle| Handle::try_from(&handle).unwrap());
            assert_eq!(reply.handle.map(|at| at.read(bytes).unwrap()), handle);
        }
        "ExecuteStatement" => {
            let decoded: TExecuteStatementResp = decode_reply(bytes).unwrap();
            let handle = decoded.operation_handle.as_ref().map(|handle| Handle::try_from(handle).unwrap());
            assert_eq!(reply.handle.map(|at| at.read(bytes).unwrap()), handle);
            assert_eq!(reply.has_result_set, decoded.operation_handle.map(|handle| handle.has_result_set));
        }
        "GetOperationStatus" => {
            let decoded: TGetOperationStatusResp = decode_reply(bytes).unwrap();
            assert_eq!(reply.operation_state, decoded.operation_state.map(|state| state.0));
            assert_eq!(reply.operation_error_code, decoded.error_code);
            assert_eq!(reply.has_result_set, decoded.has_result_set);
        }
        _ => {}
    }
}

#[test]
fn a_patched_handle_is_what_the_decoder_reads_and_nothing_else_changes() {
    for recorded in corpus::messages().into_iter().filter(|recorded| recorded.is_request) {
        let Some(at) = scan::request(&recorded.bytes).unwrap().handle else { continue };
        let mut bytes = recorded.bytes.clone();
        let handle = Handle::random();
        at.patch(&mut bytes, &handle).unwrap();
        let patched = corpus::Recorded { bytes: bytes.clone(), ..recorded };
        assert_eq!(decoded_handle(&patched), handle, "{}", patched.name);
        at.patch(&mut bytes, &at.read(&corpus_bytes(&patched.name)).unwrap()).unwrap();
        assert_eq!(bytes, corpus_bytes(&patched.name));
    }
}

fn corpus_bytes(name: &str) -> Vec<u8> {
    std::fs::read(format!("{}/tests/fixtures/{name}.bin", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

#[test]
fn the_end_of_every_message_is_found_however_its_bytes_arrive() {
    for recorded in corpus::messages() {
        // With what comes behind it already there …
        let mut followed = recorded.bytes.clone();
        followed.extend_from_slice(&[0x80, 1, 0, 1]);
        assert_eq!(Walker::new().advance(&followed), Ok(WalkProgress::End(recorded.bytes.len())), "{}", recorded.name);
        // … and byte by byte, where no promise of a length may be too high.
        let mut walker = Walker::new();
        let mut wanted = 0;
        for length in 0..=recorded.bytes.len() {
            if length < wanted {
                continue;
            }
            match walker.advance(&recorded.bytes[..length]).unwrap() {
                WalkProgress::End(end) => assert_eq!((end, length), (recorded.bytes.len(), recorded.bytes.len())),
                WalkProgress::AtLeast(more) => {
                    assert!(more > length && more <= recorded.bytes.len(), "{}", recorded.name);
                    wanted = more;
                }
            }
        }
    }
}

#[test]
fn the_beginning_of_a_reply_is_enough_to_decide_or_says_that_it_is_not() {
    for recorded in corpus::messages().into_iter().filter(|recorded| !recorded.is_request) {
        let whole = scan::reply(&recorded.bytes).unwrap();
        let total = recorded.bytes.len();
        for length in 0..=total {
            match scan::reply_head(&recorded.bytes[..length], total) {
                Ok((reply, true)) => assert_eq!(reply, whole, "{}, {length} of {total}", recorded.name),
                Ok((_, false)) => assert!(length < total),
                Err(error) => {
                    assert!(matches!(error, scan::ScanError::Truncated { .. }) && length < 64, "{error}");
                }
            }
        }
    }
}
