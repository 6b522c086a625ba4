//! The handshake: the first frame of a connection and its answer.
//!
//! Old clients omit the last byte (`read only`); the answer to them omits it too.

use std::time::Duration;

use bytes::Bytes;

use super::jute::{DecodeError, Reader, Writer};

/// Bytes of a session's password.
pub(crate) const PASSWORD_LEN: usize = 16;
/// A session's password: a client that presents it may resume the session.
pub(crate) type Password = [u8; PASSWORD_LEN];

/// A client's request for a session.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ConnectRequest {
    /// The highest transaction id that the client has seen; a server with a lower one must not serve the client.
    pub(crate) last_zxid_seen: i64,
    /// Requested session timeout; zero if the client sent a negative one.
    pub(crate) timeout: Duration,
    /// The session to resume; 0 for a new one.
    pub(crate) session: i64,
    pub(crate) password: Bytes,
    /// Whether the client sent the read-only flag, and so expects one.
    pub(crate) knows_read_only: bool,
}

impl ConnectRequest {
    pub(crate) fn decode(frame: Bytes) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(frame);
        reader.int("protocol version")?;
        let last_zxid_seen = reader.long("last zxid seen")?;
        let timeout = Duration::from_millis(u64::try_from(reader.int("session timeout")?).unwrap_or(0));
        let session = reader.long("session id")?;
        let password = reader.buffer("session password")?.unwrap_or_default();
        let knows_read_only = !reader.is_empty();
        Ok(Self { last_zxid_seen, timeout, session, password, knows_read_only })
    }
}

/// A session as granted by the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Granted {
    pub(crate) session: i64,
    pub(crate) timeout: Duration,
    pub(crate) password: Password,
}

/// Encodes the answer; `None` means that the session has expired.
pub(crate) fn encode_answer(granted: Option<Granted>, knows_read_only: bool) -> Bytes {
    let granted = granted.unwrap_or(Granted { session: 0, timeout: Duration::ZERO, password: [0; PASSWORD_LEN] });
    let mut writer = Writer::new();
    writer.int(0);
    writer.int(granted.timeout.as_millis() as i32);
    writer.long(granted.session);
    writer.buffer(Some(&granted.password));
    if knows_read_only {
        writer.boolean(false);
    }
    writer.finish()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]

    use super::*;

    fn request(timeout_ms: i32, read_only: Option<bool>) -> Bytes {
        let mut writer = Writer::new();
        writer.int(0);
        writer.long(9);
        writer.int(timeout_ms);
        writer.long(0x1234);
        writer.buffer(Some(&[7; PASSWORD_LEN]));
        if let Some(flag) = read_only {
            writer.boolean(flag);
        }
        writer.finish().slice(4..)
    }

    #[test]
    fn a_negative_timeout_is_read_as_zero() {
        assert_eq!(ConnectRequest::decode(request(-1, None)).unwrap().timeout, Duration::ZERO);
    }

    #[test]
    fn an_old_client_is_recognized_by_the_missing_flag() {
        let old = ConnectRequest::decode(request(6_000, None)).unwrap();
        let new = ConnectRequest::decode(request(6_000, Some(true))).unwrap();
        assert!(!old.knows_read_only);
        assert!(new.knows_read_only);
        assert_eq!((old.session, old.timeout, old.last_zxid_seen), (0x1234, Duration::from_secs(6), 9));
        assert_eq!(old.password, new.password);
        let long = encode_answer(None, true);
        let short = encode_answer(None, false);
        assert_eq!((long.len(), short.len()), (41, 40));
    }
}
