//! Spark as a child process of the agent, on one machine: without its environment, its keys and its working directory.
//!
//! Spark and its process group end with the agent, whatever ends the agent ([`ChildProcess`]). They have the agent's standard
//! input, which is the lock of the engine, its log, and its uid in their environment: a process that left the group is found
//! by them and killed by the orchestrator's keeper. All that Spark writes by itself is below the engine's own directory.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::DirBuilder;
use std::io::{self, Write as _};
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
use model::engine_name::EngineName;
use orchestrator::{java_properties, process};
use rustix::process::Signal;
use tracing::{info, warn};

use super::super::child_process::{self, ChildProcess};
use super::super::host::EngineHost;
use super::super::supervised::{Supervised, Supervisor};
use super::cause::cause;
use super::port::Reserved;
use crate::launch::SparkChild;
use crate::spark;

/// The default search path of Spark's scripts.
const SEARCH_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// The file with Spark's properties, below its folder.
const PROPERTIES: &str = "spark.properties";
/// Where Spark and Java put their temporary files, below its folder.
const TEMPORARY: &str = "tmp";
/// How long its group may take to end after SIGTERM; then it receives SIGKILL. Less than the agent waits for the end
/// of its engine.
const TERM_GRACE: Duration = Duration::from_secs(7);

/// The identity of the engine, and the resources of its unit. Everything runs in one process: executors are for several
/// machines.
#[derive(Debug, Clone)]
pub struct Resources {
    pub name: EngineName,
    pub cpu_threads: usize,
    pub memory_bytes: u64,
}

/// Spark as a child.
pub struct Child {
    launch: SparkChild,
    resources: Resources,
    folder: PathBuf,
    /// The log that Spark writes to, if it is a file.
    log: Option<PathBuf>,
    /// The variables by which the orchestrator knows what belongs to this engine.
    marks: Vec<(&'static str, OsString)>,
    /// The process that was started.
    pid: OnceLock<i32>,
    /// Builds the command from its words.
    run: fn(&[String]) -> Command,
    supervised: Supervised,
}

impl Child {
    pub fn new(launch: SparkChild, resources: Resources, folder: PathBuf, host: &EngineHost) -> Self {
        let (log, marks) = (host.log_file(), host.variables());
        Self {
            launch,
            resources,
            folder,
            log,
            marks,
            pid: OnceLock::new(),
            run: child_process::bound,
            supervised: Supervised::new(),
        }
    }

    fn properties(&self, address: SocketAddr) -> BTreeMap<String, String> {
        let mut properties = spark::listening(self.launch.properties.clone(), address);
        let host = address.ip().to_string();
        let temporary = self.folder.join(TEMPORARY);
        let java_temporary = format!("-Djava.io.tmpdir=\"{}\"", temporary.display());
        for (key, value) in [
            ("spark.app.name", self.resources.name.to_string()),
            ("spark.master", format!("local[{}]", self.resources.cpu_threads)),
            ("spark.submit.deployMode", "client".to_owned()),
            ("spark.driver.memory", format!("{}m", self.resources.memory_bytes.div_ceil(1 << 20))),
            // Nothing of it can be reached from another machine.
            ("spark.driver.host", host.clone()),
            ("spark.driver.bindAddress", host),
            ("spark.local.dir", temporary.display().to_string()),
            // It stands before the unit's own spark.driver.extraJavaOptions.
            ("spark.driver.defaultJavaOptions", java_temporary),
        ] {
            properties.insert(key.to_owned(), value);
        }
        // Hive's default is a folder that all users of the machine share.
        let scratch = || temporary.join("hive").display().to_string();
        properties.entry("spark.hadoop.hive.exec.scratchdir".to_owned()).or_insert_with(scratch);
        properties
    }

    /// Creates the folder and the file with the properties.
    fn prepare(&self, address: SocketAddr) -> io::Result<PathBuf> {
        DirBuilder::new().recursive(true).mode(0o700).create(self.folder.join(TEMPORARY))?;
        let path = self.folder.join(PROPERTIES);
        let text = java_properties::text("Written by the engine agent.", &self.properties(address));
        // It may contain credentials of the data.
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        file.write_all(text.as_bytes())?;
        Ok(path)
    }

    fn command(&self, properties: &Path) -> io::Result<Command> {
        // Checked here, since otherwise only the log would have the error of the launcher.
        std::fs::metadata(&self.launch.program)?;
        let mut command = (self.run)(&spark::command_line(&self.launch.program, properties));
        command
            .current_dir(&self.folder)
            .env_clear()
            .env("PATH", SEARCH_PATH)
            .env("HOME", &self.folder)
            // Its web page, if it is enabled, is for this machine alone.
            .env("SPARK_LOCAL_IP", "127.0.0.1")
            .envs(&self.launch.environment)
            .envs(self.marks.iter().map(|(variable, value)| (variable, value)))
            .stdin(Stdio::inherit())
            .stdout(Stdio::inherit())
            .stderr(Stdio::inherit());
        Ok(command)
    }
}

#[async_trait]
impl EngineRuntime for Child {
    async fn start(&self) -> Result<Backend, Cause> {
        let port = Reserved::any().context("cannot reserve a loopback port for Spark")?;
        let address = port.address();
        let properties =
            self.prepare(address).with_context(|| format!("cannot create Spark's folder {}", self.folder.display()))?;
        let cannot_start = || format!("cannot start Spark with {}", self.launch.program.display());
        let command = self.command(&properties).with_context(cannot_start)?;
        let log_begins = self.log.as_deref().map_or(0, length);
        let child = ChildProcess::start(command).await.with_context(cannot_start)?;
        info!(pid = child.pid(), %address, "started Spark");
        let _ = self.pid.set(child.pid());
        let log = self.log.clone().map(|path| (path, log_begins));
        self.supervised.set_task(tokio::spawn(supervise(child, self.supervised.supervisor(), port, log))).await;
        Ok(spark::backend(address))
    }

    fn stopped(&self) -> Option<String> {
        let state = process::stopped(*self.pid.get()?)?;
        Some(format!("Spark's process is in state {state}"))
    }

    async fn ended(&self) -> String {
        self.supervised.ended().await
    }

    async fn stop(&self) {
        self.supervised.stop().await;
    }
}

fn length(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |log| log.len())
}

/// Waits for the end of the child, and stops it on request. `log` is its log file and the position at which it began. The
/// port stays reserved until then.
async fn supervise(mut child: ChildProcess, supervisor: Supervisor, _port: Reserved, log: Option<(PathBuf, u64)>) {
    tokio::select! {
        status = child.ended() => {
            let cause = log.and_then(|(path, from)| cause(&path, from)).map(|cause| format!(": {cause}"));
            supervisor.ended(format!("Spark {}{}", describe(&status), cause.unwrap_or_default()));
            return;
        }
        () = supervisor.stop.cancelled() => {}
    }
    // A stopped process receives SIGTERM when it continues.
    if let Err(error) = child.signal(Signal::TERM).and_then(|()| child.signal(Signal::CONT)) {
        warn!(%error, "could not send SIGTERM to Spark");
    }
    if let Ok(status) = tokio::time::timeout(TERM_GRACE, child.ended()).await {
        info!("Spark {}", describe(&status));
        return;
    }
    warn!(grace = model::span::print(TERM_GRACE), "Spark did not end after SIGTERM; killing it");
    if let Err(error) = child.signal(Signal::KILL) {
        warn!(%error, "could not kill Spark");
    }
    let _ = child.ended().await;
}

fn describe(status: &Result<ExitStatus, String>) -> String {
    match status {
        Ok(status) => format!("ended with {status}"),
        Err(error) => format!("was lost: {error}"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use std::os::unix::fs::PermissionsExt as _;

    use rustix::process::{Pid, kill_process};

    use super::super::tests::within;
    use super::*;

    /// Spark with a script in place of `spark-submit`.
    fn child(folder: &tempfile::TempDir, script: &str) -> Child {
        let program = folder.path().join("spark-submit");
        std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).unwrap();
        let pairs = |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let launch = SparkChild {
            program,
            environment: pairs(&[("JAVA_HOME", "/java")]),
            properties: pairs(&[("spark.master", "yarn"), ("spark.app.password", "s3cret")]),
        };
        let resources = Resources { name: EngineName::new("one").unwrap(), cpu_threads: 2, memory_bytes: 600 << 20 };
        // The program of this test has no subcommand that becomes a child.
        let run = |words: &[String]| {
            let mut command = Command::new(&words[0]);
            command.args(&words[1..]);
            command
        };
        let host = EngineHost::Process(process::Guest::new(folder.path(), "an-uid"));
        Child { run, ..Child::new(launch, resources, folder.path().join("spark"), &host) }
    }

    fn read(folder: &tempfile::TempDir, name: &str) -> String {
        std::fs::read_to_string(folder.path().join("spark").join(name)).unwrap()
    }

    #[tokio::test]
    async fn properties_are_in_a_private_file_and_the_environment_is_clean() {
        let folder = tempfile::tempdir().unwrap();
        let child = child(&folder, "env > env; echo \"$@\" > arguments; pwd > pwd; exit 3");
        let backend = child.start().await.unwrap();
        let reason = within("its end is reported", child.ended()).await;
        assert!(reason.contains("ended with exit status: 3"), "{reason}");
        let marks = [orchestrator::UID_VARIABLE, process::DIRECTORY_VARIABLE];
        let own = ["HOME", "JAVA_HOME", "PATH", "PWD", "SPARK_LOCAL_IP", "SHLVL", "OLDPWD", "_"];
        let environment = read(&folder, "env");
        for line in environment.lines() {
            let variable = line.split('=').next().unwrap();
            assert!(own.contains(&variable) || marks.contains(&variable), "{line}");
        }
        assert!(environment.contains(&format!("{}=an-uid\n", marks[0])), "what it leaves behind is found by its uid");
        assert_eq!(read(&folder, "pwd").trim(), folder.path().join("spark").to_string_lossy());
        let arguments = read(&folder, "arguments");
        assert!(arguments.contains("HiveThriftServer2") && !arguments.contains("s3cret"), "{arguments}");
        let mode = std::fs::metadata(folder.path().join("spark").join(PROPERTIES)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let properties = read(&folder, PROPERTIES);
        let port = backend.address.rsplit_once(':').unwrap().1;
        for line in [
            "spark.app.name=one",
            "spark.master=local[2]",
            "spark.driver.memory=600m",
            "spark.driver.bindAddress=127.0.0.1",
            "spark.app.password=s3cret",
            "spark.hadoop.hive.server2.thrift.bind.host=127.0.0.1",
            &format!("spark.hadoop.hive.server2.thrift.port={port}"),
        ] {
            assert!(properties.lines().any(|property| property == line), "{line} is not in\n{properties}");
        }
    }

    #[tokio::test]
    async fn a_stopped_child_is_reported_until_it_continues() {
        let folder = tempfile::tempdir().unwrap();
        let child = child(&folder, "exec /bin/sleep 1000");
        assert_eq!(child.stopped(), None, "it has not started");
        child.start().await.unwrap();
        let send = |signal| kill_process(Pid::from_raw(*child.pid.get().unwrap()).unwrap(), signal).unwrap();
        for (signal, expected) in
            [(Signal::STOP, Some("Spark's process is in state T (stopped)")), (Signal::CONT, None)]
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
        let script = "sleep 1000 & trap 'kill $!; echo asked > asked; exit 0' TERM; echo ready > ready; wait";
        let child = child(&folder, script);
        child.start().await.unwrap();
        let ready = async {
            while !folder.path().join("spark/ready").exists() {
                tokio::task::yield_now().await;
            }
        };
        within("it runs", ready).await;
        within("it has ended", child.stop()).await;
        assert_eq!(read(&folder, "asked").trim(), "asked");
        // A requested end is not reported.
        assert!(!child.supervised.has_ended());
    }

    #[tokio::test]
    async fn a_program_that_is_not_there_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let mut child = child(&folder, "");
        child.launch.program = PathBuf::from("/nowhere/spark-submit");
        let error = child.start().await.unwrap_err().to_string();
        assert!(error.contains("/nowhere/spark-submit") && error.contains("cannot start Spark"), "{error}");
    }
}
