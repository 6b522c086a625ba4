//! Requests as a relay scans them.

use std::ops::Range;

use super::cursor::{Cursor, expect_struct, wire};
use super::{HandleAt, Header, MessageKind, ScanError, Seen, header, whole_handle};
use crate::limits::MAX_DEPTH;
use crate::method::{Method, Scope};

/// The id of `TExecuteStatementReq.queryTimeout`.
const QUERY_TIMEOUT_FIELD: i16 = 5;

/// A scanned request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    pub header: Header,
    /// The method, if it is one of `TCLIService`'s. Of others only the head and the length are checked.
    pub method: Option<Method>,
    /// The handle of the session or operation ([`Method::scope`] says which).
    pub handle: Option<HandleAt>,
    /// `ExecuteStatement`: the range of the text, not yet checked to be UTF-8.
    pub statement: Option<Range<usize>>,
    /// `ExecuteStatement`: the settings for this statement (`confOverlay`), as keys and values in turn; empty where the
    /// map has other types.
    overlay: Vec<Range<usize>>,
    /// `ExecuteStatement`: the reply may precede the end of the statement.
    pub run_async: bool,
    /// `ExecuteStatement`: seconds, 0 for none.
    pub query_timeout: i64,
    /// `ExecuteStatement`: the position of the seconds, if the request has the field.
    pub query_timeout_at: Option<usize>,
    /// The beginning of the fields of the method's argument.
    pub fields_at: usize,
    /// FetchResults: `TFetchOrientation`.
    pub orientation: i32,
    /// FetchResults: the most rows to return.
    pub max_rows: i64,
    /// FetchResults: 0 for the result, 1 for the log.
    pub fetch_type: i16,
}

/// Scans a whole request.
pub fn request(bytes: &[u8]) -> Result<Request, ScanError> {
    request_after(header(bytes)?, bytes)
}

/// The same, where the head was parsed already.
pub(crate) fn request_after(header: Header, bytes: &[u8]) -> Result<Request, ScanError> {
    if !matches!(header.kind, MessageKind::Call | MessageKind::OneWay) {
        return Err(ScanError::BadKind(2));
    }
    let method = header.method;
    let mut cursor = Cursor::at_offset(bytes, header.body);
    let mut request = Request {
        header,
        method,
        handle: None,
        statement: None,
        overlay: Vec::new(),
        run_async: false,
        query_timeout: 0,
        query_timeout_at: None,
        fields_at: 0,
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
        self.fields_at = cursor.at();
        let mut seen = Seen::default();
        while let Some((wire, id)) = cursor.field()? {
            seen.once(id)?;
            match (method, id) {
                (_, 1) if method.scope() != Scope::New => {
                    expect_struct(wire, id)?;
                    self.handle = Some(whole_handle(cursor, DEPTH - 1)?.at);
                }
                (Method::ExecuteStatement, 2) => self.statement = Some(cursor.binary_as(wire, id)?),
                (Method::ExecuteStatement, 3) => self.overlay = cursor.strings_of_map(wire, id, DEPTH)?,
                (Method::ExecuteStatement, 4) => self.run_async = cursor.bool_as(wire, id)?,
                (Method::ExecuteStatement, 5) => {
                    self.query_timeout_at = Some(cursor.at());
                    self.query_timeout = cursor.i64_as(wire, id)?;
                }
                (Method::FetchResults, 2) => self.orientation = cursor.i32_as(wire, id)?,
                (Method::FetchResults, 3) => self.max_rows = cursor.i64_as(wire, id)?,
                (Method::FetchResults, 4) => self.fetch_type = cursor.i16_as(wire, id)?,
                _ => cursor.skip(wire, DEPTH)?,
            }
        }
        Ok(())
    }

    /// Checks the mandatory fields.
    fn complete(self, method: Method) -> Result<Self, ScanError> {
        if method.scope() != Scope::New && self.handle.is_none() {
            return Err(ScanError::Missing(1));
        }
        if method == Method::ExecuteStatement && self.statement.is_none() {
            return Err(ScanError::Missing(2));
        }
        Ok(self)
    }

    /// The statement's bytes in the scanned bytes.
    pub fn statement_in<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        bytes.get(self.statement.clone()?)
    }

    /// The settings of `confOverlay` in the scanned bytes, keys with values.
    pub fn overlay_in<'a>(&self, bytes: &'a [u8]) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        self.overlay.chunks_exact(2).filter_map(|pair| Some((bytes.get(pair[0].clone())?, bytes.get(pair[1].clone())?)))
    }

    /// Sets `queryTimeout` in the scanned bytes of an `ExecuteStatement`. A missing field is inserted, so every
    /// position after [`fields_at`](Self::fields_at) moves: scan again before using one.
    pub fn set_query_timeout(&self, bytes: &mut Vec<u8>, seconds: i64) {
        let value = seconds.to_be_bytes();
        let [high, low] = QUERY_TIMEOUT_FIELD.to_be_bytes();
        if let Some(field) = self.query_timeout_at.and_then(|at| bytes.get_mut(at..at + value.len())) {
            field.copy_from_slice(&value);
        } else {
            let field = [wire::I64, high, low].into_iter().chain(value);
            let at = self.fields_at.min(bytes.len());
            bytes.splice(at..at, field);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;
    use crate::handle::Handle;
    use crate::message::{decode_call, encode_call};
    use crate::tcli::TExecuteStatementReq;

    #[test]
    fn a_query_timeout_is_set_or_added_and_the_rest_stays() {
        for given in [None, Some(0), Some(7)] {
            let call = TExecuteStatementReq {
                session_handle: Handle::random().session(),
                statement: "SELECT 'it''s'".to_owned(),
                conf_overlay: Some([("a".to_owned(), "b".to_owned())].into()),
                run_async: Some(true),
                query_timeout: given,
            };
            let mut bytes = encode_call("ExecuteStatement", 3, &call).unwrap();
            request(&bytes).unwrap().set_query_timeout(&mut bytes, 30);
            let decoded: TExecuteStatementReq = decode_call(&bytes).unwrap();
            assert_eq!(decoded, TExecuteStatementReq { query_timeout: Some(30), ..call });
            let scanned = request(&bytes).unwrap();
            assert_eq!(scanned.overlay_in(&bytes).collect::<Vec<_>>(), [(&b"a"[..], &b"b"[..])]);
            assert_eq!((scanned.query_timeout, scanned.statement_in(&bytes).unwrap()), (30, &b"SELECT 'it''s'"[..]));
        }
    }

    /// Decoders of Thrift read strings whatever types a map declares: a map that the scanner cannot read as one of strings
    /// must not reach an engine.
    #[test]
    fn an_overlay_of_other_types_is_refused() {
        let bytes = |overlay: &[(&str, &str)]| {
            let overlay = overlay.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
            let call = TExecuteStatementReq {
                session_handle: Handle::random().session(),
                statement: "SELECT 1".to_owned(),
                conf_overlay: Some(overlay),
                run_async: None,
                query_timeout: None,
            };
            encode_call("ExecuteStatement", 3, &call).unwrap()
        };
        let field = [wire::MAP, 0, 3, wire::STRING, wire::STRING];
        // The same bytes as an i64 each: a length and four bytes.
        let strings = bytes(&[("user", "root")]);
        let at = strings.windows(field.len()).position(|window| window == field).unwrap();
        for (key, value) in [(wire::STRING, wire::I64), (wire::I64, wire::STRING), (wire::I64, wire::DOUBLE)] {
            let mut declared = strings.clone();
            (declared[at + 3], declared[at + 4]) = (key, value);
            assert_eq!(decode_call::<TExecuteStatementReq>(&declared).unwrap().conf_overlay.unwrap()["user"], "root");
            assert_eq!(request(&declared).unwrap_err(), ScanError::WrongType(3));
        }
        // Of an empty map, clients send any types.
        let mut empty = bytes(&[]);
        let at = empty.windows(field.len()).position(|window| window == field).unwrap();
        (empty[at + 3], empty[at + 4]) = (0, 0);
        assert_eq!(request(&empty).unwrap().overlay_in(&empty).count(), 0);
        // A list that says nothing.
        empty[at] = wire::LIST;
        empty.remove(at + 3);
        empty[at + 3] = wire::STRING;
        assert_eq!(request(&empty).unwrap_err(), ScanError::WrongType(3));
    }
}
