//! The server's state as one pure state machine: tree, sessions, watches and connections.
//!
//! Every call takes the time and returns the frames to send. The caller sends them in this order, per connection; so an
//! event reaches a connection before any reply that shows the change.

pub(crate) mod acl;
mod events;
mod path;
mod reads;
mod sessions;
mod tree;
mod watches;
mod writes;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use bytes::Bytes;
use model::log_throttle::LogThrottle;
use tracing::{debug, info, warn};

use self::sessions::{ID_BITS, SESSIONS_MAX, Sessions};
use self::tree::{Tree, Txn};
pub(crate) use self::watches::ConnectionId;
use self::watches::{WatchKind, Watches};
use self::writes::{BYTES_MAX, Caller, NODES_MAX};
use crate::clock::Now;
use crate::proto::codes::{ErrorCode, XID_PING, op};
use crate::proto::connect::{ConnectRequest, Password, encode_answer};
use crate::proto::jute::Reader;
use crate::proto::records::Identity;
use crate::proto::reply::{Reply, encode_reply};
use crate::proto::request::{Header, Request, Write, decode_body, decode_header};

/// The interval between checks for empty containers; ZooKeeper's default.
const CONTAINER_CHECK_INTERVAL: Duration = Duration::from_mins(1);

/// An action on a connection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// Send a reply.
    Frame { connection: ConnectionId, frame: Bytes },
    /// Send an event about `path`.
    Event { connection: ConnectionId, path: String, frame: Bytes },
    /// Close the connection after the frames sent before.
    Close { connection: ConnectionId },
}

/// A connection that has a session.
#[derive(Debug)]
struct Connection {
    session: i64,
    /// The address first, then the authenticated identities.
    identities: Vec<Identity>,
}

/// Counters for monitoring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counts {
    pub(crate) zxid: i64,
    pub(crate) nodes: usize,
    pub(crate) ephemerals: usize,
    pub(crate) watches: usize,
    pub(crate) sessions: usize,
    /// Bytes of paths, data and access lists.
    pub(crate) size: usize,
}

/// A session as shown to tests.
#[derive(Clone, Debug)]
pub(crate) struct SessionState {
    pub(crate) id: i64,
    pub(crate) timeout: Duration,
    pub(crate) connection: Option<ConnectionId>,
    pub(crate) ephemerals: Vec<String>,
}

/// The whole state.
#[derive(Debug)]
pub(crate) struct State {
    tree: Tree,
    watches: Watches,
    sessions: Sessions,
    connections: HashMap<ConnectionId, Connection>,
    /// The last transaction id; raised by every write, including failed ones, and by sessions that open and close.
    zxid: i64,
    containers_due: Duration,
    /// Clients that were rejected since the session limit was reached; logged at the beginning and at the end.
    turned_away: u64,
    full_tree: LogThrottle,
}

impl State {
    /// An empty state. Session passwords are derived from `secret`; `timeouts` is the range of granted timeouts.
    pub(crate) fn new(now: Now, secret: Password, timeouts: RangeInclusive<Duration>) -> Self {
        Self {
            tree: Tree::new(),
            watches: Watches::default(),
            sessions: Sessions::new(now, secret, timeouts),
            connections: HashMap::new(),
            zxid: now.wall_ms << ID_BITS,
            containers_due: now.mono + CONTAINER_CHECK_INTERVAL,
            turned_away: 0,
            full_tree: LogThrottle::default(),
        }
    }

    /// Handles the first frame of a connection: opens a session, resumes one, or reports that it has expired.
    pub(crate) fn connect(&mut self, now: Now, connection: ConnectionId, peer: IpAddr, frame: Bytes) -> Vec<Output> {
        let close = Output::Close { connection };
        let request = match ConnectRequest::decode(frame) {
            Ok(request) => request,
            Err(error) => {
                debug!(connection, %error, "malformed handshake");
                return vec![close];
            }
        };
        let mut outputs = Vec::new();
        let granted = if request.session == 0 {
            if request.last_zxid_seen > self.zxid {
                debug!(connection, "client has seen a later transaction than this server has");
                return vec![close];
            }
            let Some(granted) = self.sessions.open(now, connection, request.timeout) else {
                if self.turned_away == 0 {
                    info!(connection, limit = SESSIONS_MAX, "too many sessions; rejecting clients");
                }
                self.turned_away += 1;
                return vec![close];
            };
            if self.turned_away > 0 {
                info!(turned_away = self.turned_away, "opening sessions again");
                self.turned_away = 0;
            }
            self.zxid += 1;
            granted
        } else {
            let password = &request.password;
            let resumed = self.sessions.resume(now, request.session, password, connection, request.timeout);
            let Some((granted, before)) = resumed else {
                debug!(connection, session = request.session, "session is unknown or expired");
                let frame = encode_answer(None, request.knows_read_only);
                return vec![Output::Frame { connection, frame }, close];
            };
            if let Some(before) = before {
                self.watches.forget(before);
                self.connections.remove(&before);
                outputs.push(Output::Close { connection: before });
            }
            granted
        };
        let identities = vec![acl::from_address(peer)];
        self.connections.insert(connection, Connection { session: granted.session, identities });
        outputs.push(Output::Frame { connection, frame: encode_answer(Some(granted), request.knows_read_only) });
        outputs
    }

    /// Handles a later frame. A frame of a connection without a session changes nothing and is not answered.
    pub(crate) fn handle(&mut self, now: Now, connection: ConnectionId, frame: Bytes) -> Vec<Output> {
        let Some(session) = self.connections.get(&connection).map(|found| found.session) else {
            return Vec::new();
        };
        let mut reader = Reader::new(frame);
        let Ok(header) = decode_header(&mut reader) else {
            debug!(connection, "frame without a header");
            return vec![Output::Close { connection }];
        };
        if !self.sessions.touch(now, session) {
            return vec![Output::Close { connection }];
        }
        match decode_body(header.op, &mut reader) {
            Ok(request) => self.execute(now, connection, session, header, request),
            Err(error) => {
                debug!(connection, op = header.op, %error, "malformed request");
                vec![self.reply(connection, header, &Err(ErrorCode::Marshalling))]
            }
        }
    }

    /// Forgets a closed connection. Its session stays until its deadline.
    pub(crate) fn disconnect(&mut self, connection: ConnectionId) {
        self.watches.forget(connection);
        if let Some(gone) = self.connections.remove(&connection) {
            self.sessions.detach(gone.session, connection);
        }
    }

    /// Expires overdue sessions and deletes unused containers.
    pub(crate) fn tick(&mut self, now: Now) -> Vec<Output> {
        let mut outputs = Vec::new();
        for session in self.sessions.overdue(now) {
            info!(session, "session expired");
            outputs.extend(self.expire(now, session).unwrap_or_default());
        }
        if now.mono >= self.containers_due {
            self.containers_due = now.mono + CONTAINER_CHECK_INTERVAL;
            for container in self.tree.idle_containers() {
                let txn = self.next_txn(now);
                let fired = writes::remove_unchecked(&mut self.tree, txn, vec![container]);
                self.notify(&fired, &mut outputs);
            }
        }
        outputs
    }

    /// Ends a session: deletes its nodes, fires watches, closes its connection. `None` if there is no such session.
    pub(crate) fn expire(&mut self, now: Now, session: i64) -> Option<Vec<Output>> {
        let ended = self.sessions.close(session)?;
        let txn = self.next_txn(now);
        let fired = writes::remove_ephemerals(&mut self.tree, txn, session);
        let mut outputs = Vec::new();
        self.notify(&fired, &mut outputs);
        outputs.extend(ended.connection.map(|connection| Output::Close { connection }));
        Some(outputs)
    }

    /// Extends every session's deadline, after this server itself was paused for this long.
    pub(crate) fn extend_deadlines(&mut self, by: Duration) {
        self.sessions.extend_deadlines(by);
    }

    /// The current connection of a session.
    pub(crate) fn connection_of(&self, session: i64) -> Option<ConnectionId> {
        self.sessions.get(session)?.connection
    }

    /// All sessions, by id.
    pub(crate) fn sessions(&self) -> Vec<SessionState> {
        let view = |(id, session): (i64, &sessions::Session)| SessionState {
            id,
            timeout: session.timeout,
            connection: session.connection,
            ephemerals: self.tree.ephemerals(id).cloned().collect(),
        };
        self.sessions.iter().map(view).collect()
    }

    /// Counters for monitoring.
    pub(crate) fn counts(&self) -> Counts {
        Counts {
            zxid: self.zxid,
            nodes: self.tree.len(),
            ephemerals: self.tree.ephemeral_count(),
            watches: self.watches.len(),
            sessions: self.sessions.iter().count(),
            size: self.tree.size(),
        }
    }

    fn execute(
        &mut self,
        now: Now,
        connection: ConnectionId,
        session: i64,
        header: Header,
        request: Request,
    ) -> Vec<Output> {
        let mut outputs = Vec::new();
        let mut close = false;
        let outcome = match request {
            Request::Write(write) => self.write(now, connection, session, write, &mut outputs),
            Request::Multi(writes) => Ok(self.multi(now, connection, session, writes, &mut outputs)),
            Request::Exists { path, watch } => {
                let found = self.tree.get(&path).map(|node| Reply::Stat(node.stat()));
                self.watch(connection, watch, &path, WatchKind::Data).and(found)
            }
            Request::GetData { path, watch } => {
                let read = reads::data(&self.tree, self.identities(connection), &path);
                read.and_then(|reply| self.watch(connection, watch, &path, WatchKind::Data).map(|()| reply))
            }
            Request::GetChildren { path, watch, with_stat } => {
                let read = reads::children(&self.tree, self.identities(connection), &path, with_stat);
                read.and_then(|reply| self.watch(connection, watch, &path, WatchKind::Children).map(|()| reply))
            }
            Request::MultiRead(batch) => Ok(reads::batch(&self.tree, self.identities(connection), batch)),
            Request::GetAcl { path } => reads::acl(&self.tree, self.identities(connection), &path),
            Request::GetEphemerals { prefix } => Ok(reads::ephemerals(&self.tree, session, &prefix)),
            Request::CountDescendants { path } => reads::descendants(&self.tree, self.identities(connection), &path),
            Request::Sync { path } => Ok(Reply::Path(path)),
            Request::Ping => Ok(Reply::Empty),
            Request::WhoAmI => {
                Ok(Reply::Identities(self.identities(connection).iter().map(acl::display_name).collect()))
            }
            Request::Auth { scheme, secret } => {
                let outcome = self.authenticate(connection, &scheme, &secret);
                close = outcome.is_err();
                outcome
            }
            Request::Rewatch(rewatch) => self.rewatch(connection, &rewatch, &mut outputs),
            Request::AddWatch { path, mode } => self.add_watch(connection, &path, mode),
            Request::CheckWatches { path, kind } => watch_found(self.watches.has(connection, &path, kind)),
            Request::RemoveWatches { path, kind } => watch_found(self.watches.remove(connection, &path, kind)),
            Request::Reconfig => Err(ErrorCode::ReconfigDisabled),
            Request::Close => {
                outputs.extend(self.expire(now, session).unwrap_or_default());
                outputs.retain(|output| *output != Output::Close { connection });
                close = true;
                Ok(Reply::Empty)
            }
            Request::Unknown => {
                debug!(connection, op = header.op, "unknown operation");
                close = true;
                Err(ErrorCode::Unimplemented)
            }
        };
        if is_over_limit(&outcome) {
            self.log_quota_exceeded(now);
        }
        outputs.push(self.reply(connection, header, &outcome));
        if close {
            outputs.push(Output::Close { connection });
        }
        outputs
    }

    fn log_quota_exceeded(&mut self, now: Now) {
        if let Some(times) = self.full_tree.hit(now.mono) {
            let (nodes, bytes) = (self.tree.len(), self.tree.size());
            let (most_nodes, most_bytes) = (NODES_MAX, BYTES_MAX);
            warn!(nodes, most_nodes, bytes, most_bytes, times, "tree is full; write refused");
        }
    }

    fn reply(&self, connection: ConnectionId, header: Header, outcome: &Result<Reply, ErrorCode>) -> Output {
        let xid = if header.op == op::PING { XID_PING } else { header.xid };
        Output::Frame { connection, frame: encode_reply(xid, self.zxid, outcome) }
    }

    fn identities(&self, connection: ConnectionId) -> &[Identity] {
        self.connections.get(&connection).map_or(&[], |found| &found.identities)
    }

    fn next_txn(&mut self, now: Now) -> Txn {
        self.zxid += 1;
        Txn { zxid: self.zxid, wall_ms: now.wall_ms }
    }

    fn write(
        &mut self,
        now: Now,
        connection: ConnectionId,
        session: i64,
        write: Write,
        outputs: &mut Vec<Output>,
    ) -> Result<Reply, ErrorCode> {
        let txn = self.next_txn(now);
        let identities = self.connections.get(&connection).map_or(&[][..], |found| &found.identities);
        let applied = writes::apply(&mut self.tree, txn, Caller { session, identities }, write)?;
        self.notify(&applied.fired, outputs);
        Ok(applied.reply)
    }

    fn multi(
        &mut self,
        now: Now,
        connection: ConnectionId,
        session: i64,
        writes: Vec<Write>,
        outputs: &mut Vec<Output>,
    ) -> Reply {
        let txn = self.next_txn(now);
        let identities = self.connections.get(&connection).map_or(&[][..], |found| &found.identities);
        let (reply, fired) = writes::apply_all(&mut self.tree, txn, Caller { session, identities }, writes);
        self.notify(&fired, outputs);
        reply
    }

    fn authenticate(&mut self, connection: ConnectionId, scheme: &str, secret: &[u8]) -> Result<Reply, ErrorCode> {
        let found = self.connections.get_mut(&connection).ok_or(ErrorCode::AuthFailed)?;
        let address = found.identities.first().ok_or(ErrorCode::AuthFailed)?;
        let identity = acl::authenticate(scheme, secret, address).ok_or(ErrorCode::AuthFailed)?;
        if !found.identities.contains(&identity) {
            found.identities.push(identity);
        }
        Ok(Reply::Empty)
    }
}

fn is_over_limit(outcome: &Result<Reply, ErrorCode>) -> bool {
    match outcome {
        Ok(Reply::Parts(parts)) => parts.iter().any(|part| matches!(part.outcome, Err(ErrorCode::QuotaExceeded))),
        Ok(_) => false,
        Err(code) => *code == ErrorCode::QuotaExceeded,
    }
}

fn watch_found(found: Result<bool, ErrorCode>) -> Result<Reply, ErrorCode> {
    if found? { Ok(Reply::Empty) } else { Err(ErrorCode::NoWatcher) }
}
