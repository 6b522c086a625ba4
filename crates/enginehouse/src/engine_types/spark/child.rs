//! Spark as a child process of the agent, on one machine: its properties and its command line.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use anyhow::Context as _;
use engine_agent::engine::Backend;
use model::engine_name::EngineName;
use model::spark_start::{self, Hopeless};
use orchestrator::java_properties;

use super::location::SparkChild;
use super::server;
use crate::engine_types::child_server::{CommandLine, ServerCommand, TEMPORARY, create_private};

/// The file with Spark's properties, below its folder.
const PROPERTIES: &str = "spark.properties";

/// The identity of the engine, and the resources of its unit. Everything runs in one process: executors are for several
/// machines.
#[derive(Debug, Clone)]
pub struct Resources {
    pub name: EngineName,
    pub cpu_threads: usize,
    pub memory_bytes: u64,
}

/// Spark as a child.
#[derive(Debug, Clone)]
pub struct Child {
    pub launch: SparkChild,
    pub resources: Resources,
}

impl Child {
    fn properties(&self, address: SocketAddr, folder: &Path) -> BTreeMap<String, String> {
        let mut properties = server::listening(self.launch.properties.clone(), address);
        let host = address.ip().to_string();
        let temporary = folder.join(TEMPORARY);
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

    /// Creates the file with the properties.
    fn prepare(&self, address: SocketAddr, folder: &Path) -> io::Result<PathBuf> {
        let path = folder.join(PROPERTIES);
        let text = java_properties::text("Written by the engine agent.", &self.properties(address, folder));
        create_private(&path)?.write_all(text.as_bytes())?;
        Ok(path)
    }
}

impl ServerCommand for Child {
    fn name(&self) -> &'static str {
        "Spark"
    }

    fn command_line(&self, address: SocketAddr, folder: &Path) -> anyhow::Result<CommandLine> {
        let properties = self
            .prepare(address, folder)
            .with_context(|| format!("cannot create the properties of Spark in {}", folder.display()))?;
        // Its web page, if it is enabled, is for this machine alone.
        let mut environment = BTreeMap::from([("SPARK_LOCAL_IP".to_owned(), "127.0.0.1".to_owned())]);
        environment.extend(self.launch.environment.clone());
        Ok(CommandLine { words: server::command_line(&self.launch.program, &properties), environment })
    }

    fn backend(&self, address: SocketAddr) -> Backend {
        server::backend(address)
    }

    fn hopeless(status: ExitStatus, log: &str) -> Option<&'static Hopeless> {
        spark_start::hopeless(status.code(), status.signal(), log)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use std::os::unix::fs::PermissionsExt as _;

    use engine_agent::engine::EngineRuntime as _;

    use super::*;
    use crate::engine_types::child_server::ChildServer;
    use crate::engine_types::child_server::tests::{host, run_directly, script};
    use crate::engine_types::server_end::is_hopeless;
    use crate::engine_types::tests::within;

    /// Spark with a script in place of `spark-submit`.
    fn child(folder: &tempfile::TempDir, text: &str) -> ChildServer<Child> {
        let pairs = |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let launch = SparkChild {
            program: script(folder, text),
            environment: pairs(&[("JAVA_HOME", "/java")]),
            properties: pairs(&[("spark.master", "yarn"), ("spark.app.password", "s3cret")]),
        };
        let resources = Resources { name: EngineName::new("one").unwrap(), cpu_threads: 2, memory_bytes: 600 << 20 };
        run_directly(ChildServer::new(Child { launch, resources }, folder.path().join("spark"), &host(folder)))
    }

    fn read(folder: &tempfile::TempDir, name: &str) -> String {
        std::fs::read_to_string(folder.path().join("spark").join(name)).unwrap()
    }

    #[tokio::test]
    async fn an_end_is_hopeless_only_by_a_cause_that_is_known_to_be_final() {
        let main = "Exception in thread \"main\"";
        for (text, is_final) in [
            (format!("echo '{main} java.lang.ClassNotFoundException: no.such.X'; exit 1"), true),
            (format!("echo '{main} java.net.BindException: Address already in use'; exit 1"), false),
            ("exit 1".to_owned(), false),
            (format!("echo '{main} java.lang.ClassNotFoundException: no.such.X'; kill -9 $$"), false),
        ] {
            let folder = tempfile::tempdir().unwrap();
            // The output of a child is the log of its agent.
            let text = format!("exec > \"${}/log\"; {text}", orchestrator::process::DIRECTORY_VARIABLE);
            let child = child(&folder, &text);
            child.start().await.unwrap();
            let end = within("its end is reported", child.ended()).await;
            assert_eq!(is_hopeless(&*end), is_final, "{text}: {end}");
            assert_eq!(end.to_string().contains("correct the name of the class"), is_final, "{end}");
        }
    }

    #[tokio::test]
    async fn properties_are_in_a_private_file_and_the_environment_is_clean() {
        let folder = tempfile::tempdir().unwrap();
        let child = child(&folder, "env > env; echo \"$@\" > arguments; pwd > pwd; exit 3");
        let backend = child.start().await.unwrap();
        let reason = within("its end is reported", child.ended()).await.to_string();
        assert!(reason.contains("ended with exit status: 3"), "{reason}");
        let marks = [orchestrator::UID_VARIABLE, orchestrator::process::DIRECTORY_VARIABLE];
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
}
