//! The handshake of a session: what the client's `OpenSession` asks for, and the protocol version of the replies.

use std::collections::BTreeMap;

use hs2::tcli::{TOpenSessionReq, TProtocolVersion};
use hs2::{Message, Method, protocol};
use model::error::UserError;

use crate::session::reply::malformed;

/// A negotiated `OpenSession`.
pub(crate) struct Handshake {
    pub(crate) version: TProtocolVersion,
    /// The user and password of the request; they count over plain Thrift only.
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    /// The client's settings, not checked yet.
    pub(crate) configuration: BTreeMap<String, String>,
}

/// Decodes the request and chooses the protocol version; refuses clients that are too old.
pub(crate) fn negotiate(message: &Message) -> Result<Handshake, UserError> {
    let request: TOpenSessionReq = message.call().decode().map_err(|error| malformed(Method::OpenSession, &error))?;
    Ok(Handshake {
        version: protocol::negotiate(request.client_protocol)?,
        user: request.username,
        password: request.password,
        configuration: request.configuration.unwrap_or_default(),
    })
}
