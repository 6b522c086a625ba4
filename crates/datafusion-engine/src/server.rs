//! An engine with its listener.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use model::clock::SystemClock;
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::service::EngineService;

/// How often what nobody asks about is looked for.
const SWEEP_INTERVAL: Duration = Duration::from_secs(10);

/// Connections of the engine's agent: one for each of its 2,000 sessions, and those for cancels and questions.
const MAX_CONNECTIONS: usize = 2_500;

/// An engine that listens and does not yet serve.
pub struct Server {
    engine: Arc<Engine>,
    listener: hs2::Server,
    address: SocketAddr,
}

impl Server {
    /// Starts the engine and binds its port.
    pub async fn bind(config: Config) -> Result<Self, EngineError> {
        let address = config.listen;
        let engine = Engine::start(config, SystemClock::shared())?;
        let what = || EngineError::io(format!("listen on {address}"));
        let limits = hs2::Limits { connections: MAX_CONNECTIONS, ..hs2::Limits::default() };
        let listener = hs2::Server::bind(address, limits).await.map_err(what())?;
        let address = listener.local_addr().map_err(what())?;
        Ok(Self { engine, listener, address })
    }

    /// Where it listens.
    pub const fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// The engine, to be asked for its load.
    pub fn engine(&self) -> Arc<Engine> {
        Arc::clone(&self.engine)
    }

    /// Serves until `shutdown` resolves; then closes connections, sessions and statements and returns.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<(), EngineError> {
        let stop = CancellationToken::new();
        let service = Arc::new(EngineService::new(Arc::clone(&self.engine)));
        tracing::info!(engine = self.engine.config().engine, address = %self.address, "engine serves");
        let mut serving = std::pin::pin!(self.listener.serve(service, stop.clone()));
        let mut shutdown = std::pin::pin!(shutdown);
        let mut sweep = tokio::time::interval(SWEEP_INTERVAL);
        loop {
            tokio::select! {
                () = &mut serving => break,
                () = &mut shutdown, if !stop.is_cancelled() => {
                    // What runs is ended first, so that no connection waits for it.
                    self.engine.close_all();
                    stop.cancel();
                }
                _ = sweep.tick() => self.engine.sweep(),
            }
        }
        self.engine.close_all();
        Ok(())
    }
}

/// Starts an engine and serves it until `shutdown` resolves.
pub async fn serve(config: Config, shutdown: impl Future<Output = ()>) -> Result<(), EngineError> {
    Server::bind(config).await?.run(shutdown).await
}
