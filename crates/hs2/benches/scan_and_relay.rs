//! What the hot path saves: the scanner against the generated decoder, and the copy of a result against decoding and
//! encoding it. Prints both ratios.
//!
//! Run with `cargo bench -p hs2`. In the dev profile (`cargo bench -p hs2 --profile dev`) the ratios are smaller than
//! what a release build shows, because our code is not optimised there and the crate `thrift` is.
#![allow(clippy::unwrap_used, missing_docs)]

mod fetch_reply;

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use hs2::message::{decode_call, decode_reply, encode_call, encode_reply};
use hs2::tcli::{TExecuteStatementReq, TFetchResultsResp};
use hs2::{Handle, scan};

const ROWS: i64 = 10_000;

fn request() -> Vec<u8> {
    let request = TExecuteStatementReq {
        session_handle: Handle::random().session(),
        statement: "select count(*) from sales where region = 'north' group by product".to_owned(),
        conf_overlay: None,
        run_async: Some(true),
        query_timeout: Some(0),
    };
    encode_call("ExecuteStatement", 7, &request).unwrap()
}

/// What a relay does with a request: scan, look the handle up, patch.
fn scan_and_patch(bytes: &mut [u8], handle: &Handle) {
    let request = scan::request(bytes).unwrap();
    request.handle.unwrap().patch(bytes, handle).unwrap();
}

fn decode_and_encode_request(bytes: &[u8], handle: &Handle) -> Vec<u8> {
    let mut request: TExecuteStatementReq = decode_call(bytes).unwrap();
    request.session_handle = handle.session();
    encode_call("ExecuteStatement", 7, &request).unwrap()
}

/// What a relay does with a reply: read its beginning, copy the bytes through one buffer, walk over each piece.
fn copy(bytes: &[u8], buffer: &mut [u8], out: &mut Vec<u8>, walks: bool) {
    let (reply, decided) = scan::reply_head(&bytes[..buffer.len().min(bytes.len())], bytes.len()).unwrap();
    assert!(decided && reply.succeeded());
    let mut walker = scan::PieceWalker::new(&reply.header);
    let mut ended = !walks;
    out.clear();
    for chunk in bytes.chunks(buffer.len()) {
        let buffer = &mut buffer[..chunk.len()];
        buffer.copy_from_slice(chunk);
        if walks {
            ended = walker.feed(buffer).unwrap();
        }
        out.extend_from_slice(buffer);
    }
    assert!(ended);
}

fn decode_and_encode_reply(bytes: &[u8]) -> Vec<u8> {
    let answer: TFetchResultsResp = decode_reply(bytes).unwrap();
    encode_reply("FetchResults", 8, &answer)
}

/// The time of one run, the best of several rounds.
fn time_of(mut run: impl FnMut()) -> Duration {
    (0..5)
        .map(|_| {
            let (begin, mut runs) = (Instant::now(), 0_u32);
            while begin.elapsed() < Duration::from_millis(100) {
                run();
                runs += 1;
            }
            begin.elapsed() / runs
        })
        .min()
        .unwrap()
}

fn print_ratio(what: &str, fast: Duration, slow: Duration) {
    let ratio = slow.as_secs_f64() / fast.as_secs_f64();
    println!("{what}: {fast:?} against {slow:?}, {ratio:.0} times as fast");
}

fn requests(criterion: &mut Criterion) {
    let (mut bytes, handle) = (request(), Handle::random());
    let mut group = criterion.benchmark_group("request");
    group.bench_function("scan and patch", |b| b.iter(|| scan_and_patch(black_box(&mut bytes), &handle)));
    group.bench_function("decode and encode", |b| b.iter(|| decode_and_encode_request(black_box(&bytes), &handle)));
    group.finish();
    let fast = time_of(|| scan_and_patch(black_box(&mut bytes), &handle));
    let slow = time_of(|| drop(decode_and_encode_request(black_box(&bytes), &handle)));
    print_ratio("request, scan and patch against decode and encode", fast, slow);
}

fn replies(criterion: &mut Criterion) {
    let bytes = fetch_reply::encode(8, ROWS);
    let (mut buffer, mut out) = (vec![0; 64 * 1024], Vec::with_capacity(bytes.len()));
    let mut group = criterion.benchmark_group("reply of 10000 rows");
    group.throughput(Throughput::Bytes(bytes.len() as u64));
    group.bench_function("copy without a walk", |b| {
        b.iter(|| copy(black_box(&bytes), &mut buffer, &mut out, false));
    });
    group.bench_function("copy", |b| b.iter(|| copy(black_box(&bytes), &mut buffer, &mut out, true)));
    group.bench_function("decode and encode", |b| b.iter(|| decode_and_encode_reply(black_box(&bytes))));
    group.finish();
    let fast = time_of(|| copy(black_box(&bytes), &mut buffer, &mut out, true));
    let slow = time_of(|| drop(decode_and_encode_reply(black_box(&bytes))));
    print_ratio("reply of 10000 rows, copy against decode and encode", fast, slow);
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20).measurement_time(Duration::from_secs(2)).warm_up_time(Duration::from_millis(300));
    targets = requests, replies
}
criterion_main!(benches);
