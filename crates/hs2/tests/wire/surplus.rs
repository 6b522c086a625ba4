//! Bytes behind a reply in its frame: a client takes them for the reply to its next call, so none may reach it.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::time::Duration;

use hs2::answer::Answer;
use hs2::message::{Message, encode_call, encode_reply};
use hs2::relay::{self, Decision, Outcome, RelayError};
use hs2::scan::{self, PieceWalker, ScanError, WalkProgress, Walker};
use hs2::tcli::{
    TFetchOrientation, TFetchResultsReq, TFetchResultsResp, TGetDelegationTokenReq, TGetDelegationTokenResp,
    TGetInfoReq, TGetInfoResp, TGetInfoType, TGetInfoValue, TGetResultSetMetadataReq, TGetResultSetMetadataResp,
    TOperationHandle, TOperationType,
};
use hs2::{Client, Column, Handle, SqlType, rowset, schema, status};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::corpus;
use crate::relays::{bad_backend, client_connection, connection_that_begins_with, framed};

const DEADLINE: Duration = Duration::from_secs(10);
const SEQID: i32 = 5;

/// A call whose reply is a result, and such a reply of at least `bytes` bytes.
fn results(bytes: usize) -> Vec<(Message, Vec<u8>)> {
    let operation: TOperationHandle = Handle::random().operation(TOperationType::EXECUTE_STATEMENT, true);
    let session = Handle::random().session();
    let fetch = TFetchResultsReq {
        operation_handle: operation.clone(),
        orientation: TFetchOrientation::FETCH_NEXT,
        max_rows: 10,
        fetch_type: None,
    };
    let lines = (0..=bytes / 16).map(|line| format!("true answer {line:9}"));
    let rows =
        TFetchResultsResp { status: status::success(), has_more_rows: None, results: Some(rowset::lines(0, lines)) };
    let columns: Vec<Column> =
        (0..=bytes / 40).map(|n| Column::new(format!("a column {n:9}"), SqlType::String)).collect();
    let metadata =
        TGetResultSetMetadataResp { status: status::success(), schema: Some(schema::table_schema(&columns)) };
    let text = "x".repeat(bytes);
    let info = TGetInfoResp { status: status::success(), info_value: TGetInfoValue::StringValue(text.clone()) };
    let mut token = TGetDelegationTokenResp::with_status(status::success());
    token.delegation_token = Some(text);
    let token_request =
        TGetDelegationTokenReq { session_handle: session.clone(), owner: "a".to_owned(), renewer: "a".to_owned() };
    macro_rules! pair {
        ($name:literal, $request:expr, $reply:expr) => {
            (Message::new(encode_call($name, SEQID, &$request).unwrap()).unwrap(), encode_reply($name, SEQID, &$reply))
        };
    }
    let of_operation = TGetResultSetMetadataReq { operation_handle: operation };
    let of_session = TGetInfoReq { session_handle: session, info_type: TGetInfoType::CLI_SERVER_NAME };
    vec![
        pair!("FetchResults", fetch, rows),
        pair!("GetResultSetMetadata", of_operation, metadata),
        pair!("GetInfo", of_session, info),
        pair!("GetDelegationToken", token_request, token),
    ]
}

/// How a client speaks: its first bytes, what it reads before its first reply, what stands before each reply.
#[derive(Clone, Copy, Debug)]
enum Transport {
    Sasl,
    PlainThrift,
}

async fn relayed(transport: Transport, request: &Message, frame: Vec<u8>) -> (Result<Outcome, RelayError>, Vec<u8>) {
    let (mut connection, mut stream) = match transport {
        Transport::Sasl => client_connection().await,
        Transport::PlainThrift => connection_that_begins_with(request.bytes()).await,
    };
    let mut to = Client::connect(&bad_backend(frame, true).await).await.unwrap();
    let reading = tokio::spawn(async move {
        let mut received = Vec::new();
        stream.read_to_end(&mut received).await.map(|_| received)
    });
    let outcome = relay::exchange(&mut connection, request, &mut to, DEADLINE, |_, _| Decision::Forward).await;
    assert_eq!(to.is_broken(), outcome.is_err());
    connection.close().await;
    (outcome, reading.await.unwrap().unwrap())
}

#[tokio::test]
async fn bytes_behind_a_result_in_its_frame_reach_no_client() {
    for bytes in [10, 20_000, 1 << 20] {
        for (request, reply) in results(bytes) {
            let forged = encode_reply(request.name(), SEQID + 1, &TFetchResultsResp::with_status(status::success()));
            for transport in [Transport::Sasl, Transport::PlainThrift] {
                let what = format!("{} of {} bytes over {transport:?}", request.name(), reply.len());
                let head = if matches!(transport, Transport::Sasl) { 4 } else { 0 };
                let (outcome, received) = relayed(transport, &request, framed(reply.len(), &reply)).await;
                assert!(matches!(outcome, Ok(Outcome::Forwarded { .. })), "{what}: {outcome:?}");
                assert!(received[head..] == reply, "{what}");
                for surplus in [&b"\0"[..], &forged] {
                    let both = [&reply[..], surplus].concat();
                    let (outcome, received) = relayed(transport, &request, framed(both.len(), &both)).await;
                    let Err(RelayError::Backend { error, partly }) = outcome else {
                        panic!("{what}, {} bytes more: {outcome:?}", surplus.len())
                    };
                    assert!(matches!(error, hs2::WireError::Scan(ScanError::Trailing)), "{what}: {error}");
                    assert_eq!(partly, !received.is_empty(), "{what}");
                    assert!(received.len() < head + reply.len(), "{what}: {} bytes came", received.len());
                }
            }
        }
    }
}

#[tokio::test]
async fn a_result_that_goes_on_behind_its_frame_is_not_passed_on_whole() {
    for bytes in [10, 1 << 20] {
        for (request, reply) in results(bytes) {
            let frame = framed(reply.len() - 1, &reply[..reply.len() - 1]);
            let (outcome, received) = relayed(Transport::Sasl, &request, frame).await;
            assert!(matches!(outcome, Err(RelayError::Backend { .. })), "{outcome:?}");
            assert!(received.len() < reply.len() - 1);
        }
    }
}

/// A walk over pieces and a walk over the whole agree on every message, cut anywhere.
#[test]
fn a_walk_over_pieces_ends_where_the_walk_over_the_whole_does() {
    let seed =
        std::env::var("EH_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(rand::random::<u64>);
    println!("EH_TEST_SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let corpus: Vec<Vec<u8>> = corpus::messages().into_iter().map(|recorded| recorded.bytes).collect();
    for round in 0..20_000 {
        let mut bytes = corpus[random.random_range(0..corpus.len())].clone();
        let Ok(head) = scan::header(&bytes) else { continue };
        if round % 2 == 1 {
            let at = random.random_range(head.body..bytes.len());
            bytes[at] = [0, 1, 11, 12, 13, 15, 255, random.random()][random.random_range(0..8)];
        }
        let expected = Walker::new().advance(&bytes);
        let mut walker = PieceWalker::new(&head);
        let (mut at, mut size) = (head.body + random.random_range(0..=bytes.len() - head.body), 0);
        let mut walked = walker.feed(&bytes[..at]);
        while let Ok(false) = walked
            && at < bytes.len()
        {
            size = random.random_range(1..if size < 12 { 40 } else { 12 });
            let piece = &bytes[at..(at + size).min(bytes.len())];
            walked = walker.feed(piece);
            at += piece.len();
        }
        match (expected, walked) {
            (Ok(WalkProgress::End(end)), Ok(true)) => assert_eq!(end, at),
            // What stands behind the end may be in a piece that was not fed any more.
            (Ok(WalkProgress::End(end)), Err(ScanError::Trailing)) => assert!(end < at),
            (Ok(WalkProgress::AtLeast(_)), Ok(false)) => assert_eq!(at, bytes.len()),
            (Err(one), Err(other)) => assert_eq!(one, other),
            (expected, walked) => panic!("{expected:?} {walked:?}"),
        }
    }
}

/// The measured attack: a forged reply behind a true one in a frame of the engine's. The client's connection takes
/// nothing but true replies, or none.
#[tokio::test]
async fn a_forged_reply_behind_a_true_one_is_not_the_next_calls_reply() {
    let (request, reply) = results(10).remove(0);
    let forged = encode_reply("FetchResults", SEQID + 1, &TFetchResultsResp::with_status(status::success()));
    let both = [reply, forged].concat();
    let (mut connection, mut stream) = client_connection().await;
    let mut to = Client::connect(&bad_backend(framed(both.len(), &both), true).await).await.unwrap();
    let outcome = relay::exchange(&mut connection, &request, &mut to, DEADLINE, |_, _| Decision::Forward).await;
    let Err(error) = outcome else { panic!("it was relayed") };
    assert!(error.client_is_usable(), "{error}");
    // The client is answered by the relay itself, and its next byte is the answer's.
    connection.send(b"own").await.unwrap();
    let mut received = [0; 7];
    stream.read_exact(&mut received).await.unwrap();
    assert_eq!(&received, b"\0\0\0\x03own");
    stream.shutdown().await.unwrap();
}
