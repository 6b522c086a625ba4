//! Where a message ends, found while its bytes still arrive.
//!
//! Plain Thrift has no framing: only walking the struct tells the end. The walk goes on where it stopped, so that a
//! peer that sends byte by byte costs no more than one that sends all at once.

use super::cursor::wire;
use super::{ScanError, header};
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

/// A walk over one message that can wait for more bytes.
#[derive(Debug)]
pub struct Walker {
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

impl Walker {
    /// A walk that begins with a message's first byte.
    pub fn new() -> Self {
        Self::default()
    }

    /// Goes on over `bytes`, which must be those of the call before and what came since.
    pub fn advance(&mut self, bytes: &[u8]) -> Result<Progress, ScanError> {
        match self.run(bytes) {
            Ok(end) => Ok(Progress::End(end)),
            Err(ScanError::Truncated { at_least }) => Ok(Progress::AtLeast(at_least)),
            Err(error) => Err(error),
        }
    }

    fn run(&mut self, bytes: &[u8]) -> Result<usize, ScanError> {
        if !self.header_read {
            self.at = header(bytes)?.body;
            self.header_read = true;
            self.push(Frame::Struct)?;
        }
        while let Some(top) = self.depth.checked_sub(1) {
            match self.frames[top] {
                Frame::Struct => self.field(bytes)?,
                Frame::Values { left: 0, .. } | Frame::Empty => self.depth = top,
                Frame::Values { left, next, then } => {
                    // Values of one fixed size are one step; others are taken one by one.
                    if let (Some(a), Some(b)) = (wire::fixed_size(next), wire::fixed_size(then)) {
                        let size = u64::try_from(a + b).unwrap_or(u64::MAX).saturating_mul(left) / 2;
                        self.at = end_of(bytes, self.at, usize::try_from(size).unwrap_or(usize::MAX))?;
                        self.depth = top;
                    } else {
                        self.value(bytes, next, Some(Frame::Values { left: left - 1, next: then, then: next }))?;
                    }
                }
            }
        }
        Ok(self.at)
    }

    /// A field: its type, id and value, or the struct's end.
    fn field(&mut self, bytes: &[u8]) -> Result<(), ScanError> {
        let value_at = end_of(bytes, self.at, 1)?;
        let kind = bytes[self.at];
        if kind == wire::STOP {
            self.at = value_at;
            self.depth -= 1;
            return Ok(());
        }
        let field_at = self.at;
        self.at = end_of(bytes, value_at, 2)?;
        // A value that is not all there is tried again from the field's own start.
        self.value(bytes, kind, None).inspect_err(|_| self.at = field_at)
    }

    /// One value. `after` replaces the frame at the top once the value is taken or entered.
    fn value(&mut self, bytes: &[u8], kind: u8, after: Option<Frame>) -> Result<(), ScanError> {
        let at = self.at;
        let (end, inner) = if let Some(size) = wire::fixed_size(kind) {
            (end_of(bytes, at, size)?, None)
        } else {
            match kind {
                wire::STRING => {
                    let length = length(bytes, at)?;
                    (end_of(bytes, at + 4, length)?, None)
                }
                wire::STRUCT => (at, Some(Frame::Struct)),
                wire::LIST | wire::SET => {
                    let elements = end_of(bytes, at, 5)?;
                    let left = length(bytes, at + 1)? as u64;
                    (elements, Some(Frame::Values { left, next: bytes[at], then: bytes[at] }))
                }
                wire::MAP => {
                    let elements = end_of(bytes, at, 6)?;
                    let left = 2 * length(bytes, at + 2)? as u64;
                    (elements, Some(Frame::Values { left, next: bytes[at], then: bytes[at + 1] }))
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

fn end_of(bytes: &[u8], at: usize, size: usize) -> Result<usize, ScanError> {
    let end = at.checked_add(size).ok_or(ScanError::NegativeLength)?;
    if end > bytes.len() { Err(ScanError::Truncated { at_least: end }) } else { Ok(end) }
}

fn length(bytes: &[u8], at: usize) -> Result<usize, ScanError> {
    let end = end_of(bytes, at, 4)?;
    let mut four = [0; 4];
    four.copy_from_slice(&bytes[at..end]);
    usize::try_from(i32::from_be_bytes(four)).map_err(|_| ScanError::NegativeLength)
}
