//! Byte budgets of a running `standalone`: each is filled from outside, and its memory stays within what it may hold.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use hs2::tcli::{TFetchOrientation, TFetchResultsReq};
use hs2::{Auth, Client, ClientError, ClientOptions, Session};
use tests::resident_set::Peak;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::installation::{Installation, ONE_ENGINE};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
/// `proxy.max_held_bytes` of this test: the default is for a machine of its own.
const HELD: usize = 16 * MIB;
/// `proxy.request_memory` of this test. Four users may have all of it.
const REQUESTS: usize = 128 * MIB;
/// Memory that the budgets do not count: buffers of sockets, maps, the allocator's own.
const UNCOUNTED: usize = 32 * MIB;
/// What `hs2` reads of a client that has not authenticated.
const BEFORE_AUTHENTICATION: usize = 64 * KIB;
/// The connections of one kind of client that does not authenticate, as many as one address may have.
const UNAUTHENTICATED: usize = 450;
const PATIENCE: Duration = Duration::from_secs(20);
/// By then it is read, if it is read at all.
const SOON: Duration = Duration::from_secs(1);

/// Waits until the process has closed all connections of clients.
async fn wait_until_closed(address: &str) {
    let local = format!(":{:04X} ", address.rsplit_once(':').unwrap().1.parse::<u16>().unwrap());
    let until = Instant::now() + PATIENCE;
    let is_open = || {
        let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
        // The local address is the second field, the state the fourth: established, or closed by the client only.
        let mut fields = table.lines().skip(1).map(|line| line.split_whitespace().skip(1).collect::<Vec<_>>());
        fields.any(|line| format!("{} ", line[0]).ends_with(&local) && ["01", "08"].contains(&line[2]))
    };
    while is_open() {
        assert!(Instant::now() < until, "connections of {address} are still open");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Sends as much of it as is read, and keeps the connection.
async fn sends(address: &str, bytes: &[u8], within: Duration) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    // It may be closed before all is sent, or not be read any further.
    drop(timeout(within, stream.write_all(bytes)).await);
    stream
}

/// What clients send that never authenticate: beginnings within each limit, and ones that announce more.
fn beginnings() -> Vec<(&'static str, Vec<u8>)> {
    let length = |of: usize| u32::try_from(of).unwrap().to_be_bytes();
    let sasl = |announced: usize| [&b"\x01\0\0\0\x05PLAIN\x05"[..], &length(announced)].concat();
    let plain = |announced: usize| {
        // OpenSession, and in its request a text.
        [&b"\x80\x01\0\x01\0\0\0\x0bOpenSession\0\0\0\x01\x0c\0\x01\x0b\0\x02"[..], &length(announced)].concat()
    };
    let rest = |head: Vec<u8>, bytes: usize| [head, vec![b'x'; bytes]].concat();
    let post = b"POST / HTTP/1.1\r\nHost: localhost\r\n";
    vec![
        ("SASL", rest(sasl(BEFORE_AUTHENTICATION), BEFORE_AUTHENTICATION - 1)),
        ("SASL above the limit", rest(sasl(16 * MIB), MIB)),
        ("plain Thrift", rest(plain(BEFORE_AUTHENTICATION - KIB), BEFORE_AUTHENTICATION - 2 * KIB)),
        ("plain Thrift above the limit", rest(plain(16 * MIB - KIB), MIB)),
        ("a head of HTTP above the limit", rest([&post[..], b"X: "].concat(), MIB)),
        ("a body of HTTP", rest([&post[..], b"Content-Length: 16000000\r\n\r\n"].concat(), MIB)),
    ]
}

async fn session(address: &str, user: &str) -> Session {
    let client = Client::connect(&ClientOptions::new(address, Auth::user(user, ""))).await.unwrap();
    timeout(PATIENCE, Session::open(client, &[])).await.unwrap().unwrap()
}

/// Opens sessions and begins the statement in each of them until it is refused; the sessions, and the refusals.
async fn fill(
    address: &str,
    user: &str,
    sessions: usize,
    statements: impl Fn(usize) -> String + Sync,
    most: usize,
) -> (Vec<Session>, Vec<String>) {
    let statements = &statements;
    let filled = futures::future::join_all((0..sessions).map(|_| async move {
        let mut session = session(address, user).await;
        for at in 0..most {
            match timeout(PATIENCE, session.execute(&statements(at))).await.unwrap().map(drop) {
                Ok(()) => {}
                Err(ClientError::Refused(error)) => {
                    assert_eq!(error.sqlstate(), "54000", "{}", error.text());
                    return (session, Some(error.text()));
                }
                Err(error) => panic!("{error}"),
            }
        }
        (session, None)
    }));
    let (sessions, refusals): (Vec<_>, Vec<_>) = filled.await.into_iter().unzip();
    (sessions, refusals.into_iter().flatten().collect())
}

async fn close(sessions: Vec<Session>) {
    for closed in futures::future::join_all(sessions.into_iter().map(Session::close)).await {
        closed.unwrap();
    }
}

fn is_of_the_process(refusals: &[String]) -> bool {
    refusals.iter().any(|text| text.contains("proxy.max_held_bytes"))
}

/// A tenant with an engine, and another whose engine is on its way for ever.
fn furnished() -> Installation {
    let mut installation = Installation::not_started();
    let program = installation.data().with_file_name("spark-submit");
    std::fs::write(&program, "#!/bin/sh\nexec sleep 600\n").unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).unwrap();
    installation.set("ENGINEHOUSE_SPARK_UNCONFINED", "true");
    installation.set("ENGINEHOUSE_SPARK_PROGRAM", program.to_str().unwrap());
    installation.set("ENGINEHOUSE_PROXY_MAX_HELD_BYTES", &HELD.to_string());
    installation.set("ENGINEHOUSE_PROXY_MAX_UNAUTHENTICATED_PER_ADDRESS", &UNAUTHENTICATED.to_string());
    installation.set("ENGINEHOUSE_PROXY_REQUEST_MEMORY", &REQUESTS.to_string());
    installation.set("ENGINEHOUSE_PROXY_REQUEST_MEMORY_PER_USER", &(REQUESTS / 4).to_string());
    installation.start_again();
    installation.say_all(&ONE_ENGINE);
    installation.say_all(&[
        "CREATE RESOURCE UNIT slow ENGINE_TYPE 'spark', DRIVER_CPU 1, DRIVER_MEMORY '512M', MAX_EXECUTORS 0",
        "CREATE RESOURCE POOL q UNIT_LIST ('slow')",
        "CREATE TENANT s RESOURCE_POOL_LIST ('q'), USER_LIST ('bob')",
        "START ENGINE s q slow",
    ]);
    installation
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_resident_set_stays_within_every_byte_budget() {
    let server = furnished();
    let (address, pid) = (server.address.clone(), server.pid());

    // What one case leaves to the allocator hides what the next one takes: small ones come first.

    // A setting is kept as it is shown and as it is replayed: two megabytes for each session without a limit.
    let peak = Peak::of(pid).unwrap();
    let value = "x".repeat(60 * KIB);
    let set = |at: usize| format!("SET k{at}={value}");
    let (alone, refusals) = fill(&address, "eve", 1, set, 17).await;
    assert!(refusals[0].contains("the session has too many settings"), "{refusals:?}");
    let (sessions, refusals) = fill(&address, "eve", 100, set, 17).await;
    peak.ensure_within(HELD + UNCOUNTED, "settings and replay logs").unwrap();
    assert!(is_of_the_process(&refusals), "{refusals:?}");
    close(sessions).await;
    close(alone).await;

    let peak = Peak::of(pid).unwrap();
    let statement = format!("SELECT '{}'", "x".repeat(4 * MIB));
    let (sessions, refusals) = fill(&address, "bob", 6, |_| statement.clone(), 9).await;
    peak.ensure_within(HELD + UNCOUNTED, "statements that wait for an engine").unwrap();
    assert!(is_of_the_process(&refusals), "{refusals:?}");
    close(sessions).await;

    let peak = Peak::of(pid).unwrap();
    let statement = format!("SHOW TENANTS /* {} */", "x".repeat(250 * KIB));
    let (sessions, refusals) = fill(&address, "admin", 4, |_| statement.clone(), 140).await;
    peak.ensure_within(HELD + UNCOUNTED, "control statements that are not closed").unwrap();
    assert!(is_of_the_process(&refusals), "{refusals:?}");
    close(sessions).await;

    // Those above a limit would each send a megabyte. They are closed at the limit, so a long deadline takes no time.
    for (kind, beginning) in beginnings() {
        wait_until_closed(&address).await;
        let peak = Peak::of(pid).unwrap();
        let clients = (0..UNAUTHENTICATED).map(|_| sends(&address, &beginning, PATIENCE / 4));
        let clients = futures::future::join_all(clients).await;
        peak.ensure_within(2 * UNAUTHENTICATED * BEFORE_AUTHENTICATION + UNCOUNTED, kind).unwrap();
        drop(clients);
    }

    // Eight megabytes each, which their clients do not read.
    let peak = Peak::of(pid).unwrap();
    let rows = "SELECT repeat('x', 1000) FROM generate_series(1, 20000)";
    let address = &address;
    let mut unread = futures::future::join_all((0..16).map(|_| async move {
        let mut session = session(address, "ann").await;
        let operation_handle = {
            let mut statement = timeout(PATIENCE, session.execute(rows)).await.unwrap().unwrap();
            statement.wait(PATIENCE).await.unwrap();
            statement.handle().clone()
        };
        let orientation = TFetchOrientation::FETCH_NEXT;
        let request = TFetchResultsReq { operation_handle, orientation, max_rows: 100_000, fetch_type: Some(0) };
        drop(session.client().send_call("FetchResults", &request, PATIENCE).await.unwrap());
        session
    }))
    .await;
    for session in &mut unread {
        assert!(timeout(PATIENCE, session.client().has_unread()).await.unwrap());
    }
    peak.ensure_within(UNCOUNTED, "results that are not read").unwrap();
    drop(unread);

    // Bodies of requests over HTTP whose user is known, and that never end: 15 of 16 megabytes each.
    let peak = Peak::of(pid).unwrap();
    let of_user = |credentials: &str| {
        let head = format!("POST / HTTP/1.1\r\nAuthorization: Basic {credentials}\r\nContent-Length: 16000000\r\n\r\n");
        [head.as_bytes(), &vec![b'x'; 15 * MIB]].concat()
    };
    // Each of five users may send two at once, which is more than the process receives.
    let bodies = ["YW5uOng=", "YmVuOng=", "Y2F0Ong=", "ZGFuOng=", "ZXZlOng="].map(of_user);
    let bodies =
        futures::future::join_all((0..20).map(|at| sends(address, &bodies[at % bodies.len()], 2 * SOON))).await;
    let rows = session(address, "ann").await.run("SELECT 1", PATIENCE).await.unwrap().rows;
    assert_eq!(rows.len(), 1, "short requests do not wait for them");
    peak.ensure_within(REQUESTS + 2 * UNCOUNTED, "requests on their way").unwrap();
    drop(bodies);

    let rows = session(address, "ann").await.run("SELECT 1", PATIENCE).await.unwrap().rows;
    assert_eq!(rows.len(), 1, "it goes on as before");
}
