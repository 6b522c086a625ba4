//! A position in a message, and the primitives of the binary protocol with bounds checks.

use std::ops::Range;

use super::ScanError;
use super::strings::{self, Stopped};

/// The wire's type bytes.
pub(crate) mod wire {
    pub const STOP: u8 = 0;
    pub const BOOL: u8 = 2;
    pub const BYTE: u8 = 3;
    pub const DOUBLE: u8 = 4;
    pub const I16: u8 = 6;
    pub const I32: u8 = 8;
    pub const I64: u8 = 10;
    pub const STRING: u8 = 11;
    pub const STRUCT: u8 = 12;
    pub const MAP: u8 = 13;
    pub const SET: u8 = 14;
    pub const LIST: u8 = 15;
    pub const UUID: u8 = 16;

    /// The size of a value of a fixed-size type.
    pub const fn fixed_size(wire: u8) -> Option<usize> {
        match wire {
            BOOL | BYTE => Some(1),
            I16 => Some(2),
            I32 => Some(4),
            I64 | DOUBLE => Some(8),
            UUID => Some(16),
            _ => None,
        }
    }
}

/// A position in a message.
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    pub(crate) fn at_offset(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at }
    }

    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// Skips `length` bytes and returns their range.
    pub(crate) fn take(&mut self, length: usize) -> Result<Range<usize>, ScanError> {
        let end = self.at.checked_add(length).ok_or(ScanError::NegativeLength)?;
        if end > self.bytes.len() {
            return Err(ScanError::Truncated { at_least: end });
        }
        let range = self.at..end;
        self.at = end;
        Ok(range)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], ScanError> {
        let range = self.take(N)?;
        let mut array = [0; N];
        array.copy_from_slice(&self.bytes[range]);
        Ok(array)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, ScanError> {
        Ok(self.array::<1>()?[0])
    }

    pub(crate) fn u32(&mut self) -> Result<u32, ScanError> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    pub(crate) fn i16(&mut self) -> Result<i16, ScanError> {
        Ok(i16::from_be_bytes(self.array()?))
    }

    pub(crate) fn i32(&mut self) -> Result<i32, ScanError> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    pub(crate) fn i64(&mut self) -> Result<i64, ScanError> {
        Ok(i64::from_be_bytes(self.array()?))
    }

    /// A length: not negative. The caller checks that so many bytes are present.
    pub(crate) fn length(&mut self) -> Result<usize, ScanError> {
        usize::try_from(self.i32()?).map_err(|_| ScanError::NegativeLength)
    }

    /// The next field's type and id; `None` at the struct's end.
    #[inline]
    pub(crate) fn field(&mut self) -> Result<Option<(u8, i16)>, ScanError> {
        let wire = self.u8()?;
        if wire == wire::STOP { Ok(None) } else { Ok(Some((wire, self.i16()?))) }
    }

    /// The range of a string or binary.
    pub(crate) fn binary(&mut self) -> Result<Range<usize>, ScanError> {
        let length = self.length()?;
        self.take(length)
    }

    pub(crate) fn binary_as(&mut self, wire: u8, id: i16) -> Result<Range<usize>, ScanError> {
        expect(wire, wire::STRING, id)?;
        self.binary()
    }

    pub(crate) fn bool_as(&mut self, wire: u8, id: i16) -> Result<bool, ScanError> {
        expect(wire, wire::BOOL, id)?;
        Ok(self.u8()? != 0)
    }

    pub(crate) fn i16_as(&mut self, wire: u8, id: i16) -> Result<i16, ScanError> {
        expect(wire, wire::I16, id)?;
        self.i16()
    }

    pub(crate) fn i32_as(&mut self, wire: u8, id: i16) -> Result<i32, ScanError> {
        expect(wire, wire::I32, id)?;
        self.i32()
    }

    pub(crate) fn i64_as(&mut self, wire: u8, id: i16) -> Result<i64, ScanError> {
        expect(wire, wire::I64, id)?;
        self.i64()
    }

    /// Skips the fields of a struct, including its end.
    pub(crate) fn skip_struct(&mut self, depth: usize) -> Result<(), ScanError> {
        let depth = depth.checked_sub(1).ok_or(ScanError::TooDeep)?;
        while let Some((wire, _)) = self.field()? {
            self.skip(wire, depth)?;
        }
        Ok(())
    }

    /// Skips one value. The recursion is limited by `depth`, the work by the bytes that are present, because every
    /// element takes at least one.
    pub(crate) fn skip(&mut self, wire: u8, depth: usize) -> Result<(), ScanError> {
        if let Some(size) = wire::fixed_size(wire) {
            return self.take(size).map(drop);
        }
        match wire {
            wire::STRING => self.binary().map(drop),
            wire::STRUCT => self.skip_struct(depth),
            wire::LIST | wire::SET => {
                let element = self.u8()?;
                let count = self.length()?;
                self.skip_elements(&[element], count, depth)
            }
            wire::MAP => {
                let (key, value) = (self.u8()?, self.u8()?);
                let count = self.length()?;
                self.skip_elements(&[key, value], count, depth)
            }
            other => Err(ScanError::BadType(other)),
        }
    }

    /// Skips a map of strings to strings, or an empty one of any types. Returns the ranges of its keys and values in turn.
    pub(crate) fn strings_of_map(&mut self, wire: u8, id: i16, depth: usize) -> Result<Vec<Range<usize>>, ScanError> {
        if wire != wire::MAP {
            return Err(ScanError::WrongType(id));
        }
        let start = self.at;
        self.skip(wire, depth)?;
        let mut map = Cursor { bytes: self.bytes, at: start };
        let types = (map.u8()?, map.u8()?);
        let count = map.length()?;
        if count > 0 && types != (wire::STRING, wire::STRING) {
            return Err(ScanError::WrongType(id));
        }
        // All of them are present, since the map was skipped.
        (0..2 * count).map(|_| map.binary()).collect()
    }

    fn skip_elements(&mut self, elements: &[u8], count: usize, depth: usize) -> Result<(), ScanError> {
        let depth = depth.checked_sub(1).ok_or(ScanError::TooDeep)?;
        if count == 0 {
            return Ok(());
        }
        let fixed = elements.iter().try_fold(0, |sum, &wire| wire::fixed_size(wire).map(|size| sum + size));
        if let Some(size) = fixed {
            return self.take(count.checked_mul(size).ok_or(ScanError::NegativeLength)?).map(drop);
        }
        if elements.iter().all(|&wire| wire == wire::STRING) {
            let count = count.checked_mul(elements.len()).ok_or(ScanError::NegativeLength)?;
            return self.skip_strings(count as u64);
        }
        for _ in 0..count {
            for &wire in elements {
                self.skip(wire, depth)?;
            }
        }
        Ok(())
    }

    fn skip_strings(&mut self, count: u64) -> Result<(), ScanError> {
        let skipped = strings::skip(self.bytes, self.at, count);
        match skipped.stopped {
            Some(Stopped::NegativeLength) => Err(ScanError::NegativeLength),
            // The last one that has a length may be incomplete.
            _ if skipped.at > self.bytes.len() => Err(ScanError::Truncated { at_least: skipped.at }),
            Some(Stopped::Truncated) => Err(ScanError::Truncated { at_least: skipped.at + strings::LENGTH_BYTES }),
            None => {
                self.at = skipped.at;
                Ok(())
            }
        }
    }

    /// Checks that the message ends here.
    pub(crate) fn end(&self) -> Result<(), ScanError> {
        if self.at == self.bytes.len() { Ok(()) } else { Err(ScanError::Trailing) }
    }
}

#[inline]
fn expect(wire: u8, expected: u8, id: i16) -> Result<(), ScanError> {
    if wire == expected { Ok(()) } else { Err(ScanError::WrongType(id)) }
}

/// The value of field `id` must be a struct.
pub(crate) fn expect_struct(wire: u8, id: i16) -> Result<(), ScanError> {
    expect(wire, wire::STRUCT, id)
}
