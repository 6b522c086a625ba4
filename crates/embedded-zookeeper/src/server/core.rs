//! The state behind the lock: the state machine, every connection's queue, and the injected faults.
//!
//! Outputs of the state machine are queued under the lock, in order. A full queue means that the client does not
//! read: its connection is cut, and it learns about missed events when it reconnects.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Notify, OwnedSemaphorePermit, mpsc};
use tokio::time::Instant;
use tracing::{debug, warn};

use super::event_filter::EventFilter;
use crate::clock::Clock;
use crate::proto::codes::op;
use crate::state::{ConnectionId, Output, State};

/// The most connections at a time, including those without a session; further ones are closed at once.
pub(crate) const CONNECTIONS_MAX: usize = 4_096;
/// The most queued frames of one connection; one more cuts it.
pub(crate) const QUEUE_MAX: usize = 10_000;
/// The most delayed events; one more sends the oldest early.
const DELAYED_MAX: usize = 100_000;

/// What all tasks share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(super) core: Mutex<Core>,
}

impl Shared {
    /// Locks the core. A panic while the lock was held affects one request; the others are still served.
    pub(crate) fn core(&self) -> MutexGuard<'_, Core> {
        self.core.lock()
    }
}

/// A queued frame. The permit belongs to the requester, so that a client with many queued replies is not read
/// from; events have none.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) frame: Bytes,
    pub(crate) _permit: Option<OwnedSemaphorePermit>,
}

/// The server's end of one connection.
#[derive(Debug)]
struct Link {
    /// Dropping it ends the connection after the queued frames.
    queue: mpsc::Sender<Outgoing>,
    /// Ends the connection at once.
    cut: Arc<Notify>,
    peer: SocketAddr,
    received: u64,
    sent: u64,
    /// Whether one of its requests is held because there is no leader.
    held: bool,
}

/// Requests and replies since the start.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Traffic {
    pub(crate) received: u64,
    pub(crate) sent: u64,
    pub(crate) latency_min: Duration,
    pub(crate) latency_max: Duration,
    pub(crate) latency_sum: Duration,
}

/// An event that a test delays.
#[derive(Debug)]
struct Delayed {
    due: Instant,
    connection: ConnectionId,
    frame: Bytes,
}

/// Everything behind the lock.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) state: State,
    pub(crate) clock: Clock,
    pub(crate) traffic: Traffic,
    pub(crate) filter: EventFilter,
    pub(crate) outage: bool,
    /// Whether only requests that a follower answers without its leader are answered.
    leaderless: bool,
    links: HashMap<ConnectionId, Link>,
    delay: Duration,
    delayed: VecDeque<Delayed>,
}

impl Core {
    pub(crate) fn new(state: State, clock: Clock) -> Self {
        Self {
            state,
            clock,
            traffic: Traffic::default(),
            filter: EventFilter::None,
            outage: false,
            leaderless: false,
            links: HashMap::new(),
            delay: Duration::ZERO,
            delayed: VecDeque::new(),
        }
    }

    /// Handles a new connection's first frame.
    pub(crate) fn connect(
        &mut self,
        connection: ConnectionId,
        peer: SocketAddr,
        frame: Bytes,
        queue: mpsc::Sender<Outgoing>,
        cut: Arc<Notify>,
    ) {
        self.links.insert(connection, Link { queue, cut, peer, received: 1, sent: 0, held: false });
        self.traffic.received += 1;
        let outputs = self.state.connect(self.clock.now(), connection, peer.ip(), frame);
        self.dispatch(outputs, None);
    }

    /// Handles a later frame. `arrived` is when it had been read, for the latency.
    pub(crate) fn handle(
        &mut self,
        connection: ConnectionId,
        frame: Bytes,
        arrived: Instant,
        permit: OwnedSemaphorePermit,
    ) {
        if let Some(link) = self.links.get_mut(&connection) {
            link.received += 1;
        }
        if self.leaderless && self.is_held(connection, &frame) {
            debug!(connection, "request held by fault injection");
            return;
        }
        let outputs = self.state.handle(self.clock.now(), connection, frame);
        self.dispatch(outputs, Some((connection, permit)));
        self.traffic.note_latency(arrived.elapsed());
    }

    /// Whether a follower without its leader holds the request: it needs the leader, or it follows one that does.
    fn is_held(&mut self, connection: ConnectionId, frame: &[u8]) -> bool {
        let Some(link) = self.links.get_mut(&connection) else { return false };
        match operation(frame) {
            Some(op::PING) => false,
            Some(op::EXISTS | op::GET_DATA | op::GET_ACL | op::GET_CHILDREN | op::GET_CHILDREN2) => link.held,
            _ => {
                link.held = true;
                true
            }
        }
    }

    /// Starts or stops answering like a follower without a leader. Stopping cuts the connections with held requests.
    pub(crate) fn set_leaderless(&mut self, leaderless: bool) {
        self.leaderless = leaderless;
        for link in self.links.values_mut().filter(|_| !leaderless) {
            if std::mem::take(&mut link.held) {
                link.cut.notify_one();
            }
        }
    }

    /// Forgets a closed connection.
    pub(crate) fn disconnect(&mut self, connection: ConnectionId) {
        self.links.remove(&connection);
        self.state.disconnect(connection);
    }

    /// Processes what is due: expired sessions, idle containers, delayed events.
    pub(crate) fn tick(&mut self) {
        let outputs = self.state.tick(self.clock.now());
        self.dispatch(outputs, None);
        let now = Instant::now();
        while let Some(event) = self.delayed.pop_front_if(|event| event.due <= now) {
            self.send(event.connection, event.frame, None);
        }
    }

    /// Expires a session; `false` if there is no session of this id.
    pub(crate) fn expire(&mut self, session: i64) -> bool {
        let Some(outputs) = self.state.expire(self.clock.now(), session) else { return false };
        self.dispatch(outputs, None);
        true
    }

    /// Cuts a session's connection; `false` if it has none.
    pub(crate) fn cut(&mut self, session: i64) -> bool {
        let link = self.state.connection_of(session).and_then(|connection| self.links.get(&connection));
        link.inspect(|link| link.cut.notify_one()).is_some()
    }

    /// Cuts every connection.
    pub(crate) fn cut_all(&mut self) {
        for link in self.links.values() {
            link.cut.notify_one();
        }
    }

    /// Delays events from now on. Zero sends the delayed ones and ends the delay.
    pub(crate) fn delay_events(&mut self, delay: Duration) {
        self.delay = delay;
        if delay.is_zero() {
            for event in std::mem::take(&mut self.delayed) {
                self.send(event.connection, event.frame, None);
            }
        }
    }

    /// Peer, queued frames, received and sent frames of each connection with a handshake.
    pub(crate) fn links(&self) -> impl Iterator<Item = (SocketAddr, usize, u64, u64)> {
        self.links.values().map(|link| {
            let queued = link.queue.max_capacity() - link.queue.capacity();
            (link.peer, queued, link.received, link.sent)
        })
    }

    fn dispatch(&mut self, outputs: Vec<Output>, mut permit: Option<(ConnectionId, OwnedSemaphorePermit)>) {
        for output in outputs {
            match output {
                Output::Frame { connection, frame } => {
                    let own = permit.take_if(|(requester, _)| *requester == connection).map(|(_, permit)| permit);
                    self.send(connection, frame, own);
                }
                Output::Event { connection, path, frame } => self.send_event(connection, &path, frame),
                Output::Close { connection } => {
                    self.links.remove(&connection);
                }
            }
        }
    }

    fn send_event(&mut self, connection: ConnectionId, path: &str, frame: Bytes) {
        if self.filter.drops(path) {
            debug!(connection, path, "event dropped by fault injection");
            return;
        }
        if self.delay.is_zero() {
            self.send(connection, frame, None);
            return;
        }
        if self.delayed.len() >= DELAYED_MAX
            && let Some(event) = self.delayed.pop_front()
        {
            self.send(event.connection, event.frame, None);
        }
        // Never before an event that is already delayed: a shorter delay must not reorder events.
        let due = Instant::now() + self.delay;
        let due = self.delayed.back().map_or(due, |last| last.due.max(due));
        self.delayed.push_back(Delayed { due, connection, frame });
    }

    fn send(&mut self, connection: ConnectionId, frame: Bytes, permit: Option<OwnedSemaphorePermit>) {
        let Some(link) = self.links.get_mut(&connection) else { return };
        match link.queue.try_send(Outgoing { frame, _permit: permit }) {
            Ok(()) => {
                link.sent += 1;
                self.traffic.sent += 1;
            }
            Err(TrySendError::Full(_)) => {
                warn!(connection, peer = %link.peer, limit = QUEUE_MAX, "client does not read, connection cut");
                link.cut.notify_one();
                self.links.remove(&connection);
            }
            Err(TrySendError::Closed(_)) => {}
        }
    }
}

/// The operation of a request.
fn operation(frame: &[u8]) -> Option<i32> {
    frame.get(4..8).and_then(|bytes| bytes.try_into().ok()).map(i32::from_be_bytes)
}

impl Traffic {
    fn note_latency(&mut self, latency: Duration) {
        let first = self.latency_sum.is_zero();
        self.latency_min = if first { latency } else { self.latency_min.min(latency) };
        self.latency_max = self.latency_max.max(latency);
        self.latency_sum += latency;
        self.received += 1;
    }
}
