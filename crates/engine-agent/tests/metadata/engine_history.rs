//! SHOW ENGINE HISTORY: its rows, its scope, and who may see it.

use hs2::Session;
use model::end::{EndClass, EndWord, StartFault};
use model::engine_name::EngineName;
use model::observation::{EndedEngine, EngineFacts};

use crate::agents::{column, run, try_run};
use crate::bench::{Bench, among_others};

async fn started(session: &mut Session) -> String {
    column(&run(session, "START ENGINE t_1 rp_1 uc_1").await, "engine").remove(0)
}

async fn end(bench: &Bench, engine: &str, class: EndClass, reason: &str) {
    let name = EngineName::new(engine).unwrap();
    let served = if reason == "drained" { vec![(name.clone(), 7)] } else { Vec::new() };
    let ended = EndedEngine { name, reason: reason.to_owned(), class: Some(class), log_tail: None };
    bench.master.record(EngineFacts { ended: vec![ended], served, ..EngineFacts::default() }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ended_engines_are_listed_newest_first_with_their_words() {
    let _gate = among_others().await;
    let bench = Bench::new().await;
    let mut admin = bench.objects().await;
    let engines = [started(&mut admin).await, started(&mut admin).await];
    assert!(run(&mut admin, "SHOW ENGINE HISTORY t_1").await.rows.is_empty(), "none has ended");
    let [failed, stopped] = &engines;
    let class = EndClass::of_start(EndWord::Failed, Some(StartFault::OutOfMemory));
    end(&bench, failed, class, "exit code 137: out of memory").await;
    run(&mut admin, &format!("STOP ENGINE rp_1 '{stopped}'")).await;
    end(&bench, stopped, EndClass::of(EndWord::Superseded), "drained").await;
    let shown = run(&mut admin, "SHOW ENGINE HISTORY t_1").await;
    let values = |name: &str| column(&shown, name);
    assert_eq!(values("engine"), [stopped.as_str(), failed.as_str()]);
    assert_eq!(values("word"), ["stopped", "failed"]);
    assert_eq!(values("retryable"), ["NULL", "false"]);
    assert_eq!(values("reason"), ["stopped by \"admin\"", "exit code 137: out of memory"]);
    assert_eq!((values("origin"), values("owner")), (vec!["start".to_owned(); 2], vec!["NULL".to_owned(); 2]));
    assert_eq!((values("pool"), values("unit")), (vec!["rp_1".to_owned(); 2], vec!["uc_1".to_owned(); 2]));
    assert_eq!(values("sessions_served"), ["7", "NULL"], "the agent of the other one was never asked");
    for name in ["wanted", "ended"] {
        assert!(values(name).iter().all(|time| time.len() == 24 && time.ends_with('Z')), "{name}");
    }
    for name in ["reserved", "created", "registered", "charge"] {
        assert_eq!(values(name), ["NULL", "NULL"], "{name}: it was only queued");
    }
    let engines = async |sql: &str| column(&run(&mut bench.session("ann").await, sql).await, "engine");
    assert_eq!(engines("SHOW ENGINE HISTORY t_1 POOL rp_1").await.len(), 2);
    assert_eq!(engines("SHOW ENGINE HISTORY t_1 UNIT rp_1 uc_1 LIMIT 1").await, [stopped.as_str()]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_see_the_history_of_their_tenants() {
    let _gate = among_others().await;
    let bench = Bench::new().await;
    let mut admin = bench.objects().await;
    for (user, sql, sqlstate) in [
        ("bob", "SHOW ENGINE HISTORY t_1", "42501"),
        ("bob", "SHOW ENGINE HISTORY t_9", "42501"),
        ("admin", "SHOW ENGINE HISTORY t_9", "42704"),
        ("admin", "SHOW ENGINE HISTORY t_1 POOL rp_9", "42704"),
        ("admin", "SHOW ENGINE HISTORY t_1 UNIT rp_1 uc_9", "42704"),
    ] {
        let error = try_run(&mut bench.session(user).await, sql).await.unwrap_err();
        assert_eq!(error.sqlstate(), sqlstate, "{user}: {sql}: {error}");
    }
    assert!(run(&mut admin, "SHOW ENGINE HISTORY t_1").await.rows.is_empty());
    assert!(run(&mut bench.session("ann").await, "SHOW ENGINE HISTORY t_1").await.rows.is_empty());
}
