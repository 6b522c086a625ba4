//! The timeouts that each server enforces: for a lock, for a statement, for an idle transaction.
//!
//! Each case makes one of them short and the others long, so that only that one can have ended the call. Failpoints are
//! process-wide, so the cases of both servers are one test and run sequentially.

#![cfg(debug_assertions)]
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)]

mod contract;

use std::sync::mpsc;
use std::time::{Duration, Instant};

use contract::bench::{Bench, abort_of, commit, create_unit, id};
use metadata::{Error, Store, StoreErrorKind, StoreSettings, failpoints};
use model::alteration::Outcome;
use model::change::Rules;
use model::failpoint::fail;
use model::number::Generation;
use sqlx::{AnyConnection, AssertSqlSafe, Connection as _, Executor as _};

/// `MariaDB` has timeouts in whole seconds.
const SHORT: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(30);
/// A bound that [`SHORT`] meets even on a busy machine, and the others do not.
const SOON: Duration = Duration::from_secs(10);

/// One of the servers.
struct Server {
    url: String,
    /// `SCHEMA` or `DATABASE`: what isolates the cases.
    apart: &'static str,
    /// A query whose rows are statements that end every other connection of the case.
    cut: &'static str,
}

impl Server {
    fn postgres() -> Self {
        let url = std::env::var("EH_TEST_POSTGRES").expect("EH_TEST_POSTGRES is a postgres:// URL");
        let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() \
                   AND application_name = current_setting('application_name')";
        Self { url, apart: "SCHEMA", cut }
    }

    fn mariadb() -> Self {
        let url = std::env::var("EH_TEST_MARIADB").expect("EH_TEST_MARIADB is a mysql:// URL");
        let cut = "BEGIN NOT ATOMIC FOR it IN (SELECT id FROM information_schema.processlist \
                   WHERE db = DATABASE() AND id <> CONNECTION_ID()) DO KILL it.id; END FOR; END";
        Self { url, apart: "DATABASE", cut }
    }

    async fn bench(&self, lock: Duration, statement: Duration, idle: Duration) -> Bench {
        sqlx::any::install_default_drivers();
        let name = format!("eh_{}", &uuid::Uuid::new_v4().simple().to_string()[..8]);
        let mut connection = AnyConnection::connect(&self.url).await.unwrap();
        connection.execute(AssertSqlSafe(format!("CREATE {} {name}", self.apart))).await.unwrap();
        connection.close().await.unwrap();
        let url = if self.apart == "SCHEMA" {
            let sign = if self.url.contains('?') { '&' } else { '?' };
            format!("{}{sign}options[search_path]={name}&application_name={name}", self.url)
        } else {
            let (scheme, rest) = self.url.split_once("://").unwrap();
            format!("{scheme}://{}/{name}", rest.split(['/', '?']).next().unwrap())
        };
        let settings = StoreSettings { call_deadline: LONG, ..StoreSettings::new(url) };
        // The migration runs with the default timeouts.
        Store::migrate(&settings).await.unwrap();
        Bench::open(StoreSettings { lock_timeout: lock, statement_timeout: statement, idle_timeout: idle, ..settings })
            .await
    }
}

#[tokio::test]
#[ignore = "needs EH_TEST_POSTGRES and EH_TEST_MARIADB"]
async fn each_timeout_is_set_under_its_server_name() {
    for server in [Server::postgres(), Server::mariadb()] {
        a_wait_for_a_row_lock_ends_with_the_lock_timeout(server.bench(SHORT, LONG, LONG).await).await;
        a_statement_runs_no_longer_than_the_statement_timeout(server.bench(LONG, SHORT, LONG).await).await;
        an_idle_transaction_is_ended_by_the_idle_timeout(server.bench(LONG, LONG, SHORT).await).await;
        a_connection_that_ends_at_commit_leaves_the_outcome_unknown(server.bench(LONG, LONG, LONG).await, server.cut)
            .await;
        statements_that_wait_for_the_catalog_leave_connections(server.bench(LONG, LONG, LONG).await).await;
    }
}

/// Another transaction holds the catalog lock and does not end.
async fn holder(bench: &Bench) -> AnyConnection {
    let mut other = AnyConnection::connect(&bench.settings.url).await.unwrap();
    other.execute("BEGIN").await.unwrap();
    other.execute("UPDATE catalog SET generation = generation + 1 WHERE id = 1").await.unwrap();
    other
}

async fn a_wait_for_a_row_lock_ends_with_the_lock_timeout(bench: Bench) {
    let error = waits_for_a_short_time(&bench).await;
    assert!(matches!(error, Error::LockTimeout(_)), "{error}");
}

/// The wait for a lock is a part of the statement, and its timeout is longer here.
async fn a_statement_runs_no_longer_than_the_statement_timeout(bench: Bench) {
    waits_for_a_short_time(&bench).await;
}

async fn waits_for_a_short_time(bench: &Bench) -> Error {
    let mut other = holder(bench).await;
    let begun = Instant::now();
    let error = bench.try_alter("a-1", create_unit("uc_1", 0, 1)).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    assert!(begun.elapsed() >= SHORT * 9 / 10 && begun.elapsed() < SOON, "{:?}", begun.elapsed());
    assert_eq!(bench.store.outcome(&id("a-1")).await.unwrap(), None, "nothing is decided");
    other.execute("ROLLBACK").await.unwrap();
    // The connection can be used for the next statement.
    bench.alter("a-1", create_unit("uc_1", 0, 1)).await;
    error
}

/// An agent stops within its transaction: the server ends it, and the abort succeeds.
async fn an_idle_transaction_is_ended_by_the_idle_timeout(bench: Bench) {
    let stopped = Stopped::at(failpoints::COMMIT_DECIDED, &bench).await;
    let begun = Instant::now();
    let aborted = bench.store.abort(&abort_of("a-1")).await.unwrap();
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    assert_eq!(aborted.outcome, Outcome::Aborted);
    let error = stopped.goes_on().await.unwrap_err();
    assert!(matches!(error.kind(), StoreErrorKind::Unavailable | StoreErrorKind::OutcomeUnknown), "{error}");
    assert!(bench.store.catalog().await.unwrap().units.is_empty(), "an aborted alteration changes nothing");
}

/// However many statements wait for the catalog lock, those that only read are answered.
async fn statements_that_wait_for_the_catalog_leave_connections(bench: Bench) {
    let mut other = holder(&bench).await;
    let mut waiting = tokio::task::JoinSet::new();
    for number in 0..3 * bench.settings.connections {
        let request = commit(
            &format!("w-{number}"),
            create_unit(&format!("uc_{number}"), 0, 1),
            Some(Generation(0)),
            bench.soon(),
        );
        let store = bench.store.clone();
        waiting.spawn(async move { store.commit(&request).await });
    }
    // Each of them has asked for its turn, or for a connection.
    tokio::task::yield_now().await;
    let read = tokio::time::timeout(SOON, bench.store.catalog()).await.expect("a free connection");
    assert!(read.unwrap().units.is_empty());
    other.execute("ROLLBACK").await.unwrap();
    while let Some(committed) = waiting.join_next().await {
        assert!(committed.unwrap().unwrap().first);
    }
    assert_eq!(bench.store.catalog().await.unwrap().units.len(), 3 * bench.settings.connections as usize);
}

async fn a_connection_that_ends_at_commit_leaves_the_outcome_unknown(bench: Bench, cut: &str) {
    let stopped = Stopped::at(failpoints::COMMIT_BEFORE, &bench).await;
    bench.raw(cut).await;
    let error = stopped.goes_on().await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::OutcomeUnknown, "{error}");
    // The connections of this store were cut, too: it opens new ones.
    let outcome = loop {
        match bench.store.outcome(&id("a-1")).await {
            Err(error) if error.kind() == StoreErrorKind::Unavailable => {}
            other => break other.unwrap(),
        }
    };
    assert_eq!(outcome, None, "the row says that nothing was committed");
    bench.alter("a-1", create_unit("uc_1", 0, 1)).await;
}

/// An agent with its own store, paused at a failpoint of its commit.
struct Stopped {
    point: &'static str,
    go_on: mpsc::Sender<()>,
    agent: std::thread::JoinHandle<Result<(), Error>>,
}

impl Stopped {
    async fn at(point: &'static str, bench: &Bench) -> Self {
        let (arrived, arrivals) = mpsc::channel();
        let (go_on, released) = mpsc::channel::<()>();
        let released = parking_lot::Mutex::new(released);
        fail::cfg_callback(point, move || {
            let _ = arrived.send(());
            let _ = released.lock().recv_timeout(LONG);
        })
        .unwrap();
        let request = commit("a-1", create_unit("uc_1", 0, 1), Some(Generation(0)), bench.soon());
        let (settings, clock) = (bench.settings.clone(), bench.clock.clone());
        let agent = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let store = Store::open(&settings, Rules::default(), clock).await?;
                store.commit(&request).await.map(drop)
            })
        });
        tokio::task::spawn_blocking(move || arrivals.recv_timeout(LONG).unwrap()).await.unwrap();
        Self { point, go_on, agent }
    }

    async fn goes_on(self) -> Result<(), Error> {
        fail::remove(self.point);
        self.go_on.send(()).unwrap();
        tokio::task::spawn_blocking(move || self.agent.join().unwrap()).await.unwrap()
    }
}
