//! Targets that are a client of a server.

use hs2::limits::MAX_SASL_BYTES;

use crate::server::{PASSWORD, SIGNATURE, TICKET, USER, send};

/// The statuses of SASL messages, as in Hive's `TSaslTransport`.
const START: u8 = 1;
const OK: u8 = 2;
const COMPLETE: u8 = 5;

/// A message of the SASL negotiation.
fn sasl_message(status: u8, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&[status][..], &length, payload].concat()
}

/// Whatever a client begins with: SASL, plain Thrift, HTTP, or anything else.
pub fn first_bytes(data: &[u8]) {
    send(data);
}

/// Messages of the SASL negotiation whose lengths are right: a status, one byte for the length, and so many bytes. The last one may
/// be incomplete.
pub fn sasl(data: &[u8]) {
    let (mut bytes, mut rest) = (Vec::new(), data);
    while let [status, length, payload @ ..] = rest {
        let (payload, next) = payload.split_at_checked(usize::from(*length)).unwrap_or((payload, &[]));
        bytes.extend(sasl_message(*status, payload));
        rest = next;
    }
    send(&bytes);
}

/// What a client sends after the server's random bytes, as a component of the installation. None is accepted.
pub fn service_handshake(data: &[u8]) {
    let answer = send(&[sasl_message(START, b"ENGINEHOUSE-ED25519"), sasl_message(COMPLETE, data)].concat());
    // The server's random bytes with their head, and then no message that completes the negotiation.
    let after = answer.get(5 + 32..).unwrap_or_default();
    assert_ne!(after.first(), Some(&COMPLETE), "a component without a key has logged in");
}

/// A client's choice of a security layer and its authorization id, signed, after a ticket that is accepted. Without a layer and with text
/// as its id, and only so, the client has logged in.
pub fn gssapi_layer(data: &[u8]) {
    let choice = [data, SIGNATURE].concat();
    let messages = [(START, &b"GSSAPI"[..]), (OK, TICKET), (COMPLETE, &choice)];
    let answer = send(&messages.map(|(status, payload)| sasl_message(status, payload)).concat());
    // The server's offer comes first.
    let last = answer.get(5 + 4 + SIGNATURE.len()..).unwrap_or_default().first();
    let is_fit = data.len() >= 4 && data[0] == 1 && std::str::from_utf8(&data[4..]).is_ok();
    assert_eq!(last == Some(&COMPLETE), is_fit && choice.len() <= MAX_SASL_BYTES, "{last:?}");
}

/// What a client sends after its log-in.
pub fn framing(data: &[u8]) {
    let password = [b"", USER.as_bytes(), PASSWORD.as_bytes()].join(&0);
    let answer = send(&[sasl_message(START, b"PLAIN"), sasl_message(COMPLETE, &password), data.to_vec()].concat());
    assert_eq!(answer.first(), Some(&COMPLETE), "the user has logged in");
}

/// The headers and the body of a request over HTTP.
pub fn http_request(data: &[u8]) {
    let answer = send(&[b"POST /cliservice HTTP/1.1\r\nHost: localhost\r\n", data].concat());
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 "), "{}", String::from_utf8_lossy(&answer));
}
