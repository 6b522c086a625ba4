//! Logging: one line for each event, to standard error or to a file of limited length. `ENGINEHOUSE_LOG` sets the filter
//! (default `info`), `ENGINEHOUSE_LOG_FORMAT=json` the format.

mod last_lines;
mod log_file;

use anyhow::Context as _;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

pub use last_lines::LastLines;
use log_file::{KEEP_BYTES, LogFile};

/// The variable with the filter.
pub const LOG_VARIABLE: &str = "ENGINEHOUSE_LOG";
/// The variable with the format.
pub const FORMAT_VARIABLE: &str = "ENGINEHOUSE_LOG_FORMAT";
/// The default filter: our own events, and warnings of libraries. `kube` is off: it logs every refused call and broken watch,
/// which the orchestrator logs with a throttle. `rustls` warns of what an anonymous client sends, each time and without its
/// address.
pub const DEFAULT_FILTER: &str = "warn,enginehouse=info,proxy=info,master=info,engine_agent=info,coordination=info,\
                                  metadata=info,orchestrator=info,datafusion_engine=info,embedded_zookeeper=info,\
                                  hs2=info,planner=info,agent_api=info,audit=info,authentication=info,sqlx=error,zookeeper_client=error,rustls=error,\
                                  kube_client=off,kube_runtime=off";

/// Starts logging with the given filter unless the environment names one.
pub fn start(default_filter: &str) -> anyhow::Result<()> {
    begin(default_filter, std::io::stderr)
}

/// Starts logging, and keeps the newest lines in memory.
pub fn start_keeping_last_lines(default_filter: &str) -> anyhow::Result<LastLines> {
    let kept = LastLines::default();
    let writer = kept.clone();
    begin(default_filter, move || writer.clone())?;
    Ok(kept)
}

/// Starts logging to a file, which survives restarts and never grows beyond [`KEEP_BYTES`].
#[expect(clippy::disallowed_types, reason = "tracing-subscriber takes a writer in a mutex of the standard library")]
pub fn start_in_file(path: &std::path::Path) -> anyhow::Result<()> {
    let file =
        LogFile::open(path, KEEP_BYTES).with_context(|| format!("cannot write the log file {}", path.display()))?;
    begin(DEFAULT_FILTER, std::sync::Mutex::new(file))
}

fn begin<W>(default_filter: &str, writer: W) -> anyhow::Result<()>
where
    W: for<'writer> MakeWriter<'writer> + Send + Sync + 'static,
{
    let text = std::env::var(LOG_VARIABLE).unwrap_or_else(|_| default_filter.to_owned());
    let filter = EnvFilter::try_new(&text).with_context(|| format!("{LOG_VARIABLE} is \"{text}\""))?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer).with_ansi(false);
    // Otherwise a closed standard error would end the task that logs.
    let builder = builder.log_internal_errors(false);
    if std::env::var(FORMAT_VARIABLE).is_ok_and(|format| format == "json") {
        builder.json().init();
    } else {
        builder.with_target(true).init();
    }
    Ok(())
}
