//! The tour: a file of statements, played through the proxy's own port by the code of `enginehouse sql`.
//!
//! `{samples}` in it is the folder of the sample data; `{engine}` is the engine that the last result with a column
//! `engine` named as current.

use std::net::SocketAddr;

use anyhow::Context as _;

use super::data_dir::DataDir;
use crate::output::print_line;
use crate::sql::connection::Connection;
use crate::sql::print::Format;
use crate::sql::url::ServerUrl;
use crate::sql::{runner, script};

const SCRIPT: &str = include_str!("tour.sql");
/// Whose statements they are.
const USER: &str = "admin";
/// Rides in the sample data set.
#[cfg(feature = "datafusion-engine")]
const RIDES: u64 = 200_000;

/// Plays all statements; `false` when one of them failed, which is printed.
pub async fn play(address: SocketAddr, data: &DataDir, seed: Option<u64>) -> anyhow::Result<bool> {
    let seed = seed.unwrap_or_else(random_seed);
    make_sample(data, seed).await?;
    print_line(&format!(
        "\nA tour of the whole loop. Everything below goes through {address}, as any client's statements do."
    ));
    let target = ServerUrl::parse(&format!("{address}"))?;
    let mut connection = Connection::open(&target, USER, "").await?;
    let mut engine = String::new();
    let samples = data.samples().display().to_string();
    let mut all_well = true;
    for statement in script::statements(SCRIPT) {
        let text = statement.text.replace("{samples}", &samples).replace("{engine}", &engine);
        print_line("");
        for remark in &statement.remarks {
            print_line(&format!("-- {}", remark.replace("{seed}", &seed.to_string())));
        }
        print_line(&format!("{text};"));
        match runner::run_captured(&mut connection, &text, Format::Table).await? {
            Ok(captured) => {
                if let Some(named) = captured.current_engine() {
                    engine = named;
                }
            }
            Err(error) => {
                print_line(&runner::shown(&error));
                all_well = false;
                break;
            }
        }
    }
    connection.close().await;
    print_line(&format!("\n{}", if all_well { "The tour has ended." } else { "The tour ended early." }));
    Ok(all_well)
}

fn random_seed() -> u64 {
    rand::random_range(1..1_000_000)
}

/// Writing takes seconds in a debug build, on a thread of its own: neither the other parts nor the end of the process wait
/// for it. A file that is cut short is written again by the next tour.
#[cfg(feature = "datafusion-engine")]
async fn make_sample(data: &DataDir, seed: u64) -> anyhow::Result<()> {
    let folder = data.samples().join("rides");
    std::fs::create_dir_all(&folder)?;
    let file = folder.join("rides.parquet");
    let (report, written) = tokio::sync::oneshot::channel();
    std::thread::Builder::new().name("sample".to_owned()).spawn(move || {
        let _ = report.send(datafusion_engine::sample::write_rides(&file, seed, RIDES));
    })?;
    written.await.context("the thread that writes the sample data set broke down")?.context("the sample data set")?;
    print_line(&format!("sample data set: {RIDES} rides from seed {seed}, {}", folder.display()));
    Ok(())
}

#[cfg(not(feature = "datafusion-engine"))]
#[allow(clippy::unused_async, reason = "the same signature as with the feature")]
async fn make_sample(_data: &DataDir, _seed: u64) -> anyhow::Result<()> {
    Err(anyhow::anyhow!("this build has no engine to run queries with"))
        .context("build with the feature datafusion-engine")
}
