//! The Spark engine: a child process of the agent, or another container of its pod.

use std::sync::Arc;

use anyhow::Context as _;
use engine_agent::engine::EngineRuntime;

use super::host::EngineHost;
use crate::launch::{EngineFile, SparkLocation};

mod cause;
mod child;
mod port;
mod sidecar;

/// The folder for everything that Spark writes on one machine; it is deleted with the engine's directory.
const FOLDER: &str = "spark";

/// The engine that the file describes. A child process writes to this process's log.
pub fn runtime(file: &EngineFile, host: &EngineHost) -> anyhow::Result<Arc<dyn EngineRuntime>> {
    Ok(match file.spark.clone().context("the file of the engine has no location of Spark")? {
        SparkLocation::Sidecar { address } => Arc::new(sidecar::Sidecar::new(address)),
        SparkLocation::Child(launch) => {
            let folder = std::path::absolute(FOLDER).context("cannot determine the directory of the engine")?;
            let (cpu_threads, memory_bytes) = (file.cpu_threads, file.memory_bytes);
            let resources = child::Resources { name: file.name.clone(), cpu_threads, memory_bytes };
            Arc::new(child::Child::new(launch, resources, folder, host))
        }
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::panic)]
    use std::time::Duration;

    const DEADLINE: Duration = Duration::from_mins(1);

    /// Waits for the future; panics at the deadline.
    pub async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
        tokio::time::timeout(DEADLINE, future).await.unwrap_or_else(|_| panic!("not in time: {what}"))
    }
}
