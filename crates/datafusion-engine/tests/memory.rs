//! The byte budgets of statements and rows: the resident set grows by at most a small multiple of them.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

#[allow(dead_code)]
#[path = "over_hs2/fixture.rs"]
mod fixture;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use datafusion_engine::Engine;
use datafusion_engine::config::Limits;
use datafusion_engine::operation::Phase;
use hs2::message::{Message, decode_reply, encode_call};
use hs2::status;
use hs2::tcli::{TFetchOrientation, TFetchResultsReq, TFetchResultsResp};

use fixture::{DEADLINE, Fixture, RunningEngine};
use tests::resident_set::Peak;
use tokio::sync::Mutex;

const MIB: usize = 1 << 20;
/// `statement_bytes` of the short test. A debug build needs a second for each megabyte.
const STATEMENT_BYTES: usize = 2 * MIB;
/// `row_bytes` of this test: a reply of this length fits into the client's limit. It limits replies; what a longer row takes
/// before it is refused is limited by `function_bytes`.
const ROW_BYTES: usize = 16 * MIB;
/// The most copies of a statement that are resident at once: text, tokens, syntax tree, plans, names.
const STATEMENT_COPIES_MAX: usize = 16;
/// The most copies of a row that are resident at once: plan, arrays, text, messages of engine and client.
const ROW_COPIES_MAX: usize = 8;
/// The same for a refused row.
const REFUSED_ROW_COPIES_MAX: usize = 6;
/// What a refused statement may take in addition to its text, which is the caller's.
const REFUSAL_MAX: usize = 2 * MIB;
/// What the longest statement may take in a debug build.
const PATIENCE: Duration = Duration::from_mins(5);
/// What the first statements take once: code pages, stacks, caches.
const FIRST_USE_MAX: usize = 64 * MIB;

/// Both tests measure this process.
static MEASURED: Mutex<()> = Mutex::const_new(());

/// A statement of exactly `bytes` bytes.
fn statement_of(bytes: usize) -> String {
    let (head, tail) = ("SELECT length('", "')");
    [head, &"x".repeat(bytes - head.len() - tail.len()), tail].concat()
}

/// Runs statements without a client, whose request would be another copy: two above the limit, and the longest one.
async fn ensure_statements_stay_within(engine: &Arc<Engine>, limit: usize) {
    let session = engine.open_session("alice", u64::MAX).unwrap();
    let execute = |sql: String| engine.execute(&session, sql, BTreeMap::new(), None);
    // Memory is checked before the refusal, so that an engine without the limit fails by its memory.
    for bytes in [limit + 1, 4 * limit] {
        let refused = statement_of(bytes);
        let peak = Peak::of_this_process().unwrap();
        let executed = execute(refused);
        if let Ok(operation) = &executed {
            operation.wait_final(PATIENCE).await;
        }
        peak.ensure_within(REFUSAL_MAX, &format!("a statement of {bytes} bytes")).unwrap();
        assert_eq!(executed.err().unwrap().sqlstate(), "54000");
    }

    let longest = statement_of(limit);
    let peak = Peak::of_this_process().unwrap();
    let operation = execute(longest).unwrap();
    let phase = operation.wait_final(PATIENCE).await;
    assert!(matches!(phase, Phase::Complete), "{phase:?}");
    assert_eq!(operation.fetch(1, false).await.unwrap().batches[0].num_rows(), 1);
    peak.ensure_within(STATEMENT_COPIES_MAX * limit + FIRST_USE_MAX, "the longest statement").unwrap();
    engine.close_operation(&operation.handle);
}

mod long_only {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    #[ignore = "long"]
    async fn statements_of_the_default_limit_stay_within_a_multiple_of_it() {
        let _alone = MEASURED.lock().await;
        let fixture = Fixture::new();
        let config = fixture.config("e-1");
        let limit = config.limits.statement_bytes;
        assert_eq!(limit, Limits::default().statement_bytes);
        let running = RunningEngine::start(config).await;
        ensure_statements_stay_within(&running.engine, limit).await;
        running.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statements_and_rows_stay_within_a_multiple_of_their_budgets() {
    let _alone = MEASURED.lock().await;
    let fixture = Fixture::new();
    let mut config = fixture.config("e-1");
    (config.limits.statement_bytes, config.limits.row_bytes) = (STATEMENT_BYTES, ROW_BYTES);
    let running = RunningEngine::start(config).await;
    ensure_statements_stay_within(&running.engine, STATEMENT_BYTES).await;

    let mut client = running.session().await;
    for (bytes, sqlstate) in [(ROW_BYTES, None), (2 * ROW_BYTES, Some("54000"))] {
        let peak = Peak::of_this_process().unwrap();
        let handle = {
            let mut statement = client.execute(&format!("SELECT repeat('x', {bytes})")).await.unwrap();
            statement.wait(DEADLINE).await.unwrap();
            statement.handle().clone()
        };
        let orientation = TFetchOrientation::FETCH_NEXT;
        let request = TFetchResultsReq { operation_handle: handle, orientation, max_rows: 1, fetch_type: Some(0) };
        let request = Message::new(encode_call("FetchResults", 1, &request).unwrap()).unwrap();
        client.client().send(request.bytes()).await.unwrap();
        let reply = client.client().receive(DEADLINE).await.unwrap();
        let limit = match sqlstate {
            None => ROW_COPIES_MAX * bytes + FIRST_USE_MAX,
            Some(_) => REFUSED_ROW_COPIES_MAX * bytes,
        };
        peak.ensure_within(limit, &format!("a row of {bytes} bytes")).unwrap();
        match sqlstate {
            None => assert!(reply.bytes().len() > bytes),
            Some(sqlstate) => {
                let reply: TFetchResultsResp = decode_reply(reply.bytes()).unwrap();
                assert_eq!(status::check(&reply.status).unwrap_err().sqlstate(), sqlstate);
            }
        }
    }
    running.stop().await;
}
