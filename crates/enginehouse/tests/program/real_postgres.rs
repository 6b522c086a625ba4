//! Roles of their own against PostgreSQL: a database that is newer than the program, and one that comes late.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::time::Duration;

use crate::installation::{Signal, ended, program, signal, text};
use crate::key_files::make_keys;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _};

fn server() -> String {
    std::env::var("EH_TEST_POSTGRES").expect("EH_TEST_POSTGRES is a postgres:// URL")
}

async fn execute(url: &str, sql: String) {
    sqlx::any::install_default_drivers();
    let mut connection = sqlx::AnyConnection::connect(url).await.unwrap();
    connection.execute(AssertSqlSafe(sql)).await.unwrap();
    connection.close().await.unwrap();
}

/// A configuration in the folder for a database of this name.
fn configure(folder: &tempfile::TempDir, database: &str, zookeeper: &str) -> String {
    let keys = make_keys(folder.path());
    let (server, _) = server().rsplit_once('/').map(|(server, name)| (server.to_owned(), name.to_owned())).unwrap();
    let url = format!("{server}/{database}");
    let content = format!(
        "[cluster]\nkeys = {keys:?}\n[metadata_agent]\nlisten = \"127.0.0.1:0\"\n\
         [zookeeper]\nconnect = \"{zookeeper}\"\n[database]\nurl = \"{url}\"\n"
    );
    std::fs::write(folder.path().join("enginehouse.toml"), content).unwrap();
    url
}

fn role(folder: &tempfile::TempDir, subcommand: &str) -> std::process::Command {
    let mut command = program();
    command.arg(subcommand).arg("--config").arg(folder.path().join("enginehouse.toml"));
    command
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs EH_TEST_POSTGRES"]
async fn a_newer_database_is_refused_by_agent_and_migrate() {
    let folder = tempfile::tempdir().unwrap();
    let name = format!("eh_newer_{}", std::process::id());
    execute(&server(), format!("CREATE DATABASE {name}")).await;
    let url = configure(&folder, &name, "127.0.0.1:1");
    // Before it is migrated, the error of the agent has the command to run.
    let output = role(&folder, "metadata-agent").output().unwrap();
    assert!(text(&output.stderr).contains("run enginehouse migrate"), "{}", text(&output.stderr));
    assert!(role(&folder, "migrate").output().unwrap().status.success());
    execute(&url, "UPDATE schema_version SET version = version + 1".to_owned()).await;
    for subcommand in ["metadata-agent", "migrate"] {
        let output = role(&folder, subcommand).output().unwrap();
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{subcommand}: {error}");
        for part in [&*name, "schema version", "this program knows up to", "newer"] {
            assert!(error.contains(part), "{subcommand} without {part}: {error}");
        }
    }
    execute(&server(), format!("DROP DATABASE {name}")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs EH_TEST_POSTGRES"]
async fn a_database_that_comes_while_it_is_waited_for_is_opened() {
    let folder = tempfile::tempdir().unwrap();
    let name = format!("eh_late_{}", std::process::id());
    let zookeeper = embedded_zookeeper::Server::start(embedded_zookeeper::Config::default()).await.unwrap();
    configure(&folder, &name, &zookeeper.addr().to_string());
    let mut child = role(&folder, "migrate").stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let line = lines.find(|text| text.contains("accepts no connections yet")).unwrap();
    assert!(line.contains(&name) && line.contains("does not exist"), "{line}");
    execute(&server(), format!("CREATE DATABASE {name}")).await;
    assert!(ended(&mut child, Duration::from_secs(20)).success());
    // The same name in another role, which opens it at once and ends on SIGTERM.
    let mut agent = role(&folder, "metadata-agent").stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let ready = BufReader::new(agent.stdout.take().unwrap()).lines().map(Result::unwrap).next();
    assert!(ready.is_some_and(|line| line.starts_with("ready: 127.0.0.1:")));
    signal(agent.id(), Signal::TERM);
    assert!(ended(&mut agent, Duration::from_secs(20)).success());
    execute(&server(), format!("DROP DATABASE {name}")).await;
}
