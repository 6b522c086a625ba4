//! What a relay reads of a reply, from its beginning alone where the rest is a result.
//!
//! A reply comes from an engine, whose users' code may have written it: it is as hostile as a request.

use std::ops::Range;

use model::error::ErrorKind;

use super::cursor::{Cursor, expect_struct};
use super::{HandleAt, Header, Kind, ScanError, Seen, header, whole, whole_handle};
use crate::limits::MAX_DEPTH;
use crate::method::Method;
use crate::status::CUT;
use crate::tcli::TStatusCode;

/// A reply, read in place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// Name, sequence number, whether it is an exception.
    pub header: Header,
    /// The method, if it is one of `TCLIService`'s.
    pub method: Option<Method>,
    /// `TStatus.statusCode`; nothing for an exception and for `GetQueryId`, which has none.
    pub status: Option<i32>,
    /// `TStatus.sqlState`.
    pub sql_state: Option<Range<usize>>,
    /// `TStatus.errorCode`.
    pub error_code: Option<i32>,
    /// `TStatus.errorMessage`; of an exception its text.
    pub error_message: Option<Range<usize>>,
    /// The handle that the reply makes known: of a session (`OpenSession`) or an operation.
    pub handle: Option<HandleAt>,
    /// `ExecuteStatement` and the metadata calls: `TOperationType` of the new operation.
    pub operation_type: Option<i32>,
    /// `ExecuteStatement` and the metadata calls: whether the new operation has a result; GetOperationStatus: the same.
    pub has_result_set: Option<bool>,
    /// GetOperationStatus: `TOperationState`.
    pub operation_state: Option<i32>,
    /// GetOperationStatus: the operation's own error.
    pub operation_error_code: Option<i32>,
    /// GetOperationStatus: the text of the operation's own error.
    pub operation_error_message: Option<Range<usize>>,
}

impl Reply {
    /// Whether it says that the call succeeded.
    pub fn succeeded(&self) -> bool {
        self.header.kind == Kind::Reply
            && self.status.is_none_or(|status| {
                status == TStatusCode::SUCCESS_STATUS.0
                    || status == TStatusCode::SUCCESS_WITH_INFO_STATUS.0
                    || status == TStatusCode::STILL_EXECUTING_STATUS.0
            })
    }
}

impl Reply {
    /// Whether it refuses the call with an error of this kind, which has an error code of its own. `bytes` are those
    /// that were scanned.
    pub fn is_error(&self, kind: ErrorKind, bytes: &[u8]) -> bool {
        let state = self.sql_state.clone().and_then(|state| bytes.get(state)).unwrap_or_default();
        self.status == Some(TStatusCode::ERROR_STATUS.0)
            && self.error_code == Some(kind.error_code())
            && state == kind.sqlstate().as_bytes()
    }
}

impl Reply {
    /// Cuts error texts that are longer than `limit`, in the whole reply that was scanned. Whether any was: then all
    /// positions of this value are stale.
    pub fn cut_texts(&self, bytes: &mut Vec<u8>, limit: usize) -> bool {
        let mut texts: Vec<_> = [&self.error_message, &self.operation_error_message].into_iter().flatten().collect();
        // From the last one on, so that the positions before it stay.
        texts.sort_by_key(|text| std::cmp::Reverse(text.start));
        let mut any = false;
        for text in texts.into_iter().filter(|text| text.len() > limit) {
            let (Some(length_at), Some(long)) = (text.start.checked_sub(4), bytes.get((*text).clone())) else {
                continue;
            };
            let mut end = limit.saturating_sub(CUT.len());
            // Not within a character.
            while end > 0 && long.get(end).is_some_and(|byte| byte & 0xc0 == 0x80) {
                end -= 1;
            }
            let short = [&long[..end], CUT.as_bytes()].concat();
            let length = (short.len() as u32).to_be_bytes();
            bytes.splice((*text).clone(), short);
            bytes[length_at..length_at + 4].copy_from_slice(&length);
            any = true;
        }
        any
    }

    /// The longest error text, in bytes.
    pub fn longest_text(&self) -> usize {
        [&self.error_message, &self.operation_error_message]
            .into_iter()
            .flatten()
            .map(ExactSizeIterator::len)
            .max()
            .unwrap_or(0)
    }
}

/// Reads a whole reply to its last byte. Of results nothing is read but that their status stands before them.
pub fn reply(bytes: &[u8]) -> Result<Reply, ScanError> {
    read(bytes, None).map(|(reply, _)| reply)
}

/// Reads a reply of which only the beginning is there, `total` being the length of the whole. The second value says
/// whether all that matters of it was there; if not, more bytes are needed before anything may be decided. When all
/// `total` bytes are there, nothing stands behind the reply; otherwise a [`PieceWalker`](super::PieceWalker) has to
/// check that.
pub fn reply_head(bytes: &[u8], total: usize) -> Result<(Reply, bool), ScanError> {
    read(bytes, Some(total))
}

fn read(bytes: &[u8], total: Option<usize>) -> Result<(Reply, bool), ScanError> {
    let header = header(bytes)?;
    let method = header.method_in(bytes);
    let mut reply = Reply {
        header,
        method,
        status: None,
        sql_state: None,
        error_code: None,
        error_message: None,
        handle: None,
        operation_type: None,
        has_result_set: None,
        operation_state: None,
        operation_error_code: None,
        operation_error_message: None,
    };
    let length = total.unwrap_or(bytes.len());
    let mut cursor = Cursor::at_offset(bytes, reply.header.body);
    let outcome = match reply.header.kind {
        Kind::Exception => reply.exception(&mut cursor),
        Kind::Reply => reply.result(&mut cursor),
        Kind::Call => return Err(ScanError::BadKind(1)),
        Kind::OneWay => return Err(ScanError::BadKind(4)),
    };
    match outcome {
        // A result is walked over as soon as all of it is there; otherwise by the relay that copies it.
        Ok(Read::AllThatMatters) if bytes.len() >= length => whole(&bytes[..length]).map(|_| (reply, true)),
        Ok(Read::AllThatMatters) => Ok((reply, true)),
        // What was walked to its end must end where the frame ends.
        Ok(Read::ToTheEnd) if cursor.at() == length => Ok((reply, true)),
        Ok(Read::ToTheEnd) => Err(ScanError::Trailing),
        Err(ScanError::Truncated { at_least }) if bytes.len() < length && at_least <= length => Ok((reply, false)),
        Err(error) => Err(error),
    }
}

enum Read {
    ToTheEnd,
    AllThatMatters,
}

impl Reply {
    /// `TApplicationException`: 1 text, 2 kind.
    fn exception(&mut self, cursor: &mut Cursor<'_>) -> Result<Read, ScanError> {
        while let Some((wire, id)) = cursor.field()? {
            match id {
                1 => self.error_message = Some(cursor.binary_as(wire, id)?),
                2 => self.error_code = Some(cursor.i32_as(wire, id)?),
                _ => cursor.skip(wire, MAX_DEPTH - 1)?,
            }
        }
        Ok(Read::ToTheEnd)
    }

    /// The struct that has the answer in field 0.
    fn result(&mut self, cursor: &mut Cursor<'_>) -> Result<Read, ScanError> {
        let mut seen = Seen::default();
        while let Some((wire, id)) = cursor.field()? {
            seen.once(id)?;
            match (self.method, id) {
                (Some(method), 0) => {
                    expect_struct(wire, id)?;
                    if let Read::AllThatMatters = self.answer(cursor, method)? {
                        return Ok(Read::AllThatMatters);
                    }
                }
                _ => cursor.skip(wire, MAX_DEPTH - 1)?,
            }
        }
        Ok(Read::ToTheEnd)
    }

    fn answer(&mut self, cursor: &mut Cursor<'_>, method: Method) -> Result<Read, ScanError> {
        const DEPTH: usize = MAX_DEPTH - 2;
        let status_is_all = matches!(
            method,
            Method::FetchResults | Method::GetResultSetMetadata | Method::GetInfo | Method::GetDelegationToken
        );
        let mut seen = Seen::default();
        while let Some((wire, id)) = cursor.field()? {
            seen.once(id)?;
            match (method, id) {
                (Method::GetQueryId, _) => cursor.skip(wire, DEPTH)?,
                (_, 1) => {
                    expect_struct(wire, id)?;
                    self.status(cursor, DEPTH - 1)?;
                    if status_is_all {
                        return Ok(Read::AllThatMatters);
                    }
                }
                (Method::OpenSession, 3) => {
                    expect_struct(wire, id)?;
                    self.handle = Some(whole_handle(cursor, DEPTH - 1)?.at);
                }
                (_, 2) if method.makes_operation() => {
                    expect_struct(wire, id)?;
                    let handle = whole_handle(cursor, DEPTH - 1)?;
                    self.handle = Some(handle.at);
                    self.operation_type = handle.operation_type;
                    self.has_result_set = handle.has_result_set;
                }
                (Method::GetOperationStatus, 2) => self.operation_state = Some(cursor.i32_as(wire, id)?),
                (Method::GetOperationStatus, 4) => self.operation_error_code = Some(cursor.i32_as(wire, id)?),
                (Method::GetOperationStatus, 5) => self.operation_error_message = Some(cursor.binary_as(wire, id)?),
                (Method::GetOperationStatus, 9) => self.has_result_set = Some(cursor.bool_as(wire, id)?),
                _ => cursor.skip(wire, DEPTH)?,
            }
        }
        Ok(Read::ToTheEnd)
    }

    fn status(&mut self, cursor: &mut Cursor<'_>, depth: usize) -> Result<(), ScanError> {
        let mut seen = Seen::default();
        while let Some((wire, id)) = cursor.field()? {
            seen.once(id)?;
            match id {
                1 => self.status = Some(cursor.i32_as(wire, id)?),
                3 => self.sql_state = Some(cursor.binary_as(wire, id)?),
                4 => self.error_code = Some(cursor.i32_as(wire, id)?),
                5 => self.error_message = Some(cursor.binary_as(wire, id)?),
                _ => cursor.skip(wire, depth)?,
            }
        }
        if self.status.is_none() { Err(ScanError::Missing(1)) } else { Ok(()) }
    }
}
