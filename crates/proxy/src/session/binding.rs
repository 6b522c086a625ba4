//! The engine that a session is bound to: chosen, its session opened, what was said replayed, handed over, lost.
//!
//! A session without state of its own can move: to another engine when its engine drains (nothing ran, the statement
//! is sent once more), or when its engine died between two statements. A statement that an engine may have accepted
//! is never sent again.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use hs2::scan::{self, HandleAt};
use hs2::tcli::{TCloseSessionReq, TOpenSessionReq};
use hs2::{Client, ClientError, Handle, protocol};
use model::error::{ErrorKind, UserError};
use model::snapshot::ProxySnapshot;
use model::statement_timeout::shorter;
use model::table_catalog::TableCatalog;
use tracing::{debug, info, warn};

use super::liveness;
use super::no_engine::why_none;
use super::operation::Place;
use super::pool::Asks;
use super::replay::{is_about_statement, issued_before, replay};
use super::statement::{EngineCall, note_accepted};
use super::{Session, close, one_engine_type, timeout};
use crate::routes::{Route, Seat, Wanted};
use crate::settings::{AGENT_DEADLINE, MAX_HANDOVERS, TIMEOUT_GRACE};
use crate::{Gateway, authorize, failpoints};

/// Bounds Spark's blocking poll, so that a cancel on the same connection need not wait for it.
const LONG_POLL: (&str, &str) = ("set:hiveconf:hive.server2.long.polling.timeout", "500ms");

/// An engine's session that belongs to one client session.
pub(crate) struct Bound {
    pub(crate) route: Route,
    pub(crate) client: Client,
    /// The session's handle at the engine agent.
    pub(crate) session: Handle,
    /// It holds state that can't be replayed.
    pub(crate) pinned: bool,
    /// Counts as one session of this proxy on the engine.
    pub(crate) _seat: Seat,
}

/// Why no engine is bound.
pub(super) enum NotBound {
    /// One is on its way: the reason why it is not there yet.
    Wait(String),
    /// None will come.
    Refused(UserError),
}

/// What became of a call that was sent to the engine.
pub(super) enum Sent {
    /// The engine made an operation of it.
    Accepted {
        /// Its answer.
        reply: Vec<u8>,
        /// Where the operation's handle stands in it.
        handle_at: HandleAt,
        /// Which binding the operation belongs to.
        binding: u64,
        /// The engine's handle.
        handle: Handle,
    },
    /// The engine's answer names no operation: an error, or information.
    Answered(Vec<u8>),
    /// The engine drains; nothing was executed, and the session is bound to none now.
    Draining(UserError),
    /// The connection broke: what became of the call is not known.
    Lost(UserError),
    /// The time that the statement had was over, before it was sent or while the engine ran it.
    TimedOut(UserError),
}

impl Session {
    /// Whether new statements have no engine yet, and may be given any.
    pub(super) fn is_unbound(&self) -> bool {
        self.present.is_none() && self.lost.is_none()
    }

    /// The present engine keeps answering for its open operations; new statements choose again.
    pub(super) fn unbind(&mut self) {
        if let Some(binding) = self.present.take() {
            self.close_if_unused(binding);
        }
    }

    /// Lets go of an engine that is no longer present once its last operation is closed.
    pub(super) fn close_if_unused(&mut self, binding: u64) {
        let in_use = |place: &Place| matches!(place, Place::Engine { binding: it, .. } if *it == binding);
        if self.present == Some(binding) || self.operations.values().any(|it| in_use(&it.place)) {
            return;
        }
        if let Some(bound) = self.engines.remove(&binding) {
            tokio::spawn(close::end_engine_session(bound));
        }
    }

    /// Cuts the present engine's connection, which is in the middle of a call: its agent ends the session and cancels
    /// what runs. Over HTTP the client's session goes on, and is told what it lost.
    pub(super) fn drop_present(&mut self, reason: &str) {
        if let Some(binding) = self.present {
            self.lost_engine(binding, reason);
        }
    }

    /// Where the engine of a binding is.
    pub(super) fn route_of(&self, binding: u64) -> Option<Route> {
        self.engines.get(&binding).map(|bound| bound.route.clone())
    }

    /// Whether state that can't be made elsewhere is at the present engine.
    pub(super) fn is_pinned(&self) -> bool {
        self.present.and_then(|binding| self.engines.get(&binding)).is_some_and(|bound| bound.pinned)
    }

    /// Whether the tables that it creates are the present engine's own: lost with it, and unknown to others.
    pub(super) fn has_own_tables(&self) -> bool {
        let bound = self.present.and_then(|binding| self.engines.get(&binding));
        bound.is_some_and(|bound| bound.route.catalog == TableCatalog::Own)
    }

    pub(super) fn pin_to_engine(&mut self) {
        if let Some(bound) = self.present.and_then(|binding| self.engines.get_mut(&binding)) {
            bound.pinned = true;
        }
    }

    /// The engine is gone: its operations fail, and the session may be bound again unless it had state of its own.
    pub(super) fn lost_engine(&mut self, binding: u64, reason: &str) -> UserError {
        let Some(bound) = self.engines.remove(&binding) else {
            return UserError::new(ErrorKind::ConnectionLost, "the engine was lost").detail(reason);
        };
        let engine = &bound.route.engine;
        info!(%engine, reason, "an engine was lost");
        let error = UserError::new(ErrorKind::ConnectionLost, format!("engine \"{engine}\" was lost"))
            .detail(reason.to_owned())
            .hint("the statement is not sent again, because it may have taken effect; look, then say it again");
        for operation in self.operations.values_mut() {
            if matches!(operation.place, Place::Engine { binding: it, .. } if it == binding) {
                operation.place = Place::Failed(error.clone());
            }
        }
        if self.present == Some(binding) {
            self.present = None;
            if bound.pinned {
                self.lost = Some(
                    UserError::new(ErrorKind::ConnectionLost, "the session's own state was lost with its engine")
                        .detail(format!("engine \"{engine}\": {reason}"))
                        .hint("open a new session; temporary views, variables and the like must be made again"),
                );
            }
        }
        error
    }
}

/// Binds an engine if one is ready and the session may use it, and never waits for one. An error is the engine's: it
/// refuses what the session asks for, and would refuse it of the next statement.
pub(super) async fn bind_if_ready(gateway: &Arc<Gateway>, session: &mut Session) -> Result<(), UserError> {
    if gateway.catalog.age().is_none() {
        return Ok(());
    }
    let wanted = wanted_in(gateway, session, &gateway.catalog.reading().snapshot);
    if !wanted.is_ok_and(|wanted| gateway.routes.has_ready(&wanted)) {
        return Ok(());
    }
    match bind(gateway, session).await {
        Ok(()) | Err(NotBound::Wait(_)) => Ok(()),
        Err(NotBound::Refused(error)) => Err(error),
    }
}

/// Takes care that the session has an engine.
pub(super) async fn bind(gateway: &Arc<Gateway>, session: &mut Session) -> Result<(), NotBound> {
    if let Some(binding) = session.present {
        let closed = session
            .engines
            .get(&binding)
            .is_none_or(|it| it.client.is_broken() || it.client.closed().now_or_never().is_some());
        let drains =
            session.engines.get(&binding).is_some_and(|it| !it.pinned && gateway.routes.is_draining(&it.route));
        match (closed, drains) {
            (false, false) => return Ok(()),
            // It would refuse. What is open there stays open.
            (false, true) => session.unbind(),
            // It died between two statements: nothing was sent, so nothing is lost but state of the session's own.
            (true, _) => {
                let reason = why_lost(gateway, session, binding);
                let error = session.lost_engine(binding, &reason);
                debug!(%error, "an idle session's engine is gone");
            }
        }
    }
    if let Some(lost) = &session.lost {
        return Err(NotBound::Refused(lost.clone()));
    }
    let wanted = wanted(gateway, session).await.map_err(NotBound::Refused)?;
    for _ in 0..MAX_HANDOVERS {
        let Some((route, seat)) = gateway.routes.choose(&wanted).await else { break };
        model::failpoint!(failpoints::ENGINE_CHOSEN);
        match open(gateway, session, route.clone(), seat).await {
            Ok(bound) => {
                gateway.activity.bound.add();
                debug!(engine = %route.engine, user = session.user, binding = session.next_binding, "session bound");
                let binding = session.next_binding;
                session.next_binding += 1;
                session.engines.insert(binding, bound);
                session.present = Some(binding);
                return Ok(());
            }
            Err(ClientError::Refused(error)) if error.kind == ErrorKind::EngineDraining => {
                gateway.routes.mark_draining(&route);
            }
            // Its engine has just died: nothing was executed.
            Err(ClientError::Refused(error))
                if matches!(error.kind, ErrorKind::ConnectionLost | ErrorKind::EngineSessionLost) =>
            {
                debug!(engine = %route.engine, %error, "an engine was lost, another is chosen");
                gateway.routes.mark_unreachable(&route);
            }
            Err(ClientError::Refused(error)) => return Err(NotBound::Refused(error)),
            Err(error) => {
                debug!(engine = %route.engine, %error, "an engine can't be reached, another is chosen");
                gateway.routes.mark_unreachable(&route);
            }
        }
    }
    Err(why_none(gateway, &wanted).await)
}

/// What the session asks for, by this reading of the catalog.
fn wanted_in(gateway: &Gateway, session: &Session, snapshot: &ProxySnapshot) -> Result<Wanted, UserError> {
    let keys = &session.settings;
    let catalog = &snapshot.catalog;
    let tenant = authorize::tenant_of(catalog, &session.user, &gateway.settings.admins, keys.tenant.as_ref())?;
    let pool = Asks::of(gateway, &session.user, keys).pool_in(catalog)?;
    let unit = keys.unit.clone().or_else(|| catalog.default_unit(&tenant, pool.as_ref()).cloned());
    let wanted = Wanted { tenant, pool, unit };
    one_engine_type::check(snapshot, &wanted)?;
    Ok(wanted)
}

async fn wanted(gateway: &Arc<Gateway>, session: &Session) -> Result<Wanted, UserError> {
    // A proxy that has just started serves before it has read the catalog: it looks for agents as a control statement does.
    if !gateway.catalog.first(AGENT_DEADLINE).await {
        return Err(gateway.agents.none_reachable());
    }
    match wanted_in(gateway, session, &gateway.catalog.reading().snapshot) {
        Ok(wanted) => Ok(wanted),
        // Before somebody is refused the newest catalog is asked.
        Err(error) => {
            if !gateway.catalog.refresh().await {
                return Err(error);
            }
            wanted_in(gateway, session, &gateway.catalog.reading().snapshot)
        }
    }
}

/// Opens the engine's session and replays what was said before.
async fn open(gateway: &Arc<Gateway>, session: &mut Session, route: Route, seat: Seat) -> Result<Bound, ClientError> {
    let mut client = gateway.routes.connect(&route, &session.user).await?;
    let mut configuration = session.settings.forwarded.clone();
    configuration.insert(LONG_POLL.0.to_owned(), LONG_POLL.1.to_owned());
    let opened = client
        .open_session(&TOpenSessionReq {
            client_protocol: protocol::NEWEST,
            username: Some(session.user.clone()),
            password: None,
            configuration: Some(configuration),
        })
        .await?;
    model::failpoint!(failpoints::ENGINE_SESSION_OPENED);
    let Some(handle) = opened.session_handle else {
        return Err(ClientError::Refused(UserError::internal("the engine opened a session without a handle")));
    };
    for earlier in session.settings.remembered.clone() {
        let Err(error) = replay(&mut client, &handle, &earlier.text).await else { continue };
        let error = match error {
            // No client was notified that it succeeded, and it seems that it did not.
            ClientError::Refused(error) if earlier.pending.is_some() && is_about_statement(&error) => {
                debug!(%error, "the last statement is refused again and not replayed any more");
                continue;
            }
            ClientError::Refused(error) if is_about_statement(&error) => {
                debug!(%error, "the engine refuses an earlier statement of the session");
                session.settings.forget_refused(&earlier);
                ClientError::Refused(issued_before(error.without_stack_trace(), &earlier.text))
            }
            other => other,
        };
        let _ = client.close_session(&TCloseSessionReq { session_handle: handle.clone() }).await;
        return Err(error);
    }
    let session = Handle::try_from(&handle).map_err(|error| {
        ClientError::Refused(UserError::internal(format!("the engine's session handle can't be one: {error}")))
    })?;
    Ok(Bound { route, client, session, pinned: false, _seat: seat })
}

/// Sends a call to the present engine and reads its (small) answer.
pub(super) async fn send(gateway: &Arc<Gateway>, session: &mut Session, call: &EngineCall) -> Sent {
    let Some(binding) = session.present else {
        return Sent::Lost(UserError::internal("no engine is bound"));
    };
    let now = gateway.clock.boottime();
    let left = match (call.timeout, time_of_unit(gateway, session, binding).filter(|_| call.is_statement())) {
        (Some(timeout), _) if timeout.left(now).is_zero() => return Sent::TimedOut(timeout.error()),
        (Some(timeout), of_unit) => shorter(Some(timeout.left(now)), of_unit),
        (None, of_unit) => of_unit,
    };
    let answered = match session.engines.get_mut(&binding) {
        Some(bound) => {
            let route = bound.route.clone();
            tokio::select! {
                biased;
                answered = exchange(bound, call, left) => answered,
                reason = liveness::lost(gateway, &route) => Err(reason),
            }
        }
        None => Err("the engine is gone".to_owned()),
    };
    let message = match answered {
        Ok(message) => message,
        Err(reason) => {
            let taken = gateway.clock.boottime().saturating_sub(now);
            if let Some(left) = left.filter(|left| taken >= *left) {
                session.lost_engine(binding, "it did not end a statement at its timeout");
                return Sent::TimedOut(timeout::timed_out(left));
            }
            let reason = because(gateway, session, binding, &reason);
            if let Some(bound) = session.engines.get(&binding) {
                gateway.routes.mark_unreachable(&bound.route);
            }
            let error = session.lost_engine(binding, &reason);
            warn!(error = error.message, reason, "an engine was lost while a statement was sent");
            return Sent::Lost(error);
        }
    };
    let reply = match scan::reply(message.bytes()) {
        Ok(reply) => reply,
        Err(error) => {
            let reason = format!("its answer can't be read: {error}");
            return Sent::Lost(session.lost_engine(binding, &reason));
        }
    };
    if reply.is_error(ErrorKind::EngineDraining, message.bytes()) {
        return drained(gateway, session, binding);
    }
    if reply.is_error(ErrorKind::EngineSessionLost, message.bytes()) {
        return session_gone(session, binding);
    }
    if !reply.succeeded() {
        return Sent::Answered(message.into_bytes());
    }
    let accepted = reply.handle.and_then(|at| at.read(message.bytes()).ok().map(|handle| (at, handle)));
    match call.text() {
        Some(text) => {
            let pending = accepted.filter(|_| call.run_async).map(|(_, handle)| handle);
            note_accepted(session, text, pending);
        }
        // What it is only the engine knows.
        None if call.is_statement() => session.pin_to_engine(),
        None => {}
    }
    match accepted {
        Some((handle_at, handle)) => Sent::Accepted { reply: message.into_bytes(), handle_at, binding, handle },
        None => Sent::Answered(message.into_bytes()),
    }
}

async fn exchange(bound: &mut Bound, call: &EngineCall, left: Option<Duration>) -> Result<hs2::Message, String> {
    let bytes = addressed(bound, call, left).map_err(|error| error.to_string())?;
    let deadline = left.map_or(call.deadline(), |left| (left + TIMEOUT_GRACE).min(call.deadline()));
    let request = hs2::Message::new(bytes).map_err(|error| error.to_string())?;
    bound.client.exchange(&request, deadline).await.map_err(|error| error.to_string())
}

/// The call's bytes as the engine is sent them: with its session's handle, and the time that is left.
fn addressed(bound: &Bound, call: &EngineCall, left: Option<Duration>) -> Result<Vec<u8>, scan::ScanError> {
    let mut bytes = call.message.bytes().to_vec();
    let request = scan::request(&bytes)?;
    if let Some(at) = &request.handle {
        at.patch(&mut bytes, &bound.session)?;
    }
    if let Some(left) = left {
        request.set_query_timeout(&mut bytes, timeout::seconds(left));
    }
    Ok(bytes)
}

/// The statement timeout of the unit that an engine was made from.
fn time_of_unit(gateway: &Gateway, session: &Session, binding: u64) -> Option<Duration> {
    let unit = &session.engines.get(&binding)?.route.unit;
    let reading = gateway.catalog.reading();
    model::statement_timeout::from_properties(&reading.snapshot.catalog.unit(unit)?.properties)
}

/// The engine no longer has this one session, and nothing of the statement was executed. Other sessions of the engine
/// are not affected, so it is not marked.
fn session_gone(session: &mut Session, binding: u64) -> Sent {
    let error = session.lost_engine(binding, "the engine has closed the session");
    match &session.lost {
        Some(lost) => Sent::Lost(lost.clone()),
        None => Sent::Draining(error),
    }
}

/// The engine refused because it drains. A session with state of its own can't move.
fn drained(gateway: &Arc<Gateway>, session: &mut Session, binding: u64) -> Sent {
    model::failpoint!(failpoints::HANDOVER);
    let Some(bound) = session.engines.get(&binding) else {
        return Sent::Lost(UserError::internal("the engine is gone"));
    };
    let engine = bound.route.engine.clone();
    gateway.routes.mark_draining(&bound.route);
    if bound.pinned {
        return Sent::Lost(
            UserError::new(ErrorKind::ConnectionLost, format!("engine \"{engine}\" is being replaced"))
                .detail("the session has state of its own there, which can't be moved")
                .hint("open a new session"),
        );
    }
    info!(%engine, "the engine drains, the session moves on");
    session.unbind();
    Sent::Draining(
        UserError::new(ErrorKind::ConnectionLost, format!("engine \"{engine}\" is being replaced"))
            .hint("say the statement again: nothing of it was executed"),
    )
}

fn why_lost(gateway: &Arc<Gateway>, session: &Session, binding: u64) -> String {
    because(gateway, session, binding, "its connection was closed")
}

/// Adds what the master last saw of the engine.
pub(super) fn because(gateway: &Arc<Gateway>, session: &Session, binding: u64, reason: &str) -> String {
    let engine = session.engines.get(&binding).map(|bound| &bound.route.engine);
    let snapshot = gateway.catalog.reading().snapshot;
    let observed = snapshot.observed.iter().find(|it| Some(&it.name) == engine).and_then(|it| it.reason.clone());
    observed.map_or_else(|| reason.to_owned(), |seen| format!("{reason}; {seen}"))
}
