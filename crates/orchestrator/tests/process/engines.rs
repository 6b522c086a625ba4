//! The life of an engine process: its session, environment, files, log and end.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use model::engine_state::Phase;
use model::labels::LabelMap;
use orchestrator::process::{Config, Process};
use orchestrator::{Error, Orchestrator, SpecFile};

use super::support::{EPOCH, LONG, TestDir, eventually, get, is_alive, kill, name, pid, shell, sleeper, spec, stat};

#[tokio::test]
async fn an_engine_leads_its_own_session() {
    let dir = TestDir::new();
    let process = dir.open();
    process.ensure(&sleeper("one"), EPOCH).await.unwrap();
    let pid = pid(&get(&process, "one").await.unwrap());
    // The program that starts the session replaces itself by the engine, so both have this pid.
    tokio::time::timeout(super::support::DEADLINE, async {
        while stat(pid).unwrap().1 != pid {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn an_engine_receives_only_what_its_spec_names() {
    let dir = TestDir::new();
    let mut config = Config::new(dir.state());
    config.inherit = vec!["PATH".to_owned()];
    let process = Process::open(config, model::clock::SystemClock::shared()).unwrap();
    let mut spec = shell("one", "/usr/bin/env; pwd; cat conf/engine.toml; umask");
    spec.environment.insert("GREETING".to_owned(), "hello = there".to_owned());
    let secret = b"key = 'secret'\n".to_vec();
    spec.files = vec![SpecFile { path: "conf/engine.toml".to_owned(), content: secret, mode: 0o640 }];
    assert!(!format!("{spec:?}").contains("secret"), "a spec must not print the content of its files");
    let ensured = process.ensure(&spec, EPOCH).await.unwrap();
    eventually(&process, "one has ended", |listing| listing.engines[0].phase == Phase::Ended).await;
    let log = fs::read_to_string(dir.engine("one").join("log")).unwrap();
    let files = dir.engine("one").join("files");
    let mut variables: Vec<&str> =
        log.lines().filter_map(|line| line.split_once('=')).map(|(name, _)| name.trim()).collect();
    variables.sort_unstable();
    // The shell adds PWD (and env may show _ and OLDPWD); nothing else of our environment may appear.
    variables.retain(|name| !matches!(*name, "PWD" | "_" | "OLDPWD" | "SHLVL"));
    assert_eq!(variables, ["ENGINEHOUSE_ENGINE_DIR", "ENGINEHOUSE_ENGINE_UID", "GREETING", "PATH", "key"], "{log}");
    assert!(log.contains(&format!("ENGINEHOUSE_ENGINE_UID={}\n", ensured.uid)), "{log}");
    assert!(log.contains("GREETING=hello = there\n"), "{log}");
    assert!(log.contains(&format!("\n{}\n", files.display())), "{log}");
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&files.join("conf/engine.toml")), 0o640);
    assert_eq!(mode(&dir.engine("one")), 0o700);
}

#[tokio::test]
async fn a_missing_program_is_refused_and_leaves_nothing() {
    let dir = TestDir::new();
    let process = dir.open();
    fs::write(dir.state().join("text"), "no program").unwrap();
    let text = dir.state().join("text").display().to_string();
    for program in ["/no/such/program", text.as_str(), "/tmp"] {
        let refused = process.ensure(&spec("one", &[program]), EPOCH).await;
        assert!(matches!(&refused, Err(Error::Refused { reason, .. }) if reason.contains(program)), "{refused:?}");
    }
    assert_eq!(fs::read_dir(dir.state().join("engines")).unwrap().count(), 0);
}

#[tokio::test]
async fn a_deleted_engine_leaves_neither_files_nor_children() {
    let dir = TestDir::new();
    let process = dir.open();
    let script = "trap '' TERM; /bin/sleep 1000 & echo child $!; wait; wait";
    let ensured = process.ensure(&shell("one", script), EPOCH).await.unwrap();
    let child = child_of(&dir, "one").await;
    assert!(is_alive(child));
    process.delete(&name("one"), &ensured.uid, Duration::ZERO, EPOCH).await.unwrap();
    eventually(&process, "one is gone", |listing| listing.engines.is_empty()).await;
    until_dead(child).await;
    dir.cleared(&process).await;
}

#[tokio::test]
async fn leftovers_of_a_dead_engine_are_killed_when_its_exit_is_observed() {
    let dir = TestDir::new();
    let process = dir.open();
    // The second is a daemon: it has its own session and has none of the engine's files open.
    for (engine, started) in [("one", ""), ("two", "setsid </dev/null >/dev/null 2>&1")] {
        let script = format!("{started} /bin/sleep 1000 & echo child $!; wait");
        let ensured = process.ensure(&shell(engine, &script), EPOCH).await.unwrap();
        let child = child_of(&dir, engine).await;
        kill(pid(&get(&process, engine).await.unwrap()));
        // The child may hold the lock, but the engine is its leader, which is dead.
        eventually(&process, "it has ended", |listing| listing.engines[0].phase == Phase::Ended).await;
        until_dead(child).await;
        process.delete(&name(engine), &ensured.uid, LONG, EPOCH).await.unwrap();
        assert!(process.list(&LabelMap::new()).await.unwrap().engines.is_empty());
    }
}

#[tokio::test]
async fn a_reused_pid_is_not_the_engine() {
    let dir = TestDir::new();
    let process = dir.open();
    let ensured = process.ensure(&sleeper("one"), EPOCH).await.unwrap();
    let engine = get(&process, "one").await.unwrap();
    let path = dir.engine("one").join("process.json");
    let mut record: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let ticks = record["start_ticks"].as_u64().unwrap();
    record["start_ticks"] = (ticks + 1).into();
    fs::write(&path, record.to_string()).unwrap();
    assert_eq!(get(&process, "one").await.unwrap().phase, Phase::Ended);
    // It is deleted as a dead one; the process with its pid is killed only because it holds the lock.
    process.delete(&engine.name, &ensured.uid, LONG, EPOCH).await.unwrap();
    until_dead(pid(&engine)).await;
}

#[tokio::test]
async fn a_log_is_limited_and_keeps_its_last_lines() {
    let dir = TestDir::new();
    let process = dir.open();
    // Output that is written while the log is being cut may be lost, so the last line is printed once it is short again.
    let script = "i=0; while [ $i -lt 4000 ]; do echo line $i; i=$((i+1)); done; \
                  until [ $(wc -c < ../log) -le 10000 ]; do sleep 0.02; done; echo last; exit 1";
    let mut spec = shell("one", script);
    spec.log.keep_bytes = 10_000;
    process.ensure(&spec, EPOCH).await.unwrap();
    let engine = eventually(&process, "one has ended", |listing| listing.engines[0].phase == Phase::Ended).await;
    let tail = engine.engines[0].log_tail.clone().unwrap();
    assert!(tail.ends_with("last") && tail.contains("line 39"), "{tail}");
    let size = |file: &str| fs::metadata(dir.engine("one").join(file)).map_or(0, |file| file.len());
    eventually(&process, "the log is short", |_| size("log") <= 10_000).await;
    assert!(size("log.1") <= 10_000 && size("log") + size("log.1") > 5_000);
    assert!(get(&process, "one").await.unwrap().log_tail.unwrap().ends_with("last"));
}

/// The pid of its child, which the engine prints.
async fn child_of(dir: &TestDir, engine: &str) -> i32 {
    let log = dir.engine(engine).join("log");
    let printed = async {
        loop {
            let text = fs::read_to_string(&log).unwrap_or_default();
            if let Some(pid) = text.strip_prefix("child ").and_then(|rest| rest.strip_suffix('\n')) {
                return pid.parse().unwrap();
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(super::support::DEADLINE, printed).await.unwrap()
}

/// Polls until the process is dead: there is no event for a process that is not our child.
async fn until_dead(pid: i32) {
    let dead = async {
        while is_alive(pid) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(super::support::DEADLINE, dead).await.unwrap();
}
