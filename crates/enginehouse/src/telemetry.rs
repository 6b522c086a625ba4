//! Logs: one line an event, to standard error or to a file of limited length, levels by `ENGINEHOUSE_LOG` (default
//! `info`), JSON with `ENGINEHOUSE_LOG_FORMAT=json`.

mod last_lines;
mod log_file;

use anyhow::Context as _;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

pub use last_lines::LastLines;
use log_file::{KEEP_BYTES, LogFile};

/// What is logged unless the environment says otherwise: our own events; libraries only when they warn. `kube` says
/// nothing: it writes a line for each refused call and each broken watch, which the orchestrator tells with limits.
pub const DEFAULT_FILTER: &str = "warn,enginehouse=info,proxy=info,master=info,engine_agent=info,coordination=info,\
                                  metadata=info,orchestrator=info,datafusion_engine=info,embedded_zookeeper=info,\
                                  hs2=info,planner=info,agent_api=info,sqlx=error,zookeeper_client=error,\
                                  kube_client=off,kube_runtime=off";

/// Starts logging with the given filter unless the environment names one.
pub fn start(default_filter: &str) -> anyhow::Result<()> {
    begin(default_filter, std::io::stderr)
}

/// The same, and keeps the newest lines for whoever asks for them at the end.
pub fn start_keeping_last_lines(default_filter: &str) -> anyhow::Result<LastLines> {
    let kept = LastLines::default();
    let writer = kept.clone();
    begin(default_filter, move || writer.clone())?;
    Ok(kept)
}

/// Starts logging to a file, which is kept from one start to the next and never grows beyond [`KEEP_BYTES`].
#[expect(clippy::disallowed_types, reason = "tracing-subscriber takes a writer in a mutex of the standard library")]
pub fn start_in_file(path: &std::path::Path) -> anyhow::Result<()> {
    let file = LogFile::open(path, KEEP_BYTES).with_context(|| format!("can't write the log {}", path.display()))?;
    begin(DEFAULT_FILTER, std::sync::Mutex::new(file))
}

fn begin<W>(default_filter: &str, writer: W) -> anyhow::Result<()>
where
    W: for<'writer> MakeWriter<'writer> + Send + Sync + 'static,
{
    let text = std::env::var("ENGINEHOUSE_LOG").unwrap_or_else(|_| default_filter.to_owned());
    let filter = EnvFilter::try_new(&text).with_context(|| format!("ENGINEHOUSE_LOG is \"{text}\""))?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer).with_ansi(false);
    // A reader of standard error that is gone would otherwise end the task that logs.
    let builder = builder.log_internal_errors(false);
    if std::env::var("ENGINEHOUSE_LOG_FORMAT").is_ok_and(|format| format == "json") {
        builder.json().init();
    } else {
        builder.with_target(true).init();
    }
    Ok(())
}
