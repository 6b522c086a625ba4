//! The sessions of a proxy, with the counts that its limits need.
//!
//! A handle that leaves the proxy is the proxy's own, bound to the user and, in binary mode, to the connection that
//! opened the session. Any other handle is answered with *no such session*, whether it exists or not.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hs2::{Handle, HandleMap, HandleTable, Limit, LimitHits, Scope};
use model::error::{ErrorKind, UserError};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use super::closed::Closed;
use super::closed_sessions::ClosedSessions;
use super::operation::Operation;
use super::owner::{Caller, Owner};
use super::state::Session;
use super::time_limit::TimeLimit;
use crate::routes::Route;
use crate::settings::Limits;

pub(crate) struct Sessions {
    limit: usize,
    limit_per_user: usize,
    limit_per_peer: usize,
    hits: Arc<LimitHits>,
    table: Mutex<Table>,
    /// Those that a time limit closed lately.
    closed: Mutex<ClosedSessions>,
    /// Notified when the last session is closed.
    emptied: Notify,
}

struct Table {
    handles: HandleTable<Entry>,
    per_user: HashMap<String, usize>,
    /// Sessions by the connection that they end with.
    per_connection: HashMap<u64, Vec<Handle>>,
    /// Sessions over HTTP by the address that opened them.
    http_per_peer: HashMap<IpAddr, usize>,
    /// The number of sessions opened so far.
    opened: u64,
}

/// A session with the facts that decide who may name it, readable without the session's lock.
pub(crate) struct Entry {
    pub(crate) handle: Handle,
    pub(crate) owner: Owner,
    /// The time of its opening, by the clock that counts suspension.
    opened_at: Duration,
    /// The address that it was opened from.
    peer: IpAddr,
    /// Greater than that of every session opened before.
    number: u64,
    /// Whether a call that creates an operation arrived.
    executed: AtomicBool,
    /// The time of the last call that named it: of its beginning or, once it is served, of its end. By the clock that counts
    /// suspension.
    used_at: Mutex<Duration>,
    /// Operations at engines with the engine's handles: a cancel must not wait for the session's other calls.
    at_engines: Mutex<HandleMap<(Arc<Route>, Handle)>>,
    pub(crate) state: tokio::sync::Mutex<Session>,
    /// Set when the session is closed: a call of another connection (over HTTP) must not delay that.
    pub(crate) closed: Closed,
}

impl Table {
    fn remove(&mut self, handle: &Handle) -> Option<Arc<Entry>> {
        let entry = self.handles.remove(handle)?;
        decrease(&mut self.per_user, &entry.owner.user);
        match entry.owner.connection {
            Some(connection) => self.leave_connection(connection, handle),
            None => decrease(&mut self.http_per_peer, &entry.peer),
        }
        Some(entry)
    }

    fn leave_connection(&mut self, connection: u64, session: &Handle) {
        if let Some(sessions) = self.per_connection.get_mut(&connection) {
            sessions.retain(|other| other != session);
            if sessions.is_empty() {
                self.per_connection.remove(&connection);
            }
        }
    }

    /// The session over HTTP that has been idle the longest among those that never executed anything: its client can open
    /// another one without a loss. `peer`: of that address only.
    fn expendable(&self, peer: Option<IpAddr>) -> Option<Handle> {
        let of_peer = |entry: &&Arc<Entry>| peer.is_none_or(|peer| entry.peer == peer);
        let unused = |entry: &&Arc<Entry>| {
            entry.owner.connection.is_none()
                && !entry.executed.load(Ordering::Relaxed)
                && entry.state.try_lock().is_ok()
        };
        let entries = self.handles.sessions().filter(of_peer).filter(unused);
        entries.min_by_key(|entry| (*entry.used_at.lock(), entry.number)).map(|entry| entry.handle)
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

impl Entry {
    /// Records a call that names the session.
    pub(crate) fn used(&self, now: Duration, creates_operation: bool) {
        *self.used_at.lock() = now;
        if creates_operation {
            self.executed.store(true, Ordering::Relaxed);
        }
    }

    /// For how long no call has named the session. Of use only while no call is being served.
    pub(crate) fn idle(&self, now: Duration) -> Duration {
        now.saturating_sub(*self.used_at.lock())
    }

    /// How long ago it was opened.
    pub(crate) fn age(&self, now: Duration) -> Duration {
        now.saturating_sub(self.opened_at)
    }

    fn at_engines(&self) -> MutexGuard<'_, HandleMap<(Arc<Route>, Handle)>> {
        self.at_engines.lock()
    }

    /// Records that the operation `ours` is at an engine under the handle `theirs`.
    pub(crate) fn record_at_engine(&self, ours: Handle, route: Arc<Route>, theirs: Handle) {
        self.at_engines().insert(ours, (route, theirs));
    }

    pub(crate) fn forget_at_engine(&self, ours: &Handle) {
        let mut at_engines = self.at_engines();
        at_engines.remove(ours);
        if at_engines.is_empty() {
            // An idle session owns no table.
            at_engines.shrink_to_fit();
        }
    }

    pub(crate) fn at_engine(&self, ours: &Handle) -> Option<(Arc<Route>, Handle)> {
        self.at_engines().get(ours).cloned()
    }
}

impl Sessions {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            limit: limits.sessions,
            limit_per_user: limits.sessions_per_user,
            limit_per_peer: limits.http_sessions_per_peer,
            hits: Arc::clone(&limits.wire.hits),
            table: Mutex::new(Table {
                handles: HandleTable::new(limits.sessions),
                per_user: HashMap::new(),
                per_connection: HashMap::new(),
                http_per_peer: HashMap::new(),
                opened: 0,
            }),
            closed: Mutex::default(),
            emptied: Notify::new(),
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock()
    }

    /// Adds a session; refuses one beyond the limit of the proxy, of its user, or of its address over HTTP. At the limit
    /// of the proxy or of the address, a session over HTTP that was never used is evicted: the caller closes it.
    pub(crate) fn insert(
        &self,
        session: Session,
        connection: Option<u64>,
        peer: IpAddr,
        now: Duration,
    ) -> Result<(Handle, Option<Arc<Entry>>), UserError> {
        let handle = session.handle;
        let user = session.principal.user.clone();
        let login = session.principal.via.clone();
        let mut table = self.table();
        let of_peer = table.http_per_peer.get(&peer).copied().unwrap_or(0);
        let peer_is_full = connection.is_none() && of_peer >= self.limit_per_peer;
        let is_full = table.handles.is_full();
        let expendable = if peer_is_full || is_full { table.expendable(peer_is_full.then_some(peer)) } else { None };
        if peer_is_full && expendable.is_none() {
            self.hits.hit(Limit::HttpSessionsPerAddress);
            return Err(UserError::new(ErrorKind::ProgramLimit, "too many sessions over HTTP from one address")
                .detail(format!("{of_peer} sessions of {peer} are open."))
                .hint("Close sessions that are not used."));
        }
        if is_full && expendable.is_none() {
            self.hits.hit(Limit::Sessions);
            return Err(UserError::new(ErrorKind::ProgramLimit, "the proxy has too many sessions")
                .detail(format!("{} sessions are open.", self.limit))
                .hint("Connect to another proxy, or retry later."));
        }
        let count = table.per_user.get(&user).copied().unwrap_or(0);
        if count >= self.limit_per_user {
            self.hits.hit(Limit::SessionsPerUser);
            return Err(UserError::new(ErrorKind::ProgramLimit, format!("user \"{user}\" has too many sessions"))
                .detail(format!("{count} sessions are open, and the limit is {}.", self.limit_per_user))
                .hint("Close sessions that are not used. The limit is proxy.max_sessions_per_user."));
        }
        let evicted = expendable.and_then(|handle| table.remove(&handle));
        *table.per_user.entry(user.clone()).or_default() += 1;
        match connection {
            // Nearly always the only one.
            Some(connection) => {
                table.per_connection.entry(connection).or_insert_with(|| Vec::with_capacity(1)).push(handle);
            }
            None => *table.http_per_peer.entry(peer).or_default() += 1,
        }
        table.opened += 1;
        let entry = Entry {
            handle,
            owner: Owner { user, login, connection },
            opened_at: now,
            peer,
            number: table.opened,
            executed: AtomicBool::new(false),
            used_at: Mutex::new(now),
            at_engines: Mutex::default(),
            state: tokio::sync::Mutex::new(session),
            closed: Closed::default(),
        };
        table.handles.insert(handle, Arc::new(entry))?;
        Ok((handle, evicted))
    }

    /// Removes a session with its operations.
    pub(crate) fn remove(&self, handle: &Handle) -> Option<Arc<Entry>> {
        let mut table = self.table();
        let entry = table.remove(handle)?;
        if table.handles.is_empty() {
            self.emptied.notify_waiters();
        }
        Some(entry)
    }

    /// Removes a session that exceeds a time limit, with these operations; its client can ask why.
    pub(crate) fn remove_expired(
        &self,
        handle: &Handle,
        operations: Vec<Handle>,
        limit: TimeLimit,
    ) -> Option<Arc<Entry>> {
        let entry = self.remove(handle)?;
        self.closed.lock().insert(*handle, operations, entry.owner.clone(), limit);
        Some(entry)
    }

    /// The time limit that closed the session of this handle, if the caller may name it and it was not long ago.
    pub(crate) fn expired_by(&self, named: &Handle, caller: &Caller<'_>) -> Option<TimeLimit> {
        self.closed.lock().limit_of(named, caller)
    }

    /// A session that ends with the connection.
    pub(crate) fn any_of_connection(&self, connection: u64) -> Option<Arc<Entry>> {
        let table = self.table();
        let handle = table.per_connection.get(&connection)?.first()?;
        table.handles.find(Scope::Session, handle).cloned()
    }

    pub(crate) fn count(&self) -> usize {
        self.table().handles.len()
    }

    /// Waits until no session is open.
    pub(crate) async fn none_left(&self) {
        loop {
            let mut emptied = std::pin::pin!(self.emptied.notified());
            // Enabled before the count is read, so that no notification is missed.
            emptied.as_mut().enable();
            if self.count() == 0 {
                return;
            }
            emptied.await;
        }
    }

    /// The sessions that end with the connection.
    pub(crate) fn of_connection(&self, connection: u64) -> Vec<Handle> {
        self.table().per_connection.get(&connection).cloned().unwrap_or_default()
    }

    /// All open sessions.
    pub(crate) fn all(&self) -> Vec<Arc<Entry>> {
        self.table().handles.sessions().cloned().collect()
    }

    /// Adds an operation to its session; without effect if another connection has closed the session.
    pub(crate) fn add_operation(&self, operation: Handle, session: &Handle) {
        self.table().handles.add_operation(operation, session);
    }

    /// Keeps an operation under a new handle of the proxy's own.
    pub(crate) fn keep_operation(&self, entry: &Entry, session: &mut Session, operation: Operation) -> Handle {
        let handle = Handle::random();
        session.operations.insert(handle, operation);
        self.add_operation(handle, &entry.handle);
        handle
    }

    pub(crate) fn remove_operation(&self, operation: &Handle) {
        self.table().handles.remove_operation(operation);
    }

    /// The session that a call names, if the caller may name it.
    pub(crate) fn find(&self, scope: Scope, named: &Handle, caller: &Caller<'_>) -> Option<Arc<Entry>> {
        let table = self.table();
        let entry = table.handles.find(scope, named)?;
        entry.owner.permits(caller).then(|| Arc::clone(entry))
    }
}
