//! The tour: a script that runs through the proxy's own port, with the code of `enginehouse sql`.
//!
//! `{samples}` is the folder of the sample data; `{engine}` is the current engine of the last result with a column `engine`.
//! Comments in braces are instructions and are not printed: `{refused 53000}` precedes a statement that must be refused, with this
//! SQLSTATE; `{new session}` one that a new session runs, after the other one was closed; `{until empty}` a query that is repeated until it
//! has no rows.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context as _;

use super::data_dir::DataDir;
use crate::output::print_line;
use crate::sql::connection::{Connection, Login};
use crate::sql::print::Format;
use crate::sql::url::ServerUrl;
use crate::sql::{runner, script};

const SCRIPT: &str = include_str!("tour.sql");
/// The user of the session.
const USER: &str = "admin";
/// How long and how often a query is repeated that is to have no rows.
const EMPTY_WITHIN: Duration = Duration::from_mins(1);
const EMPTY_POLL: Duration = Duration::from_millis(100);
/// The number of rides in the sample data set.
#[cfg(feature = "datafusion-engine")]
const RIDES: u64 = 200_000;

/// Runs all statements; returns `false` after a failed one, which is printed.
pub async fn play(address: SocketAddr, data: &DataDir, seed: Option<u64>) -> anyhow::Result<bool> {
    let seed = seed.unwrap_or_else(random_seed);
    make_sample(data, seed).await?;
    print_line(&format!(
        "\nA tour of Enginehouse. Every statement below is sent to {address}, as any client would send it."
    ));
    let target = ServerUrl::parse(&format!("{address}"))?;
    let login = Login { target: &target, tls: None, user: USER, password: "", is_token: false };
    let mut connection = Connection::open(&login).await?;
    let mut engine = String::new();
    let samples = data.samples().display().to_string();
    let mut all_well = true;
    for statement in script::statements(SCRIPT) {
        let text = statement.text.replace("{samples}", &samples).replace("{engine}", &engine);
        let instructed =
            |word: &str| statement.remarks.iter().find_map(|remark| instruction(remark)?.strip_prefix(word));
        let refusal = instructed("refused ");
        print_line("");
        for remark in statement.remarks.iter().filter(|remark| instruction(remark).is_none()) {
            print_line(&format!("-- {}", remark.replace("{seed}", &seed.to_string())));
        }
        print_line(&format!("{text};"));
        if instructed("new session").is_some() {
            connection.reopen(&login).await?;
        }
        if instructed("until empty").is_some() {
            wait_until_empty(&mut connection, &text).await?;
        }
        match runner::run_captured(&mut connection, &text, Format::Table).await? {
            Ok(_) if refusal.is_some() => {
                print_line("The statement was not refused.");
                all_well = false;
                break;
            }
            Ok(captured) => {
                if let Some(named) = captured.current_engine() {
                    engine = named;
                }
            }
            Err(error) => {
                print_line(&runner::shown(&error));
                if refusal != Some(error.sqlstate()) {
                    all_well = false;
                    break;
                }
            }
        }
    }
    connection.close().await;
    print_line(&format!("\n{}", if all_well { "The tour is complete." } else { "The tour failed." }));
    Ok(all_well)
}

/// The instruction for the next statement, if the comment is one: other braces stand for values.
fn instruction(remark: &str) -> Option<&str> {
    remark.trim().strip_prefix('{')?.strip_suffix('}')
}

/// Repeats a query until it has no rows.
async fn wait_until_empty(connection: &mut Connection, text: &str) -> anyhow::Result<()> {
    let deadline = tokio::time::Instant::now() + EMPTY_WITHIN;
    while runner::has_rows(connection, text).await? {
        anyhow::ensure!(tokio::time::Instant::now() < deadline, "after {EMPTY_WITHIN:?} there are rows left: {text}");
        tokio::time::sleep(EMPTY_POLL).await;
    }
    Ok(())
}

fn random_seed() -> u64 {
    rand::random_range(1..1_000_000)
}

/// Writes the sample data on its own thread: it takes seconds in a debug build, and must not delay the other parts or a
/// shutdown. A truncated file is written again by the next tour.
#[cfg(feature = "datafusion-engine")]
async fn make_sample(data: &DataDir, seed: u64) -> anyhow::Result<()> {
    let folder = data.samples().join("rides");
    std::fs::create_dir_all(&folder)?;
    let file = folder.join("rides.parquet");
    let (report, written) = tokio::sync::oneshot::channel();
    std::thread::Builder::new().name("sample".to_owned()).spawn(move || {
        let _ = report.send(datafusion_engine::sample::write_rides(&file, seed, RIDES));
    })?;
    written.await.context("the thread that writes the sample data set panicked")?.context("the sample data set")?;
    print_line(&format!("sample data set: {RIDES} rides from seed {seed}, {}", folder.display()));
    Ok(())
}

#[cfg(not(feature = "datafusion-engine"))]
#[allow(clippy::unused_async, reason = "the same signature as with the feature")]
async fn make_sample(_data: &DataDir, _seed: u64) -> anyhow::Result<()> {
    Err(anyhow::anyhow!("this build has no engine for queries")).context("build with the feature datafusion-engine")
}
