//! The benchmark of the hot path: what the two hops of Enginehouse cost, beside two HAProxys in TCP mode.
//!
//! It runs real processes: the program `enginehouse` (proxy, engine agent, and a standalone for the rest of an installation),
//! HAProxy, and a backend that speaks HiveServer2 at memory speed. The driver is this process. Every reply is checked.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`backend`], [`frame`], [`prepared`], [`announcement`] | the backend, and the results that backend and driver know |
//! | [`installation`], [`haproxy`], [`process`], [`open_files`] | what stands between driver and backend |
//! | [`driver`], [`route`] | clients, and the ways that they take |
//! | [`rounds`], [`idle`], [`cores`], [`process_usage`], [`waiting`] | the measurement |
//! | [`measured`], [`spread`], [`drift`], [`targets`], [`report`], [`plot`] | what came of it |
//!
//! Invariants: two routes are compared in the same round only; every wait has a deadline; a process that was started is stopped
//! by its pid, also after an error. `cargo run --release -p hot-path -- --help` lists the options.

mod announcement;
mod backend;
mod cores;
mod drift;
mod driver;
mod frame;
mod haproxy;
mod idle;
mod installation;
mod measured;
mod open_files;
mod plot;
mod prepared;
mod process;
mod process_usage;
mod report;
mod rounds;
mod route;
mod spread;
mod targets;
mod waiting;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;

use ::tests::certificate::Certificate;
use anyhow::{Context as _, Result, bail, ensure};
use clap::{Parser, Subcommand, ValueEnum};
use rustls::ClientConfig;

use backend::BackendArguments;
use cores::{Cores, Placement};
use driver::load::{self, LoadArguments};
use idle::{Busy, Cost};
use installation::{Installation, Plan};
use measured::Measurements;
use open_files::OpenFiles;
use rounds::Volume;
use route::HaproxyRow;

/// The fewest rounds of a measurement.
const ROUNDS: usize = 9;
const QUICK_ROUNDS: usize = 3;
/// The numbers of idle sessions.
const SESSIONS: [usize; 2] = [1_000, 9_000];
const QUICK_SESSIONS: [usize; 2] = [100, 500];

/// Measures what proxy and engine agent cost, beside HAProxy.
#[derive(Debug, Parser)]
#[command(name = "hot-path", disable_help_subcommand = true, args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Role>,
    #[command(flatten)]
    measure: MeasureArguments,
}

#[derive(Debug, Subcommand)]
enum Role {
    /// Run the backend; started by engine agents.
    #[command(hide = true)]
    Backend(BackendArguments),
    /// Load proxies whose engines are the backend, and check every reply, until standard input ends.
    Load(LoadArguments),
}

#[derive(Debug, clap::Args)]
struct MeasureArguments {
    /// Measure with TLS on both hops.
    #[arg(long)]
    tls: bool,
    /// Measure little, to try it out: no result.
    #[arg(long)]
    quick: bool,
    /// The number of rounds, pinned and free each [default: 9].
    #[arg(long, value_name = "N")]
    rounds: Option<usize>,
    /// The numbers of idle sessions, in increasing order [default: 1000,9000].
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    sessions: Option<Vec<usize>>,
    /// Only one part of the benchmark.
    #[arg(long, value_name = "PART")]
    only: Option<Part>,
    /// Draw the plots into this SVG file.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// The program `enginehouse`; without this option its release build is made.
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// The program HAProxy.
    #[arg(long, value_name = "FILE", default_value = haproxy::PROGRAM)]
    haproxy: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Round trips, results and logins.
    Rounds,
    /// Idle sessions.
    Idle,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let ended = match &arguments.command {
        Some(Role::Backend(backend)) => backend::run(backend).map(|()| ExitCode::SUCCESS),
        Some(Role::Load(arguments)) => load::run(arguments).map(|()| ExitCode::SUCCESS),
        None => measure(&arguments.measure),
    };
    ended.unwrap_or_else(|error| {
        if process::is_interrupted() {
            eprintln!("hot-path: interrupted");
        } else {
            eprintln!("hot-path: {error:#}");
        }
        ExitCode::FAILURE
    })
}

/// What both parts have in common.
struct Setting<'a> {
    arguments: &'a MeasureArguments,
    program: PathBuf,
    folder: &'a Path,
    open_files: OpenFiles,
    cores: Cores,
    certificate: Option<Certificate>,
    tls: Option<Arc<ClientConfig>>,
}

impl Setting<'_> {
    fn haproxy(&self) -> haproxy::Options<'_> {
        let connections = self.open_files.connections_of_haproxy();
        haproxy::Options {
            program: &self.arguments.haproxy,
            connections,
            tls: self.certificate.as_ref(),
            folder: self.folder,
        }
    }

    fn plan(&self) -> Plan<'_> {
        Plan { program: &self.program, engines: 1, proxies: 1, tls: self.certificate.as_ref() }
    }

    fn number_of_rounds(&self) -> usize {
        self.arguments.rounds.unwrap_or(if self.arguments.quick { QUICK_ROUNDS } else { ROUNDS })
    }
}

fn measure(arguments: &MeasureArguments) -> Result<ExitCode> {
    let is_result = !arguments.quick;
    if let Some(rounds) = arguments.rounds {
        ensure!(rounds >= if is_result { ROUNDS } else { 1 }, "a measurement has at least {ROUNDS} rounds");
    }
    if let Some(sessions) = &arguments.sessions {
        let is_increasing = sessions.first().is_some_and(|first| *first > 0) && sessions.is_sorted_by(|a, b| a < b);
        ensure!(is_increasing, "--sessions: the numbers must increase, from one or more");
    }
    ensure!(
        cfg!(not(debug_assertions)) || !is_result,
        "a debug build measures nothing; with --quick it can be tried out"
    );
    process::stop_on_signals()?;
    let folder = tempfile::Builder::new().prefix("hot-path-").tempdir()?;
    let certificate = arguments.tls.then(|| Certificate::create(folder.path(), "relay")).transpose()?;
    let tls = certificate.as_ref().map(|files| driver::endpoint::trusting(&files.certificate)).transpose()?;
    let setting = Setting {
        arguments,
        program: program(arguments)?,
        folder: folder.path(),
        open_files: OpenFiles::raise()?,
        cores: Cores::new()?,
        certificate,
        tls,
    };
    print_head(&setting)?;
    // What this process starts inherits the two cores.
    setting.cores.place(Placement::Free, &[], &[])?;
    let idle = (arguments.only != Some(Part::Rounds)).then(|| measure_idle(&setting)).transpose()?;
    let rounds = (arguments.only != Some(Part::Idle)).then(|| measure_rounds(&setting)).transpose()?;
    conclude(&setting, idle.as_ref(), rounds.as_ref())
}

/// What `cargo run` says of this package, and build scripts of dependencies watch: with it, much would be built again each time.
const VARIABLES_OF_THIS_PACKAGE: [&str; 7] = [
    "CARGO_MANIFEST_DIR",
    "CARGO_MANIFEST_LINKS",
    "CARGO_PKG_NAME",
    "CARGO_PKG_VERSION_MAJOR",
    "CARGO_PKG_VERSION_MINOR",
    "CARGO_PKG_VERSION_PATCH",
    "CARGO_PKG_VERSION_PRE",
];

/// The program, built if none is given.
fn program(arguments: &MeasureArguments) -> Result<PathBuf> {
    if let Some(program) = &arguments.program {
        return std::path::absolute(program).context("--program");
    }
    let workspace = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let profile: &[&str] = if cfg!(debug_assertions) { &[] } else { &["--release"] };
    let mut cargo = Command::new(env!("CARGO"));
    for name in VARIABLES_OF_THIS_PACKAGE {
        cargo.env_remove(name);
    }
    let built = cargo.current_dir(workspace).args(["build", "--package", "enginehouse"]).args(profile).status();
    ensure!(built.context("cannot run cargo")?.success(), "enginehouse could not be built");
    let program = std::env::current_exe()?.with_file_name("enginehouse");
    ensure!(program.is_file(), "{} does not exist; name the program with --program", program.display());
    Ok(program)
}

fn print_head(setting: &Setting<'_>) -> Result<()> {
    let Cores { relays, others } = setting.cores;
    println!("program: {}", setting.program.file_name().unwrap_or_default().display());
    println!(
        "peer: {}, TCP mode, nbthread 1, tune.bufsize {}",
        haproxy::version(&setting.arguments.haproxy)?,
        haproxy::BUFFER_BYTES
    );
    println!("pinned: relays on core {relays}; driver, backend and the rest of the installation on core {others}");
    println!("free: every process on both cores");
    println!(
        "TLS: {}",
        if setting.tls.is_some() {
            "towards clients and between the hops; none to the backend, none on the direct route"
        } else {
            "none"
        }
    );
    println!("open files: {} for each process", setting.open_files.0);
    if setting.arguments.quick {
        println!("quick: the figures are no result");
    }
    Ok(())
}

fn measure_idle(setting: &Setting<'_>) -> Result<(Vec<Cost>, Busy)> {
    let by_default: &[usize] = if setting.arguments.quick { &QUICK_SESSIONS } else { &SESSIONS };
    let sessions = setting.arguments.sessions.as_deref().unwrap_or(by_default);
    let rounds = setting.number_of_rounds();
    idle::measure(&idle::Setting {
        plan: setting.plan(),
        haproxy: setting.haproxy(),
        tls: setting.tls.as_ref(),
        open_files: setting.open_files,
        cores: setting.cores,
        sessions,
        rounds,
    })
    .context("idle sessions")
}

fn measure_rounds(setting: &Setting<'_>) -> Result<Measurements> {
    let rounds = setting.number_of_rounds();
    let volume = if setting.arguments.quick { Volume::quick(rounds) } else { Volume::whole(rounds) };
    let installation = Installation::start(&setting.plan(), setting.tls.as_ref())?;
    let row = HaproxyRow::start(installation.backend()?.address, &setting.haproxy(), setting.tls.as_ref())?;
    let routes = route::all(&installation, &row)?;
    rounds::measure(&routes, &volume, setting.cores, installation.standalone()).context("rounds")
}

/// Prints the tables and draws the plots. A run whose direct route has drifted is void, which is an error.
fn conclude(
    setting: &Setting<'_>,
    idle: Option<&(Vec<Cost>, Busy)>,
    rounds: Option<&Measurements>,
) -> Result<ExitCode> {
    let has_tls = setting.tls.is_some();
    let mut targets = Vec::new();
    let mut is_void = false;
    if let Some(measurements) = rounds {
        report::print_rounds(measurements);
        targets.extend(targets::of_rounds(measurements, has_tls));
        is_void = report::print_drifts(&drift::of(measurements));
    }
    if let Some((costs, busy)) = idle {
        report::print_idle(costs, busy);
        // The idle sessions are those of the proxy, so the direct route must be as fast as without them.
        is_void |= busy.drift().is_some_and(|change| change.abs() > drift::LIMIT);
        targets.extend(targets::of_idle(costs, busy, has_tls));
    }
    report::print_targets(&targets);
    if let Some(file) = &setting.arguments.plot {
        let costs = idle.map_or(&[][..], |(costs, _)| costs);
        plot::draw(file, rounds.unwrap_or(&Measurements::default()), costs)?;
        println!("\ndrawn: {}", file.file_name().unwrap_or_default().display());
    }
    if is_void {
        bail!("the run is void: the direct route has drifted by more than {:.0} %", drift::LIMIT * 100.0);
    }
    Ok(ExitCode::SUCCESS)
}
