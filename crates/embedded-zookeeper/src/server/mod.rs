//! Sockets and timers around the state machine.
//!
//! One task accepts, one task per connection reads and writes, one runs the timer. They share one lock, which is never
//! held across an await.

mod admin;
mod connection;
mod core;
pub(crate) mod error;
pub(crate) mod event_filter;
pub(crate) mod faults;
mod port;

pub use port::kept_port;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use model::log_throttle::LogThrottle;
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};
use tracing::{info, warn};

use self::core::{CONNECTIONS_MAX, Core, Shared};
use self::error::StartError;
use self::faults::Faults;
use crate::clock::{Clock, Now};
use crate::config::Config;
use crate::state::{ConnectionId, State};

/// How long `shutdown` waits for the connections' tasks before it aborts them.
const SHUTDOWN_WAIT: Duration = Duration::from_secs(5);
/// The pause of the accept loop after an error such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// A tick that is this late means that the process was paused; session deadlines are extended by the pause.
const PAUSE_MIN: Duration = Duration::from_millis(500);

/// A running server. Dropping it stops the server without waiting for its tasks.
#[derive(Debug)]
pub struct Server {
    addr: SocketAddr,
    shared: Arc<Shared>,
    closing: watch::Sender<bool>,
    tasks: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts a server. It listens when this returns.
    ///
    /// With a data folder and port 0 it takes the port that is kept there; if that port stays in use for 5 s, the
    /// start fails.
    pub async fn start(config: Config) -> Result<Self, StartError> {
        let timeouts = (config.min_session_timeout, config.max_session_timeout);
        if timeouts.0.is_zero() || timeouts.0 > timeouts.1 || config.tick.is_zero() {
            return Err(StartError::Timeouts);
        }
        let clock = Clock::new();
        let (listener, start_ms) = port::listen(&config, clock.now().wall_ms).await?;
        let addr = listener.local_addr().map_err(|source| StartError::Listen { address: config.listen, source })?;
        let start = Now { wall_ms: start_ms, ..clock.now() };
        let state = State::new(start, rand::random(), timeouts.0..=timeouts.1);
        let shared = Arc::new(Shared { core: Mutex::new(Core::new(state, clock)) });
        let (closing, closed) = watch::channel(false);
        let tasks = tokio::spawn(run(shared.clone(), listener, config.tick, closed));
        info!(%addr, "embedded zookeeper listens");
        Ok(Self { addr, shared, closing, tasks: Some(tasks) })
    }

    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The fault-injection handle.
    pub fn faults(&self) -> Faults {
        Faults::new(self.shared.clone())
    }

    /// Stops the server: closes the listener and every connection. Sessions and nodes are lost.
    pub async fn shutdown(mut self) {
        self.closing.send_replace(true);
        if let Some(tasks) = self.tasks.take()
            && let Err(error) = tasks.await
        {
            warn!(%error, "server task failed");
        }
    }
}

/// Accepts connections and runs the timer until `closed` changes, then ends every connection.
async fn run(shared: Arc<Shared>, listener: TcpListener, tick: Duration, mut closed: watch::Receiver<bool>) {
    let mut connections = JoinSet::new();
    tokio::select! {
        () = accept(&shared, &listener, &mut connections, closed.clone()) => {}
        () = keep_time(&shared, tick) => {}
        _ = closed.changed() => {}
    }
    drop(listener);
    let all = async { while connections.join_next().await.is_some() {} };
    if timeout(SHUTDOWN_WAIT, all).await.is_err() {
        warn!("connections did not end in time; aborting them");
        connections.shutdown().await;
    }
}

async fn accept(
    shared: &Arc<Shared>,
    listener: &TcpListener,
    connections: &mut JoinSet<()>,
    closed: watch::Receiver<bool>,
) {
    let clock = shared.core().clock;
    let mut last: ConnectionId = 0;
    let (mut failed, mut refused) = (LogThrottle::default(), LogThrottle::default());
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                if let Some(times) = failed.hit(clock.now().mono) {
                    warn!(%error, times, "could not accept a connection");
                }
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        if let Some(times) = failed.clear() {
            info!(times, "accepting connections again");
        }
        while connections.try_join_next().is_some() {}
        if shared.core().outage {
            continue;
        }
        if connections.len() >= CONNECTIONS_MAX {
            if let Some(times) = refused.hit(clock.now().mono) {
                warn!(%peer, limit = CONNECTIONS_MAX, times, "too many connections; closing new ones");
            }
            continue;
        }
        if let Some(times) = refused.clear() {
            info!(times, "number of connections below the limit again");
        }
        last += 1;
        connections.spawn(connection::serve(shared.clone(), stream, peer, last, closed.clone()));
    }
}

async fn keep_time(shared: &Shared, tick: Duration) {
    let mut ticks = interval(tick);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last = Instant::now();
    loop {
        ticks.tick().await;
        let late = last.elapsed().saturating_sub(tick);
        last = Instant::now();
        let mut core = shared.core();
        if late >= PAUSE_MIN {
            info!(late_ms = late.as_millis() as u64, "process was paused; extending session deadlines");
            core.state.extend_deadlines(late);
        }
        core.tick();
    }
}
