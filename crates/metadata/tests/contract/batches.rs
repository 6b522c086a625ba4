//! Cases of concurrent calls of holders: they share transactions, and each receives its own result.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use metadata::{AuditFilter, AuditOutcome, Backend, Error, HolderStatement, MAX_BATCHED_CALLS, Store};
use model::ledger::{Amounts, Change, Decided, Refusal, ScopeKind, ScopedChange, State};
use model::resource::Amount;
use sqlx::{AnyConnection, AssertSqlSafe, Connection as _, Executor as _};
use tokio::task::JoinHandle;
use tokio::time::{Duration, sleep, timeout};

use super::bench::{Bench, by, id};
use super::ledgers::{
    EPOCH, TENANTS, external, founded, held, one_engine, pool, scopes, second_pool, second_pool_scopes,
};

/// A transaction of another process that holds the row of pool `rp_1`; of an `SQLite` file, the writer's lock.
pub(super) struct Blocked(AnyConnection);

pub(super) async fn block(bench: &Bench) -> Blocked {
    let mut connection = AnyConnection::connect(&bench.settings.url).await.unwrap();
    let begin = match bench.store.backend() {
        Backend::Sqlite => "BEGIN IMMEDIATE",
        Backend::Postgres | Backend::Mariadb => "BEGIN",
    };
    connection.execute(sqlx::raw_sql(begin)).await.unwrap();
    let lock = "UPDATE quota_scope SET version = version + 1 WHERE kind = 4 AND name = 'rp_1'";
    connection.execute(sqlx::raw_sql(lock)).await.unwrap();
    Blocked(connection)
}

impl Blocked {
    pub(super) async fn release(mut self) {
        self.0.execute(sqlx::raw_sql("COMMIT")).await.unwrap();
        self.0.close().await.unwrap();
    }
}

type Call = Pin<Box<dyn Future<Output = Result<Decided, Error>> + Send>>;

/// A call that is queued when this returns.
async fn queued(store: &Store, change: ScopedChange, statement: Option<HolderStatement>) -> Call {
    let store = store.clone();
    let mut call: Call = Box::pin(async move { store.change_for_holder(&change, statement.as_ref()).await });
    let first = poll_fn(|context| Poll::Ready(call.as_mut().poll(context))).await;
    assert!(first.is_pending());
    call
}

/// Calls of one pool, each queued after the one before, on tasks of their own.
pub(super) async fn queued_calls(store: &Store, changes: Vec<ScopedChange>) -> Vec<JoinHandle<Result<Decided, Error>>> {
    let mut calls = Vec::new();
    for change in changes {
        calls.push(queued(store, change, None).await);
    }
    calls.into_iter().map(tokio::spawn).collect()
}

/// The pause between two looks at what no event reports.
const PAUSE: Duration = Duration::from_millis(5);

/// Waits until a transaction has taken all calls.
async fn all_taken(store: &Store) {
    while store.queued_calls() > 0 {
        sleep(PAUSE).await;
    }
}

fn reserve(name: &str, tenant: &str, amounts: Amounts) -> ScopedChange {
    let of = scopes(tenant, Some("alice"));
    ScopedChange { scopes: of.clone(), change: Change::Reserve(external(name, name, of, amounts)) }
}

fn statement(request: &str) -> HolderStatement {
    HolderStatement { id: id(request), caller: by("alice"), statement: format!("reserve {request}") }
}

/// The number of transactions that have locked the pool.
async fn transactions(bench: &Bench) -> i64 {
    let sql = "SELECT version FROM quota_scope WHERE kind = 4 AND name = 'rp_1'";
    let mut connection = AnyConnection::connect(&bench.settings.url).await.unwrap();
    let row = connection.fetch_one(AssertSqlSafe(sql)).await.unwrap();
    let version = sqlx::Row::get(&row, 0);
    connection.close().await.unwrap();
    version
}

pub async fn concurrent_calls_for_a_pool_share_transactions(bench: Bench) {
    const CAPACITY: usize = 40;
    const CALLS: usize = 120;
    founded(&bench, CAPACITY as i64).await;
    let before = transactions(&bench).await;
    let blocked = block(&bench).await;
    let changes = (0..CALLS).map(|at| reserve(&format!("x{at}"), TENANTS[at % 3], one_engine())).collect();
    let calls = queued_calls(&bench.store, changes).await;
    assert!(bench.store.queued_calls() >= CALLS - MAX_BATCHED_CALLS, "the others wait");
    blocked.release().await;
    let mut granted = 0;
    for (at, call) in calls.into_iter().enumerate() {
        match call.await.unwrap().unwrap() {
            Ok(reservation) => {
                assert_eq!((&**reservation.id(), reservation.state), (&*format!("x{at}"), State::Locked));
                granted += 1;
            }
            Err(Refusal::Short(shortage)) => {
                let numbers = (&*shortage.word(), shortage.asked, shortage.left, shortage.limit);
                assert_eq!(numbers, ("POOL_ENGINES", 1, 0, CAPACITY as i64));
            }
            Err(refusal) => panic!("x{at}: {refusal:?}"),
        }
    }
    assert_eq!((granted, held(&bench).await[&pool()]), (CAPACITY, CAPACITY as i64));
    assert_eq!(bench.store.audit_ledger(EPOCH).await.unwrap(), Vec::new());
    // The blocking transaction, at most one for the new user, three for the calls, and the audit's.
    let transactions = transactions(&bench).await - before;
    println!("contract: calls={CALLS} transactions={transactions}");
    assert!(transactions <= 10, "{transactions}");
}

pub async fn each_call_of_a_batch_has_its_own_result_and_row_in_the_audit(bench: Bench) {
    founded(&bench, 10).await;
    let store = &bench.store;
    store.change_for_holder(&reserve("used", "t_a", one_engine()), Some(&statement("r-used"))).await.unwrap().unwrap();
    let blocked = block(&bench).await;
    let first = queued(store, reserve("first", "t_a", one_engine()), None).await;
    all_taken(store).await;
    let too_large = Amounts::same(Amount { cpu_m: 0, memory: 0, engines: 11 }).unwrap();
    let call = |name: &'static str, amounts| queued(store, reserve(name, "t_b", amounts), Some(statement(name)));
    let granted = call("granted", one_engine()).await;
    let refused = call("refused", too_large).await;
    let cancelled = call("cancelled", one_engine()).await;
    // The same request under another id, as another agent would send it.
    let of = scopes("t_b", Some("alice"));
    let again = Change::Reserve(external("again", "granted", of.clone(), one_engine()));
    let repeated = queued(store, ScopedChange { scopes: of, change: again }, Some(statement("granted"))).await;
    // The id of its statement has a row, which fails its batch.
    let conflicting = queued(store, reserve("conflicting", "t_c", one_engine()), Some(statement("r-used"))).await;
    assert_eq!(store.queued_calls(), 5);
    drop(cancelled);
    assert_eq!(store.queued_calls(), 4, "a cancelled call is not sent");
    let calls = [first, granted, refused, repeated, conflicting].map(tokio::spawn);
    blocked.release().await;
    let mut results = Vec::new();
    for call in calls {
        results.push(call.await.unwrap());
    }
    let ids: Vec<_> = results
        .iter()
        .map(|result| match result {
            Ok(Ok(reservation)) => reservation.id().to_string(),
            Ok(Err(Refusal::Short(shortage))) => format!("{} of {}", shortage.asked, shortage.limit),
            Err(Error::Refused(error)) => error.sqlstate().to_owned(),
            other => panic!("{other:?}"),
        })
        .collect();
    // Run alone, either of the repeats may be the first.
    let one = ids[1].clone();
    assert!(one == "granted" || one == "again", "{one}");
    assert_eq!(ids, ["first", &one, "11 of 10", &one, "22023"]);
    assert_eq!(held(&bench).await[&pool()], 3);
    let filter = AuditFilter { limit: 100, ..AuditFilter::default() };
    let mut audited: Vec<_> = store.audit(&filter).await.unwrap();
    audited.retain(|row| row.outcome == AuditOutcome::Committed);
    let mut requests: Vec<_> = audited.iter().map(|row| row.request.to_string()).collect();
    requests.sort();
    assert_eq!(requests, ["granted", "r-used"]);
    assert_eq!(store.audit_ledger(EPOCH).await.unwrap(), Vec::new());
}

/// The database ends the connection of a batch: none of its calls is lost, and none takes effect twice. There is one call more
/// than run alone at a time.
pub async fn a_batch_that_loses_its_connection_is_run_call_by_call(bench: Bench) {
    founded(&bench, 10).await;
    let store = &bench.store;
    // The user exists, so that the batch is the only transaction.
    store.change_for_holder(&reserve("before", "t_a", one_engine()), None).await.unwrap().unwrap();
    let blocked = block(&bench).await;
    let first = tokio::spawn(queued(store, reserve("first", "t_a", one_engine()), None).await);
    all_taken(store).await;
    let changes = (0..3).map(|at| reserve(&format!("x{at}"), TENANTS[at], one_engine())).collect();
    let calls = queued_calls(store, changes).await;
    assert_eq!(store.queued_calls(), 3);
    let is_file = store.backend() == Backend::Sqlite;
    let mut ended = Vec::new();
    if !is_file {
        end_waiting_connections(&bench, &mut ended).await;
        // A call that was alone is repeated by its caller.
        assert!(matches!(first.await.unwrap(), Err(Error::Unavailable(_))));
        all_taken(store).await;
        end_waiting_connections(&bench, &mut ended).await;
    }
    blocked.release().await;
    for (at, call) in calls.into_iter().enumerate() {
        assert_eq!(&**call.await.unwrap().unwrap().unwrap().id(), &*format!("x{at}"));
    }
    // With the first one of a file, whose connection was not ended.
    store.change_for_holder(&reserve("first", "t_a", one_engine()), None).await.unwrap().unwrap();
    assert_eq!(held(&bench).await[&pool()], 5);
    assert_eq!(store.audit_ledger(EPOCH).await.unwrap(), Vec::new());
}

/// Ends the connections that wait for a row of a scope, at least one that is not among those that were ended before.
async fn end_waiting_connections(bench: &Bench, ended: &mut Vec<i64>) {
    let (find, end) = match bench.store.backend() {
        Backend::Sqlite => panic!("a file has no connections to end"),
        Backend::Postgres => (
            "SELECT CAST(pid AS BIGINT) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'UPDATE \
             quota_scope SET version%' AND pid IN (SELECT pid FROM pg_locks WHERE relation = \
             'quota_scope'::regclass)",
            "SELECT 1 FROM pg_terminate_backend",
        ),
        Backend::Mariadb => (
            "SELECT CAST(id AS SIGNED) FROM information_schema.processlist WHERE db = DATABASE() AND info LIKE \
             'UPDATE quota_scope SET version%'",
            "KILL",
        ),
    };
    let mut connection = AnyConnection::connect(&bench.settings.url).await.unwrap();
    loop {
        let rows = connection.fetch_all(sqlx::raw_sql(AssertSqlSafe(find))).await.unwrap();
        let mut numbers: Vec<i64> = rows.iter().map(|row| sqlx::Row::get(row, 0)).collect();
        numbers.retain(|number| !ended.contains(number));
        for number in &numbers {
            let text = if end == "KILL" { format!("KILL {number}") } else { format!("{end}({number})") };
            connection.execute(sqlx::raw_sql(AssertSqlSafe(text))).await.unwrap();
        }
        if !numbers.is_empty() {
            ended.extend(numbers);
            return connection.close().await.unwrap();
        }
        sleep(PAUSE).await;
    }
}

pub async fn a_pool_whose_row_is_locked_delays_no_other_pool(bench: Bench) {
    founded(&bench, 10).await;
    second_pool(&bench).await;
    // A file has one writer at a time, whichever pool it writes.
    let blocked = if bench.store.backend() == Backend::Sqlite { None } else { Some(block(&bench).await) };
    let of_user = |user| reserve_of(user);
    let calls = queued_calls(&bench.store, vec![of_user("one"), of_user("two")]).await;
    let other = second_pool_scopes();
    let request = external("other", "other", other.clone(), one_engine());
    let change = ScopedChange { scopes: other, change: Change::Reserve(request) };
    let granted = timeout(Duration::from_secs(20), bench.store.change_for_holder(&change, None)).await.unwrap();
    granted.unwrap().unwrap();
    assert!(blocked.is_none() || !calls[0].is_finished());
    if let Some(blocked) = blocked {
        blocked.release().await;
    }
    for call in calls {
        call.await.unwrap().unwrap().unwrap();
    }
    let held = held(&bench).await;
    assert_eq!(held.iter().filter(|(key, _)| key.kind == ScopeKind::Pool).map(|(_, held)| held).sum::<i64>(), 3);
}

fn reserve_of(name: &str) -> ScopedChange {
    let of = scopes("t_a", None);
    ScopedChange { scopes: of.clone(), change: Change::Reserve(external(name, name, of, one_engine())) }
}
