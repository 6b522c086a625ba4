//! A `HiveServer2` server as a child process of the agent: without its environment, its keys and its working directory.
//!
//! The server and its process group end with the agent, whatever ends the agent ([`ChildProcess`]). They have the agent's standard
//! input, which is the lock of the engine, its log, and its uid in their environment: a process that left the group is found
//! by them and killed by the orchestrator's keeper. What it writes by itself is below the engine's own directory.

use std::collections::BTreeMap;
use std::error::Error;
use std::ffi::OsString;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::Context as _;
use async_trait::async_trait;
use engine_agent::engine::{Backend, EngineRuntime};
use model::cause::Cause;
use model::spark_start::Hopeless;
use orchestrator::process;
use rustix::process::Signal;
use tracing::{info, warn};

use super::cause;
use super::child_process::{self, ChildProcess};
use super::host::EngineHost;
use super::port::Reserved;
use super::server_end::{ServerEnd, describe};
use super::supervised::{Supervised, Supervisor};
use crate::launch::USER_VARIABLES;

/// The default search path.
const SEARCH_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// The folder of temporary files, below that of the server.
pub const TEMPORARY: &str = "tmp";
/// How long its group may take to end after SIGTERM; then it receives SIGKILL. Less than the agent waits for the end
/// of its engine.
const TERM_GRACE: Duration = Duration::from_secs(7);

/// What is particular to the server of one engine type.
pub trait ServerCommand: Send + Sync {
    /// The server in messages, such as `Spark`.
    fn name(&self) -> &'static str;
    /// The command that listens at the address. The folder exists, and files for the server may be created in it.
    fn command_line(&self, address: SocketAddr, folder: &Path) -> anyhow::Result<CommandLine>;
    /// The server as its agent connects to it.
    fn backend(&self, address: SocketAddr) -> Backend;
    /// Why a server that ended so, with this end of its log, cannot start, if a repetition does not remove the cause.
    fn hopeless(_status: ExitStatus, _log: &str) -> Option<&'static Hopeless> {
        None
    }
}

/// The command of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandLine {
    /// The first word is the absolute path of the program.
    pub words: Vec<String>,
    /// The environment, in addition to the variables that every server has.
    pub environment: BTreeMap<String, String>,
}

/// A server as a child.
pub struct ChildServer<S> {
    server: S,
    folder: PathBuf,
    /// The log that the server writes to, if it is a file.
    log: Option<PathBuf>,
    /// The variables by which the orchestrator knows what belongs to this engine, and those that name its user.
    marks: Vec<(&'static str, OsString)>,
    /// The variables of the agent that the server does not inherit; `None`: it inherits none at all.
    hidden: Option<&'static [&'static str]>,
    /// The process that was started.
    pid: OnceLock<i32>,
    /// Builds the command from its words.
    run: fn(&[String]) -> Command,
    supervised: Supervised,
}

impl<S: ServerCommand> ChildServer<S> {
    pub fn new(server: S, folder: PathBuf, host: &EngineHost) -> Self {
        Self {
            server,
            folder,
            log: host.log_file(),
            marks: host.variables(),
            hidden: host.hidden_variables(),
            pid: OnceLock::new(),
            run: child_process::bound,
            supervised: Supervised::new(),
        }
    }

    /// Names the user that the engine runs as to Hadoop's libraries and to Spark.
    pub fn naming(mut self, user: Option<&str>) -> Self {
        self.marks.extend(user.into_iter().flat_map(|user| USER_VARIABLES.map(|variable| (variable, user.into()))));
        self
    }

    fn command(&self, line: &CommandLine) -> io::Result<Command> {
        // Checked here, since otherwise only the log would have the error of the launcher.
        std::fs::metadata(line.words.first().map_or("", String::as_str))?;
        let mut command = (self.run)(&line.words);
        match self.hidden {
            None => {
                command.env_clear().env("PATH", SEARCH_PATH);
            }
            Some(hidden) => {
                for variable in hidden {
                    command.env_remove(variable);
                }
            }
        }
        command
            .current_dir(&self.folder)
            .env("HOME", &self.folder)
            .envs(&line.environment)
            .envs(self.marks.iter().map(|(variable, value)| (variable, value)))
            .stdin(Stdio::inherit())
            .stdout(Stdio::inherit())
            .stderr(Stdio::inherit());
        Ok(command)
    }
}

/// Creates a file that only the user of the engine can read: it may contain credentials of the data.
pub fn create_private(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

#[async_trait]
impl<S: ServerCommand> EngineRuntime for ChildServer<S> {
    async fn start(&self) -> Result<Backend, Cause> {
        let name = self.server.name();
        let port = Reserved::any().with_context(|| format!("cannot reserve a loopback port for {name}"))?;
        let address = port.address();
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(self.folder.join(TEMPORARY))
            .with_context(|| format!("cannot create the folder of {name}, {}", self.folder.display()))?;
        let line = self.server.command_line(address, &self.folder)?;
        let cannot_start = || format!("cannot start {name} with {}", line.words.first().map_or("", String::as_str));
        let command = self.command(&line).with_context(cannot_start)?;
        let log_begins = self.log.as_deref().map_or(0, length);
        let child = ChildProcess::start(command).await.with_context(cannot_start)?;
        info!(pid = child.pid(), %address, "started {name}");
        let _ = self.pid.set(child.pid());
        let log = self.log.clone().map(|path| (path, log_begins));
        let end = move |status: &Result<ExitStatus, String>| {
            let log = log.and_then(|(path, from)| cause::read(&path, from).ok()).unwrap_or_default();
            ServerEnd::new(name, status, &log, S::hopeless)
        };
        let supervising = supervise(name, child, self.supervised.supervisor(), port, end);
        self.supervised.set_task(tokio::spawn(supervising)).await;
        Ok(self.server.backend(address))
    }

    fn stopped(&self) -> Option<String> {
        let state = process::stopped(*self.pid.get()?)?;
        Some(format!("the process of {} is in state {state}", self.server.name()))
    }

    async fn ended(&self) -> Cause {
        self.supervised.ended().await
    }

    async fn stop(&self) {
        self.supervised.stop().await;
    }
}

/// Whether a start failed because there is no such program, or it may not be run: another attempt would fail as well.
pub fn is_without_program(error: &(dyn Error + 'static)) -> bool {
    std::iter::successors(Some(error), |&error| error.source())
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|cause| matches!(cause.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied))
}

fn length(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |log| log.len())
}

/// Waits for the end of the child, and stops it on request. `end` describes an end that was not requested. The port stays
/// reserved until then.
async fn supervise(
    name: &'static str,
    mut child: ChildProcess,
    supervisor: Supervisor,
    _port: Reserved,
    end: impl FnOnce(&Result<ExitStatus, String>) -> ServerEnd,
) {
    tokio::select! {
        status = child.ended() => {
            supervisor.ended(end(&status));
            return;
        }
        () = supervisor.stop.cancelled() => {}
    }
    // A stopped process receives SIGTERM when it continues.
    if let Err(error) = child.signal(Signal::TERM).and_then(|()| child.signal(Signal::CONT)) {
        warn!(%error, "could not send SIGTERM to {name}");
    }
    if let Ok(status) = tokio::time::timeout(TERM_GRACE, child.ended()).await {
        info!("{name} {}", describe(&status));
        return;
    }
    warn!(grace = model::span::print(TERM_GRACE), "{name} did not end after SIGTERM; killing it");
    if let Err(error) = child.signal(Signal::KILL) {
        warn!(%error, "could not kill {name}");
    }
    let _ = child.ended().await;
}

#[cfg(test)]
pub mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use std::os::unix::fs::PermissionsExt as _;

    use engine_agent::engine::Key;
    use rustix::process::{Pid, kill_process};

    use super::super::tests::within;
    use super::*;

    /// A script as the program of a server.
    pub fn script(folder: &tempfile::TempDir, text: &str) -> PathBuf {
        let program = folder.path().join("program");
        std::fs::write(&program, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).unwrap();
        program
    }

    pub fn host(folder: &tempfile::TempDir) -> EngineHost {
        EngineHost::Process(process::Guest::new(folder.path(), "an-uid"))
    }

    /// The program of a test has no subcommand that becomes a child.
    pub fn run_directly<S>(child: ChildServer<S>) -> ChildServer<S> {
        let run = |words: &[String]| {
            let mut command = Command::new(&words[0]);
            command.args(&words[1..]);
            command
        };
        ChildServer { run, ..child }
    }

    struct Plain(PathBuf);

    impl ServerCommand for Plain {
        fn name(&self) -> &'static str {
            "the server"
        }

        fn command_line(&self, _address: SocketAddr, _folder: &Path) -> anyhow::Result<CommandLine> {
            Ok(CommandLine { words: vec![self.0.display().to_string()], environment: BTreeMap::new() })
        }

        fn backend(&self, address: SocketAddr) -> Backend {
            Backend { address: address.to_string(), key: Key(String::new()) }
        }
    }

    fn child(folder: &tempfile::TempDir, program: PathBuf) -> ChildServer<Plain> {
        run_directly(ChildServer::new(Plain(program), folder.path().join("server"), &host(folder)))
    }

    #[tokio::test]
    async fn a_stopped_child_is_reported_until_it_continues() {
        let folder = tempfile::tempdir().unwrap();
        let child = child(&folder, script(&folder, "exec /bin/sleep 1000"));
        assert_eq!(child.stopped(), None, "it has not started");
        child.start().await.unwrap();
        let send = |signal| kill_process(Pid::from_raw(*child.pid.get().unwrap()).unwrap(), signal).unwrap();
        for (signal, expected) in
            [(Signal::STOP, Some("the process of the server is in state T (stopped)")), (Signal::CONT, None)]
        {
            send(signal);
            let reported = async {
                while child.stopped().as_deref() != expected {
                    tokio::task::yield_now().await;
                }
            };
            within("its state is reported", reported).await;
        }
        // A stopped child is continued in order to end.
        send(Signal::STOP);
        within("it has ended", child.stop()).await;
        assert_eq!(child.stopped(), None);
    }

    #[tokio::test]
    async fn stop_requests_the_end_and_waits_for_it() {
        let folder = tempfile::tempdir().unwrap();
        let text = "sleep 1000 & trap 'kill $!; echo asked > asked; exit 0' TERM; echo ready > ready; wait";
        let child = child(&folder, script(&folder, text));
        child.start().await.unwrap();
        let ready = async {
            while !folder.path().join("server/ready").exists() {
                tokio::task::yield_now().await;
            }
        };
        within("it runs", ready).await;
        within("it has ended", child.stop()).await;
        assert!(folder.path().join("server/asked").exists());
        // A requested end is not reported.
        assert!(!child.supervised.has_ended());
    }

    #[tokio::test]
    async fn a_program_that_is_not_there_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let child = child(&folder, PathBuf::from("/nowhere/server"));
        let error = child.start().await.unwrap_err();
        assert!(is_without_program(&*error), "the exit code of its agent states that no attempt can succeed");
        let error = error.to_string();
        assert!(error.contains("/nowhere/server") && error.contains("cannot start the server"), "{error}");
    }

    /// In a pod it has the environment of its image, without what identifies the agent.
    #[test]
    fn only_a_child_in_a_pod_inherits_variables_and_not_those_of_its_agent() {
        const HIDDEN: [&str; 2] = ["ENGINEHOUSE_ENGINE_UID", "ENGINEHOUSE_LOG"];
        let folder = tempfile::tempdir().unwrap();
        let program = script(&folder, "");
        let line = CommandLine { words: vec![program.display().to_string()], environment: BTreeMap::new() };
        let variables = |child: &ChildServer<Plain>| -> Vec<(String, bool)> {
            let command = child.command(&line).unwrap();
            let variables = command.get_envs();
            variables.map(|(name, value)| (name.to_string_lossy().into_owned(), value.is_some())).collect()
        };
        let set = |name: &str| (name.to_owned(), true);
        let local = child(&folder, program.clone());
        let marks = local.marks.iter().map(|(name, _)| set(name));
        let mut expected: Vec<_> = marks.chain([set("HOME"), set("PATH")]).collect();
        expected.sort();
        assert_eq!(variables(&local), expected);
        expected.extend([set("HADOOP_USER_NAME"), set("SPARK_USER")]);
        expected.sort();
        assert_eq!(variables(&local.naming(Some("ann"))), expected);
        let in_pod = ChildServer { hidden: Some(&HIDDEN), marks: Vec::new(), ..child(&folder, program.clone()) };
        let removed = HIDDEN.map(|name| (name.to_owned(), false)).into_iter();
        assert_eq!(variables(&in_pod), removed.chain([set("HOME")]).collect::<Vec<_>>());
    }
}
