//! What a relay reads of a request.

use std::ops::Range;

use super::cursor::{Cursor, expect_struct};
use super::{HandleAt, Header, Kind, ScanError, Seen, header, whole_handle};
use crate::limits::MAX_DEPTH;
use crate::method::{Method, Scope};

/// A request, read in place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Name, sequence number.
    pub header: Header,
    /// The method, if it is one of `TCLIService`'s. Of others only the head is read, and that the message is whole.
    pub method: Option<Method>,
    /// The handle of the session or operation ([`Method::scope`] says which).
    pub handle: Option<HandleAt>,
    /// `ExecuteStatement`: the text, not yet known to be UTF-8.
    pub statement: Option<Range<usize>>,
    /// `ExecuteStatement`: the reply may come before the statement has ended.
    pub run_async: bool,
    /// `ExecuteStatement`: seconds, 0 for none.
    pub query_timeout: i64,
    /// FetchResults: `TFetchOrientation`.
    pub orientation: i32,
    /// FetchResults: the most rows that are wanted.
    pub max_rows: i64,
    /// FetchResults: 0 the result, 1 the log.
    pub fetch_type: i16,
}

/// Reads a request to its last byte.
pub fn request(bytes: &[u8]) -> Result<Request, ScanError> {
    let header = header(bytes)?;
    if !matches!(header.kind, Kind::Call | Kind::OneWay) {
        return Err(ScanError::BadKind(2));
    }
    let method = header.method_in(bytes);
    let mut cursor = Cursor::at_offset(bytes, header.body);
    let mut request = Request {
        header,
        method,
        handle: None,
        statement: None,
        run_async: false,
        query_timeout: 0,
        orientation: 0,
        max_rows: 0,
        fetch_type: 0,
    };
    let Some(method) = method else {
        cursor.skip_struct(MAX_DEPTH)?;
        cursor.end()?;
        return Ok(request);
    };
    let mut seen = Seen::default();
    while let Some((wire, id)) = cursor.field()? {
        seen.once(id)?;
        if id == 1 {
            expect_struct(wire, id)?;
            request.arguments(&mut cursor, method)?;
        } else {
            cursor.skip(wire, MAX_DEPTH - 1)?;
        }
    }
    cursor.end()?;
    request.complete(method)
}

impl Request {
    /// The one struct that every method takes.
    fn arguments(&mut self, cursor: &mut Cursor<'_>, method: Method) -> Result<(), ScanError> {
        const DEPTH: usize = MAX_DEPTH - 2;
        let mut seen = Seen::default();
        while let Some((wire, id)) = cursor.field()? {
            seen.once(id)?;
            match (method, id) {
                (_, 1) if method.scope() != Scope::New => {
                    expect_struct(wire, id)?;
                    self.handle = Some(whole_handle(cursor, DEPTH - 1)?.at);
                }
                (Method::ExecuteStatement, 2) => self.statement = Some(cursor.binary_as(wire, id)?),
                (Method::ExecuteStatement, 4) => self.run_async = cursor.bool_as(wire, id)?,
                (Method::ExecuteStatement, 5) => self.query_timeout = cursor.i64_as(wire, id)?,
                (Method::FetchResults, 2) => self.orientation = cursor.i32_as(wire, id)?,
                (Method::FetchResults, 3) => self.max_rows = cursor.i64_as(wire, id)?,
                (Method::FetchResults, 4) => self.fetch_type = cursor.i16_as(wire, id)?,
                _ => cursor.skip(wire, DEPTH)?,
            }
        }
        Ok(())
    }

    /// The fields without which the request has no meaning are there.
    fn complete(self, method: Method) -> Result<Self, ScanError> {
        if method.scope() != Scope::New && self.handle.is_none() {
            return Err(ScanError::Missing(1));
        }
        if method == Method::ExecuteStatement && self.statement.is_none() {
            return Err(ScanError::Missing(2));
        }
        Ok(self)
    }

    /// The statement's bytes in the bytes that were scanned.
    pub fn statement_in<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        bytes.get(self.statement.clone()?)
    }
}
