//! Every limit of this crate that a configuration may want to move, in one value with its defaults.
//!
//! Nothing is read, kept or waited for without one of these: a length on the wire is compared with its limit before
//! memory is taken for it.

use std::time::Duration;

/// How deep structs and containers may lie in each other. `TCLIService`'s deepest message needs eight levels.
pub const MAX_DEPTH: usize = 32;

/// How many elements a list may have in a message that is decoded into generated structs. Relayed results are not
/// decoded and have no such limit.
pub const MAX_DECODED_ITEMS: usize = 1 << 20;

/// How long the name of a method may be.
pub const MAX_METHOD_NAME_BYTES: usize = 128;

/// The most that one SASL message may carry: a mechanism's name, or names and a password.
pub const MAX_SASL_BYTES: usize = 64 * 1024;

/// The longest message that a plain Thrift client may send before it is authenticated: `OpenSession` with its keys.
pub const MAX_FIRST_MESSAGE_BYTES: usize = 64 * 1024;

/// The longest text of an error that is sent or relayed; a longer one is cut.
pub const MAX_ERROR_TEXT_BYTES: usize = 64 * 1024;

/// How many bytes of replies one process holds at once, all connections together.
pub const HELD_REPLIES_BYTES: usize = 256 << 20;

/// Replies up to this length are not counted in that.
pub const UNCOUNTED_REPLY_BYTES: usize = 64 * 1024;

/// How many bytes of requests one process receives at once, all connections together.
pub const RECEIVED_REQUESTS_BYTES: usize = 128 << 20;

/// How much of that one user may take: two of the longest requests.
pub const RECEIVED_REQUESTS_BYTES_PER_USER: usize = 32 << 20;

/// Requests up to this length are not counted in that.
pub const UNCOUNTED_REQUEST_BYTES: usize = 64 * 1024;

/// What a server, a client or a relay accepts.
#[derive(Debug, Clone)]
pub struct Limits {
    /// The longest request, in bytes. A longer one is refused in its own protocol.
    pub frame_bytes: usize,
    /// How long a request may take to arrive that is long enough to be counted in [`RECEIVED_REQUESTS_BYTES`].
    pub request_deadline: Duration,
    /// How much of a request that was refused is thrown away, so that the connection can go on behind it. After a still
    /// longer one it ends.
    pub refused_bytes: usize,
    /// How long that may take.
    pub refused_deadline: Duration,
    /// The longest reply, in bytes. A relay copies it piece by piece and never holds it whole.
    pub reply_bytes: usize,
    /// The longest reply that is held in memory: to decode it, or to replace a handle in it.
    pub held_reply_bytes: usize,
    /// From the first packet until it is known who the client is.
    pub auth_deadline: Duration,
    /// How many authenticated connections a server serves at the same time; one more is refused.
    pub connections: usize,
    /// How many connections may be on their way to authentication, which lasts [`Limits::auth_deadline`] at most; one
    /// address may have half of them. Further ones are refused, or closed without an answer.
    pub unauthenticated_connections: usize,
    /// How many authenticated connections one user may have; roles of ours are not counted.
    pub connections_per_user: usize,
    /// How many authenticated connections may come from one address.
    pub connections_per_peer: usize,
    /// How long a peer may make no progress inside a message, in either direction, before it is given up.
    pub stall: Duration,
    /// What the calls that run get when the server is told to stop.
    pub close_grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            frame_bytes: 16 << 20,
            request_deadline: Duration::from_mins(1),
            refused_bytes: 256 << 20,
            refused_deadline: Duration::from_mins(1),
            reply_bytes: 256 << 20,
            held_reply_bytes: 64 << 20,
            auth_deadline: Duration::from_secs(10),
            connections: 2_000,
            unauthenticated_connections: 1_024,
            connections_per_user: usize::MAX,
            connections_per_peer: usize::MAX,
            stall: Duration::from_mins(1),
            close_grace: Duration::from_secs(5),
        }
    }
}
