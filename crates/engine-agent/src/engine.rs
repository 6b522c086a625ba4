//! The engine agent: the side-car of one engine.
//!
//! It starts the engine, waits until a warm-up query succeeds, registers below the permit with its own uid, relays
//! `HiveServer2` between proxies and the engine, drains when ordered, and exits. It acts on three inputs: its permit and
//! drain order in ZooKeeper (`membership`), the orchestrator (SIGTERM, or its file is deleted), and the end of the engine.
//!
//! Invariants: it registers only below a permit with its own uid, and never after it began to drain; a lost ZooKeeper
//! session is not a drain order; a statement that it refuses because it drains was not sent to the engine; an engine that is
//! dedicated to an owner opens no session of another one. A proxy with a stale route is refused before anything is executed.
//!
//! After the warm-up its port serves `GET /livez` and `GET /readyz` (registered and not draining), for a kubelet and for
//! people; no other part of the installation uses them. Before that, connections are accepted but get no reply.

mod calls;
mod context;
mod drain;
mod entry;
mod extension;
pub mod failpoints;
mod idleness;
mod listener;
mod membership;
mod operation;
mod ownership;
mod runtime;
mod seats;
mod sessions;
mod settings;
mod silence;
mod warm_up;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use coordination::{NoRebuild, Supervisor};
use hs2::Server;
use model::cause::Cause;
use model::clock::SharedClock;
use model::error::UserError;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

pub use runtime::{Backend, EngineRuntime};
pub use settings::{EngineTls, Key, Settings};

use context::AgentContext;
use drain::Drain;
use membership::{Membership, RegisteredFlag, Verdict};
use sessions::Sessions;
use settings::{MAX_SESSIONS, SIDE_CONNECTIONS, STOP_DEADLINE};
use silence::Silence;

/// How long the connections may take to close.
const CLOSE_DEADLINE: Duration = Duration::from_secs(5);
/// How long an engine that has drained still refuses calls: a proxy may have sent one before it knew of the drain, and could not tell
/// whether a call whose connection is closed was executed.
const REFUSING: Duration = Duration::from_millis(300);
/// How long running calls may take before they are cut.
const CALLS_DEADLINE: Duration = Duration::from_millis(200);

/// The normal end of an engine agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// It drained, by a drain order or on termination.
    Drained,
    /// The engine is no longer desired; with the reason.
    Unwanted(String),
}

#[derive(Debug, thiserror::Error)]
pub enum EngineAgentError {
    #[error("could not listen on {address}")]
    Listen { address: SocketAddr, source: io::Error },
    #[error("{}", .0.text())]
    Tls(UserError),
    #[error("the engine did not start")]
    Start(#[source] Cause),
    #[error("the engine did not start: it ended")]
    EndedAtStart(#[source] Cause),
    #[error("the engine ended: {0}")]
    EngineEnded(Cause),
}

/// Why the agent stops serving.
enum Event {
    Terminate,
    EngineEnded(Cause),
    Unwanted(String),
}

/// Runs the agent to its end. `terminate` is the orchestrator's SIGTERM: drain without a deadline, because the orchestrator
/// has one. `unwanted` resolves when the orchestrator no longer knows the engine.
pub async fn run(
    settings: Settings,
    runtime: Arc<dyn EngineRuntime>,
    clock: SharedClock,
    terminate: CancellationToken,
    unwanted: impl Future<Output = ()> + Send,
) -> Result<Ended, EngineAgentError> {
    let address = settings.listen;
    let listening = |source| EngineAgentError::Listen { address, source };
    // Each session has a connection of its own; cancels and status calls need more.
    let connections = settings.limits.connections.max(MAX_SESSIONS + SIDE_CONNECTIONS);
    let limits = hs2::Limits { connections, ..settings.limits.clone() };
    let server = Server::bind(settings.listen, limits).await.map_err(listening)?;
    let tls = settings.tls.as_ref().map(EngineTls::server).transpose().map_err(EngineAgentError::Tls)?.flatten();
    let server = match tls {
        Some(tls) => server.with_tls(tls),
        None => server,
    };
    let address = server.local_addr().map_err(listening)?;
    let settings = Arc::new(settings);
    tokio::pin!(unwanted);

    let mut supervisor = Supervisor::start(settings.zookeeper.clone(), clock.clone(), Arc::new(NoRebuild));
    let starting = start(&settings, &*runtime);
    let backend = tokio::select! {
        started = starting => match started {
            Ok(backend) => backend,
            Err(error) => {
                // An engine that never responded may still run.
                stop(&*runtime).await;
                return Err(error);
            }
        },
        () = terminate.cancelled() => {
            stop(&*runtime).await;
            return Ok(Ended::Drained);
        }
        () = membership::ordered_to_drain(&settings, &supervisor) => {
            stop(&*runtime).await;
            return Ok(Ended::Drained);
        }
        () = &mut unwanted => {
            stop(&*runtime).await;
            return Ok(Ended::Unwanted("the orchestrator no longer knows this engine".to_owned()));
        }
    };
    info!(engine = %settings.engine, %address, backend = backend.address, "engine ready");

    let sessions = Arc::new(Sessions::new(Arc::clone(&settings), backend, clock.clone()));
    let drain = Drain::new(clock.clone());
    let (close, cut) = (CancellationToken::new(), CancellationToken::new());
    let (registered, silence) = (RegisteredFlag::default(), Silence::default());
    let context = Arc::new(AgentContext {
        settings: Arc::clone(&settings),
        sessions: Arc::clone(&sessions),
        drain: drain.clone(),
        registered: registered.clone(),
        silence: silence.clone(),
        cut: cut.clone(),
    });
    let mut serving = tokio::spawn(server.serve_connections(context, close.clone()));
    let membership = Membership {
        settings: Arc::clone(&settings),
        address,
        clock: clock.clone(),
        drain: drain.clone(),
        registered,
        sessions: Arc::clone(&sessions),
    };

    let event = loop {
        let stopped = tokio::select! {
            () = terminate.cancelled() => break Event::Terminate,
            reason = runtime.ended() => break Event::EngineEnded(reason),
            () = &mut unwanted => break Event::Unwanted("the orchestrator no longer knows this engine".to_owned()),
            verdict = membership.follow(&supervisor) => match verdict {
                Verdict::Drained => break Event::Terminate,
                Verdict::Unwanted(reason) => break Event::Unwanted(reason),
            },
            reason = silence::begins(&*runtime) => reason,
        };
        warn!(reason = stopped, "engine does not respond; leaving the registry");
        silence.set(Some(stopped));
        supervisor.close().await;
        tokio::select! {
            () = terminate.cancelled() => break Event::Terminate,
            reason = runtime.ended() => break Event::EngineEnded(reason),
            () = &mut unwanted => break Event::Unwanted("the orchestrator no longer knows this engine".to_owned()),
            () = silence::ends(&*runtime) => {}
        }
        info!("engine responds again");
        silence.set(None);
        supervisor = Supervisor::start(settings.zookeeper.clone(), clock.clone(), Arc::new(NoRebuild));
    };
    let outcome = match event {
        Event::EngineEnded(reason) => Err(EngineAgentError::EngineEnded(reason)),
        Event::Unwanted(reason) => Ok(Ended::Unwanted(reason)),
        Event::Terminate => {
            // Without a drain order: leave the registry first, then finish the running statements.
            drain.begin(None);
            supervisor.close().await;
            let drained = async {
                drain.finished(&sessions).await;
                if sessions.nothing_left() {
                    tokio::time::sleep(REFUSING).await;
                }
            };
            tokio::select! {
                () = drained => Ok(Ended::Drained),
                reason = runtime.ended() => Err(EngineAgentError::EngineEnded(reason)),
                () = &mut unwanted => Ok(Ended::Drained),
            }
        }
    };
    if !matches!(outcome, Ok(Ended::Drained)) {
        cut.cancel();
    }
    close.cancel();
    // Closing the session deletes the registration at once: no session is routed here while the process ends.
    supervisor.close().await;
    if tokio::time::timeout(CALLS_DEADLINE, &mut serving).await.is_err() {
        cut.cancel();
        if tokio::time::timeout(CLOSE_DEADLINE, serving).await.is_err() {
            warn!("connections did not close in time; cutting them");
        }
    }
    stop(&*runtime).await;
    outcome
}

/// Stops the engine, at most for [`STOP_DEADLINE`]: the end of the agent stops the rest.
async fn stop(runtime: &dyn EngineRuntime) {
    if tokio::time::timeout(STOP_DEADLINE, runtime.stop()).await.is_err() {
        warn!("engine did not stop in time");
    }
}

async fn start(settings: &Settings, runtime: &dyn EngineRuntime) -> Result<Backend, EngineAgentError> {
    let warm_up = warm_up::WarmUp::default();
    let starting = async {
        let backend = runtime.start().await.map_err(EngineAgentError::Start)?;
        tokio::select! {
            () = warm_up.succeeded(settings, &backend) => Ok(backend),
            reason = runtime.ended() => Err(EngineAgentError::EndedAtStart(reason)),
        }
    };
    if let Ok(outcome) = tokio::time::timeout(settings.start_deadline, starting).await {
        return outcome;
    }
    let waits_for = warm_up.last_failure().or_else(|| runtime.waits_for());
    let reason = waits_for.map(|reason| format!(": {reason}")).unwrap_or_default();
    let limit = model::span::print(settings.start_deadline);
    Err(EngineAgentError::Start(format!("no warm-up query succeeded within {limit}{reason}").into()))
}
