//! An engine that is stopped and not dead: what is shown of it, and the error that its clients receive.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeSet;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::installation::{Installation, Signal, ended, eventually, read_all, run, signal, text, works};

/// A statement that runs for longer than any test.
const ENDLESS: &str = "SELECT count(*) FROM generate_series(1, 1000000) a, generate_series(1, 1000000) b";
/// 5 s until a reply is overdue, 15 s for three status calls, and as much again for a busy machine.
const LOST_WITHIN: Duration = Duration::from_secs(40);

#[test]
fn clients_of_a_stopped_engine_get_08s01_and_show_its_state() {
    let mut installation = Installation::with_an_engine();
    let [engine] = installation.engines()[..] else { panic!("{:?}", installation.engines()) };
    let shown = installation.say("SHOW ENGINES t");
    let name = shown.split(',').nth(3).unwrap().to_owned();
    let mut client = installation.sql().args(["-e", ENDLESS]).stderr(Stdio::piped()).spawn().unwrap();
    works(engine);
    let began = Instant::now();
    signal(engine, Signal::STOP);
    eventually("DESCRIBE reports the state of the process", || {
        installation.say(&format!("DESCRIBE ENGINE p '{name}'")).contains("T (stopped)")
    });
    eventually("SHOW reports the lost registration", || installation.say("SHOW ENGINES t").contains(",lost,"));
    let output = run(&["doctor", "--data-dir", installation.data().to_str().unwrap()]);
    let report = text(&output.stdout);
    assert!(output.status.code() == Some(1) && report.contains("lost its registration"), "{report}");
    let status = ended(&mut client, LOST_WITHIN);
    let error = read_all(client.stderr.take());
    assert!(!status.success() && error.contains("08S01") && error.contains("has not replied for"), "{error}");
    println!("the client received its error after {:?}", began.elapsed());
    signal(engine, Signal::CONT);
    assert!(installation.stop().success());
}

/// An engine that fails again and again is a finding at each moment of it.
#[test]
fn doctor_reports_a_crash_loop_whatever_the_moment() {
    let mut installation = Installation::not_started();
    installation.set("ENGINEHOUSE_SPARK_UNCONFINED", "true");
    // The doctor looks again for one session timeout and three ticks.
    installation.set("ENGINEHOUSE_ZOOKEEPER_SESSION_TIMEOUT", "2s");
    installation.set("ENGINEHOUSE_MASTER_TICK_INTERVAL", "500ms");
    // It fails after a while, as Spark does.
    let program = installation.data().with_file_name("spark-submit");
    std::fs::write(&program, "#!/bin/sh\nsleep 1\necho 'Error: no heap' >&2\nexit 1\n").unwrap();
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    installation.set("ENGINEHOUSE_SPARK_PROGRAM", program.to_str().unwrap());
    installation.start_again();
    installation.say_all(&[
        "CREATE RESOURCE UNIT u ENGINE_TYPE 'spark', DRIVER_CPU 1, DRIVER_MEMORY '512M', MAX_EXECUTORS 0",
        "CREATE RESOURCE POOL p UNIT_LIST ('u')",
        "CREATE TENANT t RESOURCE_POOL_LIST ('p'), USER_LIST ('ann')",
        "START ENGINE t p u",
    ]);
    eventually("an engine has failed, and during a later attempt SHOW names the cause", || {
        let shown = installation.say("SHOW ENGINES t");
        let is_attempt = shown.contains(",starting,") && shown.contains("is not registered yet, attempt ");
        is_attempt && shown.contains("; failure ") && shown.contains("no heap")
    });
    // Over an attempt, its back-off and the next attempt: until another engine has failed.
    let mut counts = BTreeSet::new();
    eventually("another engine has failed", || {
        let output = run(&["doctor", "--data-dir", installation.data().to_str().unwrap()]);
        let report = text(&output.stdout);
        assert_eq!(output.status.code(), Some(1), "{report}");
        let (before, _) = report.split_once(" of this slot failed in a row").unwrap_or_else(|| panic!("{report}"));
        counts.insert(before.split_whitespace().nth_back(1).unwrap().to_owned());
        counts.len() > 1
    });
    installation.say("ALTER TENANT t RESOURCE_POOL_LIST ()");
    assert!(installation.stop().success());
}
