//! Replies that are read whole: error texts of any length, and whether a reply belongs to its request.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::time::Duration;

use hs2::limits::MAX_ERROR_TEXT_BYTES;
use hs2::message::{Message, encode_call, encode_refusal, encode_reply};
use hs2::relay::Outcome;
use hs2::tcli::TOperationType;
use hs2::{Client, ClientError, Handle, Method, status};
use model::error::UserError;

use crate::relays::{bad_backend, fetch_request, framed, relay_once};

const DEADLINE: Duration = Duration::from_secs(10);

#[tokio::test]
async fn error_texts_of_a_backend_are_cut() {
    let error = UserError::internal("ä".repeat(5_000_000));
    let request = hs2::tcli::TGetOperationStatusReq {
        operation_handle: Handle::random().operation(TOperationType::EXECUTE_STATEMENT, true),
        get_progress_update: None,
    };
    let request = Message::new(encode_call("GetOperationStatus", 5, &request).unwrap()).unwrap();
    let mut answer = <hs2::tcli::TGetOperationStatusResp as hs2::answer::Answer>::with_status(status::refusal(&error));
    let of_own = answer.status.error_message.as_ref().unwrap().len();
    assert!(of_own <= MAX_ERROR_TEXT_BYTES, "a server of ours cuts them itself: {of_own}");
    answer.status.error_message = Some(error.message.clone());
    answer.error_message = Some(error.message);
    answer.task_status = Some("behind".to_owned());
    let reply = encode_reply("GetOperationStatus", 5, &answer);
    let (outcome, _, received) = relay_once(bad_backend(framed(reply.len(), &reply), true).await, &request).await;
    assert!(matches!(outcome, Ok(Outcome::Forwarded { bytes }) if bytes == received.len() - 4), "{outcome:?}");
    let cut: hs2::tcli::TGetOperationStatusResp = hs2::message::decode_reply(&received[4..]).unwrap();
    for text in [cut.status.error_message.unwrap(), cut.error_message.unwrap()] {
        assert!(text.len() <= MAX_ERROR_TEXT_BYTES && text.len() > MAX_ERROR_TEXT_BYTES - 8, "{}", text.len());
        assert!(text.ends_with("ää…"));
    }
    assert_eq!(cut.task_status.as_deref(), Some("behind"));
}

/// The reply to a statement, which is not relayed but read: it must be the reply to that statement.
#[tokio::test]
async fn a_reply_that_is_read_belongs_to_its_request() {
    let good = encode_refusal(Method::FetchResults, 5, &UserError::internal("x"));
    let mut to = Client::connect(&bad_backend(framed(good.len(), &good), true).await).await.unwrap();
    assert_eq!(to.exchange(&fetch_request(), DEADLINE).await.unwrap().bytes(), good);
    let other_seqid = encode_refusal(Method::FetchResults, 6, &UserError::internal("x"));
    let other_method = encode_refusal(Method::ExecuteStatement, 5, &UserError::internal("x"));
    let surplus = [&good[..], &other_seqid].concat();
    for (what, reply) in [("seqid", other_seqid), ("method", other_method), ("two replies", surplus)] {
        let mut to = Client::connect(&bad_backend(framed(reply.len(), &reply), true).await).await.unwrap();
        let outcome = to.exchange(&fetch_request(), DEADLINE).await;
        assert!(outcome.is_err() && to.is_broken(), "{what}: {outcome:?}");
    }
    // A reply that came before the request.
    let spare = [framed(good.len(), &good), framed(good.len(), &good)].concat();
    let mut to = Client::connect(&bad_backend(spare, true).await).await.unwrap();
    to.exchange(&fetch_request(), DEADLINE).await.unwrap();
    while !to.has_unread().await {}
    let outcome = to.exchange(&fetch_request(), DEADLINE).await;
    assert!(matches!(outcome, Err(ClientError::Broken)), "{outcome:?}");
}
