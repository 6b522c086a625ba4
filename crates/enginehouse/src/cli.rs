//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::sql::print::Format;

const ABOUT: &str = "Enginehouse: a multi-tenant gateway and control plane for SQL engines.\n\nFor a demonstration, run: enginehouse \
                     standalone --tour";

/// The command line of the program.
#[derive(Debug, Parser)]
#[command(name = "enginehouse", version, about = ABOUT, disable_help_subcommand = true, arg_required_else_help = true)]
pub struct Arguments {
    /// Print the names of all failpoints of this build, one per line, and exit.
    #[arg(long)]
    pub list_failpoints: bool,
    #[command(subcommand)]
    pub command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run every role in one process with embedded servers; needs no installation or configuration.
    Standalone(StandaloneArguments),
    /// Run SQL statements against a proxy or any other HiveServer2, or start an interactive session.
    Sql(SqlArguments),
    /// Run a proxy, which is also a candidate for master.
    Proxy(ConfigurationArgument),
    /// Run a metadata agent, the only role with database credentials.
    MetadataAgent(ConfigurationArgument),
    /// Run the agent of one engine; started by the master.
    EngineAgent(ConfigurationArgument),
    /// Run a program as a child of an engine agent that ends with the agent.
    #[command(hide = true)]
    RunChild(RunChildArguments),
    /// Create or upgrade the tables of the metadata database.
    Migrate(ConfigurationArgument),
    /// Add a user to a users file, change the password, or delete the user.
    ///
    /// The password is read from the terminal, or from standard input if that is not a terminal.
    Passwd(PasswdArguments),
    /// Make the root key of an installation, and derive the key file of each role from it.
    Keys {
        #[command(subcommand)]
        command: KeysCommand,
    },
    /// Diagnose an installation: report problems and how to fix them, without changing anything.
    ///
    /// Exit status: 0 if there are no problems, 1 if there are, 2 if the installation cannot be read.
    Doctor(DoctorArguments),
    /// Inspect configuration files.
    Config {
        #[command(subcommand)]
        command: ConfigCommand,
    },
}

#[derive(Debug, Subcommand)]
pub enum KeysCommand {
    /// Make a root key. No process needs it: keep it offline.
    Init(KeysInitArguments),
    /// Derive the key files of the roles, which cluster.keys names the folder of.
    Derive(KeysDeriveArguments),
}

#[derive(Debug, Args)]
pub struct KeysInitArguments {
    /// The file to write; it must not exist.
    #[arg(long, value_name = "FILE", default_value = "root.key")]
    pub root: PathBuf,
    /// The name of the installation, as cluster.name has it.
    #[arg(long, value_name = "NAME", default_value = "enginehouse")]
    pub cluster: String,
    /// The cluster secret of version 0.1.0, for an installation that has one: it becomes generation 0.
    #[arg(long, value_name = "FILE")]
    pub from: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct KeysDeriveArguments {
    /// The root key.
    #[arg(long, value_name = "FILE", default_value = "root.key")]
    pub root: PathBuf,
    /// The role; without this option the files of all roles are written.
    #[arg(long, value_enum, value_name = "ROLE")]
    pub role: Option<KeyRole>,
    /// The folder to write to; existing files are replaced.
    #[arg(long, value_name = "DIR", default_value = "keys")]
    pub keys: PathBuf,
    /// The generation that the role signs with [default: the lowest that it accepts].
    #[arg(long = "use", value_name = "N")]
    pub use_generation: Option<u32>,
    /// The generations that the role accepts [default: 1, and 0 if the root key has a cluster secret].
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    pub accept: Option<Vec<u32>>,
}

/// A role with a key file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum KeyRole {
    Proxy,
    Master,
    MetadataAgent,
}

impl From<KeyRole> for keys::Role {
    fn from(role: KeyRole) -> Self {
        match role {
            KeyRole::Proxy => Self::Proxy,
            KeyRole::Master => Self::Master,
            KeyRole::MetadataAgent => Self::MetadataAgent,
        }
    }
}

#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Check a configuration file and print it with all defaults.
    Check(ConfigurationArgument),
}

#[derive(Debug, Args)]
pub struct ConfigurationArgument {
    /// The configuration file.
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
}

#[derive(Debug, Args)]
pub struct PasswdArguments {
    /// The users file.
    #[arg(long, value_name = "FILE", default_value = "users")]
    pub file: PathBuf,
    /// The groups of the user; without this option an existing user keeps its groups.
    #[arg(long, value_name = "GROUP,…", value_delimiter = ',', conflicts_with = "delete")]
    pub groups: Option<Vec<String>>,
    /// Delete the user.
    #[arg(long)]
    pub delete: bool,
    /// The name that the user logs in with.
    #[arg(value_name = "USER")]
    pub user: String,
}

#[derive(Debug, Args)]
pub struct RunChildArguments {
    /// The process id of the agent.
    #[arg(long, value_name = "PID")]
    pub parent: i32,
    /// The program, by its path, and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<PathBuf>,
}

#[derive(Debug, Args)]
pub struct DoctorArguments {
    #[command(flatten)]
    pub target: TargetArguments,
    /// The format of the report.
    #[arg(long, value_enum, default_value_t = DoctorFormat::Text)]
    pub format: DoctorFormat,
}

/// The installation to diagnose, in one of two forms.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub struct TargetArguments {
    /// The configuration file of the installation; parts without a section are skipped.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The data directory of a running standalone.
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
}

/// The format of the doctor's report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum DoctorFormat {
    /// Plain text, aligned.
    Text,
    /// One JSON object.
    Json,
}

#[derive(Debug, Args)]
pub struct StandaloneArguments {
    /// The directory for metadata, engine state and logs.
    #[arg(long, value_name = "DIR", default_value = "./enginehouse-data")]
    pub data_dir: PathBuf,
    /// The address for clients; defaults to proxy.listen, or 127.0.0.1:10009.
    #[arg(long, value_name = "HOST:PORT", value_parser = loopback_or_address)]
    pub listen: Option<SocketAddr>,
    /// A configuration file; environment variables override its keys.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// A folder that external tables may read and write; repeatable.
    #[arg(long, value_name = "FOLDER")]
    pub allow: Vec<PathBuf>,
    /// Run a tour of all features as a client, once all roles are running.
    #[arg(long)]
    pub tour: bool,
    /// Exit at the end of the tour.
    #[arg(long, requires = "tour")]
    pub exit: bool,
    /// The seed for the tour's sample data.
    #[arg(long, value_name = "N", requires = "tour")]
    pub seed: Option<u64>,
}

/// An address; `localhost` is the loopback address and needs no name service.
fn loopback_or_address(text: &str) -> Result<SocketAddr, String> {
    let numeric = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
    numeric.as_deref().unwrap_or(text).parse().map_err(|_| {
        "expected HOST:PORT, with HOST an address such as 127.0.0.1 or [::1], or localhost; port 0 selects a free port"
            .to_owned()
    })
}

#[derive(Debug, Args)]
pub struct SqlArguments {
    /// The server: HOST:PORT or jdbc:hive2://HOST:PORT/…
    #[arg(long, value_name = "URL", default_value = "127.0.0.1:10009")]
    pub url: String,
    /// The user; defaults to the user in the URL, or admin.
    #[arg(short = 'u', long, value_name = "USER")]
    pub user: Option<String>,
    /// The password. Prefer the environment variable: other users of this machine can read the command line.
    #[arg(short = 'p', long, value_name = "PASSWORD", env = "ENGINEHOUSE_PASSWORD", hide_env_values = true)]
    pub password: Option<String>,
    /// A file with a token of authentication method jwt, which is sent in place of a password; it names the user.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Connect with TLS and verify the certificate of the server; the same as ;ssl=true in the URL.
    #[arg(long)]
    pub tls: bool,
    /// The trusted certificates in PEM, instead of those of this machine; implies --tls.
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// A statement to run; repeatable.
    // A statement may begin with a comment, `--`.
    #[arg(short = 'e', long = "execute", value_name = "STATEMENT", allow_hyphen_values = true)]
    pub execute: Vec<String>,
    /// A file with statements to run; - is standard input.
    #[arg(short = 'f', long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// The format of results.
    #[arg(long, value_enum, default_value_t = Format::Table, overrides_with = "format")]
    pub format: Format,
}
