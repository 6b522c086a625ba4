//! Messages: generated structs to bytes and back, and `TApplicationException`.
//!
//! Every method, including those of services that extend `TCLIService`, takes one struct in field 1 and returns one
//! in field 0, so the same functions serve all. Decoding walks the bytes first: generated code allocates as many
//! elements as a list claims to have, so it receives only messages that have them.

use thrift::TConfiguration;
use thrift::protocol::{TBinaryInputProtocol, TBinaryOutputProtocol, TSerializable};

use crate::error::WireError;
use crate::limits::{MAX_DECODED_ITEMS, MAX_DEPTH};
use crate::method::Method;
use crate::scan::{self, Cursor, Header, MessageKind, Request, ScanError};

/// A received message, with its head parsed.
#[derive(Debug)]
pub struct Message {
    bytes: Vec<u8>,
    header: Header,
}

impl Message {
    /// Parses the head. The rest is not yet checked.
    pub fn new(bytes: Vec<u8>) -> Result<Self, ScanError> {
        let header = scan::header(&bytes)?;
        Ok(Self { bytes, header })
    }

    /// Without any frame.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// For patching a handle. The head must not change.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    pub fn header(&self) -> &Header {
        &self.header
    }

    pub fn name(&self) -> &str {
        self.header.name_in(&self.bytes)
    }

    pub fn method(&self) -> Option<Method> {
        self.header.method
    }

    pub fn seqid(&self) -> i32 {
        self.header.seqid
    }

    /// Scans the message as a request.
    pub fn request(&self) -> Result<Request, ScanError> {
        scan::request_after(self.header.clone(), &self.bytes)
    }

    pub fn call(&self) -> Call<'_> {
        Call { name: self.name(), seqid: self.seqid(), bytes: &self.bytes }
    }
}

/// A call, not yet decoded.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    pub name: &'a str,
    /// Repeated in the reply.
    pub seqid: i32,
    pub bytes: &'a [u8],
}

impl Call<'_> {
    pub fn decode<T: TSerializable>(&self) -> Result<T, WireError> {
        decode_call(self.bytes)
    }

    pub fn reply<T: TSerializable>(&self, answer: &T) -> Vec<u8> {
        encode_reply(self.name, self.seqid, answer)
    }

    /// The reply to a call whose argument cannot be decoded.
    pub fn malformed(&self, error: &WireError) -> Vec<u8> {
        encode_exception(self.name, self.seqid, ExceptionKind::ProtocolError, &error.to_string())
    }

    /// The reply to a call of an unknown method.
    pub fn unknown(&self) -> Vec<u8> {
        let text = format!("Invalid method name: '{}'", self.name);
        encode_exception(self.name, self.seqid, ExceptionKind::UnknownMethod, &text)
    }
}

/// The kinds of `TApplicationException` that we send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExceptionKind {
    UnknownMethod = 1,
    InvalidMessageType = 2,
    InternalError = 6,
    /// The arguments cannot be decoded.
    ProtocolError = 7,
}

pub fn encode_call<T: TSerializable>(name: &str, seqid: i32, argument: &T) -> Result<Vec<u8>, WireError> {
    encode(MessageKind::Call, name, seqid, 1, argument)
}

/// Encodes a reply; an exception if the response cannot be encoded.
pub fn encode_reply<T: TSerializable>(name: &str, seqid: i32, answer: &T) -> Vec<u8> {
    encode(MessageKind::Reply, name, seqid, 0, answer)
        .unwrap_or_else(|error| encode_exception(name, seqid, ExceptionKind::InternalError, &error.to_string()))
}

pub fn encode_exception(name: &str, seqid: i32, kind: ExceptionKind, text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEAD_BYTES + name.len() + text.len());
    head(&mut bytes, 3, name, seqid);
    bytes.extend_from_slice(&[11, 0, 1]);
    string(&mut bytes, text);
    bytes.extend_from_slice(&[8, 0, 2]);
    bytes.extend_from_slice(&(kind as i32).to_be_bytes());
    bytes.push(0);
    bytes
}

const HEAD_BYTES: usize = 32;

fn head(bytes: &mut Vec<u8>, kind: u8, name: &str, seqid: i32) {
    bytes.extend_from_slice(&[0x80, 0x01, 0x00, kind]);
    string(bytes, name);
    bytes.extend_from_slice(&seqid.to_be_bytes());
}

fn string(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend_from_slice(&(text.len() as i32).to_be_bytes());
    bytes.extend_from_slice(text.as_bytes());
}

fn encode<T: TSerializable>(
    kind: MessageKind,
    name: &str,
    seqid: i32,
    field: i16,
    value: &T,
) -> Result<Vec<u8>, WireError> {
    let mut bytes = Vec::with_capacity(256);
    head(&mut bytes, if kind == MessageKind::Call { 1 } else { 2 }, name, seqid);
    bytes.push(12);
    bytes.extend_from_slice(&field.to_be_bytes());
    let mut protocol = TBinaryOutputProtocol::with_config(bytes, true, TConfiguration::no_limits());
    value.write_to_out_protocol(&mut protocol)?;
    let mut bytes = protocol.transport;
    bytes.push(0);
    Ok(bytes)
}

pub fn decode_call<T: TSerializable>(bytes: &[u8]) -> Result<T, WireError> {
    let header = scan::whole(bytes)?;
    match header.kind {
        MessageKind::Call | MessageKind::OneWay => decode(bytes, header.body, 1),
        MessageKind::Reply | MessageKind::Exception => {
            Err(WireError::Decode("a call was expected, a reply came".to_owned()))
        }
    }
}

/// Decodes the response in a reply; a `TApplicationException` is [`WireError::Application`].
pub fn decode_reply<T: TSerializable>(bytes: &[u8]) -> Result<T, WireError> {
    let header = scan::whole(bytes)?;
    match header.kind {
        MessageKind::Reply => decode(bytes, header.body, 0),
        MessageKind::Exception => Err(exception(bytes)?),
        MessageKind::Call | MessageKind::OneWay => {
            Err(WireError::Decode("a reply was expected, a call came".to_owned()))
        }
    }
}

fn exception(bytes: &[u8]) -> Result<WireError, ScanError> {
    let reply = scan::reply(bytes)?;
    let text = reply.error_message.and_then(|range| bytes.get(range)).unwrap_or_default();
    Ok(WireError::Application {
        kind: reply.error_code.unwrap_or_default(),
        text: String::from_utf8_lossy(text).into_owned(),
    })
}

/// Decodes the struct in field `wanted` of the struct at `body`.
fn decode<T: TSerializable>(bytes: &[u8], body: usize, wanted: i16) -> Result<T, WireError> {
    let mut cursor = Cursor::at_offset(bytes, body);
    while let Some((wire, id)) = cursor.field()? {
        if id == wanted {
            scan::expect_struct(wire, id)?;
            let configuration = TConfiguration::builder()
                .max_message_size(Some(bytes.len()))
                .max_frame_size(Some(bytes.len()))
                .max_string_size(Some(bytes.len()))
                .max_container_size(Some(bytes.len().min(MAX_DECODED_ITEMS)))
                .max_recursion_depth(Some(MAX_DEPTH))
                .build()?;
            let mut protocol = TBinaryInputProtocol::with_config(&bytes[cursor.at()..], true, configuration);
            return Ok(T::read_from_in_protocol(&mut protocol)?);
        }
        cursor.skip(wire, MAX_DEPTH - 1)?;
    }
    Err(ScanError::Missing(wanted).into())
}
