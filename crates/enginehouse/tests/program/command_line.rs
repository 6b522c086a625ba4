//! The command line: its help, and its errors.
#![allow(clippy::unwrap_used, clippy::panic)]

use crate::installation::{program, run, text};

#[test]
fn every_subcommand_explains_itself() {
    let all: [&[&str]; 12] = [
        &[],
        &["standalone"],
        &["sql"],
        &["proxy"],
        &["metadata-agent"],
        &["engine-agent"],
        &["migrate"],
        &["passwd"],
        &["doctor"],
        &["config"],
        &["config", "check"],
        &["sql", "-e", "SELECT 1"],
    ];
    for subcommand in all {
        let output = run(&[subcommand, &["--help"]].concat());
        let shown = text(&output.stdout);
        assert!(output.status.success() && output.stderr.is_empty(), "{subcommand:?}");
        assert!(shown.contains("Usage: ") && shown.contains("--help"), "{subcommand:?}: {shown}");
    }
    let own = text(&run(&["--help"]).stdout);
    assert!(own.starts_with("Enginehouse: a multi-tenant"), "{own}");
    assert!(own.contains("standalone --tour"), "{own}");
}

#[test]
fn what_the_command_line_does_not_know_is_refused_with_status_2() {
    for arguments in [
        &["--bogus"][..],
        &["frobnicate"],
        &["standalone", "--bogus"],
        &["standalone", "--exit"],
        &["standalone", "--listen", "10009"],
        &["proxy"],
        &["sql", "--format", "xml"],
        &["config"],
        &[],
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(text(&output.stderr).contains("Usage") || text(&output.stderr).contains("--help"), "{arguments:?}");
    }
}

#[test]
fn standalone_listens_on_loopback_only() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let output = run(&["standalone", "--listen", "0.0.0.0:0", "--data-dir", data.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("loopback"), "{}", text(&output.stderr));
    assert!(!data.exists(), "it was refused and made its folder all the same");
}

#[test]
fn failpoints_are_listed_once_each_and_an_unknown_one_is_refused() {
    let listed = text(&run(&["--list-failpoints"]).stdout);
    let names: Vec<&str> = listed.lines().collect();
    let mut sorted = names.clone();
    sorted.sort_unstable();
    sorted.dedup();
    assert!(names == sorted && names.len() > 40, "{names:?}");
    assert!(names.iter().all(|name| name.contains('.') && !name.contains(' ')), "{names:?}");
    for (value, expected) in [
        ("nope.nope=kill", "there is no failpoint \"nope.nope\""),
        ("agent.alter.node_made", "not of the form name=action"),
        ("agent.alter.node_made=explode", "agent.alter.node_made=explode"),
    ] {
        let output = program().env("ENGINEHOUSE_FAILPOINTS", value).args(["standalone"]).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{value}");
        assert!(text(&output.stderr).contains(expected), "{value}: {}", text(&output.stderr));
    }
}

#[test]
fn a_folder_of_failpoints_must_be_there() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing");
    let output = program().env("ENGINEHOUSE_FAILPOINTS_FOLDER", &missing).args(["standalone"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("is not a folder"), "{}", text(&output.stderr));
}

#[test]
fn an_engine_agent_that_no_master_started_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("engine.toml");
    std::fs::write(&file, "name = 1\nkey = \"hidden-key\"\n").unwrap();
    let output = run(&["engine-agent", "--config", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    let error = text(&output.stderr);
    assert!(error.contains("engine.toml") && !error.contains("hidden-key"), "{error}");
}
