//! Framing: how messages are delimited on a connection without HTTP, for servers and clients.

use std::time::Duration;

use crate::error::WireError;
use crate::scan::{WalkProgress, Walker};
use crate::wire::Wire;

/// The length before a frame.
pub(crate) const LENGTH_BYTES: usize = 4;

/// How messages are delimited.
pub(crate) enum Framing {
    /// Each message is preceded by its length; the length of the current one, once known.
    Length(Option<usize>),
    /// Not delimited: the walk over the current message finds its end.
    Walked(Option<Box<Walker>>),
}

impl Framing {
    /// Sends one whole message.
    pub(crate) async fn write_message(&self, wire: &Wire, message: &[u8]) -> Result<(), WireError> {
        wire.write(self.message_head(message.len()).as_slice().as_flattened(), message).await
    }

    /// The bytes before a message of `length` bytes.
    pub(crate) fn message_head(&self, length: usize) -> Option<[u8; LENGTH_BYTES]> {
        self.has_lengths().then(|| (length as u32).to_be_bytes())
    }

    /// Whether the next message has begun to arrive.
    pub(crate) fn has_begun(&self) -> bool {
        match self {
            Self::Length(expected) => expected.is_some(),
            Self::Walked(walker) => walker.is_some(),
        }
    }

    /// Whether each message is preceded by its length.
    pub(crate) fn has_lengths(&self) -> bool {
        matches!(self, Self::Length(_))
    }
}

/// Reads a message after its u32 length. A request has a `deadline` and is counted in the budget meanwhile.
pub(crate) async fn next_frame(
    wire: &mut Wire,
    expected: &mut Option<usize>,
    limit: usize,
    deadline: Option<Duration>,
) -> Result<Option<Vec<u8>>, WireError> {
    let Some(length) = frame_length(wire, expected, limit).await? else { return Ok(None) };
    match deadline {
        Some(deadline) => wire.fill_request(length, length, deadline).await?,
        None => wire.fill_to(length).await?,
    }
    *expected = None;
    Ok(Some(wire.take(length)))
}

/// The length of the next message; `None` when the peer has closed before it. It stays in `expected` until the
/// message is taken.
pub(crate) async fn frame_length(
    wire: &mut Wire,
    expected: &mut Option<usize>,
    limit: usize,
) -> Result<Option<usize>, WireError> {
    if expected.is_none() {
        if wire.pending.is_empty() && !wire.fill().await? {
            return Ok(None);
        }
        wire.fill_to(LENGTH_BYTES).await?;
        let head = &wire.pending[..LENGTH_BYTES];
        let length = u32::from_be_bytes([head[0], head[1], head[2], head[3]]) as usize;
        if length > limit {
            return Err(WireError::TooLong { bytes: length, limit });
        }
        wire.discard(LENGTH_BYTES);
        *expected = Some(length);
    }
    Ok(*expected)
}

/// Reads a message that only its own structure delimits. A request has a `deadline` and is counted in the budget
/// meanwhile, with the limit that it may reach.
pub(crate) async fn next_walked(
    wire: &mut Wire,
    walker: &mut Option<Box<Walker>>,
    limit: usize,
    deadline: Option<Duration>,
) -> Result<Option<Vec<u8>>, WireError> {
    if wire.pending.is_empty() && !wire.fill().await? {
        return Ok(None);
    }
    loop {
        match walker.get_or_insert_default().advance(&wire.pending)? {
            WalkProgress::End(length) if length <= limit => {
                *walker = None;
                return Ok(Some(wire.take(length)));
            }
            WalkProgress::End(bytes) => return Err(WireError::TooLong { bytes, limit }),
            WalkProgress::AtLeast(bytes) if bytes > limit => return Err(WireError::TooLong { bytes, limit }),
            WalkProgress::AtLeast(length) => match deadline {
                Some(deadline) => wire.fill_growing(length, length, limit, deadline).await?,
                None => wire.fill_to(length).await?,
            },
        }
    }
}
