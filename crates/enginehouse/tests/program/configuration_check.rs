//! A bad configuration is refused with the place and the remedy, before anything is touched; a good one shows no secret.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Output;

use crate::installation::{program, text};
use crate::key_files::make_keys;

struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn write(&self, name: &str, content: &str, mode: u32) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, content).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    /// A configuration of a proxy with good keys, listening here.
    fn proxy(&self, listen: &str) -> String {
        let keys = make_keys(self.0.path());
        format!("[cluster]\nkeys = {keys:?}\n[proxy]\nlisten = \"{listen}\"\n[zookeeper]\nconnect = \"127.0.0.1:1\"\n")
    }
}

fn run(subcommand: &[&str], file: &Path, environment: &[(&str, &str)]) -> Output {
    let mut command = program();
    command.args(subcommand).arg("--config").arg(file).envs(environment.iter().copied());
    command.output().unwrap()
}

fn refusal(subcommand: &[&str], file: &Path, environment: &[(&str, &str)]) -> String {
    let output = run(subcommand, file, environment);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(!error.contains("panicked"), "{error}");
    error
}

#[test]
fn a_typo_is_named_with_its_line_and_the_valid_keys_by_every_role() {
    let files = Files::new();
    let file = files.write("typo.toml", "[cluster]\nname = \"x\"\n\n[zookeeper]\nconect = \"h:1\"\n", 0o600);
    for role in [&["config", "check"][..], &["proxy"], &["metadata-agent"], &["migrate"]] {
        let error = refusal(role, &file, &[]);
        for part in ["typo.toml", "line 5, column 1", "`conect`", "`connect`", "`session_timeout`"] {
            assert!(error.contains(part), "{role:?} without {part}: {error}");
        }
    }
}

#[test]
fn a_good_configuration_is_printed_whole_and_without_its_password() {
    let files = Files::new();
    let content = "[database]\nurl = \"postgres://u:hidden@h/db?password=hidden\"\n";
    let file = files.write("good.toml", &format!("{}{content}", files.proxy("127.0.0.1:0")), 0o600);
    let output = run(&["config", "check"], &file, &[("ENGINEHOUSE_MASTER_TICK_INTERVAL", "700ms")]);
    let shown = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(!shown.contains("hidden") && shown.contains("postgres://u:******@h/db?password=******"), "{shown}");
    assert!(shown.contains("tick_interval = \"700ms\"") && shown.contains("max_sessions_per_user = 500"), "{shown}");
    // What it prints is a configuration again.
    let again = files.write("again.toml", &shown, 0o600);
    assert!(run(&["config", "check"], &again, &[]).status.success());
}

#[test]
fn changed_defaults_are_printed_with_lines_that_keep_the_old_behavior() {
    let files = Files::new();
    let file = files.write("old.toml", &files.proxy("127.0.0.1:0"), 0o600);
    let check = |file: &Path, environment: &[(&str, &str)]| {
        let output = run(&["config", "check"], file, environment);
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let shown = check(&file, &[]);
    let (_, notice) = shown.split_once("# changed defaults since 0.1.0; to keep the old behavior, add:\n").unwrap();
    assert!(notice.contains("#   hosts = [\"*\"]  ") && notice.contains("# 0.1.0: any name; now: []"), "{notice}");
    // A key that a variable sets is decided.
    let shown = check(&file, &[("ENGINEHOUSE_PROXY_HOSTS", "[\"h\"]")]);
    assert!(shown.contains("# changed defaults") && !shown.contains("#   hosts"), "{shown}");
    // The lines are those of a configuration, after which there is nothing left to decide.
    let lines: Vec<&str> = notice.lines().map(|line| line.trim_start_matches("#   ")).collect();
    let mut kept: toml::Table = files.proxy("127.0.0.1:0").parse().unwrap();
    for (section, keys) in lines.join("\n").parse::<toml::Table>().unwrap() {
        let of_section = kept.entry(section).or_insert_with(|| toml::Table::new().into());
        of_section.as_table_mut().unwrap().extend(keys.as_table().unwrap().clone());
    }
    let shown = check(&files.write("kept.toml", &kept.to_string(), 0o600), &[]);
    assert!(!shown.contains("changed defaults") && shown.contains("hosts = [\"*\"]"), "{shown}");
}

#[test]
fn a_proxy_without_clients_needs_neither_users_nor_a_certificate() {
    let files = Files::new();
    let base = files.proxy("10.0.0.1:10009").replace("[zookeeper]", "serves_clients = false\n[zookeeper]");
    let content = "[access]\nauthentication = [\"file\"]\nusers_file = \"/absent\"\n[tls]\nmode = \"required\"\n\
                   certificate_file = \"/absent\"\nkey_file = \"/absent\"\n";
    let file = files.write("master.toml", &format!("{base}{content}"), 0o600);
    assert!(run(&["config", "check"], &file, &[]).status.success());
    let error = refusal(&["config", "check"], &file, &[("ENGINEHOUSE_PROXY_SERVES_CLIENTS", "true")]);
    assert!(error.contains("cannot read the users file /absent"), "{error}");
}

#[test]
fn an_invalid_override_is_refused_with_its_name() {
    let files = Files::new();
    let file = files.write("good.toml", "", 0o600);
    for (variable, value, expected) in [
        ("ENGINEHOUSE_PROXY_LISEN", "127.0.0.1:1", "Its keys are"),
        ("ENGINEHOUSE_PROXI_LISTEN", "127.0.0.1:1", "The sections are"),
        ("ENGINEHOUSE_PROXY_LISTEN", "nowhere", "socket address"),
        ("ENGINEHOUSE_MASTER_SURGE", "many", "u32"),
    ] {
        let error = refusal(&["proxy"], &file, &[(variable, value)]);
        assert!(error.contains(variable) && error.contains(expected), "{error}");
    }
}

#[test]
fn a_port_in_use_is_named_and_ends_the_proxy_with_status_1() {
    let files = Files::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let file = files.write("c.toml", &files.proxy(&address), 0o600);
    let error = refusal(&["proxy"], &file, &[]);
    assert!(error.contains(&format!("could not listen on {address}")) && error.contains("in use"), "{error}");
    assert!(error.contains("proxy.listen"), "{error}");
}

#[test]
fn a_file_that_is_none_or_no_toml_is_refused() {
    let files = Files::new();
    let folder = files.0.path().to_owned();
    for (path, expected) in [
        (folder.join("absent"), "cannot read the configuration"),
        (folder.clone(), "cannot read the configuration"),
        (PathBuf::from("/dev/zero"), "bytes"),
        (files.write("a.toml", "[proxy\n", 0o600), "line 1"),
        (files.write("b.toml", "[proxy]\nlisten = 5\n", 0o600), "line 2"),
        (files.write("c.toml", "[proxy]\nsnapshot_poll = \"2 parsecs\"\n", 0o600), "2 parsecs"),
        (files.write("d.toml", "[master]\ntick_interval = \"0s\"\n", 0o600), "master.tick_interval"),
        (files.write("e.toml", &"#\n".repeat(600_000), 0o600), "bytes"),
        (files.write("f.toml", "[proxy]\nlisten = \"0.0.0.0:0\"\n", 0o600), "insecure = true"),
    ] {
        let error = refusal(&["config", "check"], &path, &[]);
        assert!(error.contains(expected), "{}: {error}", path.display());
    }
}

#[test]
fn tables_are_made_once_and_those_of_a_newer_program_are_left_alone() {
    let files = Files::new();
    let database = files.0.path().join("m.sqlite");
    let content = format!("[database]\nurl = \"sqlite://{}?mode=rwc\"\n", database.display());
    let file = files.write("c.toml", &content, 0o600);
    for _ in 0..2 {
        let output = run(&["migrate"], &file, &[]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(text(&output.stdout).contains("is at schema version"), "{}", text(&output.stdout));
    }
    // SQLite is for one process: a metadata agent of its own refuses it.
    let secret = format!("{}{content}", files.proxy("127.0.0.1:0"));
    let error = refusal(&["metadata-agent"], &files.write("m.toml", &secret, 0o600), &[]);
    assert!(error.contains("SQLite") && error.contains("standalone"), "{error}");
}
