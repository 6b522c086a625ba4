//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::sql::print::Format;

/// What `--help` begins with.
const ABOUT: &str = "Enginehouse: a multi-tenant SQL-engine gateway and control plane.\n\nTo see it work: enginehouse \
                     standalone --tour";

/// The command line of the program.
#[derive(Debug, Parser)]
#[command(name = "enginehouse", version, about = ABOUT, disable_help_subcommand = true, arg_required_else_help = true)]
pub struct Arguments {
    /// Print the names of all failpoints of this build, one a line, and exit.
    #[arg(long)]
    pub list_failpoints: bool,
    /// What to do.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run every role on this machine with embedded parts: nothing to install, nothing to configure.
    Standalone(StandaloneArguments),
    /// Run statements against a proxy (or any HiveServer2), or talk to it.
    Sql(SqlArguments),
    /// Run a proxy, which is also a candidate for master.
    Proxy(ConfigurationArgument),
    /// Run a metadata agent: the only role with database credentials.
    MetadataAgent(ConfigurationArgument),
    /// Run the agent beside one engine; the master starts it.
    EngineAgent(ConfigurationArgument),
    /// Become a child process of an engine agent that ends with it.
    #[command(hide = true)]
    RunChild(RunChildArguments),
    /// Create or upgrade the tables of the metadata database.
    Migrate(ConfigurationArgument),
    /// Look at a whole installation, change nothing, and say what is wrong and what mends it.
    ///
    /// Exit status: 0 nothing is broken, 1 something is, 2 it could not look.
    Doctor(DoctorArguments),
    /// Look at the configuration.
    Config {
        /// What to do with it.
        #[command(subcommand)]
        command: ConfigCommand,
    },
}

/// What to do with the configuration.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Check a configuration file; print what it says with all defaults filled in.
    Check(ConfigurationArgument),
}

/// The file that a role is configured from.
#[derive(Debug, Args)]
pub struct ConfigurationArgument {
    /// The configuration file.
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
}

/// What a child process of an engine agent becomes.
#[derive(Debug, Args)]
pub struct RunChildArguments {
    /// The process id of the agent.
    #[arg(long, value_name = "PID")]
    pub parent: i32,
    /// The program, by its path, and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<PathBuf>,
}

/// What the doctor looks at.
#[derive(Debug, Args)]
pub struct DoctorArguments {
    /// Which installation.
    #[command(flatten)]
    pub target: TargetArguments,
    /// How the findings are printed.
    #[arg(long, value_enum, default_value_t = DoctorFormat::Text)]
    pub format: DoctorFormat,
}

/// One of two ways to name an installation.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub struct TargetArguments {
    /// The configuration file of the installation; what it has no section for is not looked at.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The data directory of a standalone that runs.
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
}

/// How the doctor's findings are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum DoctorFormat {
    /// Plain text, aligned.
    Text,
    /// One JSON object.
    Json,
}

/// The all-in-one.
#[derive(Debug, Args)]
pub struct StandaloneArguments {
    /// Where metadata, engine state and logs are kept.
    #[arg(long, value_name = "DIR", default_value = "./enginehouse-data")]
    pub data_dir: PathBuf,
    /// Where clients connect; by default proxy.listen, or 127.0.0.1:10009.
    #[arg(long, value_name = "HOST:PORT", value_parser = loopback_or_address)]
    pub listen: Option<SocketAddr>,
    /// A configuration file; environment variables override its keys.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// A folder that external tables may read and write; may be given several times.
    #[arg(long, value_name = "FOLDER")]
    pub allow: Vec<PathBuf>,
    /// Play a tour of the whole loop, as a client, once everything runs.
    #[arg(long)]
    pub tour: bool,
    /// Stop when the tour has ended.
    #[arg(long, requires = "tour")]
    pub exit: bool,
    /// The seed of the tour's sample data.
    #[arg(long, value_name = "N", requires = "tour")]
    pub seed: Option<u64>,
}

/// An address; `localhost` is the loopback address and needs no name service.
fn loopback_or_address(text: &str) -> Result<SocketAddr, String> {
    let numeric = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
    numeric.as_deref().unwrap_or(text).parse().map_err(|_| {
        "it is HOST:PORT with HOST a number such as 127.0.0.1 or [::1], or localhost; port 0 takes a free one"
            .to_owned()
    })
}

/// The SQL client.
#[derive(Debug, Args)]
pub struct SqlArguments {
    /// Where to connect: HOST:PORT or jdbc:hive2://HOST:PORT/…
    #[arg(long, value_name = "URL", default_value = "127.0.0.1:10009")]
    pub url: String,
    /// The user; otherwise the one that the URL names, or admin.
    #[arg(short = 'u', long, value_name = "USER")]
    pub user: Option<String>,
    /// The password; on the command line everybody on this machine can read it, in the variable nobody can.
    #[arg(short = 'p', long, value_name = "PASSWORD", env = "ENGINEHOUSE_PASSWORD", hide_env_values = true)]
    pub password: Option<String>,
    /// A statement to run; may be given several times.
    // A statement may begin with a remark, `--`.
    #[arg(short = 'e', long = "execute", value_name = "STATEMENT", allow_hyphen_values = true)]
    pub execute: Vec<String>,
    /// A file of statements to run; - is standard input.
    #[arg(short = 'f', long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// How results are printed.
    #[arg(long, value_enum, default_value_t = Format::Table, overrides_with = "format")]
    pub format: Format,
}
