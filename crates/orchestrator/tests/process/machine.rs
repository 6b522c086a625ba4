//! What an engine gets from the machine: a session, an environment, files, a log, an end.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use model::engine_state::Phase;
use model::labels::LabelMap;
use orchestrator::process::{Config, Process};
use orchestrator::{Error, Orchestrator, SpecFile};

use super::place::{EPOCH, LONG, Place, eventually, get, kill, lives, name, pid, shell, sleeper, spec, stat};

#[tokio::test]
async fn an_engine_leads_a_session_of_its_own() {
    let place = Place::new();
    let process = place.open();
    process.ensure(&sleeper("one"), EPOCH).await.unwrap();
    let pid = pid(&get(&process, "one").await.unwrap());
    // The program that opens the session replaces itself by the engine; both have this pid.
    tokio::time::timeout(super::place::DEADLINE, async {
        while stat(pid).unwrap().1 != pid {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn an_engine_gets_what_its_spec_says_and_nothing_else() {
    let place = Place::new();
    let mut config = Config::new(place.state());
    config.inherit = vec!["PATH".to_owned()];
    let process = Process::open(config, model::clock::SystemClock::shared()).unwrap();
    let mut wanted = shell("one", "/usr/bin/env; pwd; cat conf/engine.toml; umask");
    wanted.environment.insert("GREETING".to_owned(), "hello = there".to_owned());
    let secret = b"key = 'secret'\n".to_vec();
    wanted.files = vec![SpecFile { path: "conf/engine.toml".to_owned(), content: secret, mode: 0o640 }];
    assert!(!format!("{wanted:?}").contains("secret"), "a spec must not print what is in its files");
    let ensured = process.ensure(&wanted, EPOCH).await.unwrap();
    eventually(&process, "one has ended", |listing| listing.engines[0].phase == Phase::Ended).await;
    let log = fs::read_to_string(place.engine("one").join("log")).unwrap();
    let files = place.engine("one").join("files");
    let mut variables: Vec<&str> =
        log.lines().filter_map(|line| line.split_once('=')).map(|(name, _)| name.trim()).collect();
    variables.sort_unstable();
    // The shell adds PWD (and env may show _ and OLDPWD): what matters is that nothing of ours came along.
    variables.retain(|name| !matches!(*name, "PWD" | "_" | "OLDPWD" | "SHLVL"));
    assert_eq!(variables, ["ENGINEHOUSE_ENGINE_DIR", "ENGINEHOUSE_ENGINE_UID", "GREETING", "PATH", "key"], "{log}");
    assert!(log.contains(&format!("ENGINEHOUSE_ENGINE_UID={}\n", ensured.uid)), "{log}");
    assert!(log.contains("GREETING=hello = there\n"), "{log}");
    assert!(log.contains(&format!("\n{}\n", files.display())), "{log}");
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&files.join("conf/engine.toml")), 0o640);
    assert_eq!(mode(&place.engine("one")), 0o700);
}

#[tokio::test]
async fn a_program_that_is_not_there_is_refused_and_leaves_nothing() {
    let place = Place::new();
    let process = place.open();
    fs::write(place.state().join("text"), "no program").unwrap();
    let text = place.state().join("text").display().to_string();
    for program in ["/no/such/program", text.as_str(), "/tmp"] {
        let refused = process.ensure(&spec("one", &[program]), EPOCH).await;
        assert!(matches!(&refused, Err(Error::Refused { reason }) if reason.contains(program)), "{refused:?}");
    }
    assert_eq!(fs::read_dir(place.state().join("engines")).unwrap().count(), 0);
}

#[tokio::test]
async fn a_deleted_engine_leaves_nothing_and_takes_its_children_along() {
    let place = Place::new();
    let process = place.open();
    let script = "trap '' TERM; /bin/sleep 1000 & echo child $!; wait; wait";
    let ensured = process.ensure(&shell("one", script), EPOCH).await.unwrap();
    let child = child_of(&place, "one").await;
    assert!(lives(child));
    process.delete(&name("one"), &ensured.uid, Duration::ZERO, EPOCH).await.unwrap();
    eventually(&process, "one is gone", |listing| listing.engines.is_empty()).await;
    until_dead(child).await;
    place.cleared(&process).await;
}

#[tokio::test]
async fn what_a_dead_engine_left_behind_is_killed_when_its_end_is_seen() {
    let place = Place::new();
    let process = place.open();
    // The second is a daemon: it has a session of its own and nothing of the engine open.
    for (engine, started) in [("one", ""), ("two", "setsid </dev/null >/dev/null 2>&1")] {
        let script = format!("{started} /bin/sleep 1000 & echo child $!; wait");
        let ensured = process.ensure(&shell(engine, &script), EPOCH).await.unwrap();
        let child = child_of(&place, engine).await;
        kill(pid(&get(&process, engine).await.unwrap()));
        // The child may have its lock, but the engine is its leader, and that one is dead.
        eventually(&process, "it has ended", |listing| listing.engines[0].phase == Phase::Ended).await;
        until_dead(child).await;
        process.delete(&name(engine), &ensured.uid, LONG, EPOCH).await.unwrap();
        assert!(process.list(&LabelMap::new()).await.unwrap().engines.is_empty());
    }
}

#[tokio::test]
async fn a_pid_that_was_given_to_somebody_else_is_not_the_engine() {
    let place = Place::new();
    let process = place.open();
    let ensured = process.ensure(&sleeper("one"), EPOCH).await.unwrap();
    let engine = get(&process, "one").await.unwrap();
    let path = place.engine("one").join("process.json");
    let mut record: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let ticks = record["start_ticks"].as_u64().unwrap();
    record["start_ticks"] = (ticks + 1).into();
    fs::write(&path, record.to_string()).unwrap();
    assert_eq!(get(&process, "one").await.unwrap().phase, Phase::Ended);
    // It is deleted as a dead one; the process that has its pid is not touched on that ground, only as a holder of
    // the lock.
    process.delete(&engine.name, &ensured.uid, LONG, EPOCH).await.unwrap();
    until_dead(pid(&engine)).await;
}

#[tokio::test]
async fn a_log_is_limited_and_its_last_lines_are_kept() {
    let place = Place::new();
    let process = place.open();
    // What is written in the very moment in which the log is cut may be lost: the last line comes when it is short again.
    let script = "i=0; while [ $i -lt 4000 ]; do echo line $i; i=$((i+1)); done; \
                  until [ $(wc -c < ../log) -le 10000 ]; do sleep 0.02; done; echo last; exit 1";
    let mut wanted = shell("one", script);
    wanted.log.keep_bytes = 10_000;
    process.ensure(&wanted, EPOCH).await.unwrap();
    let engine = eventually(&process, "one has ended", |listing| listing.engines[0].phase == Phase::Ended).await;
    let tail = engine.engines[0].log_tail.clone().unwrap();
    assert!(tail.ends_with("last") && tail.contains("line 39"), "{tail}");
    let size = |file: &str| fs::metadata(place.engine("one").join(file)).map_or(0, |file| file.len());
    eventually(&process, "the log is short", |_| size("log") <= 10_000).await;
    assert!(size("log.1") <= 10_000 && size("log") + size("log.1") > 5_000);
    assert!(get(&process, "one").await.unwrap().log_tail.unwrap().ends_with("last"));
}

/// The pid that the engine prints of its child.
async fn child_of(place: &Place, engine: &str) -> i32 {
    let log = place.engine(engine).join("log");
    let printed = async {
        loop {
            let text = fs::read_to_string(&log).unwrap_or_default();
            if let Some(pid) = text.strip_prefix("child ").and_then(|rest| rest.strip_suffix('\n')) {
                return pid.parse().unwrap();
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(super::place::DEADLINE, printed).await.unwrap()
}

/// A killed process that is nobody's child here is dead when the kernel says so; there is no event for it.
async fn until_dead(pid: i32) {
    let dead = async {
        while lives(pid) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(super::place::DEADLINE, dead).await.unwrap();
}
