//! The load: clients that run statements and check every byte of every reply, until they are stopped.
//!
//! It measures nothing. It is what faults are tested under: `tests/scenarios/test_faults_under_load.py` cancels statements, drains
//! engines and ends masters meanwhile. The first wrong reply, refused call or lost connection ends it with an error.

use std::io::Read as _;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};

use super::connection::Buffer;
use super::endpoint::Endpoint;
use super::fetches::Fetches;
use super::round_trips::RoundTrips;
use super::session::Session;
use crate::waiting;

/// The statements of a session; then its client opens another one.
const STATEMENTS_OF_A_SESSION: usize = 50;
/// The frames of a result, after the first one.
const FRAMES: u64 = 20;
/// The calls of GetOperationStatus of a session.
const ROUND_TRIPS: usize = 1_000;
/// How often the load prints how far it is.
const REPORT_EVERY: Duration = Duration::from_secs(1);

/// The arguments of the load.
#[derive(Debug, Clone, clap::Args)]
pub struct LoadArguments {
    /// The addresses of proxies.
    #[arg(long, value_name = "HOST:PORT", required = true)]
    connect: Vec<SocketAddr>,
    /// The user of the sessions.
    #[arg(long, value_name = "NAME")]
    user: String,
    /// The clients of each proxy, each with one session at a time.
    #[arg(long, value_name = "N", default_value_t = 8)]
    clients: usize,
    /// The length of a frame.
    #[arg(long, value_name = "BYTES", default_value_t = 64_000)]
    bytes: usize,
}

/// What the clients have done together.
#[derive(Default)]
struct Done {
    sessions: AtomicU64,
    statements: AtomicU64,
    frames: AtomicU64,
    round_trips: AtomicU64,
}

impl Done {
    fn print(&self, begun: Instant) {
        let [sessions, statements, frames, round_trips] =
            [&self.sessions, &self.statements, &self.frames, &self.round_trips].map(|it| it.load(Ordering::Relaxed));
        let seconds = begun.elapsed().as_secs_f64();
        println!(
            "{seconds:.1} s: {sessions} sessions, {statements} results, {frames} frames, {round_trips} round trips"
        );
    }
}

/// Runs until standard input ends, or until the first error. It prints `running` once every client has a session.
pub fn run(arguments: &LoadArguments) -> Result<()> {
    let (done, is_over) = (Done::default(), AtomicBool::new(false));
    let begun = Instant::now();
    // Not one of the scope, because it ends only with the input.
    let (sender, input_ended) = std::sync::mpsc::sync_channel(1);
    std::thread::spawn(move || {
        let _ = sender.send(std::io::stdin().read_to_end(&mut Vec::new()));
    });
    std::thread::scope(|scope| {
        let mut clients = Vec::new();
        for (number, address) in
            arguments.connect.iter().cycle().take(arguments.connect.len() * arguments.clients).enumerate()
        {
            let (done, is_over) = (&done, &is_over);
            clients.push(scope.spawn(move || {
                let endpoint = Endpoint { address: *address, tls: None };
                let ended = client(arguments, &endpoint, number, done, is_over);
                // The others need not go on after an error.
                is_over.store(true, Ordering::Relaxed);
                ended.with_context(|| format!("client {number} of {address}"))
            }));
        }
        let is_running = |done: &Done| done.sessions.load(Ordering::Relaxed) >= clients.len() as u64;
        let (mut was_running, mut reported) = (false, Instant::now());
        while !is_over.load(Ordering::Relaxed) {
            if input_ended.try_recv().is_ok() {
                is_over.store(true, Ordering::Relaxed);
            }
            if !was_running && is_running(&done) {
                was_running = true;
                println!("running: {} clients", clients.len());
            }
            if reported.elapsed() >= REPORT_EVERY {
                reported = Instant::now();
                done.print(begun);
            }
            waiting::pause(Duration::from_millis(20));
        }
        let ended = clients.into_iter().map(|it| it.join().unwrap_or_else(|_| Err(anyhow!("a client panicked"))));
        ended.collect::<Vec<_>>().into_iter().collect::<Result<()>>()
    })?;
    done.print(begun);
    println!("every reply was as expected");
    Ok(())
}

/// One client: session after session, by turns with results and with round trips. Half of the clients begin with the latter.
fn client(
    arguments: &LoadArguments,
    endpoint: &Endpoint,
    number: usize,
    done: &Done,
    is_over: &AtomicBool,
) -> Result<()> {
    let mut buffer = Buffer::default();
    for turn in number.. {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        if turn % 2 == 0 {
            fetch(arguments, endpoint, number, done, is_over, &mut buffer)?;
        } else {
            let mut round_trips = RoundTrips::open(endpoint, number, &arguments.user, &mut buffer)?;
            done.sessions.fetch_add(1, Ordering::Relaxed);
            let mut times = Vec::new();
            round_trips.run(ROUND_TRIPS, &mut times, &mut buffer)?;
            done.round_trips.fetch_add(times.len() as u64, Ordering::Relaxed);
            round_trips.close(&mut buffer)?;
        }
    }
    Ok(())
}

/// A session with one result after the other.
fn fetch(
    arguments: &LoadArguments,
    endpoint: &Endpoint,
    number: usize,
    done: &Done,
    is_over: &AtomicBool,
    buffer: &mut Buffer,
) -> Result<()> {
    let mut session = Session::open(endpoint, number, &arguments.user, buffer)?;
    done.sessions.fetch_add(1, Ordering::Relaxed);
    for _ in 0..STATEMENTS_OF_A_SESSION {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let mut result = Fetches::begin(&mut session, arguments.bytes, 1 + FRAMES, buffer)?;
        for _ in 0..FRAMES {
            // One by one, so that every byte of each is compared.
            result.run(&mut session, 1, buffer)?;
        }
        result.end(&mut session, buffer)?;
        done.statements.fetch_add(1, Ordering::Relaxed);
        done.frames.fetch_add(1 + FRAMES, Ordering::Relaxed);
    }
    session.close(buffer)
}
