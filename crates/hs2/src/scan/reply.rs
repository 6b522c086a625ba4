//! Replies as a relay scans them: only the beginning, where the rest is a result.
//!
//! A reply comes from an engine, which runs users' code: it is as hostile as a request.

use std::cmp::Reverse;
use std::ops::Range;

use model::error::ErrorKind;
use model::stack_trace;

use super::cursor::{Cursor, expect_struct};
use super::{HandleAt, Header, MessageKind, ScanError, Seen, header, whole_handle};
use crate::limits::MAX_DEPTH;
use crate::method::Method;
use crate::status::CUT;
use crate::tcli::TStatusCode;

/// A scanned reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    pub header: Header,
    /// The method, if it is one of `TCLIService`'s.
    pub method: Option<Method>,
    /// `TStatus.statusCode`; `None` for an exception and for `GetQueryId`, which has none.
    pub status: Option<i32>,
    /// The field `TStatus.infoMessages`, from its type byte on.
    pub info_messages: Option<Range<usize>>,
    /// `TStatus.sqlState`.
    pub sql_state: Option<Range<usize>>,
    /// `TStatus.errorCode`.
    pub error_code: Option<i32>,
    /// `TStatus.errorMessage`, or the text of an exception.
    pub error_message: Option<Range<usize>>,
    /// The new handle: of a session (`OpenSession`) or an operation.
    pub handle: Option<HandleAt>,
    /// `ExecuteStatement` and the metadata calls: `TOperationType` of the new operation.
    pub operation_type: Option<i32>,
    /// `ExecuteStatement` and the metadata calls: whether the new operation has a result; GetOperationStatus: the same.
    pub has_result_set: Option<bool>,
    /// GetOperationStatus: `TOperationState`.
    pub operation_state: Option<i32>,
    /// GetOperationStatus: the SQLSTATE of the operation's own error.
    pub operation_error_code: Option<i32>,
    /// GetOperationStatus: the text of the operation's own error.
    pub operation_error_message: Option<Range<usize>>,
}

impl Reply {
    /// Whether the call succeeded.
    pub fn succeeded(&self) -> bool {
        self.header.kind == MessageKind::Reply
            && self.status.is_none_or(|status| {
                status == TStatusCode::SUCCESS_STATUS.0
                    || status == TStatusCode::SUCCESS_WITH_INFO_STATUS.0
                    || status == TStatusCode::STILL_EXECUTING_STATUS.0
            })
    }
}

impl Reply {
    /// Whether it rejects the call with an error of this kind, which must have its own error code. `bytes` are the
    /// scanned ones.
    pub fn is_error(&self, kind: ErrorKind, bytes: &[u8]) -> bool {
        let state = self.sql_state.clone().and_then(|state| bytes.get(state)).unwrap_or_default();
        self.status == Some(TStatusCode::ERROR_STATUS.0)
            && self.error_code == Some(kind.error_code())
            && state == kind.sqlstate().as_bytes()
    }
}

impl Reply {
    /// The error texts.
    fn texts(&self) -> impl Iterator<Item = Range<usize>> {
        [&self.error_message, &self.operation_error_message].into_iter().flatten().cloned()
    }

    /// The messages with an error: its causes and their stack traces.
    fn info_of_error(&self) -> Option<Range<usize>> {
        self.info_messages.clone().filter(|_| !self.succeeded())
    }

    /// Whether [`Reply::cut_errors`] has something to remove.
    pub fn has_surplus(&self, bytes: &[u8], limit: usize) -> bool {
        let is_surplus =
            |text: Range<usize>| text.len() > limit || bytes.get(text).is_some_and(stack_trace::has_frames);
        self.info_of_error().is_some() || self.texts().any(is_surplus)
    }

    /// Removes Java stack traces and text beyond `limit` bytes from the errors of the whole scanned reply. Returns
    /// whether it removed anything: then all positions of this value are stale.
    pub fn cut_errors(&self, bytes: &mut Vec<u8>, limit: usize) -> bool {
        let mut edits: Vec<(Range<usize>, Vec<u8>)> = Vec::new();
        for text in self.texts() {
            let (Some(length_at), Some(short)) =
                (text.start.checked_sub(4), bytes.get(text.clone()).and_then(|long| shortened(long, limit)))
            else {
                continue;
            };
            edits.push((length_at..text.end, [&(short.len() as u32).to_be_bytes()[..], &short].concat()));
        }
        edits.extend(self.info_of_error().map(|field| (field, Vec::new())));
        // Backwards, so that earlier positions stay valid.
        edits.sort_by_key(|(part, _)| Reverse(part.start));
        let mut any = false;
        for (part, new) in edits {
            if bytes.get(part.clone()).is_some() {
                bytes.splice(part, new);
                any = true;
            }
        }
        any
    }
}

/// The text of an error without stack traces, cut to `limit` bytes; `None` if it needs no change.
fn shortened(long: &[u8], limit: usize) -> Option<Vec<u8>> {
    // How far causes are searched, in limits.
    const SEARCHED: usize = 16;
    let mut short = if stack_trace::has_frames(long) {
        let text = String::from_utf8_lossy(&long[..long.len().min(SEARCHED * limit)]);
        stack_trace::without_frames(&text).into_owned().into_bytes()
    } else if long.len() > limit {
        long[..=limit].to_vec()
    } else {
        return None;
    };
    if short.len() > limit {
        let mut end = limit.saturating_sub(CUT.len());
        // Not within a character.
        while end > 0 && short.get(end).is_some_and(|byte| byte & 0xc0 == 0x80) {
            end -= 1;
        }
        short.truncate(end);
        short.extend_from_slice(CUT.as_bytes());
    }
    Some(short)
}

/// Scans a whole reply. Results are skipped after their status.
pub fn reply(bytes: &[u8]) -> Result<Reply, ScanError> {
    read(bytes, None).map(|(reply, _)| reply)
}

/// Scans the beginning of a reply of `total` bytes. The second value is whether all relevant fields were present; if
/// not, more bytes are needed before any decision. If all `total` bytes are present, the reply is checked to its end;
/// otherwise a [`PieceWalker`](super::PieceWalker) has to check that.
pub fn reply_head(bytes: &[u8], total: usize) -> Result<(Reply, bool), ScanError> {
    read(bytes, Some(total))
}

fn read(bytes: &[u8], total: Option<usize>) -> Result<(Reply, bool), ScanError> {
    let header = header(bytes)?;
    let method = header.method;
    let mut reply = Reply {
        header,
        method,
        status: None,
        info_messages: None,
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
        MessageKind::Exception => reply.exception(&mut cursor),
        MessageKind::Reply => reply.result(&mut cursor),
        MessageKind::Call => return Err(ScanError::BadKind(1)),
        MessageKind::OneWay => return Err(ScanError::BadKind(4)),
    };
    match outcome {
        // A result is walked here if all of it is present; otherwise by the relay that copies it.
        Ok(Read::AllThatMatters) if bytes.len() >= length => {
            // The rest of the response, and of the struct around it.
            cursor.skip_struct(MAX_DEPTH - 1)?;
            cursor.skip_struct(MAX_DEPTH)?;
            ends(&cursor, length).map(|()| (reply, true))
        }
        Ok(Read::AllThatMatters) => Ok((reply, true)),
        Ok(Read::ToTheEnd) => ends(&cursor, length).map(|()| (reply, true)),
        Err(ScanError::Truncated { at_least }) if bytes.len() < length && at_least <= length => Ok((reply, false)),
        Err(error) => Err(error),
    }
}

/// A complete walk must end where the frame ends.
fn ends(cursor: &Cursor<'_>, length: usize) -> Result<(), ScanError> {
    if cursor.at() == length { Ok(()) } else { Err(ScanError::Trailing) }
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

    /// The struct that has the response in field 0.
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
        let mut begin = cursor.at();
        while let Some((wire, id)) = cursor.field()? {
            seen.once(id)?;
            match id {
                1 => self.status = Some(cursor.i32_as(wire, id)?),
                2 => {
                    cursor.skip(wire, depth)?;
                    self.info_messages = Some(begin..cursor.at());
                }
                3 => self.sql_state = Some(cursor.binary_as(wire, id)?),
                4 => self.error_code = Some(cursor.i32_as(wire, id)?),
                5 => self.error_message = Some(cursor.binary_as(wire, id)?),
                _ => cursor.skip(wire, depth)?,
            }
            begin = cursor.at();
        }
        if self.status.is_none() { Err(ScanError::Missing(1)) } else { Ok(()) }
    }
}
