//! The last words to a client whose message is not taken: too long, or no message at all.
//!
//! Of such a message only the head is read, within [`HEAD_DEADLINE`]; the answer is the method's own, and goes out
//! before the rest is read: a client that writes first and reads then must find its answer, so the rest is thrown away,
//! at most [`Limits::refused_bytes`](crate::Limits) and for
//! [`Limits::refused_deadline`](crate::Limits). Behind a length the connection then goes on.
//! Everywhere else, and above those limits, it ends.
//!
//! All that is left to do stands in [`Refused`], so that the wait may be dropped and begun again. Nothing of the message
//! is kept, and whoever sends it costs no more than the time to throw it away.

use std::time::Duration;

use model::error::{ErrorKind, UserError};
use tokio::time::{Instant, timeout_at};
use tracing::debug;

use crate::connection::{Connection, Framing};
use crate::error::WireError;
use crate::limits::MAX_METHOD_NAME_BYTES;
use crate::message::{ExceptionKind, encode_exception, encode_refusal};
use crate::scan::{self, Header, ScanError};
use crate::wire::Wire;

/// How long the head of a message that is too long is waited for.
const HEAD_DEADLINE: Duration = Duration::from_secs(5);

/// The longest head: version, name, sequence number.
const MAX_HEAD_BYTES: usize = 12 + MAX_METHOD_NAME_BYTES;

/// The method in the answer to what names none: an empty name is no message.
const NO_NAME: &str = "unknown";

/// No client announces more: lengths are signed. A greater one is not a length.
pub(crate) const MAX_ANNOUNCED_BYTES: usize = i32::MAX as usize;

/// A message that is not taken, and what is left to do about it.
pub(crate) struct Refused {
    why: WireError,
    stage: Stage,
}

enum Stage {
    /// Its head is waited for, `length` bytes being announced.
    Head { length: Option<usize>, until: Instant },
    /// The answer is on its way. Found again, it was given up half way.
    Answering,
    /// The answer is out; so many bytes are thrown away.
    Rest { left: usize, until: Instant, goes_on: bool },
}

impl Refused {
    /// Refuses the message that begins with what is pending. `length` is its length, where one was announced; zero if
    /// the message was taken away already.
    pub(crate) fn new(why: WireError, length: Option<usize>) -> Self {
        Self { why, stage: Stage::Head { length, until: Instant::now() + HEAD_DEADLINE } }
    }

    /// With what the connection ends.
    fn end(&mut self) -> WireError {
        self.stage = Stage::Answering;
        std::mem::replace(&mut self.why, WireError::ClosedInside)
    }
}

impl Connection {
    /// Does what is left of a refusal. Afterwards the next message may come; an error is the connection's end.
    pub(crate) async fn finish_refusal(&mut self) -> Result<(), WireError> {
        loop {
            let Some(refused) = self.refused.as_deref_mut() else { return Ok(()) };
            match &mut refused.stage {
                Stage::Head { length, until } => {
                    let (length, until) = (*length, *until);
                    let Ok(head) = timeout_at(until, head(&mut self.wire, length)).await else {
                        // Nobody speaks who could be answered.
                        return Err(refused.end());
                    };
                    let head = head?;
                    let answer = answer(&self.wire.pending, head.as_ref(), &refused.why);
                    let why = refused.why.to_string();
                    refused.stage = Stage::Answering;
                    // At debug level: a client can cause any number of these lines.
                    debug!(connection = self.id(), peer = %self.peer(), why, "request refused");
                    if let Framing::Http(exchange) = &mut self.framing {
                        exchange.end();
                    }
                    self.send(&answer).await?;
                    self.answered(length.filter(|_| head.is_some()));
                }
                Stage::Rest { left, until, goes_on: true } => {
                    let Ok(skipped) = timeout_at(*until, self.wire.skip(left)).await else {
                        return Err(refused.end());
                    };
                    self.refused = None;
                    return skipped;
                }
                Stage::Rest { left, until, goes_on: false } => {
                    self.wire.part(*left, until.saturating_duration_since(Instant::now())).await;
                    return Err(refused.end());
                }
                Stage::Answering => return Err(refused.end()),
            }
        }
    }

    /// What remains of a message whose answer is out: its rest, if its end is known.
    fn answered(&mut self, length: Option<usize>) {
        let left = length.map(|length| length.saturating_sub(self.wire.pending.len()));
        self.wire.discard(length.unwrap_or(usize::MAX));
        let (most, until) = (self.limits().refused_bytes, Instant::now() + self.limits().refused_deadline);
        let goes_on = left.is_some_and(|left| left <= most);
        if let Some(refused) = self.refused.as_deref_mut() {
            refused.stage = Stage::Rest { left: left.unwrap_or(most).min(most), until, goes_on };
        }
    }
}

/// The head of the message that begins with what is pending, if it has one.
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

/// The answer to a message of which only the head is known, or not even that.
fn answer(bytes: &[u8], head: Option<&Header>, why: &WireError) -> Vec<u8> {
    let error = user_error(head.map(|head| head.name_in(bytes)), why);
    let Some(head) = head else {
        return encode_exception(NO_NAME, 0, ExceptionKind::ProtocolError, &error.text());
    };
    match (head.method_in(bytes), why) {
        (Some(method), WireError::TooLong { .. }) => encode_refusal(method, head.seqid, &error),
        _ => encode_exception(head.name_in(bytes), head.seqid, ExceptionKind::ProtocolError, &error.text()),
    }
}

fn user_error(method: Option<&str>, why: &WireError) -> UserError {
    let what = method.map_or_else(|| "the request".to_owned(), |name| format!("the request {name}"));
    match why {
        WireError::TooLong { bytes, limit } => UserError::new(ErrorKind::ProgramLimit, format!("{what} is too long"))
            .detail(format!("it has {bytes} bytes or more, and may have {limit}"))
            .hint("send less at a time: several statements, or a table over a file instead of values in a statement"),
        other => UserError::new(ErrorKind::Syntax, format!("{what} can't be read"))
            .detail(other.to_string())
            .hint("connect with a HiveServer2 client: SASL PLAIN, plain Thrift in the strict binary protocol, or HTTP"),
    }
}
