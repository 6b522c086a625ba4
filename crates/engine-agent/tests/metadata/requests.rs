//! START, STOP and RESTART: their answers, their limits, their repeats, WAIT.

use model::engine_state::Phase;
use model::observation::{EndedEngine, EngineFacts, Publication};
use model::slot::Replacement;

use crate::agents::{column, ready, run, try_run, try_run_as};
use crate::bench::{Bench, among_others};
use crate::fixture::eventually;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn start_takes_effect_once_for_each_id() {
    let _gate = among_others().await;
    let bench = Bench::new().await;
    let mut admin = bench.objects().await;
    let first = try_run_as(&mut admin, "START ENGINE t_1 rp_1 uc_1", "start", 30_000).await.unwrap();
    let again = try_run_as(&mut admin, "START ENGINE t_1 rp_1 uc_1", "start", 30_000).await.unwrap();
    assert_eq!(first, again);
    assert_eq!(column(&first, "state"), ["starting"]);
    let slots = bench.store.snapshot().await.unwrap().slots;
    assert_eq!(slots.len(), 1);
    assert_eq!(column(&first, "engine"), [slots[0].engine().to_string()]);
    run(&mut admin, "START ENGINE t_1 rp_1 uc_1").await;
    let error = try_run(&mut admin, "START ENGINE t_1 rp_1 uc_1").await.unwrap_err();
    assert_eq!(error.sqlstate(), "53400");
    assert!(error.text().contains("MAX_ENGINES is 2"), "{}", error.text());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn start_names_the_missing_link() {
    let _gate = among_others().await;
    let bench = Bench::new().await;
    let mut admin = bench.objects().await;
    bench.unused_pool(&mut admin).await;
    for (sql, message) in [
        ("START ENGINE t_9 rp_1 uc_1", "tenant \"t_9\" does not exist"),
        ("START ENGINE t_1 rp_9 uc_1", "resource pool \"rp_9\" does not exist"),
        ("START ENGINE t_1 rp_1 uc_9", "resource unit \"uc_9\" does not exist"),
        ("START ENGINE t_1 rp_2 uc_2", "tenant \"t_1\" does not use resource pool \"rp_2\""),
        ("START ENGINE t_1 rp_1 uc_2", "resource pool \"rp_1\" does not offer unit \"uc_2\""),
    ] {
        assert_eq!(try_run(&mut admin, sql).await.unwrap_err().message, message);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restart_and_stop_know_older_names() {
    let _gate = among_others().await;
    let bench = Bench::new().await;
    let mut admin = bench.objects().await;
    let old = column(&run(&mut admin, "START ENGINE t_1 rp_1 uc_1").await, "engine").remove(0);
    let restarted = run(&mut admin, &format!("RESTART ENGINE rp_1 '{old}' WITHIN '10m'")).await;
    let new = column(&restarted, "engine").remove(0);
    assert_ne!(old, new);
    assert_eq!(column(&restarted, "state"), ["restarting"]);
    let again = run(&mut admin, &format!("RESTART ENGINE rp_1 '{old}'")).await;
    assert_eq!(column(&again, "engine"), [&*new], "it answers with the one in progress");
    let error = try_run(&mut admin, &format!("STOP ENGINE rp_1 '{old}'")).await.unwrap_err();
    assert!(error.hint.unwrap().contains(&new));
    let stopped = run(&mut admin, &format!("STOP ENGINE rp_1 '{new}' FORCE")).await;
    assert_eq!(column(&stopped, "state"), ["stopping"]);
    for verb in ["STOP", "RESTART"] {
        let answer = run(&mut admin, &format!("{verb} ENGINE rp_1 '{new}'")).await;
        assert_eq!(column(&answer, "state"), ["no longer wanted"]);
    }
    let error = try_run(&mut admin, "STOP ENGINE rp_1 'nothing-of-that-name'").await.unwrap_err();
    assert_eq!(error.sqlstate(), "42704");
    let error = try_run(&mut admin, &format!("STOP ENGINE rp_1 '{new}' WITHIN '25h'")).await.unwrap_err();
    assert_eq!(error.sqlstate(), "22023");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stop_is_refused_below_min_engines() {
    let _gate = among_others().await;
    let bench = Bench::new().await;
    let mut admin = bench.objects().await;
    {
        let _settling = bench.master.keep_settling();
        run(&mut admin, "ALTER RESOURCE UNIT uc_1 MIN_ENGINES 1").await;
    }
    let engine = bench.store.snapshot().await.unwrap().slots[0].engine();
    let error = try_run(&mut admin, &format!("STOP ENGINE rp_1 '{engine}'")).await.unwrap_err();
    assert_eq!(error.sqlstate(), "53400");
    assert!(error.text().contains("MIN_ENGINES") && error.hint.is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wait_logs_its_progress_until_the_engine_is_ready() {
    let _gate = among_others().await;
    let bench = Bench::new().await;
    let mut admin = bench.objects().await;
    let mut statement = admin.execute("START ENGINE t_1 rp_1 uc_1 WAIT '30s'").await.unwrap();
    let slot = eventually("the slot", async || bench.store.snapshot().await.unwrap().slots.pop()).await;
    let engine = slot.engine().to_string();
    let mut starting = ready(&engine, "127.0.0.1:1");
    (starting.registered, starting.phase, starting.reason) =
        (false, Phase::Starting, Some("pulling the image".to_owned()));
    bench.master.seen(starting).await;
    eventually("the log", async || {
        statement.logs().await.unwrap().into_iter().find(|line| line.contains("pulling the image"))
    })
    .await;
    bench.master.seen(ready(&engine, "127.0.0.1:1")).await;
    let answer = statement.collect(crate::fixture::WAIT).await.unwrap();
    assert_eq!(column(&answer, "state"), ["ready"]);
    statement.close().await.unwrap();

    let mut stopping = admin.execute(&format!("STOP ENGINE rp_1 '{engine}' WAIT '30s'")).await.unwrap();
    eventually("the log", async || {
        stopping.logs().await.unwrap().into_iter().find(|line| line.contains("still terminating"))
    })
    .await;
    let name = slot.engine();
    let ended = EndedEngine { name: name.clone(), reason: "drained".to_owned(), class: None, log_tail: None };
    bench.master.record(EngineFacts { ended: vec![ended], ..EngineFacts::default() }).await;
    bench.master.report(Publication { gone: vec![name], ..Publication::default() }).await;
    assert_eq!(column(&stopping.collect(crate::fixture::WAIT).await.unwrap(), "state"), ["gone"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_that_times_out_reports_why_and_the_statement_stands() {
    let _gate = among_others().await;
    let bench = Bench::new().await;
    let mut admin = bench.objects().await;
    let error = try_run(&mut admin, "START ENGINE t_1 rp_1 uc_1 WAIT '300ms'").await.unwrap_err();
    assert_eq!(error.sqlstate(), "HYT00");
    assert!(error.text().contains("not observed by the master yet"), "{}", error.text());
    assert_eq!(bench.store.snapshot().await.unwrap().slots.len(), 1);
    // A statement that changes nothing waits for the same engines, and for none where there are none.
    let error = try_run(&mut admin, "CREATE TENANT IF NOT EXISTS t_1 WAIT '300ms'").await.unwrap_err();
    assert_eq!(error.sqlstate(), "HYT00");
    let answer = try_run(&mut admin, "DROP TENANT IF EXISTS t_9 WAIT '300ms'").await.unwrap();
    assert_eq!(column(&answer, "state"), ["tenant \"t_9\" does not exist, nothing was changed"]);
    // Cancelling ends the wait and nothing else.
    let mut statement = admin.execute("START ENGINE t_1 rp_1 uc_1 WAIT").await.unwrap();
    eventually("the slot", async || (bench.store.snapshot().await.unwrap().slots.len() == 2).then_some(())).await;
    statement.cancel().await.unwrap();
    assert!(statement.wait(crate::fixture::WAIT).await.is_err());
    assert_eq!(bench.store.snapshot().await.unwrap().slots.len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_in_place_condemns_nothing_and_logs_what_follows() {
    let _gate = among_others().await;
    let bench = Bench::new().await;
    let mut admin = bench.objects().await;
    let old = column(&run(&mut admin, "START ENGINE t_1 rp_1 uc_1").await, "engine").remove(0);
    let restart = format!("RESTART ENGINE rp_1 '{old}' IN PLACE WITHIN '10m'");
    let logged = async |admin: &mut hs2::Session, sql: &str| {
        let mut statement = admin.execute(sql).await.unwrap();
        let answer = statement.collect(crate::fixture::WAIT).await.unwrap();
        let log = statement.logs().await.unwrap().join("\n");
        statement.close().await.unwrap();
        (column(&answer, "engine").remove(0), column(&answer, "state").remove(0), log)
    };
    let (new, state, log) = logged(&mut admin, &restart).await;
    assert_eq!(state, "restarting");
    let line = format!("engine \"{new}\" starts when engine \"{old}\" is gone, which ends in its turn");
    assert!(log.contains(&line), "{log}");
    let snapshot = bench.store.snapshot().await.unwrap();
    assert_eq!((snapshot.slots[0].engine().as_str(), snapshot.slots[0].replacement), (&*new, Replacement::InPlace));
    let older = snapshot.engines.iter().find(|engine| engine.name.as_str() == old).unwrap();
    assert_eq!((older.end_grace_ms, older.end_reason.as_deref()), (Some(600_000), None));

    let described = async |admin: &mut hs2::Session, engine: &str| {
        let rows = run(admin, &format!("DESCRIBE ENGINE rp_1 '{engine}'")).await;
        let at = column(&rows, "property").iter().position(|property| property == "replacement")?;
        Some(column(&rows, "value")[at].clone())
    };
    assert_eq!(described(&mut admin, &new).await.as_deref(), Some("in place"));
    assert_eq!(described(&mut admin, &old).await, None);

    // How it is replaced is changed under the new name only.
    for sql in [restart, format!("RESTART ENGINE rp_1 '{old}' FORCE")] {
        let (engine, state, log) = logged(&mut admin, &sql).await;
        assert_eq!((engine, state.as_str()), (new.clone(), "restarting"));
        assert!(log.contains(&format!("restart engine \"{new}\"")), "{log}");
    }
    let (newest, _, log) = logged(&mut admin, &format!("RESTART ENGINE rp_1 '{new}' FORCE")).await;
    assert!(!log.contains("starts when"), "{log}");
    assert_eq!(described(&mut admin, &newest).await.as_deref(), Some("with FORCE"));
}
