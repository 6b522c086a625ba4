//! A test fixture: a running `enginehouse standalone` in its own folder, which is terminated with everything that it started.
//!
//! The processes of an installation are found by their working directory; no other process of the machine is touched.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)]

use std::fs::{DirEntry, File, read_dir, read_link};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

pub use rustix::process::Signal;
use rustix::process::{Pid, kill_process};

/// The program under test.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_enginehouse");
/// How long anything here may take before the test fails.
pub const DEADLINE: Duration = Duration::from_mins(1);
/// How long the end may take: engines finish for 10 s, then they are killed.
pub const END_DEADLINE: Duration = Duration::from_secs(17);
const LOOK: Duration = Duration::from_millis(20);

/// What every test's statements begin with: one tenant with one engine.
pub const ONE_ENGINE: [&str; 4] = [
    "CREATE RESOURCE UNIT u DRIVER_CPU 1, DRIVER_MEMORY '512M', MAX_ENGINES 4",
    "CREATE RESOURCE POOL p UNIT_LIST ('u')",
    "CREATE TENANT t RESOURCE_POOL_LIST ('p'), USER_LIST ('ann')",
    "START ENGINE t p u WAIT '1m'",
];

/// The program without anything that the environment could change in it.
pub fn program() -> Command {
    prepared(Command::new(PROGRAM))
}

/// The program with the default dispositions of signals. The background job of a shell inherits an ignored SIGINT, and one that
/// arrives before the program handles it would be lost.
pub fn program_that_heeds_signals() -> Command {
    let mut command = Command::new("env");
    command.args(["--default-signal=INT,TERM", PROGRAM]);
    prepared(command)
}

fn prepared(mut command: Command) -> Command {
    for (variable, _) in std::env::vars_os() {
        if variable.to_string_lossy().starts_with("ENGINEHOUSE_") {
            command.env_remove(variable);
        }
    }
    command.stdin(Stdio::null()).env("HOME", "/nonexistent");
    command
}

/// Runs to its end, and gives what it wrote.
pub fn run(arguments: &[&str]) -> Output {
    program().args(arguments).output().unwrap()
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Whether a process has a handler for a signal. That the signal is blocked does not tell: the C library blocks all of them for
/// the moment in which it creates a thread.
pub fn catches(pid: u32, which: Signal) -> bool {
    mask(pid, "SigCgt:") & bit(which) != 0
}

/// Whether a process has a signal caught or blocked.
pub fn withstands(pid: u32, which: Signal) -> bool {
    (mask(pid, "SigCgt:") | mask(pid, "SigBlk:")) & bit(which) != 0
}

/// A mask of signals in `/proc/PID/status`, which has them in hexadecimal; empty if the process is gone.
fn mask(pid: u32, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let hexadecimal = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("0");
    u64::from_str_radix(hexadecimal.trim(), 16).unwrap()
}

fn bit(signal: Signal) -> u64 {
    1 << (signal.as_raw() - 1)
}

/// Sends a signal to exactly this process.
pub fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(i32::try_from(pid).unwrap()) {
        // It may have ended by itself.
        let _ = kill_process(pid, signal);
    }
}

/// Waits until the question is answered with yes.
pub fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + DEADLINE;
    while !is_so() {
        assert!(Instant::now() < until, "not within {DEADLINE:?}: {what}");
        std::thread::sleep(LOOK);
    }
}

/// Waits for a process that should end.
pub fn ended(child: &mut Child, within: Duration) -> ExitStatus {
    ended_or(child, within, String::new)
}

/// The same, with what explains that it does not end.
pub fn ended_or(child: &mut Child, within: Duration, explanation: impl FnOnce() -> String) -> ExitStatus {
    let until = Instant::now() + within;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if Instant::now() >= until {
            let _ = child.kill();
            panic!("process {} did not end within {within:?}\n{}", child.id(), explanation());
        }
        std::thread::sleep(LOOK);
    }
}

/// The processes of which a thread works in a folder or below it: others may run after the first one has ended.
pub fn processes_below(folder: &Path) -> Vec<u32> {
    let works_there = |thread: DirEntry| read_link(thread.path().join("cwd")).is_ok_and(|cwd| cwd.starts_with(folder));
    let mut found = Vec::new();
    for entry in read_dir("/proc").unwrap().flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
        let Ok(mut threads) = read_dir(entry.path().join("task")) else { continue };
        if threads.any(|thread| thread.is_ok_and(works_there)) {
            found.push(pid);
        }
    }
    found.sort_unstable();
    found
}

/// User and system time of a process, in ticks of 10 ms.
pub fn cpu_ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

/// Waits until an engine computes: a statement that takes long was begun. At rest it uses far less.
pub fn works(engine: u32) {
    let before = cpu_ticks(engine);
    eventually("the engine works", || cpu_ticks(engine) > before + 40);
}

/// A `standalone` that runs, or has run: the folder stays until this goes.
pub struct Installation {
    folder: tempfile::TempDir,
    data: PathBuf,
    child: Option<Child>,
    failpoints: Option<PathBuf>,
    environment: Vec<(String, String)>,
    arguments: Vec<String>,
    /// `host:port` of the proxy.
    pub address: String,
    /// What its URL has behind the address: `;ssl=true`.
    pub url_options: String,
}

impl Installation {
    /// Starts in a new folder and waits until it serves.
    pub fn start() -> Self {
        Self::start_named("data")
    }

    /// The same with a folder of this name.
    pub fn start_named(name: &str) -> Self {
        let mut installation = Self::new(name);
        installation.start_again();
        installation
    }

    /// A new folder, with a data directory of this name, in which nothing runs yet.
    fn new(name: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().canonicalize().unwrap().join(name);
        Self {
            folder,
            data,
            child: None,
            failpoints: None,
            environment: Vec::new(),
            arguments: Vec::new(),
            address: String::new(),
            url_options: String::new(),
        }
    }

    /// Starts in a new folder; whatever it starts takes failpoints from files.
    pub fn with_failpoints() -> Self {
        let mut installation = Self::new("data");
        let failpoints = installation.data.with_file_name("failpoints");
        std::fs::create_dir(&failpoints).unwrap();
        installation.failpoints = Some(failpoints);
        installation.start_again();
        installation
    }

    /// The process, or its first engine to pass the point, is killed there.
    pub fn kill_at(&self, point: &str, pid: Option<u32>) {
        self.arm(&pid.map_or_else(|| point.to_owned(), |pid| format!("{point}@{pid}")), "kill");
    }

    /// The first process to pass the point is held there until it is released.
    pub fn hold_at(&self, point: &str) {
        self.arm(point, "hold");
    }

    /// Lets the process go on that was held at the point.
    pub fn release(&self, point: &str) {
        let pid = self.killed_at(point).unwrap();
        std::fs::remove_file(self.failpoints.as_ref().unwrap().join(format!("{point}.{pid}"))).unwrap();
    }

    fn arm(&self, name: &str, action: &str) {
        let folder = self.failpoints.as_ref().unwrap();
        std::fs::write(folder.join("new"), action).unwrap();
        std::fs::rename(folder.join("new"), folder.join(name)).unwrap();
    }

    /// Who was killed or held at the point.
    pub fn killed_at(&self, point: &str) -> Option<u32> {
        let entries = read_dir(self.failpoints.as_ref().unwrap()).unwrap().flatten();
        let mut names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.find_map(|name| name.strip_prefix(point)?.strip_prefix('.')?.parse().ok())
    }

    /// Waits for the end of `standalone`, which was killed by itself.
    pub fn reap(&mut self) {
        ended(&mut self.child.take().unwrap(), DEADLINE);
    }

    /// Starts in a folder that is there.
    pub fn start_in(folder: &Path) -> Self {
        let mut installation = Self::new("data");
        installation.data = folder.canonicalize().unwrap().join("data");
        installation.start_again();
        installation
    }

    /// A new folder in which nothing runs yet: [`Installation::start_again`] starts it.
    pub fn not_started() -> Self {
        Self::new("data")
    }

    /// Sets a variable of the environment in which it starts.
    pub fn set(&mut self, variable: &str, value: &str) {
        self.environment.push((variable.to_owned(), value.to_owned()));
    }

    /// Starts with these arguments from now on.
    pub fn with_arguments(&mut self, arguments: &[&str]) {
        self.arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
    }

    /// Starts with one tenant that has one engine.
    pub fn with_an_engine() -> Self {
        let installation = Self::start();
        installation.say_all(&ONE_ENGINE);
        installation
    }

    /// Starts once more on the same folder.
    pub fn start_again(&mut self) {
        assert!(self.child.is_none());
        let mut child = self.command(&[]).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let ready = lines.next().map(Result::unwrap).unwrap_or_default();
        self.child = Some(child);
        let address = ready.strip_prefix("ready: jdbc:hive2://").and_then(|rest| rest.split_once('/'));
        let (address, options) = address.unwrap_or_else(|| panic!("it printed {ready:?}; {}", self.standard_error()));
        (self.address, self.url_options) = (address.to_owned(), options.to_owned());
        std::thread::spawn(move || lines.for_each(drop));
    }

    /// The command that runs `standalone` on the folder.
    pub fn command(&self, more: &[&str]) -> Command {
        let mut command = program();
        command
            .args(["standalone", "--listen", "127.0.0.1:0", "--data-dir"])
            .arg(&self.data)
            .args(&self.arguments)
            .args(more);
        command.envs(self.environment.iter().map(|(variable, value)| (variable, value)));
        if let Some(folder) = &self.failpoints {
            command.env("ENGINEHOUSE_FAILPOINTS_FOLDER", folder);
        }
        command.stderr(File::options().create(true).append(true).open(self.folder.path().join("stderr")).unwrap());
        command
    }

    pub fn data(&self) -> &Path {
        &self.data
    }

    pub fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    /// What it wrote to standard error.
    pub fn standard_error(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("stderr")).unwrap_or_default()
    }

    /// Its own log.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.data.join("enginehouse.log")).unwrap_or_default()
    }

    /// The lines of its log at WARN or ERROR.
    pub fn complaints(&self) -> Vec<String> {
        let is_complaint = |line: &&str| line.contains(" WARN ") || line.contains(" ERROR ");
        self.log().lines().filter(is_complaint).map(str::to_owned).collect()
    }

    /// The processes of its engines.
    pub fn engines(&self) -> Vec<u32> {
        processes_below(&self.data)
    }

    /// The SQL client, connected as admin.
    pub fn sql(&self) -> Command {
        let mut command = program();
        command.args(["sql", "--url", &self.address, "--format", "csv"]);
        command
    }

    /// Runs one statement as admin.
    pub fn try_say(&self, statement: &str) -> Result<String, String> {
        let output = self.sql().args(["-e", statement]).output().unwrap();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }

    /// Runs one statement that must succeed; its result without the header line.
    pub fn say(&self, statement: &str) -> String {
        let result = self.try_say(statement).unwrap_or_else(|error| panic!("{statement}: {error}"));
        result.split_once('\n').map(|(_, rows)| rows.trim_end().to_owned()).unwrap_or_default()
    }

    pub fn say_all(&self, statements: &[&str]) {
        for statement in statements {
            self.say(statement);
        }
    }

    /// SIGKILL to `standalone` alone.
    pub fn kill(&mut self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// SIGTERM, and what came of it.
    pub fn stop(&mut self) -> ExitStatus {
        let mut child = self.child.take().unwrap();
        signal(child.id(), Signal::TERM);
        ended(&mut child, END_DEADLINE)
    }
}

impl Drop for Installation {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
        for pid in self.engines() {
            signal(pid, Signal::KILL);
        }
        if std::thread::panicking() {
            eprintln!("the log of the installation:\n{}", self.log());
        }
    }
}

/// The state that must not change: processes, catalog and alterations.
pub fn state(server: &Installation) -> (Vec<u32>, u32, String, String) {
    let (engines, pid, catalog) = catalog(server);
    (engines, pid, catalog, server.say("SHOW ALTERATIONS LIMIT 100"))
}

/// The same without alterations, which may contain a refused statement.
pub fn catalog(server: &Installation) -> (Vec<u32>, u32, String) {
    let dump = [
        "SHOW CREATE TENANT t",
        "SHOW CREATE RESOURCE POOL p",
        "SHOW CREATE RESOURCE UNIT u",
        "SHOW TENANTS",
        "SHOW RESOURCE POOLS",
        "SHOW RESOURCE UNITS",
    ];
    (server.engines(), server.pid(), dump.map(|statement| server.say(statement)).join("\n"))
}

/// Reads everything that a pipe gives.
pub fn read_all(pipe: Option<impl std::io::Read>) -> String {
    let mut all = Vec::new();
    pipe.unwrap().read_to_end(&mut all).unwrap();
    text(&all)
}
