//! Jute's primitives: integers, booleans, buffers, strings and vectors.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use thiserror::Error;

/// Why a record could not be read. The source is always the peer.
#[derive(Debug, Error, PartialEq, Eq)]
pub(crate) enum DecodeError {
    /// A field reaches beyond the end of its frame.
    #[error("record ends within {field}")]
    Short { field: &'static str },
    /// A length is negative where none is allowed, or more than the frame holds.
    #[error("length {length} of {field} is impossible")]
    Length { field: &'static str, length: i32 },
    /// Text that is not UTF-8.
    #[error("{field} is not UTF-8")]
    Text { field: &'static str },
    /// An operation that a transaction cannot contain.
    #[error("operation {code} cannot be part of a transaction")]
    Nested { code: i32 },
}

/// Reads the fields of one record from the front of a frame.
#[derive(Debug)]
pub(crate) struct Reader {
    frame: Bytes,
}

impl Reader {
    pub(crate) fn new(frame: Bytes) -> Self {
        Self { frame }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.frame.is_empty()
    }

    pub(crate) fn int(&mut self, field: &'static str) -> Result<i32, DecodeError> {
        self.frame.try_get_i32().map_err(|_| DecodeError::Short { field })
    }

    pub(crate) fn long(&mut self, field: &'static str) -> Result<i64, DecodeError> {
        self.frame.try_get_i64().map_err(|_| DecodeError::Short { field })
    }

    pub(crate) fn boolean(&mut self, field: &'static str) -> Result<bool, DecodeError> {
        self.frame.try_get_u8().map(|byte| byte != 0).map_err(|_| DecodeError::Short { field })
    }

    /// A buffer; `None` is jute's null, length -1.
    pub(crate) fn buffer(&mut self, field: &'static str) -> Result<Option<Bytes>, DecodeError> {
        let length = self.int(field)?;
        if length == -1 {
            return Ok(None);
        }
        let wanted = usize::try_from(length).map_err(|_| DecodeError::Length { field, length })?;
        if wanted > self.frame.remaining() {
            return Err(DecodeError::Length { field, length });
        }
        Ok(Some(self.frame.split_to(wanted)))
    }

    /// A string; null reads as the empty one.
    pub(crate) fn text(&mut self, field: &'static str) -> Result<String, DecodeError> {
        let raw = self.buffer(field)?.unwrap_or_default();
        String::from_utf8(raw.to_vec()).map_err(|_| DecodeError::Text { field })
    }

    /// A vector; null reads as the empty one. `item` reads one element of at least one byte, so the frame's size
    /// bounds the number of elements.
    pub(crate) fn vector<T>(
        &mut self,
        field: &'static str,
        mut item: impl FnMut(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Vec<T>, DecodeError> {
        let length = self.int(field)?;
        if length == -1 {
            return Ok(Vec::new());
        }
        let wanted = usize::try_from(length).map_err(|_| DecodeError::Length { field, length })?;
        if wanted > self.frame.remaining() {
            return Err(DecodeError::Length { field, length });
        }
        (0..wanted).map(|_| item(self)).collect()
    }

    pub(crate) fn texts(&mut self, field: &'static str) -> Result<Vec<String>, DecodeError> {
        self.vector(field, |reader| reader.text(field))
    }
}

/// Writes the fields of one frame. The frame's length is put in front when it is finished.
#[derive(Debug)]
pub(crate) struct Writer {
    frame: BytesMut,
}

impl Writer {
    pub(crate) fn new() -> Self {
        let mut frame = BytesMut::with_capacity(128);
        frame.put_i32(0);
        Self { frame }
    }

    pub(crate) fn int(&mut self, value: i32) {
        self.frame.put_i32(value);
    }

    pub(crate) fn long(&mut self, value: i64) {
        self.frame.put_i64(value);
    }

    pub(crate) fn boolean(&mut self, value: bool) {
        self.frame.put_u8(u8::from(value));
    }

    pub(crate) fn buffer(&mut self, value: Option<&[u8]>) {
        match value {
            None => self.frame.put_i32(-1),
            Some(raw) => {
                self.frame.put_i32(raw.len() as i32);
                self.frame.put_slice(raw);
            }
        }
    }

    pub(crate) fn text(&mut self, value: &str) {
        self.buffer(Some(value.as_bytes()));
    }

    pub(crate) fn vector<T>(&mut self, items: &[T], mut item: impl FnMut(&mut Self, &T)) {
        self.frame.put_i32(items.len() as i32);
        for one in items {
            item(self, one);
        }
    }

    pub(crate) fn texts(&mut self, items: &[String]) {
        self.vector(items, |writer, item| writer.text(item));
    }

    /// The whole frame, its length first.
    pub(crate) fn finish(mut self) -> Bytes {
        let length = (self.frame.len() - 4) as i32;
        self.frame[..4].copy_from_slice(&length.to_be_bytes());
        self.frame.freeze()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]

    use super::*;

    fn body(writer: Writer) -> Reader {
        let mut frame = writer.finish();
        let length = frame.get_i32();
        assert_eq!(length as usize, frame.len());
        Reader::new(frame)
    }

    #[test]
    fn what_is_written_reads_back() {
        let mut writer = Writer::new();
        writer.int(-7);
        writer.long(i64::MIN);
        writer.boolean(true);
        writer.buffer(None);
        writer.buffer(Some(b"\0x"));
        writer.text("päth");
        writer.texts(&["a".to_owned(), String::new()]);
        let mut reader = body(writer);
        assert_eq!(reader.int("").unwrap(), -7);
        assert_eq!(reader.long("").unwrap(), i64::MIN);
        assert!(reader.boolean("").unwrap());
        assert_eq!(reader.buffer("").unwrap(), None);
        assert_eq!(reader.buffer("").unwrap().unwrap(), Bytes::from_static(b"\0x"));
        assert_eq!(reader.text("").unwrap(), "päth");
        assert_eq!(reader.texts("").unwrap(), ["a", ""]);
        assert!(reader.is_empty());
    }

    #[test]
    fn a_length_beyond_the_frame_is_refused_before_anything_is_allocated() {
        for length in [i32::MAX, 5, -2] {
            let mut writer = Writer::new();
            writer.int(length);
            writer.int(0);
            let mut reader = body(writer);
            assert_eq!(reader.buffer("data").unwrap_err(), DecodeError::Length { field: "data", length });
            let mut writer = Writer::new();
            writer.int(length);
            writer.int(0);
            assert_eq!(body(writer).texts("paths").unwrap_err(), DecodeError::Length { field: "paths", length });
        }
    }

    #[test]
    fn a_record_that_ends_early_names_the_field() {
        let mut reader = Reader::new(Bytes::from_static(&[0, 0, 1]));
        assert_eq!(reader.int("xid").unwrap_err(), DecodeError::Short { field: "xid" });
    }
}
