//! The limits of this crate, with their defaults.
//!
//! Every read, buffer and wait has one of these limits: a length on the wire is compared with its limit before memory
//! is allocated for it.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use crate::limit_hits::LimitHits;
use crate::request_memory::RequestMemory;

/// The deepest nesting of structs and containers. `TCLIService`'s deepest message needs eight levels.
pub const MAX_DEPTH: usize = 32;

/// The most elements of a list in a message that is decoded into generated structs. Relayed results are not decoded
/// and have no such limit.
pub const MAX_DECODED_ITEMS: usize = 1 << 20;

/// The longest name of a method, in bytes.
pub const MAX_METHOD_NAME_BYTES: usize = 128;

/// The largest SASL message: a mechanism's name, or names and a password.
pub const MAX_SASL_BYTES: usize = 64 * 1024;

/// The longest bearer token of an HTTP client, in bytes. The head that it is in has a limit, too.
pub const MAX_BEARER_BYTES: usize = 16 * 1024;

/// The longest ticket of an HTTP client, in bytes of its base64. The head that it is in has a limit, too.
pub const MAX_TICKET_BYTES: usize = 16 * 1024;

/// The longest message of a plain Thrift client before it is authenticated: `OpenSession` with its keys.
pub const MAX_FIRST_MESSAGE_BYTES: usize = 64 * 1024;

/// The longest error text that is sent or relayed; a longer one is cut.
pub const MAX_ERROR_TEXT_BYTES: usize = 64 * 1024;

/// The most bytes of replies that one process buffers at once, over all connections.
pub const BUFFERED_REPLIES_BYTES: usize = 256 << 20;

/// Replies up to this length are not counted.
pub const UNCOUNTED_REPLY_BYTES: usize = 64 * 1024;

/// The most bytes of requests that servers receive at once by default, over all connections of a process.
pub const RECEIVED_REQUESTS_BYTES: usize = 256 << 20;

/// The most of that for one user: four of the longest requests.
pub const RECEIVED_REQUESTS_BYTES_PER_USER: usize = 64 << 20;

/// Requests up to this length are not counted.
pub const UNCOUNTED_REQUEST_BYTES: usize = 64 * 1024;

/// The most TLS handshakes of one listener at the same time; further ones wait.
pub const HANDSHAKES_AT_ONCE: usize = 256;

/// The most of these from one address: a quarter, so that slow handshakes of one peer delay no other.
pub const HANDSHAKES_PER_ADDRESS: usize = 64;

/// The longest head of an HTTP request, and of its trailers, in bytes.
pub const MAX_HTTP_HEAD_BYTES: usize = 16 * 1024;

/// The most headers of an HTTP request.
pub const MAX_HTTP_HEADERS: usize = 64;

/// The buffer of an HTTP connection, in bytes: of a head or a part of a body, with the requests that a client sends
/// before it has read a reply. The rest waits in the operating system. A reply is buffered in pieces of the same length,
/// or of one piece that was copied.
pub const HTTP_BUFFER_BYTES: usize = 16 * 1024;

/// How long an HTTP connection may be silent between two requests. Sessions do not depend on it.
pub const HTTP_IDLE: Duration = Duration::from_mins(5);

/// The lifetime of an HTTP client's cookie, which its server signs.
pub const HTTP_COOKIE_LIFETIME: Duration = Duration::from_mins(15);

/// The memory for requests that all servers of the process share that have none of their own.
static REQUEST_MEMORY: LazyLock<Arc<RequestMemory>> =
    LazyLock::new(|| RequestMemory::new(RECEIVED_REQUESTS_BYTES, RECEIVED_REQUESTS_BYTES_PER_USER));

/// The name of the limit that a client exceeded that did not authenticate in time.
pub(crate) const AUTHENTICATION: &str = "the limit for authentication";

/// The limits of a server, a client or a relay.
#[derive(Debug, Clone)]
pub struct Limits {
    /// The longest request, in bytes. A longer one is rejected in its own protocol.
    pub frame_bytes: usize,
    /// Counts what is rejected because of a limit.
    pub hits: Arc<LimitHits>,
    /// The memory for requests of more than [`UNCOUNTED_REQUEST_BYTES`] that are being received.
    pub request_memory: Arc<RequestMemory>,
    /// The deadline of a request that is long enough to be counted there.
    pub request_deadline: Duration,
    /// The most bytes of a rejected request that are discarded to keep the connection usable. A longer one ends the
    /// connection.
    pub refused_bytes: usize,
    /// The deadline for discarding them.
    pub refused_deadline: Duration,
    /// The longest reply, in bytes. A relay copies it piecewise and never buffers it whole.
    pub reply_bytes: usize,
    /// The longest reply that is buffered, to decode it or to replace a handle in it.
    pub buffered_reply_bytes: usize,
    /// From the first packet until the client is authenticated.
    pub auth_deadline: Duration,
    /// From the turn of a TLS handshake until its end; the wait for the turn counts in [`Limits::auth_deadline`] only.
    pub handshake_deadline: Duration,
    /// The most authenticated connections of a server; further ones are rejected.
    pub connections: usize,
    /// The most connections before authentication, which lasts [`Limits::auth_deadline`] at most. Further ones are
    /// rejected, or closed without a response.
    pub unauthenticated_connections: usize,
    /// The most of these from one address, or one IPv6 /64. Further ones wait for one of them to authenticate or end.
    pub unauthenticated_per_address: usize,
    /// The most connections that wait so; one address may have half of them. Further ones are rejected, or closed without
    /// a response.
    pub waiting_connections: usize,
    /// How long one of them waits.
    pub waiting_deadline: Duration,
    /// The most authenticated connections of one user; components of Enginehouse are not counted.
    pub connections_per_user: usize,
    /// The most authenticated connections from one address.
    pub connections_per_peer: usize,
    /// The most new connections per second from one address, or one IPv6 /64, with bursts of twice as many; 0 is no limit.
    /// Further ones are rejected, or closed without a response.
    pub connect_rate: u32,
    /// How long a peer may make no progress within a message, in either direction.
    pub stall: Duration,
    /// The grace period of running calls when the server stops.
    pub close_grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            frame_bytes: 16 << 20,
            hits: Arc::default(),
            request_memory: Arc::clone(&REQUEST_MEMORY),
            request_deadline: Duration::from_mins(1),
            refused_bytes: 256 << 20,
            refused_deadline: Duration::from_mins(1),
            reply_bytes: 256 << 20,
            buffered_reply_bytes: 64 << 20,
            auth_deadline: Duration::from_secs(10),
            handshake_deadline: Duration::from_secs(5),
            connections: 2_000,
            unauthenticated_connections: 1_024,
            unauthenticated_per_address: 512,
            waiting_connections: 1_024,
            waiting_deadline: Duration::from_secs(10),
            connections_per_user: usize::MAX,
            connections_per_peer: usize::MAX,
            connect_rate: 0,
            stall: Duration::from_mins(1),
            close_grace: Duration::from_secs(5),
        }
    }
}
