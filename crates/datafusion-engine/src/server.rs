//! The server: an engine and its listener.

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

/// The interval between sweeps of idle sessions and operations.
const SWEEP_INTERVAL: Duration = Duration::from_secs(10);

/// Connections of the engine agent: one for each of its 2,000 sessions, and those for cancellations and status calls.
const MAX_CONNECTIONS: usize = 2_500;

/// A started engine whose listener is bound and does not serve yet.
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

    pub const fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// The engine, for reading its load.
    pub fn engine(&self) -> Arc<Engine> {
        Arc::clone(&self.engine)
    }

    /// Serves until `shutdown` resolves; then closes connections, sessions and statements and returns.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<(), EngineError> {
        let stop = CancellationToken::new();
        let service = Arc::new(EngineService::new(Arc::clone(&self.engine)));
        tracing::info!(engine = self.engine.config().engine, address = %self.address, "engine ready");
        let mut serving = std::pin::pin!(self.listener.serve(service, stop.clone()));
        let mut shutdown = std::pin::pin!(shutdown);
        let mut sweep = tokio::time::interval(SWEEP_INTERVAL);
        loop {
            tokio::select! {
                () = &mut serving => break,
                () = &mut shutdown, if !stop.is_cancelled() => {
                    // Running statements end first, so that no connection waits for them.
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
