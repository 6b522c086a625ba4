//! The engine agent: stands beside one engine from its start to its end.
//!
//! Its life: start the engine, wait until a warm-up query is answered, register below the permit with its own uid,
//! relay `HiveServer2` between proxies and the engine, drain on the order, exit. What it is told comes from three
//! places and nothing else: its permit and its drain fact in ZooKeeper ([`membership`](self)), the orchestrator (its
//! file is gone, or SIGTERM), and the engine itself (it ended).
//!
//! Invariants: it registers only below a permit that bears its own uid; it registers never again once it drains; a
//! lost ZooKeeper session is no order to drain; a statement that it refuses because it drains was not sent to the
//! engine. A proxy that holds a stale route is refused before anything is executed.
//!
//! From the answered warm-up query on its port answers `GET /livez`, and `GET /readyz` by whether it was registered and does
//! not drain: for a kubelet and for people, nothing of ours asks. Before that a connection is taken and nothing said.

mod calls;
mod drain;
pub mod failpoints;
mod listener;
mod membership;
mod runtime;
mod sessions;
mod settings;
mod silence;
mod warm_up;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use coordination::{NoRebuild, Supervisor};
use hs2::Server;
use model::clock::SharedClock;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

pub use runtime::{Backend, EngineRuntime, RuntimeError};
pub use settings::{Key, Settings};

use drain::Drain;
use listener::Relay;
use membership::{Membership, Registered, Verdict};
use sessions::Sessions;
use settings::{MAX_SESSIONS, SIDE_CONNECTIONS, STOP_DEADLINE};
use silence::Silence;

/// How long closing may take once the engine is to end.
const CLOSE_DEADLINE: Duration = Duration::from_secs(5);
/// How long calls that still run are waited for before they are cut, once the engine is to end.
const CALLS_DEADLINE: Duration = Duration::from_millis(200);

/// How an engine agent ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// It drained, on the order or because it was told to terminate.
    Drained,
    /// Nobody wants it any longer.
    Unwanted(String),
}

/// Why an engine agent failed.
#[derive(Debug, thiserror::Error)]
pub enum EngineAgentError {
    /// Its address can't be had.
    #[error("can't listen on {address}: {reason}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The operating system's word.
        reason: String,
    },
    /// The engine did not start.
    #[error("the engine did not start: {0}")]
    Start(String),
    /// The engine ended by itself.
    #[error("the engine ended: {0}")]
    EngineEnded(String),
}

/// What happened first.
enum Event {
    Terminate,
    EngineEnded(String),
    Unwanted(String),
}

/// Runs the agent to its end. `terminate` is the orchestrator's word (SIGTERM): drain, with no deadline of our own,
/// because whoever terminates has one. `unwanted` resolves when the orchestrator has forgotten the engine.
pub async fn run(
    settings: Settings,
    runtime: Arc<dyn EngineRuntime>,
    clock: SharedClock,
    terminate: CancellationToken,
    unwanted: impl Future<Output = ()> + Send,
) -> Result<Ended, EngineAgentError> {
    let listening =
        |error: std::io::Error| EngineAgentError::Listen { address: settings.listen, reason: error.to_string() };
    // Each session has a connection of its own; a cancel and a status call need further ones.
    let connections = settings.limits.connections.max(MAX_SESSIONS + SIDE_CONNECTIONS);
    let limits = hs2::Limits { connections, ..settings.limits.clone() };
    let server = Server::bind(settings.listen, limits).await.map_err(listening)?;
    let address = server.local_addr().map_err(listening)?;
    let settings = Arc::new(settings);
    tokio::pin!(unwanted);

    let starting = start(&settings, &*runtime);
    let backend = tokio::select! {
        started = starting => match started {
            Ok(backend) => backend,
            Err(error) => {
                // One that never answered may run all the same.
                stop(&*runtime).await;
                return Err(error);
            }
        },
        () = terminate.cancelled() => {
            stop(&*runtime).await;
            return Ok(Ended::Drained);
        }
        () = &mut unwanted => {
            stop(&*runtime).await;
            return Ok(Ended::Unwanted("the orchestrator has forgotten this engine".to_owned()));
        }
    };
    info!(engine = %settings.engine, %address, backend = backend.address, "engine answers");

    let sessions = Arc::new(Sessions::new(Arc::clone(&settings), backend));
    let drain = Drain::new(clock.clone());
    let (close, cut) = (CancellationToken::new(), CancellationToken::new());
    let (registered, silence) = (Registered::default(), Silence::default());
    let relay = Arc::new(Relay {
        settings: Arc::clone(&settings),
        sessions: Arc::clone(&sessions),
        drain: drain.clone(),
        registered: registered.clone(),
        silence: silence.clone(),
        cut: cut.clone(),
    });
    let mut serving = tokio::spawn(server.serve_connections(relay, close.clone()));
    let membership = Membership {
        settings: Arc::clone(&settings),
        address,
        clock: clock.clone(),
        drain: drain.clone(),
        registered,
        sessions: Arc::clone(&sessions),
    };

    let mut supervisor = Supervisor::start(settings.zookeeper.clone(), clock.clone(), Arc::new(NoRebuild));
    let event = loop {
        let stopped = tokio::select! {
            () = terminate.cancelled() => break Event::Terminate,
            reason = runtime.ended() => break Event::EngineEnded(reason),
            () = &mut unwanted => break Event::Unwanted("the orchestrator has forgotten this engine".to_owned()),
            verdict = membership.follow(&supervisor) => match verdict {
                Verdict::Drained => break Event::Terminate,
                Verdict::Unwanted(reason) => break Event::Unwanted(reason),
            },
            reason = silence::begins(&*runtime) => reason,
        };
        warn!(reason = stopped, "engine does not answer; leaving the registry");
        silence.set(Some(stopped));
        supervisor.close().await;
        tokio::select! {
            () = terminate.cancelled() => break Event::Terminate,
            reason = runtime.ended() => break Event::EngineEnded(reason),
            () = &mut unwanted => break Event::Unwanted("the orchestrator has forgotten this engine".to_owned()),
            () = silence::ends(&*runtime) => {}
        }
        info!("engine answers again");
        silence.set(None);
        supervisor = Supervisor::start(settings.zookeeper.clone(), clock.clone(), Arc::new(NoRebuild));
    };
    let outcome = match event {
        Event::EngineEnded(reason) => Err(EngineAgentError::EngineEnded(reason)),
        Event::Unwanted(reason) => Ok(Ended::Unwanted(reason)),
        Event::Terminate => {
            // Told by the orchestrator without a drain fact: leave the registry first, then finish what runs.
            drain.begin(None);
            supervisor.close().await;
            tokio::select! {
                () = drain.finished(&sessions) => Ok(Ended::Drained),
                reason = runtime.ended() => Err(EngineAgentError::EngineEnded(reason)),
                () = &mut unwanted => Ok(Ended::Drained),
            }
        }
    };
    if !matches!(outcome, Ok(Ended::Drained)) {
        cut.cancel();
    }
    close.cancel();
    // Closing the session takes `live` away at once: nobody is routed here while the process ends.
    supervisor.close().await;
    if tokio::time::timeout(CALLS_DEADLINE, &mut serving).await.is_err() {
        cut.cancel();
        if tokio::time::timeout(CLOSE_DEADLINE, serving).await.is_err() {
            warn!("connections did not close in time and are cut");
        }
    }
    stop(&*runtime).await;
    outcome
}

/// Ends the engine, and waits for that no longer than [`STOP_DEADLINE`]: the agent's own end takes the rest along.
async fn stop(runtime: &dyn EngineRuntime) {
    if tokio::time::timeout(STOP_DEADLINE, runtime.stop()).await.is_err() {
        warn!("the engine did not end in time");
    }
}

async fn start(settings: &Settings, runtime: &dyn EngineRuntime) -> Result<Backend, EngineAgentError> {
    let warm_up = warm_up::WarmUp::default();
    let starting = async {
        let backend = runtime.start().await.map_err(|error| EngineAgentError::Start(error.to_string()))?;
        tokio::select! {
            () = warm_up.answered(settings, &backend) => Ok(backend),
            reason = runtime.ended() => Err(EngineAgentError::Start(format!("it ended: {reason}"))),
        }
    };
    match tokio::time::timeout(settings.start_deadline, starting).await {
        Ok(outcome) => outcome,
        Err(_) => Err(EngineAgentError::Start(format!(
            "no warm-up query was answered within {}{}",
            model::span::print(settings.start_deadline),
            warm_up.last_failure().or_else(|| runtime.waits_for()).map(|why| format!(": {why}")).unwrap_or_default()
        ))),
    }
}
