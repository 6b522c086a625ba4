//! The walker: finds the end of a message while its bytes arrive.
//!
//! Plain Thrift has no framing: only a walk over the struct finds the end. A walk resumes where it stopped, so a peer
//! that sends single bytes costs no more than one that sends all at once. A relay walks over the bytes that it
//! copies, so that nothing after a message's end is forwarded.

use super::cursor::wire;
use super::strings::{self, Stopped};
use super::{Header, ScanError, header};
use crate::limits::MAX_DEPTH;

/// The progress of a walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WalkProgress {
    /// The message ends before this offset.
    End(usize),
    /// Incomplete; the next call needs at least so many bytes.
    AtLeast(usize),
}

#[derive(Debug, Clone, Copy, Default)]
enum Frame {
    #[default]
    Empty,
    /// Inside a struct, before a field.
    Struct,
    /// Inside a container: the number of remaining values; the next one is of the first type.
    Values { left: u64, next: u8, then: u8 },
}

/// The most bytes of one item that must be read at once: a field's type and id, and the head of a map after them.
const ITEM_BYTES: usize = 9;

/// An incremental walk over one message.
#[derive(Debug)]
pub struct Walker {
    /// The next item, as an offset in the message. It may be after the available bytes: the content of strings is
    /// skipped.
    at: usize,
    frames: [Frame; MAX_DEPTH],
    depth: usize,
    header_read: bool,
}

impl Default for Walker {
    fn default() -> Self {
        Self { at: 0, frames: [Frame::Empty; MAX_DEPTH], depth: 0, header_read: false }
    }
}

/// Consecutive bytes of a message.
#[derive(Clone, Copy)]
struct Window<'a> {
    bytes: &'a [u8],
    /// The number of bytes of the message before them.
    base: usize,
}

impl<'a> Window<'a> {
    /// The `size` bytes at `at`.
    fn get(self, at: usize, size: usize) -> Result<&'a [u8], ScanError> {
        let end = at.checked_add(size).ok_or(ScanError::NegativeLength)?;
        let from = at.checked_sub(self.base).ok_or(ScanError::Position)?;
        self.bytes.get(from..from.saturating_add(size)).ok_or(ScanError::Truncated { at_least: end })
    }

    fn byte(self, at: usize) -> Result<u8, ScanError> {
        self.get(at, 1).map(|one| one[0])
    }

    fn length(self, at: usize) -> Result<usize, ScanError> {
        let four = self.get(at, 4)?;
        let length = i32::from_be_bytes([four[0], four[1], four[2], four[3]]);
        usize::try_from(length).map_err(|_| ScanError::NegativeLength)
    }
}

impl Walker {
    pub fn new() -> Self {
        Self::default()
    }

    /// Continues over `bytes`, which must be those of the previous call and the new ones.
    pub fn advance(&mut self, bytes: &[u8]) -> Result<WalkProgress, ScanError> {
        match self.run(Window { bytes, base: 0 }) {
            Ok(end) => Ok(WalkProgress::End(end)),
            Err(ScanError::Truncated { at_least }) => Ok(WalkProgress::AtLeast(at_least)),
            Err(error) => Err(error),
        }
    }

    fn run(&mut self, window: Window<'_>) -> Result<usize, ScanError> {
        if !self.header_read {
            self.at = header(window.bytes)?.body;
            self.header_read = true;
            self.push(Frame::Struct)?;
        }
        while let Some(top) = self.depth.checked_sub(1) {
            // A skipped string may end after the available bytes.
            window.get(self.at, 0)?;
            match self.frames[top] {
                Frame::Struct => self.field(window)?,
                Frame::Values { left: 0, .. } | Frame::Empty => self.depth = top,
                Frame::Values { left, next: wire::STRING, then: wire::STRING } => self.strings(window, top, left)?,
                Frame::Values { left, next, then } => {
                    // Values of one fixed size are one step; others are walked one by one.
                    if let (Some(a), Some(b)) = (wire::fixed_size(next), wire::fixed_size(then)) {
                        let size = u64::try_from(a + b).unwrap_or(u64::MAX).saturating_mul(left) / 2;
                        self.at = end_of(self.at, usize::try_from(size).unwrap_or(usize::MAX))?;
                        self.depth = top;
                    } else {
                        self.value(window, next, Some(Frame::Values { left: left - 1, next: then, then: next }))?;
                    }
                }
            }
        }
        Ok(self.at)
    }

    /// Consecutive strings, of which `left` are left.
    fn strings(&mut self, window: Window<'_>, top: usize, left: u64) -> Result<(), ScanError> {
        let from = self.at.checked_sub(window.base).ok_or(ScanError::Position)?;
        let skipped = strings::skip(window.bytes, from, left);
        self.at = end_of(window.base, skipped.at)?;
        self.frames[top] = Frame::Values { left: skipped.left, next: wire::STRING, then: wire::STRING };
        match skipped.stopped {
            None => Ok(()),
            Some(Stopped::Truncated) => Err(ScanError::Truncated { at_least: end_of(self.at, strings::LENGTH_BYTES)? }),
            Some(Stopped::NegativeLength) => Err(ScanError::NegativeLength),
        }
    }

    /// A field (type, id and value) or the struct's end.
    fn field(&mut self, window: Window<'_>) -> Result<(), ScanError> {
        let kind = window.byte(self.at)?;
        if kind == wire::STOP {
            self.at += 1;
            self.depth -= 1;
            return Ok(());
        }
        window.get(self.at, 3)?;
        let field_at = self.at;
        self.at += 3;
        // An incomplete value is retried from the beginning of its field.
        self.value(window, kind, None).inspect_err(|_| self.at = field_at)
    }

    /// One value. `after` replaces the top frame once the value is walked or entered.
    fn value(&mut self, window: Window<'_>, kind: u8, after: Option<Frame>) -> Result<(), ScanError> {
        let at = self.at;
        let (end, inner) = if let Some(size) = wire::fixed_size(kind) {
            (end_of(at, size)?, None)
        } else {
            match kind {
                wire::STRING => {
                    let length = window.length(at)?;
                    (end_of(at + 4, length)?, None)
                }
                wire::STRUCT => (at, Some(Frame::Struct)),
                wire::LIST | wire::SET => {
                    let element = window.byte(at)?;
                    let left = window.length(at + 1)? as u64;
                    (at + 5, Some(Frame::Values { left, next: element, then: element }))
                }
                wire::MAP => {
                    let types = window.get(at, 2)?;
                    let left = 2 * window.length(at + 2)? as u64;
                    (at + 6, Some(Frame::Values { left, next: types[0], then: types[1] }))
                }
                other => return Err(ScanError::BadType(other)),
            }
        };
        if let (Some(after), Some(top)) = (after, self.depth.checked_sub(1)) {
            self.frames[top] = after;
        }
        self.at = end;
        match inner {
            Some(frame) => self.push(frame),
            None => Ok(()),
        }
    }

    fn push(&mut self, frame: Frame) -> Result<(), ScanError> {
        *self.frames.get_mut(self.depth).ok_or(ScanError::TooDeep)? = frame;
        self.depth += 1;
        Ok(())
    }
}

fn end_of(at: usize, size: usize) -> Result<usize, ScanError> {
    at.checked_add(size).ok_or(ScanError::NegativeLength)
}

/// A walk over one message that is forwarded piecewise: it keeps only a few bytes of the previous pieces.
///
/// Invariant: after [`PieceWalker::feed`] returned without an error, all bytes that it received belong to the
/// message.
#[derive(Debug)]
pub struct PieceWalker {
    walker: Walker,
    fed: usize,
    /// The incomplete item at the end of the last piece.
    carried: [u8; ITEM_BYTES],
    carried_bytes: usize,
    ended: bool,
}

impl PieceWalker {
    /// A walk over the message with this head. The first piece must contain the head.
    pub fn new(head: &Header) -> Self {
        let mut walker = Walker { at: head.body, header_read: true, ..Walker::default() };
        walker.frames[0] = Frame::Struct;
        walker.depth = 1;
        Self { walker, fed: 0, carried: [0; ITEM_BYTES], carried_bytes: 0, ended: false }
    }

    /// The length of all pieces so far.
    pub fn fed(&self) -> usize {
        self.fed
    }

    /// Walks over the next piece. `true` if the message ends with its last byte; bytes after the message's end are
    /// [`ScanError::Trailing`].
    pub fn feed(&mut self, piece: &[u8]) -> Result<bool, ScanError> {
        if piece.is_empty() {
            return Ok(self.ended);
        }
        if self.ended {
            return Err(ScanError::Trailing);
        }
        let base = self.fed;
        self.fed = end_of(base, piece.len())?;
        let mut walked = None;
        if self.carried_bytes > 0 {
            // The incomplete item and enough of the piece to complete it.
            let mut joint = [0; 2 * ITEM_BYTES];
            let more = piece.len().min(ITEM_BYTES);
            let length = self.carried_bytes + more;
            joint[..self.carried_bytes].copy_from_slice(&self.carried[..self.carried_bytes]);
            joint[self.carried_bytes..length].copy_from_slice(&piece[..more]);
            let window = Window { bytes: &joint[..length], base: base - self.carried_bytes };
            walked = self.walk(window)?;
            if self.walker.at < base && walked.is_none() {
                // The piece ends before the item does.
                self.carry(window);
                return Ok(false);
            }
        }
        let window = Window { bytes: piece, base };
        if walked.is_none() {
            walked = self.walk(window)?;
        }
        match walked {
            Some(end) if end == self.fed => {
                self.ended = true;
                Ok(true)
            }
            Some(_) => Err(ScanError::Trailing),
            None => {
                self.carry(window);
                Ok(false)
            }
        }
    }

    /// The message's end, once known.
    fn walk(&mut self, window: Window<'_>) -> Result<Option<usize>, ScanError> {
        match self.walker.run(window) {
            Ok(end) => Ok(Some(end)),
            Err(ScanError::Truncated { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Keeps the incomplete item at the end of the window, which is shorter than one item.
    fn carry(&mut self, window: Window<'_>) {
        let begun =
            self.walker.at.checked_sub(window.base).and_then(|from| window.bytes.get(from..)).unwrap_or_default();
        self.carried_bytes = begun.len().min(ITEM_BYTES);
        self.carried[..self.carried_bytes].copy_from_slice(&begun[..self.carried_bytes]);
    }
}
