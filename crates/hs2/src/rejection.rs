//! Rejection of messages that are too long or malformed, or that there is no memory for.
//!
//! Only the head of such a message is read, within [`HEAD_DEADLINE`]. The response is the method's own and is sent
//! before the rest is read; a client that writes all before it reads must still find it, so the rest is discarded, at
//! most [`Limits::refused_bytes`] and for [`Limits::refused_deadline`]. After a message
//! with a length the connection continues. In all other cases, and above those limits, it ends.
//!
//! The state is in [`Refused`], so the wait is cancel safe. Nothing of the message is kept: its sender costs only the
//! time to discard it.

use std::time::Duration;

use model::error::{ErrorKind, UserError};
use tokio::time::{Instant, timeout_at};

use crate::answer::encode_refusal;
use crate::error::{WireError, no_request_memory};
use crate::framing::Framing;
use crate::limits::{Limits, MAX_METHOD_NAME_BYTES};
use crate::message::{ExceptionKind, encode_exception};
use crate::scan::{self, Header, ScanError};
use crate::wire::Wire;

/// How long to wait for the head of a message that is too long.
pub(crate) const HEAD_DEADLINE: Duration = Duration::from_secs(5);

/// The longest head: version, name, sequence number.
pub(crate) const MAX_HEAD_BYTES: usize = 12 + MAX_METHOD_NAME_BYTES;

/// The method in the response to a message without one: an empty name is not a message.
const NO_NAME: &str = "unknown";

/// The longest length that a client can announce: lengths are signed.
pub(crate) const MAX_ANNOUNCED_BYTES: usize = i32::MAX as usize;

/// A rejected message, and the remaining work on it.
pub(crate) struct Refused {
    why: WireError,
    stage: Stage,
}

enum Stage {
    /// Waiting for its head; `length` bytes were announced.
    Head { length: Option<usize>, until: Instant },
    /// Sending the response. If found again, the send was cancelled half way.
    Answering,
    /// The response was sent; this many bytes remain to be discarded.
    Rest { left: usize, until: Instant, goes_on: bool },
}

impl Refused {
    /// Rejects the message that begins with the pending bytes. `length` is the announced length, or zero if the
    /// message was taken already.
    pub(crate) fn new(why: WireError, length: Option<usize>) -> Self {
        Self { why, stage: Stage::Head { length, until: Instant::now() + HEAD_DEADLINE } }
    }

    /// The error that ends the connection.
    fn end(&mut self) -> WireError {
        self.stage = Stage::Answering;
        std::mem::replace(&mut self.why, WireError::ClosedInside)
    }

    /// Completes the rejection. Afterwards the next message may follow; an error ends the connection.
    pub(crate) async fn finish(
        &mut self,
        wire: &mut Wire,
        framing: &Framing,
        limits: &Limits,
    ) -> Result<(), WireError> {
        loop {
            match &mut self.stage {
                Stage::Head { length, until } => {
                    let (length, until) = (*length, *until);
                    let Ok(head) = timeout_at(until, head(wire, length)).await else {
                        // The peer is silent: there is nothing to respond to.
                        return Err(self.end());
                    };
                    let head = head?;
                    let answer = answer(&wire.pending, head.as_ref(), &self.why);
                    self.stage = Stage::Answering;
                    framing.write_message(wire, &answer).await?;
                    self.stage = rest(wire, length.filter(|_| head.is_some()), limits);
                }
                Stage::Rest { left, until, goes_on: true } => {
                    return timeout_at(*until, wire.skip(left)).await.unwrap_or_else(|_| Err(self.end()));
                }
                Stage::Rest { left, until, goes_on: false } => {
                    wire.part(*left, until.saturating_duration_since(Instant::now())).await;
                    return Err(self.end());
                }
                Stage::Answering => return Err(self.end()),
            }
        }
    }
}

/// The remaining work on a message that was answered; `length` is its length, if known.
fn rest(wire: &mut Wire, length: Option<usize>, limits: &Limits) -> Stage {
    let left = length.map(|length| length.saturating_sub(wire.pending.len()));
    wire.discard(length.unwrap_or(usize::MAX));
    let (most, until) = (limits.refused_bytes, Instant::now() + limits.refused_deadline);
    let goes_on = left.is_some_and(|left| left <= most);
    Stage::Rest { left: left.unwrap_or(most).min(most), until, goes_on }
}

/// The head of the message that begins with the pending bytes, if it is complete.
async fn head(wire: &mut Wire, length: Option<usize>) -> Result<Option<Header>, WireError> {
    let most = length.unwrap_or(MAX_HEAD_BYTES).min(MAX_HEAD_BYTES);
    loop {
        let there = wire.pending.len().min(most);
        match scan::header(&wire.pending[..there]) {
            Ok(header) => return Ok(Some(header)),
            Err(ScanError::Truncated { .. }) if there < most => wire.fill_to(there + 1).await?,
            Err(_) => return Ok(None),
        }
    }
}

/// The response to a message that begins with `bytes`.
pub(crate) fn refusal(bytes: &[u8], why: &WireError) -> Vec<u8> {
    answer(bytes, scan::header(bytes).ok().as_ref(), why)
}

/// The response to a message of which at most the head is known.
fn answer(bytes: &[u8], head: Option<&Header>, why: &WireError) -> Vec<u8> {
    let error = user_error(head.map(|head| head.name_in(bytes)), why);
    let Some(head) = head else {
        return encode_exception(NO_NAME, 0, ExceptionKind::ProtocolError, &error.text());
    };
    match (head.method, why) {
        (Some(method), WireError::TooLong { .. } | WireError::NoRequestMemory { .. }) => {
            encode_refusal(method, head.seqid, &error)
        }
        _ => encode_exception(head.name_in(bytes), head.seqid, ExceptionKind::ProtocolError, &error.text()),
    }
}

fn user_error(method: Option<&str>, why: &WireError) -> UserError {
    let what = method.map_or_else(|| "request".to_owned(), |name| format!("request {name}"));
    match why {
        WireError::TooLong { bytes, limit } => UserError::new(ErrorKind::ProgramLimit, format!("{what} too long"))
            .detail(format!("It has at least {bytes} bytes; the limit is {limit}."))
            .hint("Send less at a time: several statements, or a table over a file instead of values in a statement."),
        WireError::NoRequestMemory { bytes, limit, waited } => no_request_memory(*bytes, *limit, *waited),
        other => UserError::new(ErrorKind::Syntax, format!("invalid {what}")).detail(other.to_string()).hint(
            "Connect with a HiveServer2 client: SASL PLAIN, plain Thrift in the strict binary protocol, or HTTP.",
        ),
    }
}
