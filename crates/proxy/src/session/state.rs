//! The state of one session: its settings, the engines that it is bound to, its operations.
//!
//! A session has at most one current binding, which new statements use, and older ones whose results are still read. A
//! session is *pinned* while its current engine holds state that cannot be replayed elsewhere.

use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use ddl::SessionStatement;
use hs2::tcli::TCloseSessionReq;
use hs2::{Client, Handle, HandleMap, Limit, Principal};
use model::error::{ErrorKind, UserError};
use model::name::TenantName;
use model::owner::Owner;
use model::table_catalog::TableCatalog;
use model::text::as_detail;
use tracing::{debug, info};

use super::operation::{Operation, OperationState};
use super::settings::SessionSettings;
use crate::budget::{Budget, BudgetGuard};
use crate::control::channel::{Caller, Channel};
use crate::demand::WaitingSession;
use crate::routes::{Route, Seat};
use crate::settings::{BACKGROUND_CLOSE_DEADLINE, MAX_OPERATIONS, RESULT_PAUSE};
use crate::usage::SessionCount;

pub(crate) struct Session {
    /// Names it to its client. Its public half is the session's id, as an owner of engines too.
    pub(crate) handle: Handle,
    /// Its user, with the groups at its opening or, with a token, those of the token that was sent last.
    pub(crate) principal: Principal,
    /// The address that it was opened from.
    pub(crate) client: IpAddr,
    pub(crate) settings: SessionSettings,
    /// Where its control statements run.
    pub(super) channel: Channel,
    /// Engines by the number of their binding.
    pub(crate) engines: Engines,
    /// The binding that new statements use.
    pub(crate) current: Option<u64>,
    next_number: u64,
    /// Set when a pinned session loses its engine: the error of every later statement.
    pub(crate) lost: Option<Box<UserError>>,
    pub(crate) operations: HandleMap<Operation>,
    /// When the current engine was last used, by the clock that counts suspension.
    engine_used_at: Duration,
    /// Its place in the demand, while a statement of it waits for an engine.
    pub(crate) waiting: Weak<WaitingSession>,
    /// Set while the session is unbound because it was idle.
    released: Option<Released>,
    /// Counts it among the sessions of its tenant.
    pub(crate) tenant_count: SessionCount,
}

/// The engines that a session is bound to, by the number of the binding: nearly always one, and a session without any owns no memory
/// for them.
#[derive(Default)]
pub(crate) struct Engines(Vec<(u64, Box<BoundEngine>)>);

impl Engines {
    fn insert(&mut self, binding: u64, engine: BoundEngine) {
        self.0.reserve_exact(1);
        self.0.push((binding, Box::new(engine)));
    }

    pub(crate) fn get(&self, binding: u64) -> Option<&BoundEngine> {
        self.0.iter().find(|(number, _)| *number == binding).map(|(_, engine)| &**engine)
    }

    pub(crate) fn get_mut(&mut self, binding: u64) -> Option<&mut BoundEngine> {
        self.0.iter_mut().find(|(number, _)| *number == binding).map(|(_, engine)| &mut **engine)
    }

    fn remove(&mut self, binding: u64) -> Option<Box<BoundEngine>> {
        let at = self.0.iter().position(|(number, _)| *number == binding)?;
        let (_, engine) = self.0.remove(at);
        self.0.shrink_to_fit();
        Some(engine)
    }
}

/// What a session that was unbound because it was idle still knows of its engine.
struct Released {
    /// The uid of the instance, if its tables are its own: another engine would not have them.
    uid: Option<String>,
}

/// An engine's session that belongs to one client session.
pub(crate) struct BoundEngine {
    pub(crate) route: Arc<Route>,
    /// The tenant for which the session was bound.
    pub(crate) tenant: TenantName,
    pub(crate) client: Client,
    /// The session's handle at the engine agent.
    pub(crate) session: Handle,
    /// The engine holds state of the session that cannot be replayed elsewhere.
    pub(crate) pinned: bool,
    pub(crate) _seat: Seat,
}

impl Session {
    /// A call of its user: over HTTP each has a proof of its own, which may count for longer than the one before.
    pub(crate) fn used_by(&mut self, caller: &Principal) {
        if self.principal.expires_ms.is_none() && caller.expires_ms.is_none() {
            return;
        }
        let ours = &mut self.principal;
        (ours.method, ours.expires_ms) = (caller.method, caller.expires_ms);
        if ours.via.is_none() && ours.user == caller.user {
            ours.groups.clone_from(&caller.groups);
        }
    }

    pub(crate) fn new(principal: Principal, client: IpAddr, settings: SessionSettings) -> Self {
        Self {
            handle: Handle::random(),
            principal,
            client,
            settings,
            channel: Channel::default(),
            engines: Engines::default(),
            current: None,
            next_number: 1,
            lost: None,
            operations: HandleMap::default(),
            engine_used_at: Duration::ZERO,
            waiting: Weak::new(),
            released: None,
            tenant_count: SessionCount::default(),
        }
    }

    /// The channel to metadata agents, and the caller of its statements.
    pub(crate) fn control(&mut self) -> (&mut Channel, Caller<'_>) {
        let creator = self.settings.creator();
        (&mut self.channel, Caller { principal: &self.principal, client: self.client, creator })
    }

    /// A number that no other engine of the session has.
    pub(crate) fn new_number(&mut self) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        number
    }

    /// Acquires the bytes that an operation is about to keep.
    pub(crate) fn acquire_budget(
        &self,
        budget: &Arc<Budget>,
        limit: usize,
        bytes: usize,
    ) -> Result<BudgetGuard, UserError> {
        let used: usize = self.operations.values().map(Operation::budget_bytes).sum();
        if used.saturating_add(bytes) > limit {
            budget.limit_reached(Limit::SessionStatementBytes);
            return Err(UserError::new(ErrorKind::ProgramLimit, "the session's open statements are too long")
                .detail(format!("They take {used} bytes of at most {limit}, and {bytes} more do not fit."))
                .hint("Close statements that are not used."));
        }
        budget.acquire(bytes)
    }

    /// Refuses an operation beyond [`MAX_OPERATIONS`].
    pub(crate) fn check_operation_limit(&self) -> Result<(), UserError> {
        if self.operations.len() < MAX_OPERATIONS {
            return Ok(());
        }
        Err(UserError::new(ErrorKind::ProgramLimit, "the session has too many open operations")
            .detail(format!("{MAX_OPERATIONS} operations are open."))
            .hint("Close statements that are not used."))
    }

    /// Whether it may be closed although its client did not ask for that: none of its statements waits or runs, and no call has named
    /// it for so long that its client is not reading a result.
    pub(crate) fn is_at_rest(&self, idle: Duration) -> bool {
        let runs = |operation: &Operation| {
            matches!(operation.state, OperationState::Waiting(_) | OperationState::AtEngine { running: Some(_), .. })
        };
        self.operations.is_empty() || (idle >= RESULT_PAUSE && !self.operations.values().any(runs))
    }

    /// Whether new statements have no engine yet and may be bound to any.
    pub(crate) fn is_unbound(&self) -> bool {
        self.current.is_none() && self.lost.is_none()
    }

    pub(crate) fn current_engine(&self) -> Option<&BoundEngine> {
        self.engines.get(self.current?)
    }

    /// Makes an engine the current one.
    pub(crate) fn bind(&mut self, engine: BoundEngine) {
        let binding = self.new_number();
        self.engines.insert(binding, engine);
        self.current = Some(binding);
        self.released = None;
    }

    /// Records a use of the current engine.
    pub(crate) fn engine_used(&mut self, now: Duration) {
        self.engine_used_at = now;
    }

    /// Ends the current binding if the engine was not used for `limit` and is not needed: the session has no state there that
    /// cannot be replayed, no operation that is open, and no statement that waits, and the engine is not its own, which would
    /// end. The caller closes the engine's session.
    pub(crate) fn release_unused_engine(&mut self, now: Duration, limit: Duration) -> Option<Box<BoundEngine>> {
        let binding = self.current?;
        let needs = |operation: &Operation| {
            operation.is_at_engine(binding) || matches!(operation.state, OperationState::Waiting(_))
        };
        let unused = now.saturating_sub(self.engine_used_at) >= limit;
        let is_own = matches!(self.current_engine()?.route.owner, Some(Owner::Session(_)));
        if !unused || is_own || self.is_pinned() || self.operations.values().any(needs) {
            return None;
        }
        self.current = None;
        let engine = self.engines.remove(binding)?;
        let uid = (engine.route.catalog == TableCatalog::Own).then(|| engine.route.endpoint.uid.clone());
        self.released = Some(Released { uid });
        Some(engine)
    }

    /// Whether the session is unbound because it was idle: what it asks of an engine is to be answered as before.
    pub(crate) fn is_released(&self) -> bool {
        self.released.is_some()
    }

    /// The instance to which the session returns after it was unbound, if that is ready.
    pub(crate) fn previous_engine(&self) -> Option<&str> {
        self.released.as_ref()?.uid.as_deref()
    }

    /// Ends the current binding for new statements. The engine is kept until its open operations are closed.
    pub(crate) fn unbind(&mut self) {
        if let Some(binding) = self.current.take() {
            self.release_engine(binding);
        }
    }

    /// Closes the session at an engine that is not the current one and has no open operation.
    pub(crate) fn release_engine(&mut self, binding: u64) {
        if self.current == Some(binding) || self.operations.values().any(|operation| operation.is_at_engine(binding)) {
            return;
        }
        if let Some(engine) = self.engines.remove(binding) {
            tokio::spawn(engine.close());
        }
    }

    /// Whether the current engine holds state of the session that cannot be replayed elsewhere.
    pub(crate) fn is_pinned(&self) -> bool {
        self.current_engine().is_some_and(|engine| engine.pinned)
    }

    pub(crate) fn pin_to_engine(&mut self) {
        if let Some(engine) = self.current.and_then(|binding| self.engines.get_mut(binding)) {
            engine.pinned = true;
        }
    }

    /// Whether the tables that it creates are lost with the current engine and unknown to others.
    fn engine_owns_tables(&self) -> bool {
        self.current_engine().is_some_and(|engine| engine.route.catalog == TableCatalog::Own)
    }

    /// Removes an engine that was lost: its operations fail, and the session may be bound again unless it was pinned.
    /// Returns the error of the statement that found the loss.
    pub(crate) fn lose_engine(&mut self, binding: u64, reason: &str) -> UserError {
        let Some(bound) = self.engines.remove(binding) else {
            return UserError::new(ErrorKind::ConnectionLost, "the engine was lost").detail(as_detail(reason));
        };
        let engine = &bound.route.engine;
        info!(%engine, reason, "engine lost");
        let error = UserError::new(ErrorKind::ConnectionLost, format!("engine \"{engine}\" was lost"))
            .detail(as_detail(reason))
            .hint("The statement is not retried because it may have taken effect; check before retrying.");
        for operation in self.operations.values_mut().filter(|operation| operation.is_at_engine(binding)) {
            operation.state = OperationState::Failed(error.clone());
        }
        if self.current == Some(binding) {
            self.current = None;
            if bound.pinned {
                let lost = UserError::new(ErrorKind::ConnectionLost, "session state was lost with its engine")
                    .detail(format!("Engine \"{engine}\" was lost: {reason}."))
                    .hint("Open a new session and create temporary views, variables and the like again.");
                self.lost = Some(Box::new(lost));
            }
        }
        error
    }

    /// Cuts the connection to the current engine in the middle of a call; its agent closes the session and cancels what
    /// runs. The client's session continues over HTTP and reports the loss.
    pub(crate) fn drop_current_engine(&mut self, reason: &str) {
        if let Some(binding) = self.current {
            self.lose_engine(binding, reason);
        }
    }

    /// Applies the effect of a statement that the current engine accepted: the session is pinned, or there is one more
    /// statement to replay. `pending`: the engine still runs it, under this handle.
    pub(crate) fn statement_accepted(&mut self, text: &str, pending: Option<Handle>) {
        if let Some(statement) = ddl::session_statement(text) {
            if self.settings.remember_statement(text, &statement, pending).is_err() {
                self.pin_to_engine();
            }
            if pending.is_none() {
                self.show_setting(&statement);
            }
        } else if ddl::sets_session(text) {
            // SET TIME ZONE and its like, which only engines parse: replayed verbatim.
            if self.settings.remember(text.to_owned(), text.to_owned(), pending).is_err() {
                self.pin_to_engine();
            }
        } else if ddl::pins_session(text) || (self.engine_owns_tables() && ddl::changes_tables(text)) {
            self.pin_to_engine();
        }
    }

    /// Applies the outcome of a statement that the engine reported: only a successful one is replayed at another engine.
    pub(crate) fn statement_ended(&mut self, handle: &Handle, succeeded: bool) {
        if let Some(text) = self.settings.confirm(handle, succeeded)
            && let Some(statement) = ddl::session_statement(&text)
        {
            self.show_setting(&statement);
        }
    }

    fn show_setting(&mut self, statement: &SessionStatement<'_>) {
        if let SessionStatement::Set { key, value } = statement {
            self.settings.show(key, value);
        }
    }

    /// Closes the metadata agent's session once no control statement is open there. It holds no state, and agents have
    /// far fewer connections than proxies have sessions.
    pub(crate) fn release_control(&mut self) {
        if self.operations.values().any(|operation| matches!(operation.state, OperationState::Control(_))) {
            return;
        }
        self.channel.close_in_background();
    }

    /// Closes the sessions at all backends.
    pub(crate) async fn close(&mut self) {
        self.tenant_count = SessionCount::default();
        self.current = None;
        self.operations.clear();
        for (_, engine) in std::mem::take(&mut self.engines).0 {
            engine.close().await;
        }
        self.channel.close().await;
    }
}

impl BoundEngine {
    /// Closes the engine's session. A connection that is broken is only cut: its agent then closes the session and cancels
    /// what runs.
    pub(crate) async fn close(mut self: Box<Self>) {
        if self.client.is_broken() {
            return;
        }
        self.client.set_call_deadline(BACKGROUND_CLOSE_DEADLINE);
        if let Err(error) = close_session(&mut self.client, &self.session).await {
            debug!(engine = %self.route.engine, %error, "could not close an engine session; connection cut");
        }
    }
}

async fn close_session(client: &mut Client, session: &Handle) -> Result<(), hs2::ClientError> {
    client.close_session(&TCloseSessionReq { session_handle: session.session() }).await.map(drop)
}
