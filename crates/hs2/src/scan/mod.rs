//! The scanner: reads in place what a relay needs of a message.
//!
//! It walks strict `TBinaryProtocol` without allocating and without building structs: the method's name, the sequence
//! number, the position of the 16 + 16 bytes of the handle, the statement's text, a reply's status. For any input it
//! returns a value or an error: it never panics, never reads past the message and never recurses deeper than
//! [`MAX_DEPTH`].
//!
//! A request with a duplicate field is rejected: two decoders might each use another one of them, and what was
//! checked would not be what is executed. So is a field of another type than the protocol's, a handle that is not 16
//! + 16 bytes, and any byte after the end of the message.
//!
//! Positions are offsets into the scanned bytes. Every access through them is checked again, so a stale position
//! gives an error or a wrong value, never a panic.

mod cursor;
mod reply;
mod request;
mod strings;
mod walk;

pub(crate) use cursor::{Cursor, expect_struct};
pub use reply::{Reply, reply, reply_head};
pub(crate) use request::request_after;
pub use request::{Request, request};
pub use walk::{PieceWalker, WalkProgress, Walker};

use std::ops::Range;

use crate::handle::{Handle, InvalidHandle};
use crate::limits::{MAX_DEPTH, MAX_METHOD_NAME_BYTES};
use crate::method::Method;

/// Why bytes are not an acceptable message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ScanError {
    /// The bytes end before the message does; it has at least so many.
    #[error("the message is truncated: at least {at_least} bytes are needed")]
    Truncated {
        /// The least length of the whole message.
        at_least: usize,
    },
    /// Not strict `TBinaryProtocol`.
    #[error("not a message of the strict binary protocol")]
    BadVersion,
    #[error("unknown message type {0}")]
    BadKind(u8),
    /// The method's name is empty, too long, or not plain text.
    #[error("the name of the method is malformed")]
    BadName,
    #[error("unknown wire type {0}")]
    BadType(u8),
    #[error("negative length")]
    NegativeLength,
    /// Nested deeper than [`MAX_DEPTH`].
    #[error("nested deeper than {MAX_DEPTH} levels")]
    TooDeep,
    #[error("field {0} has the wrong type")]
    WrongType(i16),
    #[error("duplicate field {0}")]
    Duplicate(i16),
    #[error("field {0} is missing")]
    Missing(i16),
    #[error(transparent)]
    BadHandle(#[from] InvalidHandle),
    #[error("trailing bytes after the message")]
    Trailing,
    /// A position outside the bytes that it is used on.
    #[error("position outside the message")]
    Position,
}

/// The kind of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageKind {
    /// A request with a reply.
    Call,
    Reply,
    /// A reply that is a `TApplicationException`.
    Exception,
    /// A request without a reply. `TCLIService` has none.
    OneWay,
}

/// The head of a message: `80 01 00 kind`, name, sequence number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    pub kind: MessageKind,
    /// The range of the method's name.
    pub name: Range<usize>,
    /// The method, if it is one of `TCLIService`'s.
    pub method: Option<Method>,
    /// Chosen by the caller and repeated in the reply.
    pub seqid: i32,
    /// The beginning of the struct of arguments, or of the result.
    pub body: usize,
}

impl Header {
    /// The method's name in the scanned bytes.
    pub fn name_in<'a>(&self, bytes: &'a [u8]) -> &'a str {
        bytes.get(self.name.clone()).and_then(|name| std::str::from_utf8(name).ok()).unwrap_or_default()
    }
}

/// Parses the head of a message.
pub fn header(bytes: &[u8]) -> Result<Header, ScanError> {
    let mut cursor = Cursor::new(bytes);
    let version = cursor.u32()?;
    if version & 0xffff_ff00 != 0x8001_0000 {
        return Err(ScanError::BadVersion);
    }
    let kind = match (version & 0xff) as u8 {
        1 => MessageKind::Call,
        2 => MessageKind::Reply,
        3 => MessageKind::Exception,
        4 => MessageKind::OneWay,
        other => return Err(ScanError::BadKind(other)),
    };
    let length = cursor.length()?;
    if length == 0 || length > MAX_METHOD_NAME_BYTES {
        return Err(ScanError::BadName);
    }
    let name = cursor.take(length)?;
    let text = &bytes[name.clone()];
    if !text.iter().all(u8::is_ascii_graphic) {
        return Err(ScanError::BadName);
    }
    let method = Method::from_bytes(text);
    let seqid = cursor.i32()?;
    Ok(Header { kind, name, method, seqid, body: cursor.at() })
}

/// Checks that the bytes are exactly one message. Returns its head.
pub fn whole(bytes: &[u8]) -> Result<Header, ScanError> {
    let header = header(bytes)?;
    let mut cursor = Cursor::at_offset(bytes, header.body);
    cursor.skip_struct(MAX_DEPTH)?;
    cursor.end()?;
    Ok(header)
}

/// The positions of the halves of a handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HandleAt {
    guid: usize,
    secret: usize,
}

impl HandleAt {
    pub fn read(&self, bytes: &[u8]) -> Result<Handle, ScanError> {
        let half = |at: usize| -> Result<[u8; 16], ScanError> {
            let end = at.checked_add(16).ok_or(ScanError::Position)?;
            bytes.get(at..end).and_then(|half| half.try_into().ok()).ok_or(ScanError::Position)
        };
        Ok(Handle { guid: half(self.guid)?, secret: half(self.secret)? })
    }

    /// Replaces the handle.
    pub fn patch(&self, bytes: &mut [u8], handle: &Handle) -> Result<(), ScanError> {
        for (at, half) in [(self.guid, &handle.guid), (self.secret, &handle.secret)] {
            let end = at.checked_add(16).ok_or(ScanError::Position)?;
            bytes.get_mut(at..end).ok_or(ScanError::Position)?.copy_from_slice(half);
        }
        Ok(())
    }
}

/// The fields of a struct found so far, to reject duplicates.
#[derive(Default)]
struct Seen(u64);

impl Seen {
    fn once(&mut self, id: i16) -> Result<(), ScanError> {
        // Every decoder skips an id that no struct of the protocol has.
        let Some(bit) = u32::try_from(id).ok().and_then(|id| 1u64.checked_shl(id)) else { return Ok(()) };
        if self.0 & bit != 0 {
            return Err(ScanError::Duplicate(id));
        }
        self.0 |= bit;
        Ok(())
    }
}

/// Reads a `THandleIdentifier`: two binaries of 16 bytes.
fn handle_identifier(cursor: &mut Cursor<'_>, depth: usize) -> Result<HandleAt, ScanError> {
    let (mut guid, mut secret) = (None, None);
    let mut seen = Seen::default();
    while let Some((wire, id)) = cursor.field()? {
        seen.once(id)?;
        match id {
            1 | 2 => {
                let half = cursor.binary_as(wire, id)?;
                if half.len() != 16 {
                    return Err(InvalidHandle.into());
                }
                *(if id == 1 { &mut guid } else { &mut secret }) = Some(half.start);
            }
            _ => cursor.skip(wire, depth)?,
        }
    }
    match (guid, secret) {
        (Some(guid), Some(secret)) => Ok(HandleAt { guid, secret }),
        (None, _) => Err(ScanError::Missing(1)),
        (_, None) => Err(ScanError::Missing(2)),
    }
}

/// A `TSessionHandle` or `TOperationHandle`: the identifier in field 1; of an operation also its type and whether it has
/// a result.
struct WholeHandle {
    at: HandleAt,
    operation_type: Option<i32>,
    has_result_set: Option<bool>,
}

fn whole_handle(cursor: &mut Cursor<'_>, depth: usize) -> Result<WholeHandle, ScanError> {
    let mut at = None;
    let (mut operation_type, mut has_result_set) = (None, None);
    let mut seen = Seen::default();
    while let Some((wire, id)) = cursor.field()? {
        seen.once(id)?;
        match id {
            1 => {
                expect_struct(wire, id)?;
                at = Some(handle_identifier(cursor, depth.saturating_sub(1))?);
            }
            2 => operation_type = Some(cursor.i32_as(wire, id)?),
            3 => has_result_set = Some(cursor.bool_as(wire, id)?),
            _ => cursor.skip(wire, depth)?,
        }
    }
    let at = at.ok_or(ScanError::Missing(1))?;
    Ok(WholeHandle { at, operation_type, has_result_set })
}
