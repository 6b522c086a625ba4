//! Replies that are read whole: error texts of any length, and whether a reply belongs to its request.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::time::Duration;

use hs2::answer::Answer;
use hs2::answer::encode_refusal;
use hs2::limits::MAX_ERROR_TEXT_BYTES;
use hs2::message::{Message, encode_call, encode_reply};
use hs2::relay::{self, Decision, Outcome, RelayError};
use hs2::tcli::{TFetchResultsResp, TGetOperationStatusReq, TGetOperationStatusResp, TOperationType};
use hs2::{Client, Connection, Handle, Method, status};
use model::error::UserError;

use crate::relays::{bad_backend, client_connection, fetch_request, framed, relay_once};

const DEADLINE: Duration = Duration::from_secs(10);

fn operation_status() -> TGetOperationStatusReq {
    TGetOperationStatusReq {
        operation_handle: Handle::random().operation(TOperationType::EXECUTE_STATEMENT, true),
        get_progress_update: None,
    }
}

#[tokio::test]
async fn error_texts_of_a_backend_are_cut() {
    let error = UserError::internal("ä".repeat(5_000_000));
    let request = Message::new(encode_call("GetOperationStatus", 5, &operation_status()).unwrap()).unwrap();
    let mut answer = TGetOperationStatusResp::with_status(status::refusal(&error));
    let of_own = answer.status.error_message.as_ref().unwrap().len();
    assert!(of_own <= MAX_ERROR_TEXT_BYTES, "a server of ours cuts them itself: {of_own}");
    answer.status.error_message = Some(error.message.clone());
    answer.error_message = Some(error.message);
    answer.task_status = Some("behind".to_owned());
    let reply = encode_reply("GetOperationStatus", 5, &answer);
    let (outcome, _, received) = relay_once(bad_backend(framed(reply.len(), &reply), true).await, &request).await;
    assert!(matches!(outcome, Ok(Outcome::Forwarded { bytes }) if bytes == received.len() - 4), "{outcome:?}");
    let cut: TGetOperationStatusResp = hs2::message::decode_reply(&received[4..]).unwrap();
    for text in [cut.status.error_message.unwrap(), cut.error_message.unwrap()] {
        assert!(text.len() <= MAX_ERROR_TEXT_BYTES && text.len() > MAX_ERROR_TEXT_BYTES - 8, "{}", text.len());
        assert!(text.ends_with("ää…"));
    }
    assert_eq!(cut.task_status.as_deref(), Some("behind"));
}

/// What Spark answers: the error of a call with its causes in `infoMessages`, that of an operation with its stack trace.
#[tokio::test]
async fn stack_traces_of_a_backend_are_taken_out_of_its_errors() {
    let trace = "cannot resolve cont\n  ^\n\tat a.B.c(D.java:1)\nCaused by: x.Y: boom\n\tat e\n\t... 7 more";
    let short = "cannot resolve cont\n  ^\nCaused by: x.Y: boom";
    let infos = || Some((0..1_000).map(|n| format!("*org.apache.X:frame {n}:1:2")).collect::<Vec<_>>());
    let mut failed = status::refusal(&UserError::internal(trace));
    assert_eq!(failed.error_message.as_deref(), Some(short), "a server of ours takes them out itself");
    failed.error_message = Some(trace.to_owned());
    failed.info_messages = infos();
    let reply = encode_reply("FetchResults", 5, &TFetchResultsResp::with_status(failed));
    let (outcome, broken, received) =
        relay_once(bad_backend(framed(reply.len(), &reply), true).await, &fetch_request()).await;
    assert!(matches!(outcome, Ok(Outcome::Forwarded { bytes }) if bytes == received.len() - 4), "{outcome:?}");
    let cut: TFetchResultsResp = hs2::message::decode_reply(&received[4..]).unwrap();
    assert_eq!(cut.status.error_message.as_deref(), Some(short));
    assert_eq!((cut.status.info_messages, cut.status.sql_state.as_deref(), broken), (None, Some("XX000"), false));

    let request = Message::new(encode_call("GetOperationStatus", 5, &operation_status()).unwrap()).unwrap();
    let mut ended = TGetOperationStatusResp::with_status(status::success());
    status::operation_error(&UserError::internal("x"), &mut ended);
    ended.error_message = Some(trace.to_owned());
    // Not those of a success.
    ended.status.info_messages = infos();
    let reply = encode_reply("GetOperationStatus", 5, &ended);
    let (_, _, received) = relay_once(bad_backend(framed(reply.len(), &reply), true).await, &request).await;
    ended.error_message = Some(short.to_owned());
    assert_eq!(hs2::message::decode_reply::<TGetOperationStatusResp>(&received[4..]).unwrap(), ended);
}

/// A reply that the caller keeps must be the reply to its request, like one that is forwarded.
#[tokio::test]
async fn a_buffered_reply_belongs_to_its_request() {
    let good = encode_refusal(Method::FetchResults, 5, &UserError::internal("x"));
    let mut to = Client::connect(&bad_backend(framed(good.len(), &good), true).await).await.unwrap();
    let (mut connection, _stream) = client_connection().await;
    let outcome = buffer(&mut connection, &mut to).await;
    assert!(matches!(&outcome, Ok(Outcome::Buffered(reply)) if *reply == good) && !to.is_broken(), "{outcome:?}");
    let other_seqid = encode_refusal(Method::FetchResults, 6, &UserError::internal("x"));
    let other_method = encode_refusal(Method::ExecuteStatement, 5, &UserError::internal("x"));
    let surplus = [&good[..], &other_seqid].concat();
    for (what, reply) in [("seqid", other_seqid), ("method", other_method), ("two replies", surplus)] {
        let mut to = Client::connect(&bad_backend(framed(reply.len(), &reply), true).await).await.unwrap();
        let outcome = buffer(&mut connection, &mut to).await;
        assert!(outcome.is_err() && to.is_broken(), "{what}: {outcome:?}");
    }
    // A reply that arrived before the request.
    let spare = [framed(good.len(), &good), framed(good.len(), &good)].concat();
    let mut to = Client::connect(&bad_backend(spare, true).await).await.unwrap();
    let outcome = buffer(&mut connection, &mut to).await;
    let early = outcome.is_err() || {
        while !to.has_unread().await {}
        matches!(buffer(&mut connection, &mut to).await, Err(RelayError::Broken))
    };
    assert!(early && to.is_broken());
}

async fn buffer(connection: &mut Connection, to: &mut Client) -> Result<Outcome, RelayError> {
    relay::exchange(connection, &fetch_request(), to, DEADLINE, |_, _| Decision::Buffer).await
}

/// A client that closes its connection while its reply is written leaves the backend's connection usable: the whole reply
/// was read.
#[tokio::test]
async fn a_client_that_fails_after_the_whole_reply_breaks_no_backend() {
    let good = encode_refusal(Method::FetchResults, 5, &UserError::internal("x"));
    let mut to = Client::connect(&bad_backend(framed(good.len(), &good), true).await).await.unwrap();
    let (mut connection, stream) = client_connection().await;
    stream.set_zero_linger().unwrap();
    let outcome = relay::exchange(&mut connection, &fetch_request(), &mut to, DEADLINE, |_, _| {
        // Resets the connection.
        drop(stream);
        Decision::Forward
    })
    .await;
    assert!(matches!(outcome, Err(RelayError::Client(_))), "{outcome:?}");
    assert!(!to.is_broken());
}
