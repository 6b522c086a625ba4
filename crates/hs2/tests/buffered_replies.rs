//! The budget for buffered replies: waiting clients cannot make the process buffer more.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hs2::limits::BUFFERED_REPLIES_BYTES;
use hs2::message::{Message, encode_call, encode_reply};
use hs2::tcli::{TFetchOrientation, TFetchResultsReq, TFetchResultsResp, TOperationType};
use hs2::{Auth, Client, ClientOptions, Handle, status};
use tests::resident_set::Peak;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

const MIB: usize = 1 << 20;
/// More replies than fit into the budget.
const CALLS: usize = 48;
/// The length of a reply: 48 of them are three times the budget.
const REPLY_BYTES: usize = 159 * MIB / 10;
/// What may become resident in addition to the budget: socket buffers, connections, rounding of allocations.
const MARGIN: usize = 128 * MIB;
const DEADLINE: Duration = Duration::from_mins(1);

/// The request of each call, and a reply to it that is nearly [`REPLY_BYTES`] long.
fn request_and_reply() -> (Message, Vec<u8>) {
    let handle = Handle::random().operation(TOperationType::EXECUTE_STATEMENT, true);
    let request = TFetchResultsReq {
        operation_handle: handle,
        orientation: TFetchOrientation::FETCH_NEXT,
        max_rows: 1,
        fetch_type: None,
    };
    let request = Message::new(encode_call("FetchResults", 5, &request).unwrap()).unwrap();
    let results = Some(hs2::rowset::lines(0, ["x".repeat(REPLY_BYTES)]));
    let reply = TFetchResultsResp { status: status::success(), has_more_rows: Some(false), results };
    (request, encode_reply("FetchResults", 5, &reply))
}

/// Serves one client: authenticates it, reads one request, and keeps back the last byte of the reply until released.
async fn serve(
    mut stream: TcpStream,
    reply: Arc<Vec<u8>>,
    delivered: Arc<AtomicUsize>,
    mut release: watch::Receiver<bool>,
) {
    // The mechanism and `\0a\0b`.
    stream.read_exact(&mut [0; 10 + 5 + 4]).await.unwrap();
    stream.write_all(&[5, 0, 0, 0, 0]).await.unwrap();
    let length = stream.read_u32().await.unwrap();
    stream.read_exact(&mut vec![0; length as usize]).await.unwrap();
    let (last, first) = reply.split_last().unwrap();
    stream.write_u32(reply.len() as u32).await.unwrap();
    stream.write_all(first).await.unwrap();
    delivered.fetch_add(1, Ordering::Relaxed);
    release.wait_for(|released| *released).await.unwrap();
    stream.write_all(&[*last]).await.unwrap();
    let _ = stream.read(&mut [0]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replies_that_wait_stay_within_the_budget() {
    let (request, reply) = request_and_reply();
    let (request, reply) = (Arc::new(request), Arc::new(reply));
    let (release, released) = watch::channel(false);
    let delivered = Arc::new(AtomicUsize::new(0));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (source, count) = (Arc::clone(&reply), Arc::clone(&delivered));
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(serve(stream, Arc::clone(&source), Arc::clone(&count), released.clone()));
        }
    });

    let peak = Peak::of_this_process().unwrap();
    let mut calls = JoinSet::new();
    for _ in 0..CALLS {
        let (address, request) = (address.clone(), Arc::clone(&request));
        calls.spawn(async move {
            let mut client = Client::connect(&ClientOptions::new(address, Auth::user("a", "b"))).await.unwrap();
            client.send(request.bytes()).await.unwrap();
            client.receive(DEADLINE).await.unwrap().bytes().len()
        });
    }
    let fitting = BUFFERED_REPLIES_BYTES / reply.len();
    let filled = async {
        while delivered.load(Ordering::Relaxed) < fitting {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(DEADLINE, filled).await.expect("the budget is filled");
    // Without a budget, the other replies would be read meanwhile.
    sleep(Duration::from_millis(500)).await;
    peak.ensure_within(BUFFERED_REPLIES_BYTES + MARGIN, "replies that wait").unwrap();
    assert_eq!(delivered.load(Ordering::Relaxed), fitting, "more replies are buffered than fit into the budget");

    release.send_replace(true);
    let lengths = timeout(DEADLINE, calls.join_all()).await.expect("all calls are answered");
    assert_eq!(lengths, vec![reply.len(); CALLS]);
}
