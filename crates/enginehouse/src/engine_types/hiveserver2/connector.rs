//! The connector of type `hiveserver2`: the server is a child process of the agent, also in a pod.
//!
//! The agent presents the names of users with a password that only this engine has. A server without authentication, which is
//! the default of `HiveServer2`, accepts any password; another one can compare it with the variable [`PASSWORD_VARIABLE`].

use std::collections::BTreeMap;
use std::error::Error;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use engine_agent::engine::{Backend, EngineRuntime, Key};
use model::table_catalog::TableCatalog;
use orchestrator::java_properties;

use super::launch::ServerLaunch;
use super::section::SECTION;
use super::template::{CommandTemplate, Values};
use crate::engine_file::EngineFile;
use crate::engine_types::Connector;
use crate::engine_types::child_server::{
    ChildServer, CommandLine, ServerCommand, TEMPORARY, create_private, is_without_program,
};
use crate::engine_types::host::EngineHost;

/// The variable of the server's environment with the password that its agent presents.
const PASSWORD_VARIABLE: &str = "ENGINEHOUSE_SERVER_PASSWORD";
/// The variable with the folder for temporary files.
const TEMPORARY_VARIABLE: &str = "TMPDIR";
/// The folder of the server: below the engine's directory, in a pod below its volume.
const FOLDER: &str = "server";
/// The file with the properties, below that folder.
const PROPERTIES: &str = "server.properties";

/// The connector of type `hiveserver2`.
#[derive(Debug)]
pub struct HiveServer2Connector;

impl Connector for HiveServer2Connector {
    fn runtime(&self, file: &EngineFile, host: &EngineHost) -> anyhow::Result<Arc<dyn EngineRuntime>> {
        let folder = match host {
            EngineHost::Process(_) => {
                std::path::absolute(FOLDER).context("cannot determine the directory of the engine")?
            }
            EngineHost::Pod(_) => file.scratch_dir.join(FOLDER),
        };
        Ok(Arc::new(ChildServer::new(Server::new(file)?, folder, host).naming(file.run_as.as_deref())))
    }

    fn catalog(&self, file: &EngineFile, _host: &EngineHost) -> TableCatalog {
        if file.has_metastore { TableCatalog::Shared } else { TableCatalog::Own }
    }

    /// Whether the program of the template is missing.
    fn is_misconfigured(&self, error: &(dyn Error + 'static)) -> bool {
        is_without_program(error)
    }
}

/// The server of one engine.
struct Server {
    file: EngineFile,
    launch: ServerLaunch,
    template: CommandTemplate,
}

impl Server {
    fn new(file: &EngineFile) -> anyhow::Result<Self> {
        let launch: ServerLaunch = file.connector()?;
        let template = CommandTemplate::parse(SECTION, &launch.template).map_err(|error| anyhow::anyhow!("{error}"))?;
        Ok(Self { file: file.clone(), launch, template })
    }
}

impl ServerCommand for Server {
    fn name(&self) -> &'static str {
        "the server"
    }

    fn command_line(&self, address: SocketAddr, folder: &Path) -> anyhow::Result<CommandLine> {
        let properties_file = folder.join(PROPERTIES);
        if self.template.has_properties_file() {
            let text = java_properties::text("Written by the engine agent.", &self.launch.properties);
            create_private(&properties_file)
                .and_then(|mut file| file.write_all(text.as_bytes()))
                .with_context(|| format!("cannot create {}", properties_file.display()))?;
        }
        let values = Values {
            address,
            directory: folder.to_owned(),
            properties_file,
            cores: self.file.cpu_threads,
            memory_bytes: self.file.memory_bytes,
            engine: self.file.name.clone(),
            tenant: self.file.tenant.to_string(),
            pool: self.launch.pool.clone(),
            unit: self.launch.unit.clone(),
        };
        let filled = self.template.fill(&values, &self.launch.properties);
        let mut environment = BTreeMap::from([
            (TEMPORARY_VARIABLE.to_owned(), folder.join(TEMPORARY).display().to_string()),
            (PASSWORD_VARIABLE.to_owned(), self.file.backend_key.text().to_owned()),
        ]);
        environment.extend(filled.environment);
        Ok(CommandLine { words: filled.words, environment })
    }

    fn backend(&self, address: SocketAddr) -> Backend {
        Backend { address: address.to_string(), key: Key(self.file.backend_key.text().to_owned()) }
    }
}
