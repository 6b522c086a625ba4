//! The `DataFusion` engine: runs in the engine agent's own process.

use std::sync::Arc;

use engine_agent::engine::EngineRuntime;

use crate::launch::EngineFile;

/// This build has no engine.
#[cfg(not(feature = "datafusion-engine"))]
pub fn runtime(_file: &EngineFile) -> anyhow::Result<Arc<dyn EngineRuntime>> {
    anyhow::bail!("this build has no engine of type 'datafusion'\nHint: build with the feature datafusion-engine")
}

/// The engine that the file describes.
#[cfg(feature = "datafusion-engine")]
#[expect(clippy::unnecessary_wraps, reason = "a build without the engine refuses here")]
pub fn runtime(file: &EngineFile) -> anyhow::Result<Arc<dyn EngineRuntime>> {
    Ok(Arc::new(embedded::Embedded::new(file.clone())))
}

#[cfg(feature = "datafusion-engine")]
mod embedded {
    use std::net::SocketAddr;

    use async_trait::async_trait;
    use datafusion_engine::{Config, Credential, Limits, Server};
    use engine_agent::engine::{Backend, EngineRuntime, Key, RuntimeError};
    use tokio::sync::{Mutex, watch};
    use tokio_util::sync::CancellationToken;

    use crate::launch::EngineFile;

    /// An engine in this process.
    pub struct Embedded {
        file: EngineFile,
        stop: CancellationToken,
        ended: watch::Sender<Option<String>>,
        serving: Mutex<Option<tokio::task::JoinHandle<()>>>,
    }

    impl Embedded {
        pub fn new(file: EngineFile) -> Self {
            let (stop, ended) = (CancellationToken::new(), watch::Sender::new(None));
            Self { file, stop, ended, serving: Mutex::new(None) }
        }

        fn config(&self) -> Config {
            let file = &self.file;
            Config {
                listen: SocketAddr::from(([127, 0, 0, 1], 0)),
                tenant: file.tenant.to_string(),
                engine: file.name.to_string(),
                catalog_dir: file.catalog_dir.clone(),
                scratch_dir: file.scratch_dir.clone(),
                allowed_locations: file.allowed_locations.clone(),
                memory_bytes: file.memory_bytes,
                cpu_threads: file.cpu_threads,
                credential: Credential::new(file.backend_key.clone()),
                properties: file.properties.clone(),
                limits: Limits::default(),
            }
        }
    }

    #[async_trait]
    impl EngineRuntime for Embedded {
        async fn start(&self) -> Result<Backend, RuntimeError> {
            let server = Server::bind(self.config()).await.map_err(|error| RuntimeError(error.to_string()))?;
            let address = server.local_addr().to_string();
            let (stop, ended) = (self.stop.clone(), self.ended.clone());
            let task = tokio::spawn(async move {
                // On a task of its own, so that a panic is an end like any other.
                let outcome = tokio::spawn(server.run(stop.clone().cancelled_owned())).await;
                if !stop.is_cancelled() {
                    let reason = match outcome {
                        Ok(Ok(())) => "it stopped serving".to_owned(),
                        Ok(Err(error)) => error.to_string(),
                        Err(error) => format!("it broke down: {error}"),
                    };
                    ended.send_replace(Some(reason));
                }
            });
            *self.serving.lock().await = Some(task);
            Ok(Backend { address, key: Key(self.file.backend_key.clone()) })
        }

        async fn ended(&self) -> String {
            let mut ended = self.ended.subscribe();
            let reason = ended.wait_for(Option::is_some).await.map(|reason| reason.clone().unwrap_or_default());
            match reason {
                Ok(reason) => reason,
                Err(_) => std::future::pending().await,
            }
        }

        async fn stop(&self) {
            self.stop.cancel();
            if let Some(task) = self.serving.lock().await.take() {
                // How it ended was reported, or is of no interest any longer.
                let _ = task.await;
            }
        }
    }
}
