//! Start, shutdown and kill of `standalone`, which never leaves undesired processes or files behind.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)]

use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::process::Stdio;
use std::time::Duration;

use crate::installation::{
    END_DEADLINE, Installation, ONE_ENGINE, Signal, ended, ended_or, eventually, processes_below, program,
    program_that_heeds_signals, read_all, signal, text, withstands, works,
};

/// A statement that runs for longer than any test.
const ENDLESS: &str = "SELECT count(*) FROM generate_series(1, 1000000) a, generate_series(1, 1000000) b";

#[test]
fn a_second_instance_is_refused_and_the_first_continues() {
    let mut first = Installation::with_an_engine();
    let engines = first.engines();
    let output = first.command(&[]).stdout(Stdio::piped()).stderr(Stdio::piped()).output().unwrap();
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(error.contains("another enginehouse standalone") && error.contains("--data-dir"), "{error}");
    assert_eq!(first.say("SELECT 1"), "1");
    assert_eq!(first.engines(), engines);
    assert!(first.stop().success());
    assert_eq!(first.engines(), Vec::<u32>::new());
}

#[test]
fn a_folder_that_can_not_be_used_and_a_port_in_use_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let file = folder.path().join("file");
    std::fs::write(&file, "x").unwrap();
    let data = folder.path().join("data");
    for (data, listen, expected) in [
        (file.to_str().unwrap(), "127.0.0.1:0", "cannot use the data directory"),
        ("/proc/nowhere", "127.0.0.1:0", "cannot use the data directory"),
        (data.to_str().unwrap(), &*address, "in use"),
    ] {
        let output = program().args(["standalone", "--data-dir", data, "--listen", listen]).output().unwrap();
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(error.contains(expected) && !error.contains("panicked"), "{error}");
    }
    assert_eq!(processes_below(&folder.path().canonicalize().unwrap()), Vec::<u32>::new());
}

#[test]
fn a_folder_may_have_any_name() {
    let mut installation = Installation::start_named("a b?c%20d#é");
    installation.say_all(&ONE_ENGINE);
    assert_eq!(installation.say("SELECT 1"), "1");
    assert!(installation.data().join("metadata.sqlite").exists());
    assert!(installation.stop().success());
}

#[test]
fn sigterm_during_start_or_tour_leaves_nothing() {
    // The moments are spread over the start and the tour; whatever is hit, the outcome is the same.
    for (moment_ms, which) in [(5, Signal::TERM), (40, Signal::INT), (150, Signal::TERM), (700, Signal::INT)] {
        let installation = Installation::start();
        let data = installation.data().with_file_name("other");
        let mut command = program_that_heeds_signals();
        command.args(["standalone", "--listen", "localhost:0", "--tour", "--data-dir"]).arg(&data);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(moment_ms));
        signal(child.id(), which);
        let log = || std::fs::read_to_string(data.join("enginehouse.log")).unwrap_or_default();
        let status = ended_or(&mut child, END_DEADLINE, log);
        let error = read_all(child.stderr.take());
        // Before it could catch the signal, the signal ended it.
        assert!(status.success() || status.code().is_none(), "after {moment_ms} ms: {status} {error}");
        assert!(!error.contains("panicked") && !error.contains("ended early"), "after {moment_ms} ms: {error}");
        assert_eq!(processes_below(&data), Vec::<u32>::new(), "after {moment_ms} ms");
    }
}

#[test]
fn sigterm_right_after_the_signals_are_blocked_ends_it() {
    // A handler that is installed before a task waits for it would lose this signal, and the process would stay up.
    for which in [Signal::TERM, Signal::INT].into_iter().cycle().take(10) {
        let folder = tempfile::tempdir().unwrap();
        let mut command = program();
        command.args(["standalone", "--listen", "localhost:0", "--data-dir"]).arg(folder.path().join("data"));
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        while !withstands(child.id(), which) {
            assert!(child.try_wait().unwrap().is_none(), "{}", read_all(child.stderr.take()));
        }
        signal(child.id(), which);
        let status = ended(&mut child, END_DEADLINE);
        assert!(status.success(), "{status} {}", read_all(child.stderr.take()));
    }
}

#[test]
fn a_hang_up_ends_neither_standalone_nor_engines() {
    let mut server = Installation::with_an_engine();
    let engines = server.engines();
    assert_eq!(engines.len(), 1);
    for pid in engines.iter().copied().chain([server.pid()]) {
        signal(pid, Signal::HUP);
    }
    assert_eq!(server.say("SELECT 1"), "1");
    assert_eq!(server.engines(), engines);
    assert!(server.stop().success());
    assert_eq!(server.complaints(), Vec::<String>::new());
}

#[test]
fn sigterm_without_an_acting_master_ends_its_engines() {
    let mut installation = Installation::with_failpoints();
    installation.say_all(&ONE_ENGINE);
    let [engine] = installation.engines()[..] else { panic!("{:?}", installation.engines()) };
    installation.kill();
    // The next one is held before its master has an epoch, and receives SIGTERM there.
    installation.hold_at("master.lock.won");
    let mut child = installation.command(&[]).stdout(Stdio::piped()).spawn().unwrap();
    eventually("it is held", || installation.killed_at("master.lock.won") == Some(child.id()));
    signal(child.id(), Signal::TERM);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let first = lines.next().unwrap_or_default();
    assert!(first.starts_with("shutting down: "), "{first}; {}", installation.standard_error());
    installation.release("master.lock.won");
    assert_eq!(lines.collect::<Vec<_>>(), ["shut down; no engine is left running"]);
    assert!(ended(&mut child, END_DEADLINE).success());
    assert!(!installation.engines().contains(&engine), "its engine is left");
}

#[test]
fn its_log_is_never_longer_than_its_limit() {
    let mut installation = Installation::start();
    assert!(installation.stop().success());
    let (log, old) = (installation.data().join("enginehouse.log"), installation.data().join("enginehouse.log.1"));
    assert!(!old.exists());
    let line = [&b"x".repeat(1_023)[..], b"\n"].concat();
    std::fs::write(&log, line.repeat(16 << 10)).unwrap();
    installation.start_again();
    assert_eq!(std::fs::metadata(&old).unwrap().len(), 16 << 20);
    assert!(installation.log().len() < 1 << 20 && installation.log().contains("all roles are running"));
    assert_eq!(installation.complaints(), Vec::<String>::new());
    assert!(installation.stop().success());
}

#[test]
fn a_closed_standard_output_leaves_no_engines_behind() {
    let installation = Installation::start();
    let data = installation.data().with_file_name("other");
    let mut command = program();
    command.args(["standalone", "--listen", "localhost:0", "--tour", "--exit", "--seed", "7", "--data-dir"]).arg(&data);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop((child.stdout.take(), child.stderr.take()));
    // The tour has no audience and ends; the end is an orderly one.
    assert_eq!(ended(&mut child, crate::installation::DEADLINE).code(), Some(1));
    assert_eq!(processes_below(&data), Vec::<u32>::new());
    let log = std::fs::read_to_string(data.join("enginehouse.log")).unwrap();
    assert!(log.contains("shutting down"), "{log}");
}

#[test]
fn a_running_statement_delays_shutdown_by_its_grace_at_most() {
    let mut installation = Installation::with_an_engine();
    let mut client = installation.sql().args(["-e", ENDLESS]).stderr(Stdio::piped()).spawn().unwrap();
    works(installation.engines()[0]);
    let began = std::time::Instant::now();
    assert!(installation.stop().success());
    assert!(began.elapsed() > Duration::from_secs(8), "the statement was not given its time: {:?}", began.elapsed());
    assert_eq!(installation.engines(), Vec::<u32>::new());
    assert_eq!(ended(&mut client, END_DEADLINE).code(), Some(1));
    let error = read_all(client.stderr.take());
    assert!(error.contains("error 08S01") || error.contains("error 57014"), "{error}");
}

#[test]
fn a_second_signal_exits_at_once_and_engines_follow() {
    let mut installation = Installation::with_an_engine();
    let mut client = installation.sql().args(["-e", ENDLESS]).stderr(Stdio::null()).spawn().unwrap();
    works(installation.engines()[0]);
    let pid = installation.pid();
    signal(pid, Signal::INT);
    eventually("it has begun to end", || installation.log().contains("terminating engine"));
    signal(pid, Signal::INT);
    let status = installation.stop();
    assert_eq!(status.code(), Some(130));
    ended(&mut client, END_DEADLINE);
    eventually("its engines have gone", || installation.engines().is_empty());
}

#[test]
fn after_a_kill_desired_engines_are_kept_and_others_terminated() {
    let mut installation = Installation::with_an_engine();
    installation.say("START ENGINE t p u WAIT '1m'");
    let [one, two] = installation.engines()[..] else { panic!("{:?}", installation.engines()) };
    let name = |of: u32| {
        let cwd = std::fs::read_link(format!("/proc/{of}/cwd")).unwrap();
        let file = std::fs::read_to_string(cwd.join("engine.toml")).unwrap();
        file.lines().find_map(|line| line.strip_prefix("name = \"")).unwrap().trim_end_matches('"').to_owned()
    };
    // The order to end is given and the master dies before it acts: stopped, it can no longer act.
    installation.say(&format!("STOP ENGINE p '{}' FORCE", name(two)));
    installation.kill();
    installation.start_again();
    eventually("only the wanted engine is left", || installation.engines() == [one]);
    eventually("it is ready", || installation.say("SHOW ENGINES t").contains(",ready,"));
    assert_eq!(installation.say("SELECT 1"), "1");
    assert_eq!(installation.engines(), [one], "the wanted engine has its pid");
    assert!(installation.stop().success());
    assert_eq!(installation.engines(), Vec::<u32>::new());
}

#[test]
fn engines_stopped_with_standalone_restart_without_back_off() {
    let mut installation = Installation::with_an_engine();
    for _ in 0..2 {
        assert!(installation.stop().success());
        assert_eq!(installation.engines(), Vec::<u32>::new());
        let logged = installation.log().len();
        installation.start_again();
        // With a back-off every look would report it for three seconds.
        eventually("the engine is back", || {
            let shown = installation.say("SHOW ENGINES t");
            assert!(!shown.contains("failure") && !shown.contains("vanished"), "{shown}");
            shown.contains(",ready,")
        });
        assert!(!installation.log()[logged..].contains("vanished"), "{}", installation.log());
    }
    assert_eq!(installation.complaints(), Vec::<String>::new());
    // Nothing is recorded at a kill; the engine still comes back.
    let [engine] = installation.engines()[..] else { panic!("{:?}", installation.engines()) };
    installation.kill();
    signal(engine, Signal::KILL);
    installation.start_again();
    eventually("the engine is back", || installation.say("SHOW ENGINES t").contains(",ready,"));
    assert!(installation.stop().success());
}

#[test]
fn a_quiet_life_leaves_no_complaint_and_no_secret_in_any_log() {
    let mut installation = Installation::with_an_engine();
    installation.say("CREATE RESOURCE UNIT s PROPERTIES ('db.password'='hunter2')");
    assert_eq!(installation.say("SELECT 1"), "1");
    for statement in ["SHOW CREATE RESOURCE UNIT s", "DESCRIBE RESOURCE UNIT s", "SHOW ALTERATIONS"] {
        let shown = installation.say(statement);
        assert!(!shown.contains("hunter2") && shown.contains("******"), "{statement}: {shown}");
    }
    let mut secrets = vec!["hunter2".to_owned()];
    for file in ["root", "proxy", "master", "metadata-agent"] {
        let file = std::fs::read_to_string(installation.data().join(format!("keys/{file}.key"))).unwrap();
        // Public keys are in the same form.
        let values = file
            .lines()
            .filter(|line| !["proxy", "master", "metadata_agent_tls"].iter().any(|key| line.starts_with(key)));
        secrets.extend(
            values.filter_map(|line| line.split('"').nth(1)).filter(|value| value.len() == 44).map(str::to_owned),
        );
    }
    let of_roles = secrets.clone();
    assert_eq!(of_roles.len(), 1 + 1 + 3 + 4 + 4);
    let mut seen = String::new();
    for pid in [installation.engines(), vec![installation.pid()]].concat() {
        let cwd = std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap();
        if let Ok(file) = std::fs::read_to_string(cwd.join("engine.toml")) {
            let values = file.lines().filter(|line| ["password", "seed"].iter().any(|key| line.starts_with(key)));
            secrets.extend(values.filter_map(|line| line.split('"').nth(1)).map(str::to_owned));
            assert!(of_roles.iter().all(|secret| !file.contains(secret)), "an engine has the key of a role");
        }
        // What every user of the machine can read of a process, and what only its owner can.
        for readable in ["cmdline", "environ"] {
            seen += &text(&std::fs::read(format!("/proc/{pid}/{readable}")).unwrap());
        }
    }
    let log_files = files_below(installation.data());
    assert!(installation.stop().success());
    for path in log_files.iter().filter(|path| path.to_string_lossy().contains("log")) {
        seen += &std::fs::read_to_string(path).unwrap_or_default();
    }
    assert!(seen.contains("proxy serves"), "no log was read");
    assert!(secrets.len() > of_roles.len(), "the password of the engine was not found");
    for secret in secrets.iter().filter(|secret| secret.len() > 6) {
        assert!(!seen.contains(secret.as_str()), "a secret is shown: {secret}");
    }
    assert_eq!(installation.complaints(), Vec::<String>::new());
    assert_eq!(installation.standard_error(), "");
}

#[test]
fn neither_a_role_nor_an_engine_writes_a_core_file() {
    let installation = Installation::with_an_engine();
    for pid in [installation.engines(), vec![installation.pid()]].concat() {
        let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
        let line = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
        let values: Vec<&str> = line.split_whitespace().skip(4).take(2).collect();
        assert_eq!(values, ["1", "1"], "{line}");
    }
}

fn files_below(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        if entry.path().is_dir() { found.extend(files_below(&entry.path())) } else { found.push(entry.path()) }
    }
    found
}
