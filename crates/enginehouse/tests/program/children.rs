//! What an engine agent starts ends with it, whatever ends the agent, and runs with a clean signal mask.
//!
//! A script that ignores every signal that can be ignored stands for Spark: it never answers, so its engine is starting for
//! as long as the test lasts.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::os::unix::fs::PermissionsExt as _;

use crate::installation::{Installation, Signal, eventually, processes_below, signal};

/// Writes down its own process and that of a child of its own, which has no file of the engine open, and stays.
const STUBBORN: &str = "#!/bin/sh\ntrap '' TERM INT HUP\nsleep 1000 </dev/null >/dev/null 2>&1 &\necho $$ $! > started\n\
                        while true; do sleep 1; done\n";

/// A standalone with one engine of type spark that is a script.
fn with_a_stubborn_child(script: &str) -> Installation {
    let mut installation = Installation::not_started();
    let program = installation.data().with_file_name("spark-submit");
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).unwrap();
    installation.set("ENGINEHOUSE_SPARK_UNCONFINED", "true");
    installation.set("ENGINEHOUSE_SPARK_PROGRAM", program.to_str().unwrap());
    installation.start_again();
    installation.say_all(&[
        "CREATE RESOURCE UNIT u ENGINE_TYPE 'spark', DRIVER_CPU 1, DRIVER_MEMORY '512M', MAX_EXECUTORS 0, MAX_ENGINES 1",
        "CREATE RESOURCE POOL p UNIT_LIST ('u')",
        "CREATE TENANT t RESOURCE_POOL_LIST ('p'), USER_LIST ('ann')",
        "START ENGINE t p u",
    ]);
    installation
}

/// The agent, its child, and its child's child.
fn family(installation: &Installation) -> [u32; 3] {
    let mut found = None;
    eventually("the child has started", || {
        found = started(installation);
        found.is_some()
    });
    found.unwrap()
}

fn started(installation: &Installation) -> Option<[u32; 3]> {
    let engines = std::fs::read_dir(installation.data().join("engines/engines")).ok()?;
    let file = engines.flatten().map(|folder| folder.path().join("files/spark/started")).find(|file| file.is_file())?;
    let text = std::fs::read_to_string(file).ok()?;
    let mut pids = text.split_whitespace().map(|pid| pid.parse::<u32>().unwrap());
    let (child, grandchild) = (pids.next()?, pids.next()?);
    Some([field(child, "PPid:").parse().unwrap(), child, grandchild])
}

/// A line of `/proc/PID/status`; empty when there is no such process.
fn field(pid: u32, name: &str) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim().to_owned()
}

fn is_alive(pid: u32) -> bool {
    match field(pid, "State:").as_str() {
        "" | "X (dead)" => false,
        // Others may run after the first thread has ended.
        "Z (zombie)" => !["", "0", "1"].contains(&field(pid, "Threads:").as_str()),
        _ => true,
    }
}

fn all_end(what: &str, pids: &[u32]) {
    eventually(what, || !pids.iter().any(|pid| is_alive(*pid)));
}

#[test]
fn a_child_of_an_agent_has_no_signal_blocked_and_ends_with_it() {
    let mut installation = with_a_stubborn_child(STUBBORN);
    let [agent, child, grandchild] = family(&installation);
    // A shell blocks all of them for the moment in which it starts a program.
    eventually("it has no signal blocked", || field(child, "SigBlk:") == "0000000000000000");
    assert_ne!(field(agent, "SigBlk:"), "0000000000000000", "the agent waits for SIGTERM with it blocked");
    // Neither the agent nor a master is left to end them.
    installation.kill();
    signal(agent, Signal::KILL);
    all_end("the child ends with its agent", &[agent, child]);
    // What the child has started is killed by the keeper of the next master, or with the child's group.
    signal(grandchild, Signal::KILL);
}

#[test]
fn a_child_that_ignores_sigterm_is_killed_with_its_group() {
    let mut installation = with_a_stubborn_child(STUBBORN);
    let family = family(&installation);
    let shown = installation.say("SHOW ENGINES t");
    let engine = shown.split(',').nth(3).unwrap();
    installation.say(&format!("STOP ENGINE p '{engine}' FORCE"));
    all_end("a forced stop ends them all", &family);
    assert!(installation.stop().success());
    assert_eq!(processes_below(installation.data()), Vec::<u32>::new());
}

#[test]
fn a_second_sigterm_leaves_no_child_behind() {
    let installation = with_a_stubborn_child(STUBBORN);
    let [agent, child, _] = family(&installation);
    signal(agent, Signal::TERM);
    // The first is taken before the second comes: it ends the wait for the start.
    eventually("the agent stops its child", || {
        signal(agent, Signal::TERM);
        !is_alive(agent)
    });
    all_end("nothing is left", &[agent, child]);
}

#[test]
fn what_a_killed_agent_leaves_is_killed_by_the_keeper() {
    // The second is a daemon: it has a session of its own and nothing of the engine open.
    let keeps_files = STUBBORN.replace("</dev/null >/dev/null 2>&1 &", "&");
    for script in [keeps_files, STUBBORN.replace("sleep 1000 <", "setsid sleep 1000 <")] {
        let installation = with_a_stubborn_child(&script);
        let [agent, child, grandchild] = family(&installation);
        signal(agent, Signal::KILL);
        all_end("the whole family ends", &[agent, child, grandchild]);
    }
}

/// The cause stands in SHOW ENGINES, not the exit status alone.
#[test]
fn show_engines_names_why_spark_ended() {
    let script = "#!/bin/sh\necho 'Exception in thread \"main\" java.lang.IllegalArgumentException: System memory 1 must be at \
                  least 2' >&2\nexit 1\n";
    let installation = with_a_stubborn_child(script);
    eventually("SHOW names the cause", || {
        installation.say("SHOW ENGINES t").contains("System memory 1 must be at least 2")
    });
}
