//! Client sessions: the proxy's own handles, what each session is bound to, and who may name it.
//!
//! A handle that leaves the proxy is the proxy's own, bound to the user and, in binary mode, to the connection that
//! opened it; any other is answered with *no such session*, whether it exists or not.

pub(crate) mod binding;
mod cancel;
pub(crate) mod close;
pub(crate) mod control;
mod forward;
pub(crate) mod liveness;
pub(crate) mod local;
mod no_engine;
mod one_engine_type;
mod open;
pub(crate) mod operation;
mod pool;
mod replay;
pub(crate) mod settings;
pub(crate) mod statement;
mod timeout;
mod waiting;

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use hs2::message::{encode_refusal, encode_reply};
use hs2::scan::Request;
use hs2::{Connection, Handle, Mechanism, Message, Method, Scope};
use model::error::{ErrorKind, UserError};
use parking_lot::{Mutex, MutexGuard};
use thrift::protocol::TSerializable;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::Gateway;
use crate::budget::Held;
use crate::routes::Route;
use crate::settings::Limits;
use binding::Bound;
use control::ControlBackend;
use operation::Operation;
use settings::SessionSettings;

/// Why a connection can't be used any longer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Gone {
    /// The client hung up, or a reply could not be written.
    #[error("the client went away: {0}")]
    Client(String),
}

/// The sessions of this proxy.
pub(crate) struct Sessions {
    limit: usize,
    limit_per_user: usize,
    limit_per_peer: usize,
    table: Mutex<Table>,
    /// Told when the last session goes.
    emptied: Notify,
}

#[derive(Default)]
struct Table {
    sessions: HashMap<Handle, Arc<Entry>>,
    operations: HashMap<Handle, Handle>,
    per_user: HashMap<String, usize>,
    /// Sessions by the connection that they end with.
    per_connection: HashMap<u64, usize>,
    /// Sessions over HTTP by the address that opened them.
    http_per_peer: HashMap<IpAddr, usize>,
    /// How many sessions were opened so far.
    opened: u64,
}

impl Table {
    fn take(&mut self, handle: &Handle) -> Option<Arc<Entry>> {
        let entry = self.sessions.remove(handle)?;
        self.operations.retain(|_, session| session != handle);
        decrease(&mut self.per_user, &entry.user);
        match entry.connection {
            Some(connection) => decrease(&mut self.per_connection, &connection),
            None => decrease(&mut self.http_per_peer, &entry.peer),
        }
        Some(entry)
    }

    /// The session over HTTP that was idle for longest and never executed anything: it costs its client nothing to open
    /// another one. `peer`: of that address only.
    fn expendable(&self, peer: Option<IpAddr>) -> Option<Handle> {
        let of_peer = |entry: &&Arc<Entry>| peer.is_none_or(|peer| entry.peer == peer);
        let unused = |entry: &&Arc<Entry>| {
            entry.connection.is_none() && !entry.executed.load(Ordering::Relaxed) && entry.state.try_lock().is_ok()
        };
        let entries = self.sessions.values().filter(of_peer).filter(unused);
        entries.min_by_key(|entry| (entry.used_at_ms.load(Ordering::Relaxed), entry.number)).map(|entry| entry.handle)
    }
}

fn decrease<K: std::hash::Hash + Eq>(counts: &mut HashMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count = count.saturating_sub(1);
        if *count == 0 {
            counts.remove(key);
        }
    }
}

/// A session and who may name it.
pub(crate) struct Entry {
    pub(crate) handle: Handle,
    pub(crate) user: String,
    /// The connection that opened it; `None` over HTTP.
    pub(crate) connection: Option<u64>,
    /// The address that it was opened from.
    peer: IpAddr,
    /// Greater than that of every session opened before.
    number: u64,
    /// Whether a call that makes an operation came.
    executed: AtomicBool,
    /// When a call named it last, in milliseconds of the clock that counts suspension.
    used_at_ms: AtomicU64,
    /// Operations at engines, for a cancel that must not wait for the session's other calls.
    at_engine: Mutex<HashMap<Handle, (Route, Handle)>>,
    pub(crate) state: tokio::sync::Mutex<Session>,
    /// Cancelled when the session is closed: a call of another connection (over HTTP) must not hold it up.
    pub(crate) closed: CancellationToken,
}

impl Entry {
    fn at_engines(&self) -> MutexGuard<'_, HashMap<Handle, (Route, Handle)>> {
        self.at_engine.lock()
    }

    /// Notes that the operation is at an engine, under the engine's handle.
    pub(crate) fn note_at_engine(&self, ours: Handle, route: Option<Route>, theirs: Handle) {
        if let Some(route) = route {
            self.at_engines().insert(ours, (route, theirs));
        }
    }

    pub(crate) fn forget_at_engine(&self, ours: &Handle) {
        self.at_engines().remove(ours);
    }

    /// Where the operation is, if it is at an engine.
    pub(crate) fn at_engine(&self, ours: &Handle) -> Option<(Route, Handle)> {
        self.at_engines().get(ours).cloned()
    }
}

/// What a session is made of.
pub(crate) struct Session {
    pub(crate) user: String,
    pub(crate) settings: SessionSettings,
    /// The metadata agent's session, opened when first needed.
    pub(crate) control: Option<ControlBackend>,
    /// Engines by the number of their binding: the present one, and older ones whose results are still read.
    pub(crate) engines: BTreeMap<u64, Bound>,
    /// The binding that new statements go to.
    pub(crate) present: Option<u64>,
    pub(crate) next_binding: u64,
    /// Set when state of the session's own was lost with its engine: every later statement is told so.
    pub(crate) lost: Option<UserError>,
    pub(crate) operations: HashMap<Handle, Operation>,
}

impl Session {
    pub(crate) fn new(user: String, settings: SessionSettings) -> Self {
        Self {
            user,
            settings,
            control: None,
            engines: BTreeMap::new(),
            present: None,
            next_binding: 1,
            lost: None,
            operations: HashMap::new(),
        }
    }
}

/// Reserves bytes that an operation of the session is about to keep.
pub(crate) fn hold(gateway: &Gateway, session: &Session, bytes: usize) -> Result<Held, UserError> {
    let limit = gateway.settings.limits.session_statement_bytes;
    let held: usize = session.operations.values().map(Operation::held_bytes).sum();
    if held.saturating_add(bytes) > limit {
        return Err(UserError::new(ErrorKind::ProgramLimit, "the session's open statements are too long")
            .detail(format!("They take {held} bytes of at most {limit}, and {bytes} more do not fit."))
            .hint("Close statements that are not used."));
    }
    gateway.budget.hold(bytes)
}

impl Sessions {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            limit: limits.sessions,
            limit_per_user: limits.sessions_per_user,
            limit_per_peer: limits.http_sessions_per_peer,
            table: Mutex::default(),
            emptied: Notify::new(),
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock()
    }

    /// Keeps a new session; refuses one above the limit of all or of its user. At the limit of all, or of its address
    /// over HTTP, a session over HTTP that was never used gives its place up: the second value, which the caller ends.
    pub(crate) fn insert(
        &self,
        session: Session,
        connection: Option<u64>,
        peer: IpAddr,
        now: Duration,
    ) -> Result<(Handle, Option<Arc<Entry>>), UserError> {
        let handle = Handle::random();
        let user = session.user.clone();
        let mut table = self.table();
        let of_peer = table.http_per_peer.get(&peer).copied().unwrap_or(0);
        let peer_is_full = connection.is_none() && of_peer >= self.limit_per_peer;
        let is_full = table.sessions.len() >= self.limit;
        let expendable = if peer_is_full || is_full { table.expendable(peer_is_full.then_some(peer)) } else { None };
        if peer_is_full && expendable.is_none() {
            return Err(UserError::new(ErrorKind::ProgramLimit, "too many sessions over HTTP from one address")
                .detail(format!("{of_peer} sessions of {peer} are open."))
                .hint("Close sessions that are not used."));
        }
        if is_full && expendable.is_none() {
            return Err(UserError::new(ErrorKind::ProgramLimit, "the proxy has too many sessions")
                .detail(format!("{} are open", self.limit))
                .hint("connect to another proxy, or try again later"));
        }
        let count = table.per_user.get(&user).copied().unwrap_or(0);
        if count >= self.limit_per_user {
            return Err(UserError::new(ErrorKind::ProgramLimit, format!("user \"{user}\" has too many sessions"))
                .detail(format!("{count} are open, {} may be", self.limit_per_user))
                .hint("close sessions that are not used"));
        }
        let evicted = expendable.and_then(|handle| table.take(&handle));
        *table.per_user.entry(user.clone()).or_default() += 1;
        match connection {
            Some(connection) => *table.per_connection.entry(connection).or_default() += 1,
            None => *table.http_per_peer.entry(peer).or_default() += 1,
        }
        table.opened += 1;
        let entry = Entry {
            handle,
            user,
            connection,
            peer,
            number: table.opened,
            executed: AtomicBool::new(false),
            used_at_ms: AtomicU64::new(now.as_millis() as u64),
            at_engine: Mutex::default(),
            state: tokio::sync::Mutex::new(session),
            closed: CancellationToken::new(),
        };
        table.sessions.insert(handle, Arc::new(entry));
        Ok((handle, evicted))
    }

    /// Takes a session away, with the names of its operations.
    pub(crate) fn remove(&self, handle: &Handle) -> Option<Arc<Entry>> {
        let mut table = self.table();
        let entry = table.take(handle)?;
        if table.sessions.is_empty() {
            self.emptied.notify_waiters();
        }
        Some(entry)
    }

    /// Whether a session is open that ends with the connection.
    pub(crate) fn is_any_of_connection(&self, connection: u64) -> bool {
        self.table().per_connection.contains_key(&connection)
    }

    pub(crate) fn count(&self) -> usize {
        self.table().sessions.len()
    }

    /// Waits until no session is open.
    pub(crate) async fn none_left(&self) {
        loop {
            let mut emptied = std::pin::pin!(self.emptied.notified());
            // Listens before it looks.
            emptied.as_mut().enable();
            if self.count() == 0 {
                return;
            }
            emptied.await;
        }
    }

    /// The sessions that a connection opened.
    pub(crate) fn of_connection(&self, connection: u64) -> Vec<Handle> {
        let table = self.table();
        table.sessions.values().filter(|it| it.connection == Some(connection)).map(|it| it.handle).collect()
    }

    /// The sessions over HTTP that no call has named for `idle`, and that no call is working for.
    pub(crate) fn idle_over_http(&self, idle: Duration, now: Duration) -> Vec<Handle> {
        let since = now.saturating_sub(idle).as_millis() as u64;
        let is_idle = |it: &&Arc<Entry>| {
            it.connection.is_none() && it.used_at_ms.load(Ordering::Relaxed) < since && it.state.try_lock().is_ok()
        };
        self.table().sessions.values().filter(is_idle).map(|it| it.handle).collect()
    }

    /// Notes whose operation it is. A session that was closed meanwhile, by a call of another connection, has none.
    pub(crate) fn name_operation(&self, operation: Handle, session: Handle) {
        let mut table = self.table();
        if table.sessions.contains_key(&session) {
            table.operations.insert(operation, session);
        }
    }

    pub(crate) fn forget_operation(&self, operation: &Handle) {
        self.table().operations.remove(operation);
    }

    /// The session that a call names, if the caller may name it.
    fn find(&self, scope: Scope, named: &Handle, caller: &Caller<'_>) -> Option<Arc<Entry>> {
        let table = self.table();
        let handle = if scope == Scope::Operation { table.operations.get(named)? } else { named };
        let entry = table.sessions.get(handle)?;
        let same_connection = entry.connection.is_none_or(|it| it == caller.connection);
        (entry.user == caller.user && same_connection).then(|| Arc::clone(entry))
    }
}

struct Caller<'a> {
    user: &'a str,
    connection: u64,
}

/// Serves one call to its reply.
pub(crate) async fn serve(
    gateway: &Arc<Gateway>,
    connection: &mut Connection,
    method: Method,
    message: Message,
) -> Result<(), Gone> {
    if method == Method::OpenSession {
        return open::open(gateway, connection, &message).await;
    }
    let seqid = message.seqid();
    let request = match message.request() {
        Ok(request) => request,
        Err(error) => {
            let error = UserError::new(ErrorKind::Syntax, format!("the call {} can't be read", method.name()))
                .detail(error.to_string());
            return refuse(connection, method, seqid, &error).await;
        }
    };
    let named = request.handle.as_ref().and_then(|at| at.read(message.bytes()).ok());
    let entry = connection.principal().and_then(|principal| {
        let caller = Caller { user: &principal.user, connection: connection.id() };
        gateway.sessions.find(method.scope(), named.as_ref()?, &caller)
    });
    if let Some(entry) = &entry {
        entry.used_at_ms.store(gateway.clock.boottime().as_millis() as u64, Ordering::Relaxed);
    }
    let (Some(entry), Some(named)) = (entry, named) else {
        let what = if method.scope() == Scope::Operation { "operation" } else { "session" };
        let error = UserError::new(ErrorKind::WrongState, format!("the {what} does not exist"))
            .detail("it was closed, or it belongs to somebody else")
            .hint("open a new session");
        return refuse(connection, method, seqid, &error).await;
    };
    if method.makes_operation() {
        entry.executed.store(true, Ordering::Relaxed);
    }
    if method == Method::CloseSession {
        return close::close(gateway, connection, &entry, seqid).await;
    }
    let ended = entry.closed.clone();
    tokio::select! {
        served = serve_in(gateway, connection, &entry, named, method, message, &request) => served,
        // Its statement is cancelled with the connection to the engine.
        () = ended.cancelled() => Err(Gone::Client("its session was closed by another call".to_owned())),
    }
}

/// Serves a call of an open session.
async fn serve_in(
    gateway: &Arc<Gateway>,
    connection: &mut Connection,
    entry: &Arc<Entry>,
    named: Handle,
    method: Method,
    message: Message,
    request: &Request,
) -> Result<(), Gone> {
    let seqid = message.seqid();
    match (method, method.scope()) {
        (Method::SetClientInfo, _) => local::set_client_info(connection, seqid).await,
        (Method::GetInfo, _) => local::get_info(gateway, connection, entry, message).await,
        (Method::ExecuteStatement, _) => statement::execute(gateway, connection, entry, message, request).await,
        (Method::CancelOperation, _) => cancel::cancel(gateway, connection, entry, named, seqid).await,
        (_, Scope::Operation) => operation::serve(gateway, connection, entry, named, message, request).await,
        (_, _) if method.makes_operation() => statement::metadata_call(gateway, connection, entry, message).await,
        _ => {
            let error = UserError::new(ErrorKind::NotSupported, format!("{} is not supported", method.name()));
            refuse(connection, method, seqid, &error).await
        }
    }
}

/// Answers a call with an error in its own response struct.
pub(crate) async fn refuse(
    connection: &mut Connection,
    method: Method,
    seqid: i32,
    error: &UserError,
) -> Result<(), Gone> {
    send(connection, &encode_refusal(method, seqid, error)).await
}

/// Answers a call.
pub(crate) async fn answer<T: TSerializable>(
    connection: &mut Connection,
    method: Method,
    seqid: i32,
    answer: &T,
) -> Result<(), Gone> {
    send(connection, &encode_reply(method.name(), seqid, answer)).await
}

pub(crate) async fn send(connection: &mut Connection, reply: &[u8]) -> Result<(), Gone> {
    connection.send(reply).await.map_err(|error| Gone::Client(error.to_string()))
}

/// The connection that a session is bound to.
pub(crate) fn connection_of(connection: &Connection) -> Option<u64> {
    (connection.mechanism() != Mechanism::HttpBasic).then(|| connection.id())
}
