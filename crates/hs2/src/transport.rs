//! The transport of a client's connection: messages on the socket itself, or in HTTP.
//!
//! Both deliver a reply whole or piecewise, as a relay receives it. After an error of a client the connection can only be
//! closed.

use std::io;
use std::net::SocketAddr;

use bytes::Bytes;
use tracing::debug;

use crate::error::WireError;
use crate::framing::{Framing, LENGTH_BYTES, next_frame, next_walked};
use crate::http::HttpConnection;
use crate::limit_hits::Limit;
use crate::limits::{Limits, MAX_FIRST_MESSAGE_BYTES, UNCOUNTED_REQUEST_BYTES};
use crate::message::Message;
use crate::rejection::{MAX_ANNOUNCED_BYTES, Refused};
use crate::scan::{MessageKind, ScanError};
use crate::wire::{CopyError, LINGER, LINGER_BYTES, Wire};

pub(crate) enum Transport {
    Stream(Stream),
    Http(Box<HttpConnection>),
}

/// Messages on the socket itself, framed or delimited by their own structure.
pub(crate) struct Stream {
    pub(crate) wire: Wire,
    framing: Framing,
    /// A rejected message, while work on it remains.
    refused: Option<Box<Refused>>,
}

/// What the first read of a message has brought.
pub(crate) enum FirstRead {
    /// The whole message.
    Message(Message),
    /// A part of it, or several, which wait in the connection.
    Part,
    /// The client has closed between two messages.
    Closed,
}

impl Transport {
    /// Sends one whole reply.
    pub(crate) async fn send(&mut self, reply: &[u8]) -> Result<(), WireError> {
        match self {
            Self::Stream(stream) => stream.framing.write_message(&stream.wire, reply).await,
            Self::Http(http) => http.send(reply).await,
        }
    }

    /// The stream, where messages are on the socket itself.
    pub(crate) fn stream(&self) -> Option<&Stream> {
        match self {
            Self::Stream(stream) => Some(stream),
            Self::Http(_) => None,
        }
    }

    /// Begins a reply of `total` bytes with the first of them.
    pub(crate) async fn begin_reply(&mut self, total: usize, begun: Vec<u8>) -> Result<(), WireError> {
        match self {
            Self::Stream(stream) => {
                stream.wire.write(stream.framing.message_head(total).as_slice().as_flattened(), &begun).await
            }
            Self::Http(http) => {
                http.begin_reply(total)?;
                http.deliver(Bytes::from(begun)).await
            }
        }
    }

    /// Copies up to `left` bytes of the reply from a backend. A piece that `check` rejects is not sent. Returns the number
    /// of copied bytes, at least one.
    pub(crate) async fn copy_reply(
        &mut self,
        from: &mut Wire,
        left: usize,
        mut check: impl FnMut(&[u8]) -> Result<(), ScanError>,
    ) -> Result<usize, CopyError> {
        match self {
            Self::Stream(stream) => from.copy_some(&stream.wire, left, check).await,
            Self::Http(http) => {
                let piece = from.piece(left).await.map_err(CopyError::From)?;
                check(&piece).map_err(|error| CopyError::From(error.into()))?;
                let length = piece.len();
                http.deliver(Bytes::from(piece)).await.map_err(CopyError::To)?;
                Ok(length)
            }
        }
    }

    /// Completes when the client has closed its end. Reads nothing.
    pub(crate) async fn hung_up(&self) {
        match self {
            Self::Stream(stream) => stream.wire.hung_up().await,
            Self::Http(http) => http.hung_up().await,
        }
    }

    /// Closes the connection so that the last bytes sent still arrive.
    pub(crate) async fn part(&mut self) {
        match self {
            Self::Stream(stream) => stream.wire.part(LINGER_BYTES, LINGER).await,
            Self::Http(http) => http.part().await,
        }
    }
}

impl Stream {
    pub(crate) fn new(wire: Wire, framing: Framing) -> Self {
        Self { wire, framing, refused: None }
    }

    /// Sends the beginning of a message, with its length before it, as far as that is possible at once. Returns what is left, `None` if
    /// nothing is.
    pub(crate) fn try_send_framed(&self, framed: &[u8]) -> io::Result<Option<Vec<u8>>> {
        let from = if self.framing.has_lengths() { 0 } else { LENGTH_BYTES.min(framed.len()) };
        self.wire.try_write(&framed[from..])
    }

    /// Whether nothing of the next message is there yet.
    pub(crate) fn is_between_messages(&self) -> bool {
        self.wire.pending.is_empty() && self.refused.is_none() && !self.framing.has_begun()
    }

    /// Waits for a message between two, in the smallest possible state, and reads once. A short message that is there as a whole needs
    /// no more than that. Cancel safe.
    pub(crate) async fn first_read(&mut self, limits: &Limits) -> Result<FirstRead, WireError> {
        let most = limits.frame_bytes.min(UNCOUNTED_REQUEST_BYTES);
        let has_lengths = self.framing.has_lengths();
        loop {
            self.wire.readable().await?;
            let read = self.wire.try_receive(|bytes, pending| {
                if bytes.is_empty() {
                    return FirstRead::Closed;
                }
                if has_lengths && let Some(message) = whole_message(bytes, most) {
                    return FirstRead::Message(message);
                }
                pending.extend_from_slice(bytes);
                FirstRead::Part
            })?;
            if let Some(read) = read {
                return Ok(read);
            }
        }
    }

    /// The next whole message; `None` when the client has closed between two. Rejects those that are too long or
    /// malformed, or that there is no memory for. Cancel safe.
    pub(crate) async fn next(
        &mut self,
        limits: &Limits,
        is_known: bool,
        peer: SocketAddr,
    ) -> Result<Option<Message>, WireError> {
        loop {
            if let Some(refused) = &mut self.refused {
                refused.finish(&mut self.wire, &self.framing, limits).await?;
                self.refused = None;
            }
            let error = match self.take_message(limits, is_known).await {
                Err(error @ (WireError::TooLong { .. } | WireError::NoRequestMemory { .. } | WireError::Scan(_))) => {
                    error
                }
                taken => return taken,
            };
            let length = match (&mut self.framing, &error) {
                // Its length was taken already.
                (Framing::Length(expected), WireError::NoRequestMemory { .. }) => expected.take(),
                (Framing::Length(_), WireError::TooLong { bytes, .. }) if *bytes > MAX_ANNOUNCED_BYTES => {
                    return Err(error);
                }
                (Framing::Length(_), WireError::TooLong { bytes, .. }) => {
                    self.wire.discard(LENGTH_BYTES);
                    Some(*bytes)
                }
                (Framing::Length(_), _) => Some(0),
                (Framing::Walked(_), _) => None,
            };
            match &error {
                WireError::TooLong { .. } => limits.hits.hit(Limit::RequestBytes),
                WireError::NoRequestMemory { limit, .. } => limits.hits.hit(*limit),
                _ => {}
            }
            // At debug level: a client can cause any number of these lines.
            debug!(%peer, why = %error, "request refused");
            self.refused = Some(Box::new(Refused::new(error, length)));
        }
    }

    async fn take_message(&mut self, limits: &Limits, is_known: bool) -> Result<Option<Message>, WireError> {
        let limit = match self.framing {
            Framing::Walked(_) if !is_known => limits.frame_bytes.min(MAX_FIRST_MESSAGE_BYTES),
            _ => limits.frame_bytes,
        };
        let within = limits.request_deadline;
        let taken = match &mut self.framing {
            Framing::Length(expected) => next_frame(&mut self.wire, expected, limit, Some(within)).await,
            Framing::Walked(walker) => next_walked(&mut self.wire, walker, limit, Some(within)).await,
        };
        self.wire.request_taken();
        let bytes = taken?;
        let message = bytes.map(Message::new).transpose()?;
        if message.as_ref().is_some_and(|message| message.header().kind == MessageKind::OneWay) {
            // A one-way call must not be answered, and no method of the protocol is one-way.
            return Err(WireError::Decode("a one-way call".to_owned()));
        }
        Ok(message)
    }
}

/// The message in these bytes, if they are one of at most so many bytes with its length, and nothing else. `None` also if it is to be
/// rejected.
fn whole_message(bytes: &[u8], most: usize) -> Option<Message> {
    let (head, body) = bytes.split_first_chunk::<LENGTH_BYTES>()?;
    if u32::from_be_bytes(*head) as usize != body.len() || body.len() > most {
        return None;
    }
    Message::new(body.to_vec()).ok().filter(|message| message.header().kind != MessageKind::OneWay)
}
