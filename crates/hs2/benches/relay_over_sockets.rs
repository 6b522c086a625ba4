//! What the walk over every reply costs a relay: a large fetch reply through loopback sockets, by the relay of this
//! crate and by a relay that only copies bytes, in alternating rounds of one run. Prints the throughput and the
//! processor time of both, and their ratios.
//!
//! Both relays have the same backend, the same client and one thread each. Elapsed time includes what backend and
//! client take; the processor time is that of the relay's thread alone.
//!
//! Run with `cargo bench -p hs2 --bench relay_over_sockets`.
#![allow(clippy::unwrap_used, missing_docs)]

mod fetch_reply;
#[path = "../tests/support/mod.rs"]
mod support;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use hs2::message::encode_call;
use hs2::relay::{self, Decision};
use hs2::tcli::{TFetchOrientation, TFetchResultsReq, TOperationType};
use hs2::{Auth, Client, ClientOptions, Connection, Handle, Handler, Limits, Server};
use rustix::thread::{Pid, gettid};
use tokio::net::TcpStream as AsyncStream;
use tokio_util::sync::CancellationToken;

use support::{LOGIN, Serving, WELCOME};

/// Of the reply: about 9 MB, half of its columns text, over which the walk steps value by value.
const ROWS: i64 = 200_000;
const ROUNDS: usize = 21;
const REPLIES_IN_A_ROUND: u32 = 16;
/// As much as the relay of this crate reads at once.
const COPY_BUFFER_BYTES: usize = 64 * 1024;
const DEADLINE: Duration = Duration::from_secs(30);
const SEQID: i32 = 8;

fn request() -> Vec<u8> {
    let request = TFetchResultsReq {
        operation_handle: Handle::random().operation(TOperationType::EXECUTE_STATEMENT, true),
        orientation: TFetchOrientation::FETCH_NEXT,
        max_rows: ROWS,
        fetch_type: None,
    };
    framed(&encode_call("FetchResults", SEQID, &request).unwrap())
}

fn framed(message: &[u8]) -> Vec<u8> {
    [&(message.len() as u32).to_be_bytes()[..], message].concat()
}

/// Answers every call with the same reply.
fn backend(reply: Vec<u8>) -> impl Handler {
    let reply = Arc::new(reply);
    Serving(move |mut connection: Connection, _| {
        let reply = Arc::clone(&reply);
        async move {
            while let Ok(Some(_)) = connection.next().await {
                connection.send(&reply).await.unwrap();
            }
        }
    })
}

/// Relays every connection to the backend as a proxy does.
fn relay(backend: SocketAddr) -> impl Handler {
    Serving(move |mut connection: Connection, _| async move {
        let options = ClientOptions::new(backend.to_string(), Auth::user("alice", "x"));
        let mut to = Client::connect(&options).await.unwrap();
        while let Ok(Some(request)) = connection.next().await {
            let forward = |_: &hs2::scan::Reply, _: &[u8]| Decision::Forward;
            relay::exchange(&mut connection, &request, &mut to, DEADLINE, forward).await.unwrap();
        }
    })
}

/// Copies the bytes of every connection, in both directions, and knows nothing about them.
async fn copy(listener: TcpListener, backend: SocketAddr) {
    let listener = tokio::net::TcpListener::from_std(listener).unwrap();
    loop {
        let (mut client, _) = listener.accept().await.unwrap();
        let mut to = AsyncStream::connect(backend).await.unwrap();
        client.set_nodelay(true).unwrap();
        to.set_nodelay(true).unwrap();
        tokio::spawn(async move {
            let copied =
                tokio::io::copy_bidirectional_with_sizes(&mut client, &mut to, COPY_BUFFER_BYTES, COPY_BUFFER_BYTES);
            copied.await.unwrap();
        });
    }
}

async fn serve(listener: TcpListener, handler: Arc<impl Handler>) {
    let listener = tokio::net::TcpListener::from_std(listener).unwrap();
    let server = Server::from_listener(listener, Limits::default());
    server.serve_connections(handler, CancellationToken::new()).await;
}

/// Something that listens and runs on a thread of its own.
struct Running {
    address: SocketAddr,
    thread: Pid,
}

fn run<F: Future<Output = ()>>(serve: impl FnOnce(TcpListener) -> F + Send + 'static) -> Running {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, thread) = sync_channel(1);
    std::thread::spawn(move || {
        sender.send(gettid()).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(serve(listener));
    });
    Running { address, thread: thread.recv().unwrap() }
}

impl Running {
    /// How long the thread has run on a processor.
    fn processor_time(&self) -> Duration {
        let statistics = std::fs::read_to_string(format!("/proc/self/task/{}/schedstat", self.thread)).unwrap();
        Duration::from_nanos(statistics.split_whitespace().next().unwrap().parse().unwrap())
    }
}

/// A client that is authenticated.
fn connect(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.write_all(LOGIN).unwrap();
    let mut answer = [0; 5];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer, WELCOME);
    stream
}

/// Issues the request and reads its reply.
fn fetch(stream: &mut TcpStream, request: &[u8], reply: &mut Vec<u8>) {
    stream.write_all(request).unwrap();
    let mut length = [0; 4];
    stream.read_exact(&mut length).unwrap();
    reply.resize(u32::from_be_bytes(length) as usize, 0);
    stream.read_exact(reply).unwrap();
}

/// What one relay needed, round by round.
struct Measured<'a> {
    relay: &'a Running,
    stream: TcpStream,
    elapsed: Vec<f64>,
    processor: Vec<f64>,
}

impl<'a> Measured<'a> {
    /// A first reply, not measured, must be the backend's.
    fn new(relay: &'a Running, request: &[u8], expected: &[u8]) -> Self {
        let (mut stream, mut received) = (connect(relay.address), Vec::new());
        fetch(&mut stream, request, &mut received);
        assert!(received == expected);
        Self { relay, stream, elapsed: Vec::new(), processor: Vec::new() }
    }

    fn round(&mut self, request: &[u8], received: &mut Vec<u8>) {
        let (begun, processor) = (Instant::now(), self.relay.processor_time());
        for _ in 0..REPLIES_IN_A_ROUND {
            fetch(&mut self.stream, request, received);
        }
        self.elapsed.push(begun.elapsed().as_secs_f64());
        self.processor.push(self.relay.processor_time().saturating_sub(processor).as_secs_f64());
    }

    fn print(&self, what: &str, bytes: usize) {
        let gib = bytes as f64 * f64::from(REPLIES_IN_A_ROUND) / f64::from(1 << 30);
        let speed = spread(self.elapsed.iter().map(|elapsed| gib / elapsed));
        let processor = spread(self.processor.iter().map(|processor| processor * 1000.0 / gib));
        println!("{what}: {speed} GiB/s, {processor} ms of processor time per GiB");
    }
}

/// Minimum, median and maximum.
fn spread(values: impl Iterator<Item = f64>) -> String {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    format!("min {:.2} median {:.2} max {:.2}", values[0], values[values.len() / 2], values[values.len() - 1])
}

fn main() {
    let (reply, request) = (fetch_reply::encode(SEQID, ROWS), request());
    let answer = reply.clone();
    let origin = run(move |listener| serve(listener, Arc::new(backend(answer)))).address;
    let walking = run(move |listener| serve(listener, Arc::new(relay(origin))));
    let copying = run(move |listener| copy(listener, origin));
    let mut walks = Measured::new(&walking, &request, &reply);
    let mut copies = Measured::new(&copying, &request, &reply);
    let mut received = Vec::new();
    for round in 0..ROUNDS {
        let mut pair = [&mut walks, &mut copies];
        // Each goes first in every second round.
        pair.rotate_left(round % 2);
        for measured in pair {
            measured.round(&request, &mut received);
        }
    }
    println!("a fetch reply of {} bytes, {ROUNDS} rounds of {REPLIES_IN_A_ROUND} replies each", reply.len());
    copies.print("relay that only copies", reply.len());
    walks.print("relay that walks", reply.len());
    let ratio = |walks: &[f64], copies: &[f64]| spread(walks.iter().zip(copies).map(|(walk, copy)| walk / copy));
    println!("walk against copy, elapsed: {}", ratio(&walks.elapsed, &copies.elapsed));
    println!("walk against copy, processor time of the relay: {}", ratio(&walks.processor, &copies.processor));
}
