//! Where a message ends, found while its bytes still arrive.
//!
//! Plain Thrift has no framing: only walking the struct tells the end. The walk goes on where it stopped, so that a
//! peer that sends byte by byte costs no more than one that sends all at once. A relay walks over what it copies, so
//! that nothing behind a message's end is passed on.

use super::cursor::wire;
use super::{Header, ScanError, header};
use crate::limits::MAX_DEPTH;

/// How far a walk came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// The message ends before this offset.
    End(usize),
    /// It goes on; calling again makes sense only with at least so many bytes.
    AtLeast(usize),
}

#[derive(Debug, Clone, Copy, Default)]
enum Frame {
    #[default]
    Empty,
    /// Inside a struct, before a field.
    Struct,
    /// Inside a container: so many values are left, the next one is of the first type.
    Values { left: u64, next: u8, then: u8 },
}

/// The most bytes of one item that must be read together: a field's type and id, and the head of a map behind them.
const ITEM_BYTES: usize = 9;

/// A walk over one message that can wait for more bytes.
#[derive(Debug)]
pub struct Walker {
    /// The next item, counted from the message's first byte. It may lie behind what is there: the content of strings
    /// is passed over and not looked at.
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
    /// How many bytes of the message precede them.
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
    /// A walk that begins with a message's first byte.
    pub fn new() -> Self {
        Self::default()
    }

    /// Goes on over `bytes`, which must be those of the call before and what came since.
    pub fn advance(&mut self, bytes: &[u8]) -> Result<Progress, ScanError> {
        match self.run(Window { bytes, base: 0 }) {
            Ok(end) => Ok(Progress::End(end)),
            Err(ScanError::Truncated { at_least }) => Ok(Progress::AtLeast(at_least)),
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
            // A string that was passed over may end behind what is there.
            window.get(self.at, 0)?;
            match self.frames[top] {
                Frame::Struct => self.field(window)?,
                Frame::Values { left: 0, .. } | Frame::Empty => self.depth = top,
                Frame::Values { left, next: wire::STRING, then: wire::STRING } => self.strings(window, top, left)?,
                Frame::Values { left, next, then } => {
                    // Values of one fixed size are one step; others are taken one by one.
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

    /// Strings one after another: most of every result.
    fn strings(&mut self, window: Window<'_>, top: usize, mut left: u64) -> Result<(), ScanError> {
        let mut at = self.at;
        let mut ended = Ok(());
        while left > 0 {
            match window.length(at).and_then(|length| end_of(at + 4, length)) {
                Ok(end) => at = end,
                Err(error) => {
                    ended = Err(error);
                    break;
                }
            }
            left -= 1;
        }
        self.at = at;
        self.frames[top] = Frame::Values { left, next: wire::STRING, then: wire::STRING };
        ended
    }

    /// A field: its type, id and value, or the struct's end.
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
        // A value that is not all there is tried again from the field's own start.
        self.value(window, kind, None).inspect_err(|_| self.at = field_at)
    }

    /// One value. `after` replaces the frame at the top once the value is taken or entered.
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

/// A walk over one message that is passed on piece by piece: of the pieces that were walked over it keeps a few bytes.
///
/// Invariant: after [`PieceWalker::feed`] returned without an error, every byte that it was given belongs to the
/// message.
#[derive(Debug)]
pub struct PieceWalker {
    walker: Walker,
    fed: usize,
    /// The begun item at the end of the last piece.
    carried: [u8; ITEM_BYTES],
    carried_bytes: usize,
    ended: bool,
}

impl PieceWalker {
    /// A walk over the message that begins with this head. The first piece must contain the head.
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

    /// Walks over the next piece. `true` if the message ends with its last byte; bytes behind the message's end are
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
            // The begun item and enough of the piece to end it.
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

    /// Where the message ends, once that is known.
    fn walk(&mut self, window: Window<'_>) -> Result<Option<usize>, ScanError> {
        match self.walker.run(window) {
            Ok(end) => Ok(Some(end)),
            Err(ScanError::Truncated { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Keeps what was begun at the end of the window and is shorter than one item.
    fn carry(&mut self, window: Window<'_>) {
        let begun =
            self.walker.at.checked_sub(window.base).and_then(|from| window.bytes.get(from..)).unwrap_or_default();
        self.carried_bytes = begun.len().min(ITEM_BYTES);
        self.carried[..self.carried_bytes].copy_from_slice(&begun[..self.carried_bytes]);
    }
}
