//! The binder: gives a session an engine, opens the engine's session, replays the replay log.
//!
//! A session that is not pinned can move: to another engine when its engine drains (nothing was executed, the statement
//! is sent again), or when its engine died between two statements. After it was idle it is [unbound](crate::idle), and bound
//! again here.

mod engine_type;
pub(crate) mod no_engine;
pub(crate) mod pool;
mod replay;

use std::sync::Arc;

use futures::FutureExt as _;
use hs2::tcli::{TCloseSessionReq, TOpenSessionReq};
use hs2::{ClientError, Handle, protocol};
use model::demand::DemandKey;
use model::error::{ErrorKind, UserError};
use model::name::{TenantName, UnitName};
use model::owner::SharedBy;
use model::rights::{StatementKind, Subject};
use model::sharing::Sharer;
use model::snapshot::ProxySnapshot;
use tracing::debug;

use crate::demand::WaitingSession;
use crate::gateway::Gateway;
use crate::routes::{EngineSelector, Route, Seat, SessionLabels};
use crate::session::operation::EngineCall;
use crate::session::state::{BoundEngine, Session};
use crate::settings::{AGENT_DEADLINE, MAX_FULL_TRIED, MAX_HANDOVERS};
use crate::usage::RunningStatement;
use crate::{authorize, failpoints};
use pool::PoolRequest;
use replay::{is_about_statement, replay, replay_error};

/// Bounds Spark's blocking poll, so that a cancel on the same connection need not wait for it.
const LONG_POLL: (&str, &str) = ("set:hiveconf:hive.server2.long.polling.timeout", "500ms");

/// The client application of sessions that name none.
const DEFAULT_CREATOR: &str = "default";

/// Why no engine is bound.
pub(crate) enum NotBound {
    /// An engine is starting, or is to be started, or all are full.
    Wait(Wait),
    /// No engine will start.
    Refused(UserError),
}

/// Why a statement waits.
pub(crate) struct Wait {
    pub(crate) reason: String,
    /// The session as demand, as long as the statement keeps this; `None` if no unit starts engines on demand.
    pub(crate) demand: Option<Arc<WaitingSession>>,
}

/// Counts a new session for its tenant. One whose tenant is not known yet is counted when it is bound, and so is one of an admin
/// who has named none: a full tenant keeps no admin from control statements.
pub(crate) async fn count_session(gateway: &Gateway, session: &mut Session) -> Result<(), UserError> {
    let Ok(subject) = gateway.subject(&session.principal).await else { return Ok(()) };
    if session.settings.tenant.is_none() && subject.may_in_any(StatementKind::Query) {
        return Ok(());
    }
    match known_tenant(gateway, session, &subject) {
        Some(tenant) => session.tenant_count.count_for(&gateway.usage, &tenant),
        None => Ok(()),
    }
}

/// Counts a statement of the session before it waits for an engine.
pub(crate) async fn admit_statement(gateway: &Gateway, session: &Session) -> Result<Arc<RunningStatement>, UserError> {
    let running = gateway.usage.statement_of(&session.principal.user)?;
    if let Some(engine) = session.current_engine() {
        running.count_for(&gateway.usage, &engine.tenant)?;
    } else if let Ok(subject) = gateway.subject(&session.principal).await
        && let Some(tenant) = known_tenant(gateway, session, &subject)
    {
        running.count_for(&gateway.usage, &tenant)?;
    }
    Ok(running)
}

/// The same for the tenant of the engine that the session is bound to, which may not have been known before.
pub(crate) fn count_statement(gateway: &Gateway, session: &Session, call: &EngineCall) -> Result<(), UserError> {
    match (&call.running, session.current_engine()) {
        (Some(running), Some(engine)) => running.count_for(&gateway.usage, &engine.tenant),
        _ => Ok(()),
    }
}

/// The tenant of the session, as far as it is known without a wait for the catalog. What the catalog refuses is refused at the
/// next binding.
fn known_tenant(gateway: &Gateway, session: &Session, subject: &Subject) -> Option<TenantName> {
    gateway.catalog.age()?;
    let snapshot = gateway.catalog.reading().snapshot;
    authorize::tenant_of(&snapshot.catalog, subject, session.settings.tenant.as_ref()).ok()
}

/// Binds an engine if one is ready and the session may use it, and never waits. An error is the engine's: it rejects a
/// setting of the session, and would reject it for the next statement too.
pub(crate) async fn bind_if_ready(gateway: &Arc<Gateway>, session: &mut Session) -> Result<(), UserError> {
    if gateway.catalog.age().is_none() {
        return Ok(());
    }
    let subject = gateway.subject(&session.principal).await?;
    let selector = selector_in(gateway, session, &subject);
    if !selector.is_ok_and(|selector| gateway.routes.has_ready(&selector)) {
        return Ok(());
    }
    match bind(gateway, session).await {
        Ok(()) | Err(NotBound::Wait(_)) => Ok(()),
        Err(NotBound::Refused(error)) => Err(error),
    }
}

/// Binds an engine unless the current one can take a statement.
pub(crate) async fn bind(gateway: &Arc<Gateway>, session: &mut Session) -> Result<(), NotBound> {
    if let Some((binding, engine)) = session.current.and_then(|binding| Some((binding, session.engines.get(binding)?)))
    {
        let closed = engine.client.is_broken() || engine.client.closed().now_or_never().is_some();
        let drains = !engine.pinned && gateway.routes.is_draining(&engine.route);
        match (closed, drains) {
            (false, false) => return Ok(()),
            // It would refuse. Operations that are open there stay open.
            (false, true) => session.unbind(),
            // It died between two statements: nothing was sent, so only state of a pinned session is lost.
            (true, _) => {
                let reason = gateway.catalog.with_engine_reason(&engine.route.engine, "its connection was closed");
                let error = session.lose_engine(binding, &reason);
                debug!(%error, "engine of an idle session lost");
            }
        }
    }
    if let Some(lost) = &session.lost {
        return Err(NotBound::Refused(lost.as_ref().clone()));
    }
    let selector = selector(gateway, session).await.map_err(NotBound::Refused)?;
    session.tenant_count.count_for(&gateway.usage, &selector.labels.tenant).map_err(NotBound::Refused)?;
    let (mut handovers, mut full) = (0, 0);
    while handovers < MAX_HANDOVERS && full < MAX_FULL_TRIED {
        let snapshot = gateway.catalog.reading().snapshot;
        let fills =
            |unit: &UnitName| snapshot.catalog.unit(unit).is_some_and(|unit| unit.min_engines < unit.max_engines);
        let chosen = gateway.routes.choose(&selector, session.previous_engine(), fills).await;
        let Some((route, seat)) = chosen else { break };
        model::failpoint!(failpoints::ENGINE_CHOSEN);
        if let Some(waiting) = session.waiting.upgrade() {
            waiting.leave().await;
        }
        match open(gateway, session, &selector.labels, Arc::clone(&route), seat).await {
            Ok(engine) => {
                gateway.activity.bound.add();
                debug!(engine = %route.engine, user = session.principal.user, "session bound");
                session.bind(engine);
                session.engine_used(gateway.clock.boottime());
                return Ok(());
            }
            Err(ClientError::Refused(error)) if error.kind == ErrorKind::EngineFull => {
                debug!(engine = %route.engine, "engine is full; choosing another");
                gateway.routes.mark_full(&route);
                full += 1;
                continue;
            }
            Err(ClientError::Refused(error)) if error.kind == ErrorKind::EngineDraining => {
                gateway.routes.mark_draining(&route);
            }
            // The registry is not that of the engine's agent.
            Err(ClientError::Refused(error)) if error.kind == ErrorKind::EngineOwned => {
                debug!(engine = %route.engine, %error, "engine has another owner; choosing another");
                gateway.routes.mark_unreachable(&route);
            }
            // Its engine has just died: nothing was executed.
            Err(ClientError::Refused(error))
                if matches!(error.kind, ErrorKind::ConnectionLost | ErrorKind::EngineSessionLost) =>
            {
                debug!(engine = %route.engine, %error, "engine lost; choosing another");
                gateway.routes.mark_unreachable(&route);
            }
            Err(ClientError::Refused(error)) => return Err(NotBound::Refused(error)),
            Err(error) => {
                debug!(engine = %route.engine, %error, "engine unreachable; choosing another");
                gateway.routes.mark_unreachable(&route);
            }
        }
        handovers += 1;
    }
    let key = |snapshot: &ProxySnapshot, selector: &EngineSelector| demand_key(gateway, snapshot, session, selector);
    let is_counted = session.waiting.upgrade().is_some_and(|waiting| waiting.is_counted());
    let waits = no_engine::waiting_reason(gateway, &selector, is_counted, key).await;
    let (reason, key) = waits.map_err(NotBound::Refused)?;
    let demand = key.map(|key| count(gateway, session, key));
    Err(NotBound::Wait(Wait { reason, demand }))
}

/// What the session has in common with others that wait, if a unit that it may use starts engines on demand.
fn demand_key(
    gateway: &Gateway,
    snapshot: &ProxySnapshot,
    session: &Session,
    selector: &EngineSelector,
) -> Option<DemandKey> {
    let defaults = &gateway.settings.defaults;
    if !no_engine::starts_on_demand(&snapshot.catalog, defaults, selector) {
        return None;
    }
    let SessionLabels { tenant, pool, unit, engine_type: asked, sharer } = selector.labels.clone();
    let found = || engine_type::of_session(snapshot, selector, defaults).ok().flatten();
    let engine_type = match asked {
        Some(asked) => Some(asked.to_string()),
        None => found().map(|engine_type| engine_type.as_str().to_owned()),
    };
    let creator = session.settings.creator().unwrap_or(DEFAULT_CREATOR).to_owned();
    // What no engine is dedicated to would only divide sessions that are interchangeable. A session's own engine is charged to its
    // user.
    let is_owner = |shared_by| selector.has_unit_shared_by(shared_by);
    Some(DemandKey {
        tenant,
        pool,
        unit,
        engine_type,
        creator,
        user: (is_owner(SharedBy::User) || is_owner(SharedBy::Session)).then_some(sharer.user),
        group: is_owner(SharedBy::Group).then_some(sharer.group),
        session: is_owner(SharedBy::Session).then_some(sharer.session),
    })
}

/// Counts the session as demand, once for all its statements.
fn count(gateway: &Gateway, session: &mut Session, key: DemandKey) -> Arc<WaitingSession> {
    let before = session.waiting.upgrade();
    match &before {
        Some(counted) if counted.is_counted() && *counted.key() == key => return Arc::clone(counted),
        _ => {}
    }
    let waiting = gateway.demand.add(key, before.as_deref());
    session.waiting = Arc::downgrade(&waiting);
    waiting
}

/// Which engines the session may use, by this reading of the catalog.
fn selector_in(gateway: &Gateway, session: &Session, subject: &Subject) -> Result<EngineSelector, UserError> {
    let (settings, snapshot) = (&session.settings, gateway.catalog.reading().snapshot);
    let catalog = &snapshot.catalog;
    let tenant = authorize::tenant_of(catalog, subject, settings.tenant.as_ref())?;
    let pool = PoolRequest::new(subject, settings).pool_in(catalog)?;
    let (defaults, engine_type) = (&gateway.settings.defaults, settings.engine_type.clone());
    let default_unit =
        || engine_type::default_unit(catalog, defaults, (&tenant, pool.as_ref()), engine_type.as_ref()).cloned();
    let unit = settings.unit.clone().or_else(default_unit);
    let sharer = Sharer::new(&subject.user, &subject.groups, session.handle.to_string());
    let labels = SessionLabels { tenant, pool, unit, engine_type, sharer };
    let selector = EngineSelector::new(catalog, defaults, labels);
    engine_type::check(&snapshot, &selector, defaults)?;
    Ok(selector)
}

async fn selector(gateway: &Gateway, session: &Session) -> Result<EngineSelector, UserError> {
    // A proxy that has just started serves before it has read the catalog: it looks for agents as a control statement does.
    if !gateway.catalog.first(AGENT_DEADLINE).await {
        return Err(gateway.agents.none_reachable());
    }
    let subject = gateway.subject(&session.principal).await?;
    match selector_in(gateway, session, &subject) {
        Ok(selector) => Ok(selector),
        // A session is refused only by the newest catalog.
        Err(error) => {
            if !gateway.catalog.refresh().await {
                return Err(error);
            }
            selector_in(gateway, session, &subject)
        }
    }
}

/// Opens the engine's session and replays the replay log.
async fn open(
    gateway: &Gateway,
    session: &mut Session,
    labels: &SessionLabels,
    route: Arc<Route>,
    seat: Seat,
) -> Result<BoundEngine, ClientError> {
    let mut client = gateway.routes.connect(&route, &session.principal.user).await?;
    let mut configuration = session.settings.forwarded.clone();
    configuration.insert(LONG_POLL.0.to_owned(), LONG_POLL.1.to_owned());
    if route.owner.is_some() {
        agent_api::write_sharer(&mut configuration, &labels.sharer);
    }
    let opened = client
        .open_session(&TOpenSessionReq {
            client_protocol: protocol::NEWEST,
            username: Some(session.principal.user.clone()),
            password: None,
            configuration: Some(configuration),
        })
        .await?;
    model::failpoint!(failpoints::ENGINE_SESSION_OPENED);
    let Some(handle) = opened.session_handle else {
        return Err(ClientError::Refused(UserError::internal("the engine opened a session without a handle")));
    };
    for earlier in session.settings.replay_log.clone() {
        let Err(error) = replay(&mut client, &handle, &earlier.text).await else { continue };
        let error = match error {
            // Its success was never reported to the client, and apparently it has failed.
            ClientError::Refused(error) if earlier.pending.is_some() && is_about_statement(&error) => {
                debug!(%error, "pending statement rejected at replay; dropping it from the replay log");
                continue;
            }
            ClientError::Refused(error) if is_about_statement(&error) => {
                debug!(%error, "replayed statement rejected");
                session.settings.forget_refused(&earlier);
                ClientError::Refused(replay_error(error.without_stack_trace(), &earlier.text))
            }
            other => other,
        };
        let _ = client.close_session(&TCloseSessionReq { session_handle: handle.clone() }).await;
        return Err(error);
    }
    let session = Handle::try_from(&handle).map_err(|error| {
        ClientError::Refused(UserError::internal(format!("the engine returned an invalid session handle: {error}")))
    })?;
    Ok(BoundEngine { route, tenant: labels.tenant.clone(), client, session, pinned: false, _seat: seat })
}
