//! Targets that read Thrift messages.

use hs2::message::{decode_call, decode_reply};
use hs2::scan::{self, PieceWalker, ScanError, WalkProgress, Walker};
use hs2::{Method, tcli};

/// The most text of an error that a reply keeps, in bytes.
const ERROR_TEXT_BYTES: usize = 64;
/// A time limit of a statement, in seconds.
const TIME_LIMIT_S: i64 = 60;

/// A request is scanned, and decoded as each of the requests and replies.
pub fn thrift_decode(data: &[u8]) {
    if let Ok(request) = scan::request(data) {
        let mut copy = data.to_vec();
        if let Some(at) = request.handle {
            let handle = at.read(data).expect("the handle is in the message");
            at.patch(&mut copy, &handle).expect("the handle is in the message");
            assert_eq!(copy, data, "the same handle changes nothing");
        }
        if request.method == Some(Method::ExecuteStatement) {
            request.set_query_timeout(&mut copy, TIME_LIMIT_S);
            let limited = scan::request(&copy).expect("a statement with a time limit is one");
            assert_eq!(limited.query_timeout, TIME_LIMIT_S);
            assert_eq!(limited.statement_in(&copy), request.statement_in(data));
            assert!(limited.overlay_in(&copy).eq(request.overlay_in(data)), "other settings");
        }
    }
    macro_rules! decode {
        ($($message:ident),*) => {$(
            let _ = decode_call::<tcli::$message>(data);
            let _ = decode_reply::<tcli::$message>(data);
        )*};
    }
    decode!(
        TOpenSessionReq,
        TOpenSessionResp,
        TExecuteStatementReq,
        TGetTablesReq,
        TGetOperationStatusResp,
        TGetResultSetMetadataResp,
        TFetchResultsReq,
        TFetchResultsResp,
        TGetInfoResp
    );
}

/// The walks over a message, in one piece and in many, agree on where it ends.
pub fn walker(data: &[u8]) {
    let (Some((&piece, data)), Ok(header)) = (data.split_first(), scan::header(data.get(1..).unwrap_or_default()))
    else {
        return;
    };
    let whole = scan::whole(data);
    match (&whole, Walker::new().advance(data)) {
        (Ok(_), walked) => assert_eq!(walked, Ok(WalkProgress::End(data.len()))),
        (Err(ScanError::Trailing), walked) => {
            assert!(matches!(walked, Ok(WalkProgress::End(end)) if end < data.len()), "{walked:?}");
        }
        (Err(ScanError::Truncated { .. }), walked) => {
            assert!(matches!(walked, Ok(WalkProgress::AtLeast(least)) if least > data.len()), "{walked:?}");
        }
        (Err(_), walked) => assert!(walked.is_err(), "{whole:?} {walked:?}"),
    }
    // The first piece has the head.
    let mut pieces = PieceWalker::new(&header);
    let (first, rest) = data.split_at(header.body.min(data.len()));
    let mut walked = pieces.feed(first);
    for piece in rest.chunks(usize::from(piece).max(1)) {
        walked = walked.and_then(|_| pieces.feed(piece));
    }
    match whole {
        Ok(_) => assert_eq!(walked, Ok(true)),
        Err(ScanError::Truncated { .. }) => assert_eq!(walked, Ok(false)),
        Err(_) => assert!(walked.is_err(), "{whole:?} {walked:?}"),
    }
}

/// The reply of an engine, as a proxy reads it: its head first, and without long texts of errors when it is sent on.
pub fn engine_reply(data: &[u8]) {
    for length in [0, 16, data.len() / 2, data.len()] {
        let _ = scan::reply_head(&data[..length.min(data.len())], data.len());
    }
    let Ok(reply) = scan::reply(data) else { return };
    reply.succeeded();
    if let Some(at) = reply.handle {
        at.read(data).expect("the handle is in the message");
    }
    let mut short = data.to_vec();
    let has_surplus = reply.has_surplus(data, ERROR_TEXT_BYTES);
    assert_eq!(reply.cut_errors(&mut short, ERROR_TEXT_BYTES), has_surplus);
    assert_eq!(short != data, has_surplus);
    let cut = scan::reply(&short).expect("a reply whose errors were cut is one");
    assert!(!cut.has_surplus(&short, ERROR_TEXT_BYTES), "what was cut needs no cut");
    assert_eq!(cut.succeeded(), reply.succeeded());
}
