//! The user that an engine runs as, for units with `RUN_AS 'owner'`.
//!
//! The master checks here what it knows of every place; the orchestrator maps the name to a uid, or refuses it. Both happen before
//! anything is started, and neither falls back to the account of the service.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use model::error::{ErrorKind, UserError};
use model::run_as;
use orchestrator::{RunAs, Spec};

use super::AgentLauncher;

/// The folder below `engines.data_dir` with one folder for each user.
const FOLDER: &str = "run-as";
/// The variables by which Hadoop's libraries and Spark name the user.
pub const USER_VARIABLES: [&str; 2] = ["HADOOP_USER_NAME", "SPARK_USER"];

/// The folders of an engine's data.
pub(super) struct Folders {
    /// The tenant's catalog.
    pub(super) catalog: PathBuf,
    pub(super) scratch: PathBuf,
}

impl AgentLauncher {
    /// The user that the engine runs as; `None`: the account of the service.
    pub(super) fn run_as(&self, launch: &master::Launch<'_>) -> Result<Option<RunAs>, UserError> {
        if launch.configuration.run_as == run_as::RunAs::Service {
            return Ok(None);
        }
        let refused = |detail: &str| {
            UserError::new(ErrorKind::NotSupported, format!("engine \"{}\" cannot run as its owner", launch.engine))
                .detail(detail)
        };
        let user = launch.user.ok_or_else(|| refused("Its slot names no user."))?;
        if !self.names_are_proven {
            return Err(run_as::unproven(&format!("engine \"{}\" cannot run as user \"{user}\"", launch.engine)));
        }
        if self.in_pods {
            return Ok(Some(RunAs { user: user.to_owned(), folders: Vec::new() }));
        }
        if !self.is_root {
            return Err(refused("Only root can start a process as another user, and this master is not root.")
                .hint("Run the masters as root, run engines as pods (orchestrator.kind), or set RUN_AS 'service'."));
        }
        if !matches!(Path::new(user).components().collect::<Vec<_>>().as_slice(), [Component::Normal(_)]) {
            return Err(refused(&format!("No account can have the name \"{user}\".")));
        }
        Ok(Some(RunAs { user: user.to_owned(), folders: vec![self.data_dir.join(FOLDER).join(user)] }))
    }

    /// A user's engines share folders that no other account can read.
    pub(super) fn folders(&self, tenant: &str, run_as: Option<&RunAs>) -> Folders {
        match run_as.and_then(|run_as| run_as.folders.first()) {
            Some(own) => Folders { catalog: own.join("catalog").join(tenant), scratch: own.join("scratch") },
            None => Folders { catalog: self.catalog_dir.join(tenant), scratch: self.data_dir.join("scratch") },
        }
    }
}

/// Completes the spec of an engine that runs as a user: Hadoop's libraries and Spark name it, its executors included.
pub(super) fn complete(spec: &mut Spec, run_as: Option<RunAs>) {
    let Some(run_as) = run_as else { return };
    let name_user = |environment: &mut BTreeMap<String, String>| {
        environment.extend(USER_VARIABLES.map(|variable| (variable.to_owned(), run_as.user.clone())));
    };
    name_user(&mut spec.environment);
    if let Some(spark) = &mut spec.options.spark {
        name_user(&mut spark.environment);
        for variable in USER_VARIABLES {
            spark.properties.insert(format!("spark.executorEnv.{variable}"), run_as.user.clone());
        }
    }
    spec.run_as = Some(run_as);
}
