//! The `DataFusion` engine: runs in the engine agent's own process.

#[cfg(feature = "datafusion-engine")]
use std::error::Error;
use std::sync::Arc;

use engine_agent::engine::EngineRuntime;
use model::table_catalog::TableCatalog;

use crate::engine_file::EngineFile;
use crate::engine_types::Connector;
use crate::engine_types::host::EngineHost;

/// The connector of type `datafusion`.
#[derive(Debug)]
pub struct DatafusionConnector;

impl Connector for DatafusionConnector {
    /// This build has no engine.
    #[cfg(not(feature = "datafusion-engine"))]
    fn runtime(&self, _file: &EngineFile, _host: &EngineHost) -> anyhow::Result<Arc<dyn EngineRuntime>> {
        anyhow::bail!("this build has no engine of type 'datafusion'\nHint: Build with the feature datafusion-engine.")
    }

    #[cfg(feature = "datafusion-engine")]
    fn runtime(&self, file: &EngineFile, _host: &EngineHost) -> anyhow::Result<Arc<dyn EngineRuntime>> {
        Ok(Arc::new(embedded::Embedded::new(file.clone())))
    }

    /// Local engines share their tenant's folder; a pod has its own volume.
    fn catalog(&self, file: &EngineFile, host: &EngineHost) -> TableCatalog {
        let is_shared = file.catalog.is_some() || matches!(host, EngineHost::Process(_));
        if is_shared { TableCatalog::Shared } else { TableCatalog::Own }
    }

    fn limits_address_space(&self) -> bool {
        true
    }

    /// Whether a property of its unit is invalid. Other keys are those of its place, such as a folder that cannot be created
    /// now.
    #[cfg(feature = "datafusion-engine")]
    fn is_misconfigured(&self, error: &(dyn Error + 'static)) -> bool {
        let is_property = |key: &str| key.starts_with("properties.");
        std::iter::successors(Some(error), |&error| error.source()).any(|cause| match cause.downcast_ref() {
            Some(datafusion_engine::EngineError::Config { key, .. }) => is_property(key),
            _ => false,
        })
    }
}

#[cfg(feature = "datafusion-engine")]
mod embedded {
    use std::fs::{self, DirBuilder, Permissions};
    use std::io;
    use std::net::SocketAddr;
    use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
    use std::path::Path;

    use anyhow::Context as _;
    use async_trait::async_trait;
    use datafusion_engine::{BucketConfig, Config, Credential, Limits, Server};
    use engine_agent::engine::{Backend, EngineRuntime, Key};
    use model::cause::{Cause, chain};

    use super::super::store_environment::store_environment;
    use crate::engine_file::EngineFile;
    use crate::engine_types::supervised::Supervised;

    /// An engine in this process.
    pub struct Embedded {
        file: EngineFile,
        supervised: Supervised,
    }

    impl Embedded {
        pub fn new(file: EngineFile) -> Self {
            Self { file, supervised: Supervised::new() }
        }

        fn config(&self) -> Config {
            let file = &self.file;
            Config {
                listen: SocketAddr::from(([127, 0, 0, 1], 0)),
                tenant: file.tenant.to_string(),
                engine: file.name.to_string(),
                catalog_dir: file.catalog_dir.clone(),
                catalog: file.catalog.as_ref().map(|bucket| {
                    // The configuration takes precedence over the environment.
                    let mut options = store_environment();
                    options.extend(bucket.options.clone());
                    BucketConfig { url: bucket.url.clone(), options }
                }),
                scratch_dir: file.scratch_dir.clone(),
                allowed_locations: file.allowed_locations.clone(),
                own_paths: file.own_paths.clone(),
                memory_bytes: file.memory_bytes,
                cpu_threads: file.cpu_threads,
                credential: Credential::new(file.backend_key.text().to_owned()),
                properties: file.properties.clone(),
                limits: Limits::default(),
            }
        }
    }

    /// Makes the folder, or takes it from other users of the machine: it holds the tenant's catalog, or rows.
    fn keep_private(folder: &Path) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let permissions = fs::metadata(folder)?.permissions();
        if permissions.mode().trailing_zeros() >= 6 {
            return Ok(());
        }
        fs::set_permissions(folder, Permissions::from_mode(0o700))
    }

    #[async_trait]
    impl EngineRuntime for Embedded {
        async fn start(&self) -> Result<Backend, Cause> {
            let catalog = self.file.catalog.is_none().then_some(&self.file.catalog_dir);
            for folder in catalog.into_iter().chain([&self.file.scratch_dir]) {
                keep_private(folder).with_context(|| folder.display().to_string())?;
            }
            let server = Server::bind(self.config()).await?;
            let address = server.local_addr().to_string();
            let supervisor = self.supervised.supervisor();
            let task = tokio::spawn(async move {
                // On a task of its own, so that a panic is an end like any other.
                let outcome = tokio::spawn(server.run(supervisor.stop.clone().cancelled_owned())).await;
                if !supervisor.stop.is_cancelled() {
                    let reason = match outcome {
                        Ok(Ok(())) => "it stopped serving".to_owned(),
                        Ok(Err(error)) => chain(&error).to_string(),
                        Err(error) => format!("it panicked: {error}"),
                    };
                    supervisor.ended(reason);
                }
            });
            self.supervised.set_task(task).await;
            Ok(Backend { address, key: Key(self.file.backend_key.text().to_owned()) })
        }

        async fn ended(&self) -> Cause {
            self.supervised.ended().await
        }

        async fn stop(&self) {
            self.supervised.stop().await;
        }
    }
}
