//! Faults of a server: a hanging transaction, a connection that ends during COMMIT.
//!
//! Failpoints are process-wide, so these cases are one test and run sequentially.

#![cfg(debug_assertions)]
#![allow(clippy::unwrap_used, clippy::panic)]

mod contract;

use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use contract::bench::{Bench, abort_of, commit, create_unit, id};
use contract::ledgers::{EPOCH, external, founded, held, one_engine, pool, scopes};
use metadata::{CommitRequest, Committed, Error, Store, StoreErrorKind, StoreSettings, failpoints};
use model::alteration::Outcome;
use model::change::Rules;
use model::failpoint::fail;
use model::ledger::{Change, Refusal, ScopedChange, State};
use model::number::{Epoch, Generation};
use sqlx::{AnyConnection, AssertSqlSafe, Connection as _, Executor as _};

const SHORT: Duration = Duration::from_millis(700);

async fn bench(url: &str, name: &str) -> Bench {
    sqlx::any::install_default_drivers();
    let schema = format!("eh_{}_{name}", &uuid::Uuid::new_v4().simple().to_string()[..8]);
    let mut connection = AnyConnection::connect(url).await.unwrap();
    connection.execute(AssertSqlSafe(format!("CREATE SCHEMA {schema}"))).await.unwrap();
    connection.close().await.unwrap();
    let sign = if url.contains('?') { '&' } else { '?' };
    let mut settings =
        StoreSettings::new(format!("{url}{sign}options[search_path]={schema}&application_name={schema}"));
    settings.lock_timeout = SHORT;
    settings.idle_timeout = SHORT * 3;
    Bench::open(settings).await
}

#[allow(clippy::disallowed_methods, reason = "one message each way")]
/// Pauses the next caller at the failpoint until it is released. Returns once a caller is paused.
fn stop_at(point: &'static str) -> (mpsc::Receiver<()>, mpsc::Sender<()>) {
    let (arrived, arrivals) = mpsc::channel();
    let (go_on, released) = mpsc::channel::<()>();
    let released = parking_lot::Mutex::new(released);
    fail::cfg_callback(point, move || {
        let _ = arrived.send(());
        let _ = released.lock().recv_timeout(Duration::from_secs(30));
    })
    .unwrap();
    (arrivals, go_on)
}

/// Another agent: a thread with its own runtime and store, so that only it stops.
fn agent(bench: &Bench, request: CommitRequest) -> JoinHandle<Result<Committed, Error>> {
    let (settings, clock) = (bench.settings.clone(), bench.clock.clone());
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let store = Store::open(&settings, Rules::default(), clock).await?;
            store.commit(&request).await
        })
    })
}

async fn joined(agent: JoinHandle<Result<Committed, Error>>) -> Result<Committed, Error> {
    tokio::task::spawn_blocking(move || agent.join().unwrap()).await.unwrap()
}

async fn wait_for(arrivals: mpsc::Receiver<()>) {
    tokio::task::spawn_blocking(move || arrivals.recv_timeout(Duration::from_secs(30)).unwrap()).await.unwrap();
}

#[tokio::test]
#[ignore = "needs EH_TEST_POSTGRES"]
async fn what_a_server_can_do_to_us() {
    let url = url();
    an_abort_waits_no_longer_than_the_lock_timeout(bench(&url, "lock").await).await;
    a_hanging_commit_does_not_block_others_for_ever(bench(&url, "hang").await).await;
    a_connection_that_ends_at_commit_leaves_the_outcome_unknown(bench(&url, "cut").await).await;
    a_repeat_after_a_lost_answer_finds_it(bench(&url, "gone").await).await;
    for what in [Commit::Lost, Commit::Unanswered, Commit::Unreachable] {
        a_batch_whose_commit_is_in_doubt_is_resolved_call_by_call(bench(&url, "batch").await, what).await;
    }
    a_server_that_is_gone_is_unavailable().await;
}

fn url() -> String {
    std::env::var("EH_TEST_POSTGRES").expect("EH_TEST_POSTGRES is a postgres:// URL")
}

async fn an_abort_waits_no_longer_than_the_lock_timeout(bench: Bench) {
    // A commit has inserted its row and hangs.
    let mut other = AnyConnection::connect(&bench.settings.url).await.unwrap();
    other.execute("BEGIN").await.unwrap();
    other
        .execute(
            "INSERT INTO alteration (id, base_generation, generation, statement, requested_by, requested_at_ms, \
             outcome, decided_by, decided_at_ms) VALUES ('a-1', 0, 1, '', '', 0, 'committed', 'x', 0)",
        )
        .await
        .unwrap();
    let begun = Instant::now();
    let error = bench.store.abort(&abort_of("a-1")).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    assert!(begun.elapsed() >= SHORT && begun.elapsed() < SHORT * 10, "{:?}", begun.elapsed());
    assert_eq!(bench.store.outcome(&id("a-1")).await.unwrap(), None, "nothing is decided");
    // It ends without a commit: now the abort wins.
    other.execute("ROLLBACK").await.unwrap();
    assert_eq!(bench.store.abort(&abort_of("a-1")).await.unwrap().outcome, Outcome::Aborted);
}

async fn a_hanging_commit_does_not_block_others_for_ever(bench: Bench) {
    let (arrivals, go_on) = stop_at(failpoints::COMMIT_DECIDED);
    let request = commit("a-1", create_unit("uc_1", 0, 1), Some(Generation(0)), bench.soon());
    let stopped = agent(&bench, request);
    wait_for(arrivals).await;
    // The server ends the transaction of the stopped agent; then the abort succeeds.
    let begun = Instant::now();
    let aborted = loop {
        match bench.store.abort(&abort_of("a-1")).await {
            Ok(record) => break record,
            Err(error) => assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}"),
        }
        assert!(begun.elapsed() < SHORT * 20, "the idle transaction was never ended");
    };
    assert_eq!(aborted.outcome, Outcome::Aborted);
    fail::remove(failpoints::COMMIT_DECIDED);
    go_on.send(()).unwrap();
    let error = joined(stopped).await.unwrap_err();
    assert!(matches!(error.kind(), StoreErrorKind::Unavailable | StoreErrorKind::OutcomeUnknown), "{error}");
    assert!(bench.store.catalog().await.unwrap().units.is_empty(), "an aborted alteration changes nothing");
    // START waits for the catalog lock no longer than its timeout, and others proceed.
    bench.alter("a-2", create_unit("uc_1", 0, 1)).await;
}

async fn a_connection_that_ends_at_commit_leaves_the_outcome_unknown(bench: Bench) {
    let (arrivals, go_on) = stop_at(failpoints::COMMIT_BEFORE);
    let request = commit("a-1", create_unit("uc_1", 0, 1), Some(Generation(0)), bench.soon());
    let cut = agent(&bench, request.clone());
    wait_for(arrivals).await;
    bench
        .raw(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() \
             AND application_name = current_setting('application_name')",
        )
        .await;
    fail::remove(failpoints::COMMIT_BEFORE);
    go_on.send(()).unwrap();
    let error = joined(cut).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::OutcomeUnknown, "{error}");
    assert_eq!(error.user_error().sqlstate(), "08007");
    // The row has the outcome. The connections of this store were cut, too, and the pool may still hand out one that is ending.
    let outcome = again_while_unavailable(|| bench.store.outcome(&request.id)).await;
    assert_eq!(outcome, None);
    let committed = again_while_unavailable(|| bench.store.commit(&request)).await;
    assert!(committed.first);
}

/// Retries while the database is unavailable.
async fn again_while_unavailable<T>(mut ask: impl AsyncFnMut() -> Result<T, Error>) -> T {
    let begun = Instant::now();
    loop {
        match ask().await {
            Err(error) if error.kind() == StoreErrorKind::Unavailable && begun.elapsed() < SHORT * 20 => {}
            other => break other.unwrap(),
        }
    }
}

async fn a_repeat_after_a_lost_answer_finds_it(bench: Bench) {
    let (arrivals, go_on) = stop_at(failpoints::COMMIT_AFTER);
    let request = commit("a-1", create_unit("uc_1", 0, 1), Some(Generation(0)), bench.soon());
    let lost = agent(&bench, request.clone());
    wait_for(arrivals).await;
    fail::remove(failpoints::COMMIT_AFTER);
    assert_eq!(bench.store.abort(&abort_of("a-1")).await.unwrap().outcome, Outcome::Committed);
    let repeat = bench.store.commit(&request).await.unwrap();
    assert!(!repeat.first);
    go_on.send(()).unwrap();
    assert_eq!(joined(lost).await.unwrap().record, repeat.record);
    bench.store.finish(Epoch(0), &id("a-1"), repeat.record.generation).await.unwrap();
}

/// What becomes of the COMMIT of a batch.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Commit {
    /// Its connection has ended.
    Lost,
    /// It takes effect, and its reply is lost.
    Unanswered,
    /// The server cannot be reached from then on.
    Unreachable,
}

/// Each call of the batch receives its own result, and nothing is charged twice. If the server cannot be reached, all outcomes
/// are unknown.
async fn a_batch_whose_commit_is_in_doubt_is_resolved_call_by_call(bench: Bench, what: Commit) {
    founded(&bench, 2).await;
    let line = Line::to(&bench.settings.url).await;
    let mut settings = bench.settings.clone();
    settings.url = line.url.clone();
    settings.connect_deadline = SHORT;
    // The only one that is cut.
    settings.connections = 1;
    // Longer than the agent stops, also on a busy machine.
    (settings.lock_timeout, settings.idle_timeout) = (SHORT * 15, SHORT * 30);
    let clock = bench.clock.clone();
    let (arrivals, go_on) = stop_at(failpoints::RESERVE_BEFORE);
    let agent = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let store = Store::open(&settings, Rules::default(), clock).await.unwrap();
            let call = |id| {
                let request = external(id, id, scopes("t_a", None), one_engine());
                let change = ScopedChange { scopes: request.scopes.clone(), change: Change::Reserve(request) };
                let store = &store;
                async move { store.change_for_holder(&change, None).await }
            };
            // All are queued before the task of their pool runs, which is on this thread: they are one batch.
            tokio::join!(call("x0"), call("x1"), call("x2"))
        })
    });
    wait_for(arrivals).await;
    assert_eq!(held(&bench).await[&pool()], 0, "nothing is committed");
    match what {
        Commit::Lost => {
            bench
                .raw(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE state = 'idle in transaction' \
                     AND application_name = current_setting('application_name')",
                )
                .await;
        }
        Commit::Unanswered => line.discard_replies(),
        Commit::Unreachable => line.end(),
    }
    fail::remove(failpoints::RESERVE_BEFORE);
    go_on.send(()).unwrap();
    if what == Commit::Unanswered {
        let begun = Instant::now();
        let committed = loop {
            match held(&bench).await[&pool()] {
                0 => assert!(begun.elapsed() < SHORT * 20, "COMMIT never arrived"),
                committed => break committed,
            }
        };
        assert_eq!(committed, 2, "the calls are one batch");
        line.speak();
    }
    let (first, second, third) = tokio::task::spawn_blocking(move || agent.join().unwrap()).await.unwrap();
    let results = [first, second, third];
    if what == Commit::Unreachable {
        let errors = results.map(|result| result.unwrap_err().kind());
        assert_eq!(errors, [StoreErrorKind::OutcomeUnknown; 3]);
        return;
    }
    // Run alone, any two are the first ones.
    let mut results: Vec<_> = results.into_iter().map(Result::unwrap).collect();
    if what == Commit::Unanswered {
        let refused = results.pop().unwrap();
        assert!(matches!(&refused, Err(Refusal::Short(_))), "{refused:?}");
    }
    let granted: Vec<_> = results.into_iter().filter_map(Result::ok).collect();
    assert!(granted.len() == 2 && granted.iter().all(|one| one.state == State::Locked), "{what:?}: {granted:?}");
    assert_eq!(held(&bench).await[&pool()], 2);
    assert_eq!(bench.store.audit_ledger(EPOCH).await.unwrap(), Vec::new());
}

async fn a_server_that_is_gone_is_unavailable() {
    // Bound and not listening: it refuses connections, and no other process gets the port.
    let nowhere = tokio::net::TcpSocket::new_v4().unwrap();
    nowhere.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let port = nowhere.local_addr().unwrap().port();
    let mut settings = StoreSettings::new(format!("postgres://user@127.0.0.1:{port}/none"));
    settings.connect_deadline = Duration::from_secs(1);
    let begun = Instant::now();
    let error = Store::migrate(&settings).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    assert!(begun.elapsed() < Duration::from_secs(15));
}

/// The database has moved to another machine: existing connections receive nothing, not even a reset; new ones are answered.
/// The pool has one connection, so a call that kept waiting would block all others.
#[tokio::test]
#[ignore = "needs EH_TEST_POSTGRES"]
async fn a_silent_connection_frees_its_slot_in_the_pool() {
    let bench = bench(&url(), "silent").await;
    let line = Line::to(&bench.settings.url).await;
    let mut settings = bench.settings.clone();
    settings.url = line.url.clone();
    settings.connections = 1;
    // Longer than the agent's work before it stops, also on a busy machine, and than the server keeps the transaction of the
    // previous round.
    settings.call_deadline = Duration::from_secs(8);
    settings.lock_timeout = Duration::from_secs(8);
    settings.connect_deadline = Duration::from_secs(9);
    settings.idle_timeout = Duration::from_secs(4);
    let clock = bench.clock.clone();
    for point in [failpoints::COMMIT_DECIDED, failpoints::COMMIT_BEFORE] {
        let (arrivals, go_on) = stop_at(point);
        let request = commit(
            &format!("silent-{point}").replace('.', "-"),
            create_unit("uc_1", 0, 1),
            Some(Generation(0)),
            bench.soon(),
        );
        let (settings, clock) = (settings.clone(), clock.clone());
        // One store for the silent call and for the next one.
        let agent = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let store = Store::open(&settings, Rules::default(), clock).await.unwrap();
                let error = store.commit(&request).await.unwrap_err();
                let after = store.catalog().await.map(|catalog| catalog.units.len());
                (error, after)
            })
        });
        wait_for(arrivals).await;
        line.fall_silent();
        fail::remove(point);
        go_on.send(()).unwrap();
        let (error, after) = tokio::task::spawn_blocking(move || agent.join().unwrap()).await.unwrap();
        assert!(matches!(error.kind(), StoreErrorKind::Unavailable | StoreErrorKind::OutcomeUnknown), "{error}");
        // Within its own deadline: the connection of the silent call was freed.
        assert_eq!(after.unwrap(), 0, "{point}");
        line.speak();
    }
}

/// A relay to the server that can fail for its current connections; later ones work.
struct Line {
    url: String,
    fault: tokio::sync::watch::Sender<Fault>,
    accepting: tokio::task::JoinHandle<()>,
}

/// What has become of the connections that were open then.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    /// They are silent, and nothing is read from either end.
    Silent,
    /// The server receives what is sent, and its replies are lost.
    Unanswered,
    Closed,
}

impl Line {
    async fn to(url: &str) -> Self {
        let (before, rest) = url.split_once('@').unwrap();
        let (server, after) = rest.split_once('/').unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("{before}@{}/{after}", listener.local_addr().unwrap());
        let (fault, faults) = tokio::sync::watch::channel(Fault::Closed);
        let server = server.to_owned();
        let accepting = tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let mut faults = faults.clone();
                faults.mark_unchanged();
                let mut server = tokio::net::TcpStream::connect(&server).await.unwrap();
                tokio::spawn(async move {
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut client, &mut server) => return,
                        _ = faults.changed() => {}
                    }
                    let fault = *faults.borrow_and_update();
                    // Both ends stay open until then.
                    let closed = faults.wait_for(|fault| *fault == Fault::Closed);
                    if fault == Fault::Unanswered {
                        tokio::select! {
                            _ = tokio::io::copy(&mut client, &mut server) => {}
                            _ = closed => {}
                        }
                    } else {
                        let _ = closed.await;
                    }
                });
            }
        });
        Self { url, fault, accepting }
    }

    fn fall_silent(&self) {
        self.fault.send_replace(Fault::Silent);
    }

    fn discard_replies(&self) {
        self.fault.send_replace(Fault::Unanswered);
    }

    /// Closes the connections that have failed.
    fn speak(&self) {
        self.fault.send_replace(Fault::Closed);
    }

    /// Closes all connections, and accepts no other.
    fn end(&self) {
        self.accepting.abort();
        self.speak();
    }
}
