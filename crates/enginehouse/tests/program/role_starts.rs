//! Errors at the start of a role are immediate and specific: a port in use, an unreachable database, one that a newer program
//! has migrated.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use crate::installation::{
    END_DEADLINE, Installation, Signal, catches, ended, eventually, program, signal, state, text,
};
use crate::key_files::make_keys;
use sqlx::{Connection as _, Executor as _};
use tokio::net::TcpSocket;

/// At once: no wait of any role is that short.
const AT_ONCE: Duration = Duration::from_secs(7);

/// A configuration of a metadata agent in a folder of its own.
struct Role {
    folder: tempfile::TempDir,
}

impl Role {
    fn new(listen: &str, database: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let keys = make_keys(folder.path());
        let content = format!(
            "[cluster]\nkeys = {keys:?}\n[metadata_agent]\nlisten = \"{listen}\"\n\
             [zookeeper]\nconnect = \"127.0.0.1:1\"\n[database]\nurl = \"{database}\"\n"
        );
        std::fs::write(folder.path().join("enginehouse.toml"), content).unwrap();
        Self { folder }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("enginehouse.toml")
    }

    fn run(&self, subcommand: &str) -> Output {
        program().arg(subcommand).arg("--config").arg(self.file()).output().unwrap()
    }
}

fn sqlite(path: &Path) -> String {
    format!("sqlite://{}?mode=rwc", path.display())
}

/// Runs SQL on a database that no role has open.
async fn execute(url: &str, sql: &'static str) {
    sqlx::any::install_default_drivers();
    let mut connection = sqlx::AnyConnection::connect(url).await.unwrap();
    connection.execute(sql).await.unwrap();
    connection.close().await.unwrap();
}

#[test]
fn a_metadata_agent_reports_a_used_port_before_it_opens_its_database() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    // A database that takes connections and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let database = format!("postgres://nobody@{}/none", silent.local_addr().unwrap());
    let role = Role::new(&address, &database);
    let began = Instant::now();
    let output = role.run("metadata-agent");
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains(&address) && error.contains("in use") && !error.contains("panicked"), "{error}");
    assert!(began.elapsed() < AT_ONCE, "{:?}", began.elapsed());
}

#[test]
fn a_database_that_is_not_there_is_named_at_once_and_waited_for() {
    // Bound and not listening: it refuses connections, and no other process gets the port.
    let nowhere = TcpSocket::new_v4().unwrap();
    nowhere.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let database = format!("postgres://nobody:hunter2@{}/none", nowhere.local_addr().unwrap());
    let role = Role::new("127.0.0.1:0", &database);
    for subcommand in ["metadata-agent", "migrate"] {
        let mut command = program();
        command.arg(subcommand).arg("--config").arg(role.file()).stderr(Stdio::piped()).stdout(Stdio::null());
        let began = Instant::now();
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        let line = lines.by_ref().find(|text| text.contains("accepts no connections yet")).unwrap();
        assert!(line.contains("WARN") && line.contains("refused"), "{line}");
        assert!(began.elapsed() < AT_ONCE, "{:?}", began.elapsed());
        // It keeps waiting, logs nothing twice, and ends with the reason.
        let rest: Vec<String> = lines.collect();
        assert_eq!(ended(&mut child, AT_ONCE).code(), Some(1));
        assert!(began.elapsed() > Duration::from_secs(8), "{:?}", began.elapsed());
        let rest = rest.join("\n");
        assert!(rest.contains("refused") && !rest.contains("yet") && !rest.contains("hunter2"), "{rest}");
    }
}

#[test]
fn a_metadata_agent_waiting_for_its_database_ends_on_sigterm() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let database = format!("postgres://nobody@{}/none", silent.local_addr().unwrap());
    let role = Role::new("127.0.0.1:0", &database);
    let mut command = program();
    command.arg("metadata-agent").arg("--config").arg(role.file()).stderr(Stdio::null()).stdout(Stdio::null());
    let mut child = command.spawn().unwrap();
    // It has come to its database: that is where it waits.
    silent.accept().unwrap();
    signal(child.id(), Signal::TERM);
    assert!(ended(&mut child, AT_ONCE).success());
}

#[test]
fn a_hang_up_ends_no_role() {
    // A database that takes connections and never answers; ZooKeeper is not there.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let role = Role::new("127.0.0.1:0", &format!("postgres://nobody@{}/none", silent.local_addr().unwrap()));
    for subcommand in ["metadata-agent", "proxy"] {
        let mut command = program();
        command.arg(subcommand).arg("--config").arg(role.file()).env("ENGINEHOUSE_PROXY_LISTEN", "127.0.0.1:0");
        let mut child = command.stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        eventually("it has its handlers", || catches(child.id(), Signal::HUP));
        // The signal with the lower number is delivered first: it would be in the status.
        signal(child.id(), Signal::HUP);
        signal(child.id(), Signal::TERM);
        let status = ended(&mut child, END_DEADLINE);
        assert!(status.success(), "{subcommand}: {status}");
    }
}

#[tokio::test]
async fn a_database_that_a_newer_program_has_migrated_is_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("metadata.db");
    let role = Role::new("127.0.0.1:0", &sqlite(&path));
    let migrated = role.run("migrate");
    assert!(migrated.status.success(), "{}", text(&migrated.stderr));
    assert!(text(&migrated.stdout).contains("is at schema version"), "{}", text(&migrated.stdout));
    execute(&sqlite(&path), "UPDATE schema_version SET version = version + 1").await;
    let before = std::fs::read(&path).unwrap();
    let output = role.run("migrate");
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    for part in ["metadata.db", "schema version", "this program knows up to", "newer"] {
        assert!(error.contains(part), "without {part}: {error}");
    }
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[tokio::test]
async fn standalone_refuses_the_data_of_a_newer_one_and_leaves_it() {
    let mut installation = Installation::with_an_engine();
    assert!(installation.stop().success());
    let path = installation.data().join("metadata.sqlite");
    execute(&sqlite(&path), "UPDATE schema_version SET version = version + 1").await;
    let output = installation.command(&[]).stderr(Stdio::piped()).output().unwrap();
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("schema version") && error.contains("newer"), "{error}");
    assert_eq!(installation.engines(), Vec::<u32>::new());
    // With the program that is newer, here the same one, everything is there.
    execute(&sqlite(&path), "UPDATE schema_version SET version = version - 1").await;
    installation.start_again();
    assert!(installation.say("SHOW TENANTS").starts_with("t,"), "{}", installation.say("SHOW TENANTS"));
    assert!(installation.stop().success());
}

#[test]
fn a_failed_start_leaves_a_running_installation_unchanged() {
    let mut server = Installation::with_an_engine();
    let before = state(&server);
    let elsewhere = tempfile::tempdir().unwrap();
    let refused = |mut command: std::process::Command, parts: &[&str]| {
        let output = command.stderr(Stdio::piped()).output().unwrap();
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(parts.iter().all(|part| error.contains(part)) && !error.contains("panicked"), "{error}");
    };
    refused(server.command(&[]), &["another enginehouse standalone", "--data-dir"]);
    let mut same_port = program();
    same_port.args(["standalone", "--listen", &server.address, "--data-dir"]).arg(elsewhere.path().join("data"));
    refused(same_port, &[&server.address, "in use"]);
    let typo = elsewhere.path().join("typo.toml");
    std::fs::write(&typo, format!("[proxy]\nlistn = \"{}\"\n", server.address)).unwrap();
    let mut role = program();
    role.arg("proxy").arg("--config").arg(&typo);
    refused(role, &["typo.toml", "line 2", "`listn`", "`listen`"]);
    assert_eq!(state(&server), before);
    assert_eq!(server.say("SELECT 1"), "1");
    assert!(server.stop().success());
}
