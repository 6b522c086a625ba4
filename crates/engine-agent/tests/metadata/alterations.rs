//! The write path of an alteration: the node, the wait, the settling, the repeats.

use std::time::Duration;

use coordination::alter_node;
use engine_agent::metadata::failpoints;
use model::alteration::{Abort, AlterationProgress, ObjectKind, ObjectRef, Outcome, Source};
use model::change::Object;
use model::number::Generation;
use model::slot::Replacement;

use crate::agents::{column, id, run, try_run, try_run_as, try_run_with};
use crate::bench::{Bench, Stop, alone, among_others};
use crate::fixture::{eventually, within};

const SOON_MS: u64 = 30_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_alter_node_precedes_the_commit_and_has_no_secret() {
    let _alone = alone().await;
    let bench = Bench::new().await;
    let mut admin = bench.objects().await;
    {
        let _settling = bench.master.keep_settling();
        run(&mut admin, "ALTER RESOURCE UNIT uc_1 PROPERTIES ('a'='1', 'my.password'='hunter2')").await;
        bench.settled().await;
    }
    let before = bench.store.catalog().await.unwrap();
    let stop = Stop::at(failpoints::ALTER_NODE_MADE);
    let saying = tokio::spawn(async move {
        let sql = "ALTER RESOURCE UNIT uc_1 DRIVER_MEMORY '2G', PROPERTIES ('my.password'='swordfish')";
        let outcome = try_run_as(&mut admin, sql, "alter-1", SOON_MS).await;
        (admin, outcome)
    });
    let session = bench.master.lock.session();
    let node = eventually("the node", async || alter_node::read(session).await.unwrap()).await;
    let alteration = node.content.unwrap();
    assert_eq!((alteration.id.as_str(), alteration.by.as_str()), ("alter-1", "admin"));
    let text = serde_json::to_string(&alteration).unwrap();
    assert!(!text.contains("hunter2") && !text.contains("swordfish") && text.contains("******"), "{text}");
    let Some(Object::ResourceUnit { spec, .. }) = alteration.old else { panic!("the old object is missing: {text}") };
    assert_eq!((spec.driver_memory.to_string().as_str(), spec.properties["a"].as_str()), ("1G", "1"));
    assert_eq!(node.children[0].id.as_str(), "alter-1");
    assert_eq!(bench.store.outcome(&id("alter-1")).await.unwrap(), None, "the database comes after the node");
    assert_eq!(bench.store.catalog().await.unwrap(), before);

    // It is undecided meanwhile, and SHOW says so.
    let mut other = bench.session("admin").await;
    let shown = run(&mut other, "SHOW ALTERATIONS").await;
    assert_eq!(column(&shown, "id")[0], "alter-1");
    assert_eq!(column(&shown, "outcome")[0], "undecided");
    assert!(!column(&shown, "waits_for")[0].is_empty());

    drop(stop);
    let (mut admin, outcome) = within("the statement", saying).await.unwrap();
    assert_eq!(column(&outcome.unwrap(), "state"), ["committed, converging"]);
    let spec = bench.store.catalog().await.unwrap().units.into_values().next().unwrap().spec;
    assert_eq!((spec.driver_memory.to_string().as_str(), spec.properties["my.password"].as_str()), ("2G", "swordfish"));
    let shown = run(&mut admin, "SHOW ALTERATIONS LIMIT 1").await;
    assert_eq!(column(&shown, "progress"), ["converging"]);
    assert!(column(&shown, "statement")[0].contains("******"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_commit_after_another_abort_is_refused() {
    let _alone = alone().await;
    let bench = Bench::new().await;
    let mut admin = bench.objects().await;
    let before = bench.store.catalog().await.unwrap().units;
    let stop = Stop::at(failpoints::ALTER_NODE_MADE);
    let saying = tokio::spawn(async move {
        let entries = [("enginehouse.request.id", "alter-1"), ("enginehouse.request.client", "192.0.2.7")];
        let overlay = entries.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        try_run_with(&mut admin, "ALTER RESOURCE UNIT uc_1 DRIVER_MEMORY '2G'", overlay).await
    });
    let node = eventually("the node", async || alter_node::read(bench.master.lock.session()).await.unwrap()).await;
    let source = node.content.unwrap().source;
    assert_eq!(source.client.as_deref(), Some("192.0.2.7"), "for a master that aborts it");
    let abort = Abort {
        id: id("alter-1"),
        object: Some(ObjectRef { kind: ObjectKind::ResourceUnit, name: "uc_1".to_owned() }),
        base_generation: Generation(0),
        statement: String::new(),
        requested_by: "admin".to_owned(),
        source: Source::default(),
        requested_at_ms: 0,
        decided_by: "master 1".to_owned(),
        reason: "its agent is silent".to_owned(),
    };
    assert_eq!(bench.store.abort(&abort).await.unwrap().outcome, Outcome::Aborted);
    drop(stop);
    let error = within("the statement", saying).await.unwrap().unwrap_err();
    assert_eq!(error.sqlstate(), "40001");
    assert!(error.text().contains("its agent is silent"), "{}", error.text());
    assert_eq!(bench.store.catalog().await.unwrap().units, before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_alteration_waits_and_names_the_first_when_refused() {
    let _gate = among_others().await;
    let bench = Bench::with(|settings| settings.alter_wait = Duration::from_millis(300)).await;
    let mut admin = bench.objects().await;
    run(&mut admin, "ALTER RESOURCE UNIT uc_1 DRIVER_MEMORY '2G'").await;
    let error =
        try_run_as(&mut admin, "ALTER RESOURCE UNIT uc_1 DRIVER_MEMORY '3G'", "second", SOON_MS).await.unwrap_err();
    assert_eq!(error.sqlstate(), "55P03");
    let text = error.text();
    for part in ["resource unit \"uc_1\"", "\"admin\"", "requested at 20", "Waited 300ms"] {
        assert!(text.contains(part), "{part} is missing: {text}");
    }
    let record = bench.store.outcome(&id("second")).await.unwrap().unwrap();
    assert_eq!(record.outcome, Outcome::Aborted, "nothing changed is reported only after the abort");
    let spec = bench.store.catalog().await.unwrap().units.into_values().next().unwrap().spec;
    assert_eq!(spec.driver_memory.to_string(), "2G");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_alteration_follows_as_soon_as_the_first_has_converged() {
    let _gate = among_others().await;
    let bench = Bench::new().await;
    let mut admin = bench.objects().await;
    run(&mut admin, "ALTER RESOURCE UNIT uc_1 DRIVER_MEMORY '2G'").await;
    let mut other = bench.session("admin").await;
    let mut second = other.execute("ALTER RESOURCE UNIT uc_1 DRIVER_MEMORY '3G'").await.unwrap();
    let waits = eventually("the log", async || second.logs().await.unwrap().into_iter().next()).await;
    assert!(waits.starts_with("waiting for the alteration of resource unit \"uc_1\" by \"admin\""), "{waits}");
    assert!(bench.master.settle().await);
    second.collect(crate::fixture::WAIT).await.unwrap();
    let spec = bench.store.catalog().await.unwrap().units.into_values().next().unwrap().spec;
    assert_eq!(spec.driver_memory.to_string(), "3G");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_wait_changes_nothing_for_good() {
    let _gate = among_others().await;
    let bench = Bench::new().await;
    let mut admin = bench.objects().await;
    run(&mut admin, "ALTER RESOURCE UNIT uc_1 DRIVER_MEMORY '2G'").await;
    let mut other = bench.session("admin").await;
    let mut second = other.execute("ALTER RESOURCE UNIT uc_1 DRIVER_MEMORY '3G'").await.unwrap();
    eventually("the log", async || second.logs().await.unwrap().into_iter().next()).await;
    second.cancel().await.unwrap();
    let error = second.wait(crate::fixture::WAIT).await.unwrap_err();
    assert!(matches!(&error, hs2::ClientError::Refused(error) if error.sqlstate() == "57014"), "{error}");
    // The first one still converges, and is listed before what is decided.
    let records = bench.store.alterations(10).await.unwrap();
    let second = records.iter().find(|record| record.statement.contains("3G")).unwrap();
    assert_eq!(second.outcome, Outcome::Aborted);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_early_refusal_aborts_its_id_for_repeats_too() {
    let _gate = among_others().await;
    let bench = Bench::new().await;
    let mut admin = bench.objects().await;
    let sql = "ALTER RESOURCE UNIT uc_9 DRIVER_MEMORY '2G'";
    let error = try_run_as(&mut admin, sql, "early", SOON_MS).await.unwrap_err();
    assert_eq!((error.sqlstate(), error.message.as_str()), ("42704", "resource unit \"uc_9\" does not exist"));
    let record = bench.store.outcome(&id("early")).await.unwrap().unwrap();
    assert_eq!(record.outcome, Outcome::Aborted);
    let _settling = bench.master.keep_settling();
    run(&mut admin, "CREATE RESOURCE UNIT uc_9").await;
    let error = try_run_as(&mut admin, sql, "early", SOON_MS).await.unwrap_err();
    assert_eq!(error.sqlstate(), "40001", "the reported outcome stays: {}", error.text());
    let unit = bench.store.catalog().await.unwrap().units.into_iter().find(|(name, _)| name.as_str() == "uc_9");
    assert_eq!(unit.unwrap().1.spec.driver_memory.to_string(), "1G");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeat_under_the_same_id_answers_what_the_first_one_did() {
    let _gate = among_others().await;
    let bench = Bench::new().await;
    let mut admin = bench.objects().await;
    let _settling = bench.master.keep_settling();
    let sql = "ALTER RESOURCE UNIT uc_1 DRIVER_MEMORY '2G'";
    let first = try_run_as(&mut admin, sql, "one", SOON_MS).await.unwrap();
    run(&mut admin, "ALTER RESOURCE UNIT uc_1 DRIVER_MEMORY '3G'").await;
    let second = try_run_as(&mut admin, sql, "one", SOON_MS).await.unwrap();
    assert_eq!(column(&first, "alteration"), column(&second, "alteration"));
    assert!(column(&second, "state")[0].starts_with("committed"));
    let spec = bench.store.catalog().await.unwrap().units.into_values().next().unwrap().spec;
    assert_eq!(spec.driver_memory.to_string(), "3G", "a late repeat takes no effect");
    // An id stands for one statement.
    let error = try_run_as(&mut admin, "DROP TENANT t_1", "one", SOON_MS).await.unwrap_err();
    assert_eq!(error.sqlstate(), "22023", "{}", error.text());
    assert_eq!(bench.store.catalog().await.unwrap().tenants.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeat_with_another_secret_is_refused() {
    let _gate = among_others().await;
    let bench = Bench::new().await;
    let mut admin = bench.objects().await;
    let _settling = bench.master.keep_settling();
    let sql = |secret: &str| format!("ALTER RESOURCE UNIT uc_1 PROPERTIES ('my.password'='{secret}', 'a'='1')");
    let stored = async || bench.store.catalog().await.unwrap().units.into_values().next().unwrap().spec.properties;
    try_run_as(&mut admin, &sql("hunter2"), "one", SOON_MS).await.unwrap();
    let again = try_run_as(&mut admin, &sql("hunter2"), "one", SOON_MS).await.unwrap();
    assert_eq!(column(&again, "alteration"), ["one"]);
    for other in [sql("swordfish"), sql("hunter2").replace("'1'", "'2'")] {
        let error = try_run_as(&mut admin, &other, "one", SOON_MS).await.unwrap_err();
        assert_eq!(error.sqlstate(), "22023", "{}", error.text());
        assert!(!error.text().contains("swordfish") && !error.text().contains("hunter2"), "{}", error.text());
    }
    assert_eq!(stored().await["my.password"], "hunter2");
    try_run_as(&mut admin, &sql("swordfish"), "two", SOON_MS).await.unwrap();
    assert_eq!(stored().await["my.password"], "swordfish");
    // A late repeat of the first statement is still one: what it had set is not there to be compared with.
    let late = try_run_as(&mut admin, &sql("hunter2"), "one", SOON_MS).await.unwrap();
    assert_eq!(column(&late, "alteration"), ["one"]);
    assert_eq!(stored().await["my.password"], "swordfish", "a late repeat takes no effect");
    // The same for CREATE.
    let create = |secret: &str| format!("CREATE RESOURCE UNIT uc_8 PROPERTIES ('my.password'='{secret}')");
    try_run_as(&mut admin, &create("hunter2"), "three", SOON_MS).await.unwrap();
    try_run_as(&mut admin, &create("hunter2"), "three", SOON_MS).await.unwrap();
    let error = try_run_as(&mut admin, &create("swordfish"), "three", SOON_MS).await.unwrap_err();
    assert_eq!(error.sqlstate(), "22023", "{}", error.text());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn if_exists_notes_that_nothing_was_done_also_to_a_repeat() {
    let _gate = among_others().await;
    let bench = Bench::new().await;
    let mut admin = bench.objects().await;
    let cases = [
        ("CREATE TENANT IF NOT EXISTS t_1 USER_LIST ('eve')", "tenant \"t_1\" exists already"),
        ("DROP RESOURCE POOL IF EXISTS rp_9", "resource pool \"rp_9\" does not exist"),
        ("ALTER RESOURCE UNIT IF EXISTS uc_9 MAX_ENGINES 3", "resource unit \"uc_9\" does not exist"),
    ];
    for (at, (sql, note)) in cases.into_iter().enumerate() {
        for _ in 0..2 {
            let answer = try_run_as(&mut admin, sql, &format!("note-{at}"), SOON_MS).await.unwrap();
            let state = column(&answer, "state").remove(0);
            assert!(state.starts_with(note), "{sql}: {state}");
        }
        let record = bench.store.outcome(&id(&format!("note-{at}"))).await.unwrap().unwrap();
        assert_eq!(record.progress, Some(AlterationProgress::Converged));
        let node = alter_node::read(bench.master.lock.session()).await.unwrap();
        assert!(node.is_none(), "what changes nothing needs no node");
    }
    let error = try_run(&mut admin, "CREATE TENANT t_1").await.unwrap_err();
    assert_eq!(error.sqlstate(), "42710");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_that_comes_after_its_deadline_is_refused() {
    let _gate = among_others().await;
    let bench = Bench::new().await;
    let mut admin = bench.objects().await;
    let error = try_run_as(&mut admin, "ALTER RESOURCE UNIT uc_1 MAX_ENGINES 7", "late", 0).await.unwrap_err();
    assert_eq!(error.sqlstate(), "HYT00", "{}", error.text());
    assert_eq!(bench.store.outcome(&id("late")).await.unwrap().unwrap().outcome, Outcome::Aborted);
    let error = try_run_as(&mut admin, "START ENGINE t_1 rp_1 uc_1", "late-start", 0).await.unwrap_err();
    assert_eq!(error.sqlstate(), "HYT00", "{}", error.text());
    assert_eq!(bench.store.snapshot().await.unwrap().slots.len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_others_depend_on_is_not_dropped() {
    let _gate = among_others().await;
    let bench = Bench::new().await;
    let mut admin = bench.objects().await;
    for (sql, by) in [("DROP RESOURCE UNIT uc_1", "rp_1"), ("DROP RESOURCE POOL rp_1", "t_1")] {
        let error = try_run(&mut admin, sql).await.unwrap_err();
        assert_eq!(error.sqlstate(), "2BP01");
        assert!(error.text().contains(by), "{}", error.text());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_statement_with_a_null_character_leaves_nothing_behind() {
    let _among = among_others().await;
    let bench = Bench::new().await;
    let mut admin = bench.objects().await;
    let before = run(&mut admin, "SHOW ALTERATIONS").await.rows.len();
    let error = try_run(&mut admin, "ALTER RESOURCE UNIT uc_1 COMMENT 'a\0b'").await.unwrap_err();
    assert_eq!(error.sqlstate(), "22023");
    assert!(error.message.contains("null character"), "{}", error.text());
    assert_eq!(run(&mut admin, "SHOW ALTERATIONS").await.rows.len(), before);
    assert!(alter_node::read(bench.master.lock.session()).await.unwrap().is_none());
    let _settling = bench.master.keep_settling();
    run(&mut admin, "ALTER RESOURCE UNIT uc_1 COMMENT 'ab'").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_alteration_in_place_is_another_statement() {
    let _among = among_others().await;
    let bench = Bench::new().await;
    let mut admin = bench.objects().await;
    run(&mut admin, "START ENGINE t_1 rp_1 uc_1").await;
    let how = async || bench.store.snapshot().await.unwrap().slots[0].replacement;
    let _settling = bench.master.keep_settling();
    let in_place = "ALTER RESOURCE UNIT uc_1 DRIVER_MEMORY '2G' IN PLACE";
    for _ in 0..2 {
        let answer = try_run_as(&mut admin, in_place, "in-place", SOON_MS).await.unwrap();
        assert_eq!(column(&answer, "alteration"), ["in-place"]);
        assert_eq!(how().await, Replacement::InPlace);
    }
    let without = in_place.trim_end_matches(" IN PLACE");
    let error = try_run_as(&mut admin, without, "in-place", SOON_MS).await.unwrap_err();
    assert_eq!(error.sqlstate(), "22023", "{}", error.text());
    let shown = run(&mut admin, "SHOW ALTERATIONS LIMIT 1").await;
    assert_eq!(column(&shown, "statement"), [in_place]);
    run(&mut admin, "ALTER RESOURCE POOL rp_1 CPU_OVERCOMMIT 300").await;
    assert_eq!(how().await, Replacement::StandIn, "the last renewal decides");
    run(&mut admin, "ALTER RESOURCE POOL rp_1 CPU_OVERCOMMIT 200 IN PLACE").await;
    assert_eq!(how().await, Replacement::InPlace);
}
