//! SASL in Thrift's framing: status byte, u32 length, payload.
//!
//! With PLAIN the client sends `START` with the mechanism's name and, without waiting, `[authzid]\0user\0password` under status
//! `COMPLETE` (Java) or `OK` (Python). The response is `COMPLETE`, or `BAD` with a text that BeeLine shows. Components of an
//! installation use [`service`], clients with tickets [`gssapi`].

mod gssapi;
pub(crate) mod service;

use std::net::SocketAddr;

use model::error::{ErrorKind, UserError};
use tokio::time::{Instant, timeout_at};

use crate::auth::{Authenticator, Credentials, HttpScheme, Mechanism, Principal};
use crate::error::WireError;
use crate::limits::MAX_SASL_BYTES;
use crate::wire::Wire;

pub(crate) const START: u8 = 1;
pub(crate) const OK: u8 = 2;
pub(crate) const BAD: u8 = 3;
pub(crate) const ERROR: u8 = 4;
pub(crate) const COMPLETE: u8 = 5;

pub(crate) const PLAIN: &str = "PLAIN";

/// The longest text of a client that an error repeats.
const MAX_SHOWN_CHARS: usize = 64;

/// Why a negotiation failed.
#[derive(Debug)]
pub(crate) enum Failed {
    /// The connection failed.
    Wire(WireError),
    /// The client aborted.
    GivenUp,
    /// The client received the reason.
    Refused(UserError),
}

impl From<WireError> for Failed {
    fn from(error: WireError) -> Self {
        Self::Wire(error)
    }
}

/// The server's side, from the client's first byte; fails at `until`.
pub(crate) async fn accept(
    wire: &mut Wire,
    peer: SocketAddr,
    authenticator: &dyn Authenticator,
    until: Instant,
) -> Result<Principal, Failed> {
    let outcome = match timeout_at(until, negotiate(wire, peer, authenticator)).await {
        Ok(Err(Failed::Wire(error @ WireError::TooLong { .. }))) => {
            Err(Failed::Refused(UserError::new(ErrorKind::ProgramLimit, error.to_string())))
        }
        Ok(outcome) => outcome,
        Err(_) => Err(unfit("the SASL negotiation did not end in time")),
    };
    match &outcome {
        Ok(_) => wire.write(&[COMPLETE, 0, 0, 0, 0], &[]).await?,
        Err(Failed::Refused(error)) => {
            let text = error.text();
            wire.write(&head(BAD, text.len()), text.as_bytes()).await?;
        }
        Err(_) => {}
    }
    outcome
}

async fn negotiate(wire: &mut Wire, peer: SocketAddr, authenticator: &dyn Authenticator) -> Result<Principal, Failed> {
    let (status, mechanism) = read(wire).await?;
    if status != START {
        return Err(unfit("the SASL negotiation must begin with START"));
    }
    if mechanism == service::NAME.as_bytes() && authenticator.accepts_services() {
        return service::verify(wire, peer, authenticator).await;
    }
    let schemes = authenticator.http_schemes();
    let has_tickets = schemes.contains(&HttpScheme::Negotiate);
    if has_tickets && mechanism == gssapi::NAME.as_bytes() {
        return gssapi::accept(wire, peer, authenticator).await;
    }
    // Where no password is accepted, the login fails as one with a wrong password, unless tickets are what is needed.
    let has_passwords = schemes.contains(&HttpScheme::Basic);
    if mechanism != PLAIN.as_bytes() || (has_tickets && !has_passwords) {
        return Err(Failed::Refused(not_offered(&mechanism, has_passwords, has_tickets)));
    }
    let (status, response) = read(wire).await?;
    match status {
        OK | COMPLETE => {}
        BAD | ERROR => return Err(Failed::GivenUp),
        _ => return Err(unfit("the SASL response has an unknown status")),
    }
    let is_named = |credentials: &Credentials| !credentials.user.is_empty() || authenticator.accepts_no_user_name();
    let credentials = plain(&response).filter(is_named).ok_or_else(|| unfit("the SASL PLAIN response is malformed"))?;
    authenticator.authenticate(peer, &credentials).await.map_err(Failed::Refused)
}

/// The error for a mechanism that the server does not offer, with those that it does.
fn not_offered(mechanism: &[u8], has_passwords: bool, has_tickets: bool) -> UserError {
    let name = shown(mechanism);
    let hint = match (has_passwords, has_tickets) {
        (true, true) => "Use PLAIN: a user name and a password; or GSSAPI: a Kerberos ticket.",
        (false, true) => "Use GSSAPI: a Kerberos ticket. In a JDBC URL that is principal=hive/HOST@REALM.",
        (_, false) => "Use PLAIN: a user name and a password.",
    };
    UserError::new(ErrorKind::NotSupported, format!("SASL mechanism \"{name}\" is not supported")).hint(hint)
}

/// A text of a client, as an error repeats it.
fn shown(text: &[u8]) -> String {
    String::from_utf8_lossy(text).chars().filter(|c| !c.is_control()).take(MAX_SHOWN_CHARS).collect()
}

fn unfit(message: &str) -> Failed {
    Failed::Refused(UserError::new(ErrorKind::InvalidAuthorization, message))
}

/// Parses `[authzid]\0user\0password`. The user may be empty.
pub(crate) fn plain(response: &[u8]) -> Option<Credentials> {
    let mut parts = response.split(|byte| *byte == 0);
    let mut text = || parts.next().and_then(|part| std::str::from_utf8(part).ok()).map(str::to_owned);
    let (authzid, user, password) = (text()?, text()?, text()?);
    if parts.next().is_some() {
        return None;
    }
    Some(Credentials { mechanism: Mechanism::SaslPlain, authzid, user, password })
}

/// The first five bytes of a message of the negotiation.
pub(crate) fn head(status: u8, length: usize) -> [u8; 5] {
    let length = (length as u32).to_be_bytes();
    [status, length[0], length[1], length[2], length[3]]
}

/// One message of the negotiation.
pub(crate) async fn read(wire: &mut Wire) -> Result<(u8, Vec<u8>), WireError> {
    wire.fill_to(5).await?;
    let head = &wire.pending[..5];
    let (status, length) = (head[0], u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize);
    if length > MAX_SASL_BYTES {
        return Err(WireError::TooLong { bytes: length, limit: MAX_SASL_BYTES });
    }
    wire.fill_to(5 + length).await?;
    wire.discard(5);
    Ok((status, wire.take(length)))
}

/// The client's side: both messages in one packet.
pub(crate) fn initial(authzid: &str, user: &str, password: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(16 + PLAIN.len() + authzid.len() + user.len() + password.len());
    bytes.extend_from_slice(&head(START, PLAIN.len()));
    bytes.extend_from_slice(PLAIN.as_bytes());
    let response = [authzid.as_bytes(), user.as_bytes(), password.as_bytes()].join(&0);
    bytes.extend_from_slice(&head(COMPLETE, response.len()));
    bytes.extend_from_slice(&response);
    bytes
}
