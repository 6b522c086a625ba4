//! The doctor on a running standalone and on what is not there; `tests/scenarios/test_doctor.py` has separate processes
//! and everything that can be broken in them.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Output;

use crate::installation::{Installation, run, text};
use crate::key_files::make_keys;
use serde_json::Value;
use sqlx::{Connection as _, Executor as _};
use tests::certificate::Certificate;

/// Runs the doctor on a standalone; returns its JSON.
fn diagnose(data: &Path) -> (Option<i32>, Value) {
    let output = run(&["doctor", "--data-dir", data.to_str().unwrap(), "--format", "json"]);
    let shown = text(&output.stdout);
    let report =
        serde_json::from_str(&shown).unwrap_or_else(|error| panic!("{error}: {shown}{}", text(&output.stderr)));
    (output.status.code(), report)
}

fn check<'a>(report: &'a Value, name: &str) -> &'a Value {
    let checks = report["checks"].as_array().unwrap();
    checks.iter().find(|check| check["check"] == name).unwrap_or_else(|| panic!("there is no check {name}"))
}

#[test]
fn a_healthy_standalone_has_no_findings() {
    let mut installation = Installation::with_an_engine();
    let folder = installation.data().to_owned();
    let before = std::fs::read_dir(folder.join("engines/engines")).unwrap().count();
    let output = run(&["doctor", "--data-dir", folder.to_str().unwrap()]);
    let shown = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{shown}");
    assert!(shown.ends_with("\nno problems in 38 checks, 3 skipped\n"), "{shown}");
    for part in [
        "\nzookeeper\n  ok       servers          127.0.0.1:",
        "/metadata.sqlite (sqlite) is readable and intact\n",
        "  ok       migrations       up to date: schema version ",
        "  skipped  clock            does not apply: SQLite uses this machine's clock\n",
        "  skipped  timeouts         does not apply: ",
        "  skipped  durability       does not apply: every connection to a file waits for the disk",
        "  ok       proxies          1 of 1 respond\n",
        "  ok       desired engines  1 of 1 desired engines exist\n",
        "  ok       registrations    1 of 1 belong to a permit and a running engine\n",
        "  ok       alter node       none\n",
    ] {
        assert!(shown.contains(part), "without {part}: {shown}");
    }
    let (code, report) = diagnose(&folder);
    assert_eq!((code, report["well"].as_bool(), report["problems"].as_u64()), (Some(0), Some(true), Some(0)));
    assert_eq!(check(&report, "round trips")["verdict"], "ok");
    assert_eq!(std::fs::read_dir(folder.join("engines/engines")).unwrap().count(), before);
    assert_eq!(installation.complaints(), Vec::<String>::new());
    // An entry without a readable name is ignored by the master and reported by the doctor.
    let strange = folder.join("engines/engines/strange");
    std::fs::create_dir(&strange).unwrap();
    std::fs::write(strange.join("engine.json"), "half of a rec").unwrap();
    let (code, report) = diagnose(&folder);
    assert_eq!((code, report["problems"].as_u64()), (Some(1), Some(1)), "{report:#}");
    let entries = check(&report, "entries");
    assert_eq!(entries["verdict"], "problem");
    assert_eq!(entries["findings"][0]["subject"], strange.to_str().unwrap());
    assert!(entries["findings"][0]["mend"].as_str().unwrap().contains("rm -r"), "{entries}");
    std::fs::remove_dir_all(&strange).unwrap();
    assert!(installation.stop().success());
    let output = run(&["doctor", "--data-dir", folder.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("no enginehouse standalone runs in"), "{}", text(&output.stderr));
}

/// Runs SQL on the file of a standalone, which may be running.
async fn execute(data: &Path, sql: String) {
    sqlx::any::install_default_drivers();
    let url = format!("sqlite://{}?mode=rw", data.join("metadata.sqlite").display());
    let mut connection = sqlx::AnyConnection::connect(&url).await.unwrap();
    connection.execute(sqlx::AssertSqlSafe(sql)).await.unwrap();
    connection.close().await.unwrap();
}

/// The one finding of a check.
fn finding<'a>(report: &'a Value, name: &str) -> &'a Value {
    let findings = check(report, name)["findings"].as_array().unwrap();
    assert_eq!(findings.len(), 1, "{report:#}");
    &findings[0]
}

#[tokio::test]
async fn a_missing_database_file_or_another_version_is_reported() {
    let mut installation = Installation::start();
    let data = installation.data().to_owned();
    let (file, aside) = (data.join("metadata.sqlite"), data.join("aside"));
    std::fs::rename(&file, &aside).unwrap();
    let (code, report) = diagnose(&data);
    let gone = finding(&report, "reachable");
    assert_eq!((code, gone["subject"].as_str()), (Some(1), file.to_str()), "{gone}");
    assert!(gone["what"].as_str().unwrap().contains("unable to open"), "{gone}");
    assert_eq!(check(&report, "migrations")["verdict"], "not_looked_at");
    assert!(!file.exists(), "the doctor created a database");
    std::fs::rename(&aside, &file).unwrap();
    for (change, expected) in [("version + 1", "newer than this program"), ("1", "behind this program")] {
        execute(&data, format!("UPDATE schema_version SET version = {change}")).await;
        let (code, report) = diagnose(&data);
        let other = finding(&report, "migrations");
        assert_eq!(code, Some(1));
        assert!(other["what"].as_str().unwrap().contains(expected), "{other}");
    }
    assert!(finding(&diagnose(&data).1, "migrations")["mend"].as_str().unwrap().contains("restart this standalone"));
    execute(&data, format!("UPDATE schema_version SET version = {}", metadata::SCHEMA_VERSION)).await;
    assert_eq!(diagnose(&data).0, Some(0));
    assert!(installation.stop().success());
}

#[tokio::test]
async fn a_damaged_database_file_is_reported() {
    let mut installation = Installation::start();
    assert!(installation.stop().success());
    let data = installation.data().to_owned();
    // A table that is not used, so that everything else works; its only page is damaged.
    execute(&data, "CREATE TABLE unused (word TEXT); INSERT INTO unused VALUES ('an-unused---word')".to_owned()).await;
    let file = data.join("metadata.sqlite");
    let mut bytes = std::fs::read(&file).unwrap();
    let at = bytes.windows(16).position(|window| window == b"an-unused---word").expect("the word is in the file");
    let page = at / 4_096 * 4_096;
    bytes[page..page + 8].fill(0xff);
    std::fs::write(&file, bytes).unwrap();
    installation.start_again();
    let (code, report) = diagnose(&data);
    let damaged = finding(&report, "reachable");
    assert_eq!(code, Some(1));
    assert!(damaged["what"].as_str().unwrap().contains("the file is damaged: "), "{damaged}");
    assert_eq!(check(&report, "migrations")["verdict"], "ok");
    assert!(installation.stop().success());
}

#[test]
fn the_page_of_operations_has_every_check_and_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let (_, of_processes) = diagnose(with_tls(folder.path()).data());
    let of_pods = of_pods(folder.path());
    let mut reported: BTreeSet<String> = [of_processes, of_pods]
        .iter()
        .flat_map(|report| report["checks"].as_array().unwrap())
        .map(|check| format!("{}: {}", check["group"].as_str().unwrap(), check["check"].as_str().unwrap()))
        .collect();
    if !cfg!(feature = "kerberos") {
        reported.insert("master and proxies: keytab".to_owned());
    }
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operations.md")).unwrap();
    let mut group = String::new();
    let mut on_page = BTreeSet::new();
    for line in page.lines() {
        if let Some(heading) = line.strip_prefix("### ") {
            heading.clone_into(&mut group);
        } else if let Some(name) = line.strip_prefix("| `").and_then(|rest| rest.split_once('`')).map(|(name, _)| name)
        {
            on_page.insert(format!("{}: {name}", group.to_lowercase()));
        }
    }
    assert_eq!(on_page, reported, "the page (left) is not what the doctor reports (right)");
}

/// A standalone with a certificate, without which there is no check of it.
fn with_tls(folder: &Path) -> Installation {
    let files = Certificate::create(folder, "server").unwrap();
    let mut installation = Installation::not_started();
    installation.set("ENGINEHOUSE_TLS_MODE", "optional");
    installation.set("ENGINEHOUSE_TLS_CERTIFICATE_FILE", files.certificate.to_str().unwrap());
    installation.set("ENGINEHOUSE_TLS_KEY_FILE", files.key.to_str().unwrap());
    installation.start_again();
    installation
}

#[test]
fn a_certificate_that_expires_soon_or_cannot_be_used_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let installation = with_tls(folder.path());
    // It was made for two days.
    let (code, report) = diagnose(installation.data());
    let what = finding(&report, "certificates")["what"].as_str().unwrap().to_owned();
    assert!(code == Some(0) && what.contains("it expires at 2") && what.ends_with("less than 7 days"), "{what}");
    std::fs::write(folder.path().join("server.key"), "nothing").unwrap();
    let (code, report) = diagnose(installation.data());
    let what = finding(&report, "certificates")["what"].as_str().unwrap().to_owned();
    assert!(code == Some(1) && what.contains("the private key cannot be read"), "{what}");
}

/// The report on an installation with pods of which nothing runs.
fn of_pods(folder: &Path) -> Value {
    let kubeconfig = folder.join("nowhere");
    // With the methods without which there is no check of the users file, of the directory, of tokens and of the keytab.
    let kerberos = if cfg!(feature = "kerberos") { ", \"kerberos\"" } else { "" };
    let more = format!(
        "[access]\nauthentication = [\"file\", \"ldap\", \"jwt\"{kerberos}]\n[ldap]\nurl = \"ldap://127.0.0.1:1\"\nuser_base = \"dc=x\"\n\
         [jwt]\nissuer = \"i\"\naudience = [\"a\"]\njwks_url = \"http://127.0.0.1:1/\"\n\
         [orchestrator]\nkind = \"kubernetes\"\n[kubernetes]\nkubeconfig = \"{}\"\n",
        kubeconfig.display()
    );
    let output = run(&["doctor", "--config", dead(folder, &more).to_str().unwrap(), "--format", "json"]);
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn an_unreachable_cluster_is_reported_without_checks_of_directories() {
    let folder = tempfile::tempdir().unwrap();
    let report = of_pods(folder.path());
    let names: Vec<&str> =
        report["checks"].as_array().unwrap().iter().map(|check| check["check"].as_str().unwrap()).collect();
    assert!(["api server", "rights", "foreign"].iter().all(|name| names.contains(name)), "{names:?}");
    assert!(!["state directory", "disk", "epochs"].iter().any(|name| names.contains(name)), "{names:?}");
    let what = finding(&report, "api server")["what"].as_str().unwrap().to_owned();
    assert!(what.contains("could not configure a Kubernetes client"), "{what}");
    assert!(what.contains("nowhere"), "{what}");
}

#[test]
fn an_unreadable_target_has_an_exit_status_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (nowhere, here) = (path("nowhere"), path(""));
    let blind: [&[&str]; 6] = [
        &["doctor"],
        &["doctor", "--config", "x", "--data-dir", "y"],
        &["doctor", "--config", &nowhere],
        &["doctor", "--data-dir", &nowhere],
        &["doctor", "--data-dir", &here],
        &["doctor", "--data-dir", &here, "--format", "xml"],
    ];
    for arguments in blind {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", text(&output.stderr));
        assert!(!output.stderr.is_empty() && output.stdout.is_empty(), "{arguments:?}");
    }
}

/// An installation of which nothing runs.
fn dead(folder: &Path, more: &str) -> PathBuf {
    let keys = make_keys(folder);
    let file = folder.join("dead.toml");
    let text = format!("[cluster]\nkeys = {keys:?}\n[zookeeper]\nconnect = \"127.0.0.1:1\"\n{more}");
    std::fs::write(&file, text).unwrap();
    file
}

fn run_doctor(file: &Path) -> Output {
    run(&["doctor", "--config", file.to_str().unwrap()])
}

#[test]
fn parts_without_a_section_are_skipped_with_their_reason() {
    let folder = tempfile::tempdir().unwrap();
    let output = run_doctor(&dead(folder.path(), ""));
    let shown = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{shown}");
    for part in [
        "problem: 127.0.0.1:1: it grants no session: Connection refused",
        "fix: start that server, or remove it from zookeeper.connect",
        "skipped  reachable        ",
        "has no section [database]; using metadata agents instead",
        "has no section [orchestrator]",
        "\n1 problem in 2 checks, 39 skipped\n",
    ] {
        assert!(shown.contains(part), "without {part}: {shown}");
    }
}

#[test]
fn an_unreachable_database_is_reported_without_its_password() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("engines");
    let more = format!(
        "[database]\nurl = \"postgres://eh:hidden@127.0.0.1:1/eh\"\n[orchestrator]\nstate_dir = \"{}\"\n",
        state.display()
    );
    let output = run_doctor(&dead(folder.path(), &more));
    let shown = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{shown}");
    assert!(shown.contains("problem: postgres://eh:") && !shown.contains("hidden"), "{shown}");
    assert!(shown.contains("the database does not respond"), "{shown}");
    // The doctor does not create the state directory.
    assert!(shown.contains("a proxy that is a candidate for master creates it") && !state.exists(), "{shown}");
}
