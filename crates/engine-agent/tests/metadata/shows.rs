//! SHOW, DESCRIBE, SHOW CREATE, EXPLAIN.

use std::time::Duration;

use model::engine_state::Phase;
use model::instance::InstanceKind;

use crate::agents::{column, property, ready, run, try_run};
use crate::bench::{Bench, among_others};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn engines_are_listed_from_what_is_wished_and_what_is_seen() {
    let _gate = among_others().await;
    let bench = Bench::new().await;
    let mut admin = bench.objects().await;
    let first = column(&run(&mut admin, "START ENGINE t_1 rp_1 uc_1").await, "engine").remove(0);
    let shown = run(&mut admin, "SHOW ENGINES t_1").await;
    assert_eq!(column(&shown, "state"), ["pending"]);
    assert_eq!(column(&shown, "reason"), ["not observed by the master yet"]);
    assert_eq!(column(&shown, "current"), ["true"]);
    bench.master.seen(ready(&first, "127.0.0.1:7")).await;
    let shown = run(&mut admin, "SHOW ENGINES UNIT t_1 rp_1 uc_1").await;
    assert_eq!(column(&shown, "state"), ["ready"]);
    assert_eq!(column(&shown, "address"), ["127.0.0.1:7"]);
    let counts = ["sessions", "seats", "running"].map(|name| column(&shown, name).remove(0));
    assert_eq!(counts, ["2", "2000", "1"]);
    assert_eq!(column(&shown, "started_at"), ["1970-01-01T00:00:01.000Z"]);
    // Restarted: the old one stands in until the new one is ready.
    let second = column(&run(&mut admin, &format!("RESTART ENGINE rp_1 '{first}'")).await, "engine").remove(0);
    let mut pending = ready(&second, "");
    pending.uid = None;
    (pending.phase, pending.registered, pending.address) = (Phase::Pending, false, None);
    (pending.sessions, pending.running, pending.started_at_ms) = (None, None, None);
    pending.reason = Some("quota exceeded".to_owned());
    bench.master.seen(pending).await;
    let shown = run(&mut admin, "SHOW ENGINES POOL t_1 rp_1").await;
    assert_eq!(column(&shown, "engine"), [second.clone(), first.clone()]);
    assert_eq!(column(&shown, "current"), ["true", "false"]);
    assert_eq!(column(&shown, "origin"), ["start", "start"], "the stand-in is of the same slot");
    assert_eq!(column(&shown, "owner"), ["NULL", "NULL"], "the tenant shares them");
    assert_eq!(column(&shown, "state"), ["pending", "ready"]);
    assert_eq!(column(&shown, "reason")[0], "quota exceeded");
    assert_eq!(try_run(&mut admin, "SHOW ENGINES t_9").await.unwrap_err().sqlstate(), "42704");

    let described = run(&mut admin, &format!("DESC ENGINE rp_1 '{first}'")).await;
    for (name, value) in [
        ("state", "ready"),
        ("tenant", "t_1"),
        ("current", "false"),
        ("origin", "start"),
        ("owner", "tenant \"t_1\""),
        ("address", "127.0.0.1:7"),
        ("node", "node-1"),
        ("phase", "running"),
        ("drains", "false"),
        ("config", "1_1G_1_1G"),
        ("process pid", "4711"),
        ("log file", "/engines/log"),
    ] {
        assert_eq!(property(&described, name), value, "{name}");
    }
    // What the orchestrator knows is for the tenant's users too, but for paths of the machine.
    let mut user = bench.session("ann").await;
    let described = run(&mut user, &format!("DESC ENGINE rp_1 '{first}'")).await;
    assert_eq!(property(&described, "process pid"), "4711");
    assert!(
        !column(&described, "property").iter().any(|property| property == "log file" || property == "directory"),
        "{described:?}"
    );
    let error = try_run(&mut admin, &format!("DESC ENGINE rp_2 '{first}'")).await.unwrap_err();
    assert!(error.hint.unwrap().contains("rp_1"));
}

/// The log of a statement, as clients read it.
async fn log_of(session: &mut hs2::Session, sql: &str) -> Vec<String> {
    let mut statement = session.execute(sql).await.unwrap();
    statement.wait(crate::fixture::WAIT).await.unwrap();
    let lines = statement.logs().await.unwrap();
    statement.close().await.unwrap();
    lines
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_show_reports_the_age_and_the_source_of_observations() {
    let _gate = among_others().await;
    let bench = Bench::new().await;
    let mut admin = bench.objects().await;
    assert_eq!(
        log_of(&mut admin, "SHOW ENGINES t_1").await,
        ["master the test was just elected and has not finished a tick"]
    );
    let engine = column(&run(&mut admin, "START ENGINE t_1 rp_1 uc_1").await, "engine").remove(0);
    bench.master.seen(ready(&engine, "127.0.0.1:7")).await;
    for sql in [
        "SHOW ENGINES t_1",
        "SHOW MASTER",
        "SHOW ALTERATIONS",
        "EXPLAIN DROP TENANT t_1",
        &format!("DESCRIBE ENGINE rp_1 '{engine}'"),
    ] {
        let lines = log_of(&mut admin, sql).await;
        let reported =
            lines.iter().any(|line| line.starts_with("observed ") && line.ends_with(" ago by master the test"));
        assert!(reported, "{sql}: {lines:?}");
    }
    let age = column(&run(&mut admin, "SHOW MASTER").await, "last_tick_age").remove(0);
    assert!(age.ends_with(" ms") || age.ends_with(" s"), "{age}");
    // Host and process of the master are an admin's business.
    let mut user = bench.session("ann").await;
    let lines = log_of(&mut user, "SHOW ENGINES t_1").await;
    assert!(lines.len() == 1 && lines[0].ends_with(" ago by the master"), "{lines:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stale_rows_are_reported_as_stale() {
    let _gate = among_others().await;
    let bench = Bench::with(|settings| settings.tick_interval = Duration::from_millis(1)).await;
    let mut admin = bench.objects().await;
    let engine = column(&run(&mut admin, "START ENGINE t_1 rp_1 uc_1").await, "engine").remove(0);
    bench.master.seen(ready(&engine, "127.0.0.1:7")).await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    let reason = column(&run(&mut admin, "SHOW ENGINES t_1").await, "reason").remove(0);
    assert!(reason.starts_with("stale: the master's last tick was"), "{reason}");
    assert_eq!(column(&run(&mut admin, "SHOW ENGINES t_1").await, "state"), ["unknown"]);
    let lines = log_of(&mut admin, "SHOW ENGINES t_1").await;
    let warning = "warning: what is shown is stale: observed ";
    assert!(lines[0].starts_with(warning) && lines[0].contains("more than 3 tick intervals of 1ms"), "{lines:?}");
    let master = run(&mut admin, "SHOW MASTER").await;
    assert!(column(&master, "state")[0].starts_with("stale"), "{master:?}");
    assert_eq!(column(&master, "epoch"), ["1"]);
    assert_eq!(column(&master, "master"), ["the test"]);
    assert_eq!(column(&master, "lock"), [bench.master.lock.holder()]);
}

/// As after a stop of everything: the rows are of a master that is gone, and so may be the engines.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_ready_before_the_first_tick_of_the_current_master() {
    let _gate = among_others().await;
    let bench = Bench::new().await;
    let mut admin = bench.objects().await;
    let engine = column(&run(&mut admin, "START ENGINE t_1 rp_1 uc_1").await, "engine").remove(0);
    bench.master.seen(ready(&engine, "127.0.0.1:7")).await;
    let describe = format!("DESCRIBE ENGINE rp_1 '{engine}'");
    assert_eq!(column(&run(&mut admin, "SHOW ENGINES t_1").await, "state"), ["ready"]);
    let read = bench.store.master().await.unwrap().epoch;
    // Times are in milliseconds: the next master is elected in a later one.
    tokio::time::sleep(Duration::from_millis(2)).await;
    let epoch = bench.store.raise_epoch(read, "the next master").await.unwrap().epoch;
    let shown = run(&mut admin, "SHOW ENGINES t_1").await;
    assert_eq!(column(&shown, "state"), ["unknown"]);
    let reason = "observed by an earlier master: the current one has not finished a tick";
    assert_eq!(column(&shown, "reason"), [reason]);
    assert_eq!(property(&run(&mut admin, &describe).await, "state"), "unknown");
    assert_eq!(column(&run(&mut admin, "SHOW MASTER").await, "state"), ["acting"]);
    let error = try_run(&mut admin, "CREATE TENANT IF NOT EXISTS t_1 WAIT '300ms'").await.unwrap_err();
    assert!(error.text().contains("was ready; observed by an earlier master"), "{}", error.text());
    tokio::time::sleep(Duration::from_millis(2)).await;
    bench.store.publish(epoch, &model::observation::Publication::default()).await.unwrap();
    assert_eq!(column(&run(&mut admin, "SHOW ENGINES t_1").await, "state"), ["ready"]);
    run(&mut admin, "CREATE TENANT IF NOT EXISTS t_1 WAIT '30s'").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn show_create_makes_the_same_object_again() {
    let _gate = among_others().await;
    let bench = Bench::new().await;
    let mut admin = bench.objects().await;
    let settling = bench.master.keep_settling();
    run(
        &mut admin,
        "CREATE RESOURCE UNIT uc_2 ENGINE_TYPE 'spark', DRIVER_CPU '500m', DRIVER_MEMORY '1536M', EXECUTOR_CPU 2, \
         EXECUTOR_MEMORY '2G', MIN_EXECUTORS 1, MAX_EXECUTORS 4, MAX_ENGINES 3, \
         PROPERTIES ('spark.a'='it''s', 'b'='2'), COMMENT 'a ''comment'''",
    )
    .await;
    run(
        &mut admin,
        "CREATE RESOURCE POOL rp_2 UNIT_LIST ('uc_2'), NAMESPACE 'n-1', NODE_LIST ('a', 'b'), \
         NODE_SELECTOR ('zone'='a', 'example.org/disk'=''), CPU_OVERCOMMIT 250, QUEUE_PREFIX 'it''s.größe', IMAGE 'i:1'",
    )
    .await;
    run(&mut admin, "CREATE TENANT t_2 RESOURCE_POOL_LIST ('rp_2'), USER_LIST ('bob', 'eve')").await;
    let mut prints = Vec::new();
    for object in ["TENANT t_2", "RESOURCE POOL rp_2", "RESOURCE UNIT uc_2"] {
        let print = column(&run(&mut admin, &format!("SHOW CREATE {object}")).await, "statement").remove(0);
        ddl::parse(&print).unwrap();
        prints.push((object, print));
    }
    for (object, _) in &prints {
        run(&mut admin, &format!("DROP {object}")).await;
    }
    for (_, print) in prints.iter().rev() {
        run(&mut admin, print).await;
    }
    for (object, print) in &prints {
        assert_eq!(column(&run(&mut admin, &format!("SHOW CREATE {object}")).await, "statement"), [&**print]);
    }
    run(&mut admin, "ALTER RESOURCE UNIT uc_2 PROPERTIES ('api.token'='open sesame')").await;
    for sql in
        ["SHOW CREATE RESOURCE UNIT uc_2", "DESCRIBE RESOURCE UNIT uc_2", "SHOW RESOURCE UNITS", "SHOW ALTERATIONS"]
    {
        let shown = format!("{:?}", run(&mut admin, sql).await);
        assert!(shown.contains("******") && !shown.contains("open sesame"), "{sql}: {shown}");
    }
    drop(settling);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_are_listed_described_and_looked_up_both_ways() {
    let _gate = among_others().await;
    let bench = Bench::new().await;
    let mut admin = bench.objects().await;
    let _settling = bench.master.keep_settling();
    run(&mut admin, "CREATE RESOURCE UNIT other").await;
    run(&mut admin, "CREATE RESOURCE POOL rp_2 UNIT_LIST ('uc_1', 'other')").await;
    assert_eq!(column(&run(&mut admin, "SHOW RESOURCE UNITS").await, "unit"), ["other", "uc_1"]);
    assert_eq!(column(&run(&mut admin, "SHOW RESOURCE UNITS LIKE 'uc%'").await, "unit"), ["uc_1"]);
    assert_eq!(column(&run(&mut admin, "SHOW RESOURCE UNIT uc_1 FOR POOL").await, "pool"), ["rp_1", "rp_2"]);
    assert_eq!(column(&run(&mut admin, "SHOW RESOURCE POOL rp_1 FOR TENANT").await, "tenant"), ["t_1"]);
    let pool = run(&mut admin, "DESCRIBE RESOURCE POOL rp_2").await;
    assert_eq!((property(&pool, "units"), property(&pool, "nodes")), ("uc_1, other".to_owned(), "any".to_owned()));
    assert_eq!(property(&run(&mut admin, "DESC TENANT t_1").await, "users"), "ann");
    assert_eq!(property(&run(&mut admin, "DESC RESOURCE UNIT uc_1").await, "driver memory"), "1G");
    let error = try_run(&mut admin, "SHOW RESOURCE UNIT uc_9 FOR POOL").await.unwrap_err();
    assert_eq!(error.message, "resource unit \"uc_9\" does not exist");
    let error = try_run(&mut admin, "SHOW RESOURCE POOL rp_1 FRO TENANT").await.unwrap_err();
    assert_eq!(error.sqlstate(), "42601");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_unit_is_described_with_the_charge_of_its_engines() {
    let _gate = among_others().await;
    for (kind, spark) in [
        (InstanceKind::Process, "1.1 CPU, 1664 MiB, 1 engine"),
        (InstanceKind::Pod, "5.1 CPU, 6528 MiB, 1 engine with 2 executors"),
    ] {
        let bench = Bench::with(|settings| settings.rules.defaults.instances = kind).await;
        let mut admin = bench.session("admin").await;
        let _settling = bench.master.keep_settling();
        for (engine_type, charge) in [("datafusion", "1 CPU, 1280 MiB, 1 engine"), ("spark", spark)] {
            let sizes = "DRIVER_CPU 1, DRIVER_MEMORY '1G', EXECUTOR_CPU 2, EXECUTOR_MEMORY '2G', MAX_EXECUTORS 2";
            run(&mut admin, &format!("CREATE RESOURCE UNIT {engine_type} ENGINE_TYPE '{engine_type}', {sizes}")).await;
            let described = run(&mut admin, &format!("DESCRIBE RESOURCE UNIT {engine_type}")).await;
            assert_eq!(property(&described, "charge per engine"), charge);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_lists_every_decision_and_changes_nothing() {
    let _gate = among_others().await;
    let bench = Bench::new().await;
    let mut admin = bench.objects().await;
    let before = bench.store.snapshot().await.unwrap();
    let explained = run(&mut admin, "EXPLAIN ALTER RESOURCE UNIT uc_1 MIN_ENGINES 1").await;
    let decisions = column(&explained, "decision");
    let at = |wanted: &str| {
        decisions.iter().position(|decision| decision == wanted).unwrap_or_else(|| panic!("{wanted}: {decisions:?}"))
    };
    assert!(at("create permit") < at("create engine"), "{decisions:?}");
    let after = bench.store.snapshot().await.unwrap();
    assert_eq!((after.catalog, after.slots), (before.catalog, before.slots));
    let settling = bench.master.keep_settling();
    run(&mut admin, "ALTER RESOURCE UNIT uc_1 MIN_ENGINES 1").await;
    drop(settling);
    let name = bench.store.snapshot().await.unwrap().slots[0].engine().to_string();
    assert_eq!(column(&explained, "engine")[at("create engine")], name, "the name that then comes");
    let error = try_run(&mut admin, "EXPLAIN DROP RESOURCE UNIT uc_1").await.unwrap_err();
    assert_eq!(error.sqlstate(), "2BP01");
}
