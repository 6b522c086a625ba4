//! Reservations: what START, SHOW, DESCRIBE, EXPLAIN and CANCEL report of the ledger, and to whom.

use std::collections::BTreeMap;
use std::sync::Arc;

use hs2::Session;
use model::charge::Charge;
use model::engine_state::Phase;
use model::ledger::{
    Amounts, Change, Claim, Confirmation, End, Holder, LedgerRecord, Request, Reservation, ScopedChange, Scopes, State,
    engine_scopes,
};
use model::name::{PoolName, TenantName};
use model::observation::{EndedEngine, EngineFacts, ObservedEngine, Publication};
use model::resource::Amount;
use model::shared::Shared;
use model::slot::Slot;

use crate::agents::{column, property, ready, run, try_run, try_run_with};
use crate::bench::{Bench, among_others};
use crate::fixture::eventually;

const QUEUED: &str = "queued at position 1: tenant \"t_1\" on resource pool \"rp_1\": asked 1, left 0 of 1 (TENANT_CPU, \
                      retryable)";

/// Tenant `t_1` of ann is guaranteed one CPU of pool `rp_1`; tenant `t_2` of bob has no quota.
async fn partitioned(bench: &Bench) -> Session {
    let mut admin = bench.objects().await;
    let _settling = bench.master.keep_settling();
    for statement in [
        "ALTER RESOURCE UNIT uc_1 MAX_ENGINES 9",
        "CREATE TENANT t_2 RESOURCE_POOL_LIST ('rp_1'), USER_LIST ('bob')",
        "CREATE RESOURCE QUOTA q_1 TENANT t_1, POOL rp_1, GUARANTEE (CPU 1)",
    ] {
        run(&mut admin, statement).await;
    }
    counted(bench, 0).await;
    admin
}

/// Records that the master has counted the engines of the pool, and how many requests wait.
async fn counted(bench: &Bench, queued: i64) {
    let pool = PoolName::new("rp_1").unwrap();
    let record = LedgerRecord::Admission(BTreeMap::from([(pool, queued)]));
    bench.store.record_ledger(bench.master.epoch, &record).await.unwrap();
}

async fn slot_of(bench: &Bench, engine: &str) -> Slot {
    let slots = bench.store.snapshot().await.unwrap().slots;
    slots.into_iter().find(|slot| slot.engine().as_str() == engine).map(Shared::into_inner).unwrap()
}

/// Grants the reservation of an engine as a master does.
pub async fn reserved(bench: &Bench, engine: &str) -> Arc<Reservation> {
    let (slot, catalog) = (slot_of(bench, engine).await, bench.store.catalog().await.unwrap());
    let defaults = &bench.store.rules().defaults;
    let unit = catalog.unit(&slot.key.unit).unwrap();
    let charge = Charge::of_unit(unit, defaults.instances);
    let request = Request::of_engine(&slot.key, slot.incarnation, Some(&slot), &charge, Some(60_000)).unwrap();
    changed(bench, engine_scopes(&slot.key, slot.incarnation, Some(&slot)), Change::Reserve(Arc::new(request))).await
}

async fn changed(bench: &Bench, scopes: Scopes, change: Change) -> Arc<Reservation> {
    let decided = bench.store.ledger(bench.master.epoch, &[ScopedChange { scopes, change }]).await.unwrap();
    decided.into_iter().next().unwrap().unwrap()
}

/// An engine that has no reservation yet.
fn waiting(engine: &str) -> ObservedEngine {
    let mut waiting = ready(engine, "");
    (waiting.uid, waiting.address, waiting.started_at_ms) = (None, None, None);
    (waiting.phase, waiting.registered, waiting.answered) = (Phase::Pending, false, false);
    waiting.reason = Some(QUEUED.to_owned());
    waiting
}

async fn started(session: &mut Session) -> (String, String) {
    let answer = run(session, "START ENGINE t_1 rp_1 uc_1").await;
    (column(&answer, "engine").remove(0), column(&answer, "state").remove(0))
}

/// The log of a statement.
pub async fn log_of(session: &mut Session, sql: &str) -> Vec<String> {
    let mut statement = session.execute(sql).await.unwrap();
    statement.wait(crate::fixture::WAIT).await.unwrap();
    let lines = statement.logs().await.unwrap();
    statement.close().await.unwrap();
    lines
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_wait_of_a_stop_ends_when_its_engine_is_unreachable() {
    let _gate = among_others().await;
    let bench = Bench::new().await;
    let mut admin = partitioned(&bench).await;
    let (engine, _) = started(&mut admin).await;
    let scopes = reserved(&bench, &engine).await.request.scopes.clone();
    let mut lost = ready(&engine, "");
    (lost.registered, lost.reason) = (false, Some("node \"n-1\" has not been ready for 40 s".to_owned()));
    bench.master.seen(lost.clone()).await;
    let mut stopping = admin.execute(&format!("STOP ENGINE rp_1 '{engine}' WAIT '1h'")).await.unwrap();
    eventually("the log", async || {
        stopping.logs().await.unwrap().into_iter().find(|line| line.contains("still terminating"))
    })
    .await;
    // The master ends its charge, although its pod is listed.
    let end = End { id: engine.as_str().into(), state: State::Lost, reason: "its node has failed".into() };
    changed(&bench, scopes, Change::End(end)).await;
    bench.master.seen(lost).await;
    assert_eq!(column(&stopping.collect(crate::fixture::WAIT).await.unwrap(), "state"), ["unreachable"]);
    let log = stopping.logs().await.unwrap().join("\n");
    let warning = format!("warning: engine \"{engine}\" is unreachable, and ends when its node returns: node \"n-1\"");
    assert!(log.contains(&warning), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_wait_of_a_stop_ends_after_the_tick_that_returns_the_charge() {
    let _gate = among_others().await;
    let bench = Bench::new().await;
    let mut admin = partitioned(&bench).await;
    let (engine, _) = started(&mut admin).await;
    let scopes = reserved(&bench, &engine).await.request.scopes.clone();
    let mut ending = ready(&engine, "");
    (ending.registered, ending.phase, ending.reason) = (false, Phase::Terminating, Some("step 0".to_owned()));
    bench.master.seen(ending.clone()).await;
    let mut stopping = admin.execute(&format!("STOP ENGINE rp_1 '{engine}' WAIT '1h'")).await.unwrap();
    let mut logged = async |text: &str| {
        eventually(text, async || stopping.logs().await.unwrap().into_iter().find(|line| line.contains(text))).await;
    };
    logged("still terminating: step 0").await;
    // A tick: it returns the charge, records the end, and publishes what is there now.
    let end = End { id: engine.as_str().into(), state: State::Released, reason: "its engine has ended".into() };
    changed(&bench, scopes, Change::End(end)).await;
    // The row of a part of the report shows that the wait has read the database since.
    ending.reason = Some("step 1".to_owned());
    let part = Publication { engines: vec![ending.clone()], part: true, ..Publication::default() };
    bench.master.report(part).await;
    logged("still terminating: step 1").await;
    let name = model::EngineName::new(&engine).unwrap();
    let ended = EndedEngine { name: name.clone(), reason: "drained".to_owned(), class: None, log_tail: None };
    bench.master.record(EngineFacts { ended: vec![ended], ..EngineFacts::default() }).await;
    logged("has ended, and the usage of its nodes is still published").await;
    ending.phase = Phase::Ended;
    bench.master.report(Publication { engines: vec![ending], ..Publication::default() }).await;
    assert_eq!(column(&stopping.collect(crate::fixture::WAIT).await.unwrap(), "state"), ["gone"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shortage_queues_and_with_nowait_refuses() {
    let _gate = among_others().await;
    let bench = Bench::new().await;
    let mut admin = partitioned(&bench).await;
    let mut ann = bench.session("ann").await;
    let (first, state) = started(&mut ann).await;
    assert_eq!(state, "starting");
    reserved(&bench, &first).await;
    let lines = log_of(&mut ann, "START ENGINE t_1 rp_1 uc_1").await;
    let short = "queued: tenant \"t_1\" on resource pool \"rp_1\": asked 1, left 0 of 1 (TENANT_CPU, retryable)";
    assert!(lines.iter().any(|line| line == short), "{lines:?}");
    let (_, state) = started(&mut ann).await;
    assert_eq!(state, "queued");
    let error = try_run(&mut ann, "START ENGINE t_1 rp_1 uc_1 NOWAIT").await.unwrap_err();
    assert_eq!((error.sqlstate(), error.error_code()), ("53000", 46_021), "{error}");
    assert_eq!(
        error.text(),
        "not enough CPU for an engine of resource unit \"uc_1\"\n\
         Detail: Tenant \"t_1\" on resource pool \"rp_1\": asked 1, left 0 of 1 (TENANT_CPU, retryable).\n\
         Hint: Stop an engine of SHOW ENGINES POOL t_1 rp_1, or ALTER RESOURCE QUOTA q_1 GUARANTEE (CPU 2)."
    );
    {
        let _settling = bench.master.keep_settling();
        run(&mut admin, "ALTER RESOURCE QUOTA q_1 GUARANTEE (CPU 0.5)").await;
    }
    for sql in ["START ENGINE t_1 rp_1 uc_1", "START ENGINE t_1 rp_1 uc_1 NOWAIT WAIT"] {
        let error = try_run(&mut ann, sql).await.unwrap_err();
        assert_eq!((error.sqlstate(), error.error_code()), ("53400", 46_021), "{error}");
        assert!(error.text().contains("asked 1, left -0.5 of 0.5 (TENANT_CPU, not retryable)"), "{error}");
    }
    // A request that fits waits for those that are queued before it.
    counted(&bench, 2).await;
    let error = try_run(&mut admin, "START ENGINE t_2 rp_1 uc_1 NOWAIT").await.unwrap_err();
    assert_eq!(error.sqlstate(), "53000");
    assert!(error.text().contains("2 requests are queued"), "{error}");
    counted(&bench, 0).await;
    let granted = run(&mut admin, "START ENGINE t_2 rp_1 uc_1 NOWAIT").await;
    let engine = column(&granted, "engine").remove(0);
    assert_eq!(bench.store.reservation(&engine).await.unwrap().unwrap().state, State::Locked);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_for_an_engine_that_can_never_fit_ends_at_once() {
    let _gate = among_others().await;
    let bench = Bench::new().await;
    partitioned(&bench).await;
    let mut ann = bench.session("ann").await;
    let mut statement = ann.execute("START ENGINE t_1 rp_1 uc_1 WAIT '1h'").await.unwrap();
    let slot = eventually("the slot", async || bench.store.snapshot().await.unwrap().slots.pop()).await;
    let mut never = waiting(slot.engine().as_str());
    never.reason = Some("cannot start: tenant \"t_1\" on resource pool \"rp_1\": asked 1, left 0 of 0".to_owned());
    bench.master.report(Publication { engines: vec![never], ..Publication::default() }).await;
    let error = statement.wait(crate::fixture::WAIT).await.unwrap_err();
    assert!(error.to_string().contains("cannot start"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reservations_are_shown_with_their_charge_and_their_position() {
    let _gate = among_others().await;
    let bench = Bench::new().await;
    let mut admin = partitioned(&bench).await;
    let mut ann = bench.session("ann").await;
    let overlay = BTreeMap::from([("enginehouse.request.creator".to_owned(), "IDE".to_owned())]);
    let answer = try_run_with(&mut ann, "START ENGINE t_1 rp_1 uc_1", overlay).await.unwrap();
    let first = column(&answer, "engine").remove(0);
    let (second, _) = started(&mut ann).await;
    let granted = reserved(&bench, &first).await;
    bench.master.report(Publication { engines: vec![waiting(&second)], ..Publication::default() }).await;
    counted(&bench, 1).await;

    let shown = run(&mut ann, "SHOW RESERVATIONS").await;
    for (name, expected) in [
        ("id", [&*second, &*first]),
        ("holder", ["engine", "engine"]),
        ("tenant", ["t_1", "t_1"]),
        ("pool", ["rp_1", "rp_1"]),
        ("user", ["ann", "ann"]),
        ("creator", ["default", "IDE"]),
        ("state", ["queued", "locked"]),
        ("charge", ["1 CPU, 1280 MiB, 1 engine"; 2]),
        ("position", ["1", "NULL"]),
        ("reason", [QUEUED, "NULL"]),
    ] {
        assert_eq!(column(&shown, name), expected, "{name}");
    }
    assert_eq!(column(&shown, "deadline")[0], "NULL");
    let described = run(&mut ann, &format!("DESCRIBE ENGINE rp_1 '{second}'")).await;
    for (name, value) in [("reservation", "queued"), ("charge", "1 CPU, 1280 MiB, 1 engine"), ("position", "1")] {
        assert_eq!(property(&described, name), value, "{name}");
    }
    let quotas = run(&mut ann, "SHOW QUOTAS TENANT t_1").await;
    for (name, expected) in [
        ("resource", ["CPU", "MEMORY", "ENGINES"]),
        ("quota", ["q_1"; 3]),
        ("guarantee", ["1", "NULL", "NULL"]),
        ("borrow_limit", ["0", "NULL", "NULL"]),
        ("limit", ["1", "unlimited", "unlimited"]),
        ("locked", ["1", "1280M", "1"]),
        ("used", ["0", "0G", "0"]),
        ("left", ["0", "unlimited", "unlimited"]),
    ] {
        assert_eq!(column(&quotas, name), expected, "{name}");
    }
    let pool = run(&mut admin, "DESCRIBE RESOURCE POOL rp_1").await;
    for (name, value) in
        [("held", "1 CPU, 1280 MiB, 1 engine"), ("left", "unlimited"), ("guaranteed", "1 CPU"), ("queued", "1")]
    {
        assert_eq!(property(&pool, name), value, "{name}");
    }
    let master = run(&mut admin, "SHOW MASTER").await;
    assert_eq!(
        (column(&master, "queued"), column(&master, "reservations")),
        (vec!["1".to_owned()], vec!["1 locked".to_owned()])
    );

    // The engine registers, and drains.
    let scopes = granted.request.scopes.clone();
    let claim = Claim {
        id: Arc::clone(granted.id()),
        user: "ann".to_owned(),
        pool: "rp_1".to_owned(),
        uid: format!("uid-of-{first}"),
    };
    let confirmation = Confirmation { claim, actual: None, lease_ms: None };
    changed(&bench, scopes, Change::Confirm(confirmation)).await;
    let mut draining = ready(&first, "127.0.0.1:7");
    draining.draining = true;
    bench.master.seen(draining).await;
    let shown = run(&mut admin, "SHOW RESERVATIONS USER 'ann' LIMIT 5").await;
    assert_eq!(column(&shown, "state"), ["queued", "used, terminating"]);
    let described = run(&mut ann, &format!("DESCRIBE RESERVATION '{first}'")).await;
    for (name, value) in [
        ("state", "used, terminating"),
        ("uid", &*format!("uid-of-{first}")),
        ("asked", "1 CPU, 1280 MiB, 1 engine"),
        ("charge of the pool", "1 CPU, 1280 MiB, 1 engine"),
        ("unit", "uc_1"),
    ] {
        assert_eq!(property(&described, name), value, "{name}");
    }
    let used = run(&mut ann, "SHOW QUOTAS TENANT t_1").await;
    assert_eq!((column(&used, "locked")[0].as_str(), column(&used, "used")[0].as_str()), ("0", "1"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_see_the_reservations_of_their_tenants_and_their_own() {
    let _gate = among_others().await;
    let bench = Bench::new().await;
    let mut admin = partitioned(&bench).await;
    let (engine, _) = started(&mut admin).await;
    reserved(&bench, &engine).await;
    let external = enqueued(&bench, "bob", "t_2").await;
    let ids = async |user: &str, sql: &str| column(&run(&mut bench.session(user).await, sql).await, "id");
    let mut all = ids("admin", "SHOW RESERVATIONS").await;
    all.sort();
    let mut expected = [engine.clone(), external.clone()];
    expected.sort();
    assert_eq!(all, expected);
    assert_eq!(ids("ann", "SHOW RESERVATIONS").await, [&*engine], "started by another user, for the tenant");
    assert_eq!(ids("bob", "SHOW RESERVATIONS").await, [&*external]);
    assert_eq!(ids("bob", "SHOW RESERVATIONS POOL rp_1").await, [&*external], "the pool is shared");
    assert!(ids("eve", "SHOW RESERVATIONS ALL").await.is_empty());
    let mut eve = bench.session("eve").await;
    for sql in ["SHOW RESERVATIONS TENANT t_1", "SHOW RESERVATIONS POOL rp_1", "SHOW RESERVATIONS USER 'ann'"] {
        assert_eq!(try_run(&mut eve, sql).await.unwrap_err().sqlstate(), "42501", "{sql}");
    }
    // The same text whether it exists or not.
    for verb in ["DESCRIBE", "CANCEL"] {
        let error = async |session: &mut Session, id: &str| {
            try_run(session, &format!("{verb} RESERVATION '{id}'")).await.unwrap_err()
        };
        let (there, absent) = (error(&mut eve, &engine).await, error(&mut eve, "nothing").await);
        assert_eq!(there.text().replace(&engine, "nothing"), absent.text());
        assert_eq!((there.sqlstate(), absent.sqlstate()), ("42501", "42501"));
        assert_eq!(error(&mut admin, "nothing").await.sqlstate(), "42704");
    }
}

/// A request of a program that waits; returns its id.
async fn enqueued(bench: &Bench, user: &str, tenant: &str) -> String {
    let (tenant, pool) = (TenantName::new(tenant).unwrap(), PoolName::new("rp_1").unwrap());
    let id = format!("external-of-{user}");
    let request = Request {
        id: id.as_str().into(),
        holder: Holder::External { key: format!("{user}/1").into(), instance: "batch".into() },
        lineage: id.as_str().into(),
        scopes: Scopes::new(&tenant, &pool, Some(user), Some("default")),
        amounts: Amounts::same(Amount { cpu_m: 500, memory: 1 << 30, engines: 0 }).unwrap(),
        asked: None,
        ttl_ms: Some(60_000),
    };
    bench.store.enqueue(&Arc::new(request), 60_000).await.unwrap().unwrap();
    id
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_external_reservations_are_cancelled_and_only_by_their_user_or_an_admin() {
    let _gate = among_others().await;
    let bench = Bench::new().await;
    let mut admin = partitioned(&bench).await;
    let mut ann = bench.session("ann").await;
    let (engine, _) = started(&mut ann).await;
    reserved(&bench, &engine).await;
    for session in [&mut ann, &mut admin] {
        let error = try_run(session, &format!("CANCEL RESERVATION '{engine}'")).await.unwrap_err();
        assert_eq!(error.sqlstate(), "55000");
        assert_eq!(error.hint.as_deref(), Some(&*format!("Use STOP ENGINE rp_1 '{engine}'.")));
    }
    let external = enqueued(&bench, "bob", "t_2").await;
    let cancel = format!("CANCEL RESERVATION '{external}'");
    assert_eq!(try_run(&mut ann, &cancel).await.unwrap_err().sqlstate(), "42501");
    let mut bob = bench.session("bob").await;
    for _ in 0..2 {
        assert_eq!(column(&run(&mut bob, &cancel).await, "state"), ["cancelled"], "a repeat changes nothing");
    }
    assert!(column(&run(&mut bob, "SHOW RESERVATIONS").await, "id").is_empty());
    assert_eq!(column(&run(&mut bob, "SHOW RESERVATIONS ALL").await, "state"), ["cancelled"]);
    let audited = run(&mut admin, "SHOW AUDIT LIMIT 9").await;
    let rows: Vec<(String, String)> =
        column(&audited, "statement").into_iter().zip(column(&audited, "outcome")).collect();
    let of_cancel = |outcome: &str| rows.iter().filter(|row| **row == (cancel.clone(), outcome.to_owned())).count();
    assert_eq!((of_cancel("committed"), of_cancel("refused")), (1, 1), "{rows:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_explained_start_compares_what_it_asks_with_what_is_left() {
    let _gate = among_others().await;
    let bench = Bench::new().await;
    let mut admin = partitioned(&bench).await;
    let mut ann = bench.session("ann").await;
    let explain = "EXPLAIN START ENGINE t_1 rp_1 uc_1";
    let scope = "tenant \"t_1\" on resource pool \"rp_1\"";
    let shown = run(&mut ann, explain).await;
    let row = |table: &hs2::session::Table| {
        let at = column(table, "scope").iter().position(|of| of == scope).unwrap();
        ["resource", "asked", "left", "limit", "verdict"].map(|name| column(table, name)[at].clone())
    };
    assert_eq!(row(&shown), ["CPU", "1", "1", "1", "fits"]);
    assert!(column(&shown, "decision").iter().any(|decision| decision == "create engine"), "{shown:?}");
    let (engine, _) = started(&mut ann).await;
    reserved(&bench, &engine).await;
    let shown = run(&mut ann, explain).await;
    assert_eq!(row(&shown), ["CPU", "1", "0", "1", "queued"]);
    // A replacement of the same size asks the tenant for nothing.
    let shown = run(&mut ann, &format!("EXPLAIN RESTART ENGINE rp_1 '{engine}'")).await;
    assert_eq!(row(&shown), ["CPU", "0", "0", "1", "fits"]);
    // Where nothing is limited there is nothing to compare.
    let shown = run(&mut admin, "EXPLAIN START ENGINE t_2 rp_1 uc_1").await;
    assert!(column(&shown, "scope").iter().all(|scope| scope == "NULL"), "{shown:?}");
    let slots = bench.store.snapshot().await.unwrap().slots.len();
    assert_eq!(slots, 1, "EXPLAIN changes nothing");
    for sql in ["EXPLAIN START ENGINE t_2 rp_1 uc_1", "EXPLAIN START ENGINE t_9 rp_1 uc_1"] {
        assert_eq!(try_run(&mut ann, sql).await.unwrap_err().sqlstate(), "42501", "{sql}");
    }
    assert_eq!(try_run(&mut admin, "EXPLAIN START ENGINE t_1 rp_9 uc_1").await.unwrap_err().sqlstate(), "42704");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_for_an_object_skips_an_engine_whose_charge_has_ended_before_it() {
    let _gate = among_others().await;
    let bench = Bench::new().await;
    let mut admin = bench.objects().await;
    let (engine, _) = started(&mut admin).await;
    let reservation = reserved(&bench, &engine).await;
    bench.master.seen(ready(&engine, "127.0.0.1:1")).await;
    let _settling = bench.master.keep_settling();
    let error = try_run(&mut admin, "DROP TENANT t_1 WAIT '300ms'").await.unwrap_err();
    assert_eq!(error.sqlstate(), "HYT00");
    assert!(error.text().contains("still terminating"), "{}", error.text());
    // Its machine has failed.
    let end = End { id: reservation.id().clone(), state: State::Lost, reason: "its node is not ready".into() };
    changed(&bench, reservation.request.scopes.clone(), Change::End(end)).await;
    bench.master.seen(ready(&engine, "127.0.0.1:1")).await;
    try_run(&mut admin, "DROP TENANT IF EXISTS t_1 WAIT '300ms'").await.unwrap();
}
