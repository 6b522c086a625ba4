//! HTTP transport: one bare message per POST, Basic credentials on every request.
//!
//! It implements what impyla and the JDBC driver's HTTP mode need: HTTP/1.1 with a length or in chunks, and
//! persistent connections. A client may open a new connection for each request, so sessions are found by handle.
//!
//! The head of a request is checked before its body is read: its credentials, and whether a web page could have sent
//! it. Browsers send `Origin`, which no HiveServer2 client does, and the name in `Host`: a page whose own name was
//! pointed at this address (DNS rebinding) is rejected, because the server has another name
//! ([`Authenticator::serves_host`]).
//!
//! Two probes need no credentials: `GET /livez` (the process responds) and `GET /readyz` (clients should be sent to
//! it, [`Authenticator::unready`]).

mod chunked;
mod head;
mod text_response;

use std::net::SocketAddr;
use std::time::Duration;

use model::error::{ErrorKind, UserError};

use crate::auth::{Authenticator, Credentials, Principal};
use crate::error::WireError;
use crate::wire::{LINGER, LINGER_BYTES, Wire};
use chunked::ChunkedBody;
use head::Head;
use text_response::TextResponse;

/// The longest request line with all headers.
const MAX_HEAD_BYTES: usize = 16 * 1024;

/// The longest body of a rejected request that is read and discarded to keep the connection usable.
const MAX_DROPPED_BODY_BYTES: usize = 64 * 1024;

/// The requests of one connection.
#[derive(Debug, Default)]
pub(crate) struct Exchange {
    /// The current request, once its head was read.
    head: Option<Head>,
    /// Its body so far, if it is sent in chunks.
    chunked: ChunkedBody,
    /// The sender of the current request.
    principal: Option<Principal>,
    /// The rest of the body of a rejected request.
    dropped: usize,
    /// The client asked to close the connection after the response.
    last: bool,
    /// Only probes are served, because the connection lacks TLS.
    lacks_tls: bool,
}

impl Exchange {
    pub(crate) fn new(lacks_tls: bool) -> Self {
        Self { lacks_tls, ..Self::default() }
    }

    /// The next request's principal and message; `None` at the end. A request that cannot be served is answered here,
    /// and then the connection ends; only a body that is too long is left for a response in Thrift.
    pub(crate) async fn next(
        &mut self,
        wire: &mut Wire,
        (limit, deadline): (usize, Duration),
        peer: SocketAddr,
        authenticator: &dyn Authenticator,
    ) -> Result<Option<(Principal, Vec<u8>)>, WireError> {
        loop {
            if self.dropped > 0 {
                wire.skip(&mut self.dropped).await?;
            }
            if self.last {
                return Ok(None);
            }
            let Some(head) = self.head(wire).await? else { return Ok(None) };
            let head = match head {
                Ok(head) => head,
                Err(refusal) => return self.refuse(wire, &refusal).await,
            };
            if let Some(probe) = head.probe {
                let length = head.length.unwrap_or_default();
                wire.fill_to(length.min(MAX_DROPPED_BODY_BYTES)).await?;
                wire.discard(length);
                (self.head, self.last) = (None, head.last || length > MAX_DROPPED_BODY_BYTES);
                probe.respond(wire, authenticator, self.last).await?;
                continue;
            }
            if self.lacks_tls {
                return self.refuse(wire, &TextResponse::lacks_tls()).await;
            }
            if self.principal.is_none() {
                let authenticated = match head.check_origin(authenticator) {
                    Ok(()) => authenticate(head.credentials.as_ref(), peer, authenticator)
                        .await
                        .map_err(|error| TextResponse::unauthorized(&error)),
                    Err(refusal) => Err(refusal),
                };
                match authenticated {
                    Ok(principal) => {
                        if head.expects_continue {
                            // Also if it is too long: some clients announce that they wait and then do not.
                            wire.write(b"HTTP/1.1 100 Continue\r\n\r\n", &[]).await?;
                        }
                        wire.sent_by(&principal.user);
                        self.principal = Some(principal);
                    }
                    Err(refusal) => match head.length {
                        Some(length) if length <= MAX_DROPPED_BODY_BYTES.min(limit) && !head.expects_continue => {
                            (self.head, self.last) = (None, head.last);
                            self.dropped = length.saturating_sub(wire.pending.len());
                            wire.discard(length);
                            refusal.send(wire, self.last).await?;
                            continue;
                        }
                        _ => return self.refuse(wire, &refusal).await,
                    },
                }
            }
            let body = match self.body(wire, &head, (limit, deadline)).await? {
                Ok(body) => body,
                Err(refusal) => return self.refuse(wire, &refusal).await,
            };
            (self.head, self.last) = (None, head.last);
            return Ok(self.principal.take().map(|principal| (principal, body)));
        }
    }

    /// The last response of this connection.
    async fn refuse(
        &mut self,
        wire: &mut Wire,
        refusal: &TextResponse,
    ) -> Result<Option<(Principal, Vec<u8>)>, WireError> {
        self.last = true;
        refusal.send(wire, true).await?;
        wire.part(LINGER_BYTES, LINGER).await;
        Ok(None)
    }

    /// The next response is the last.
    pub(crate) fn end(&mut self) {
        self.last = true;
    }

    /// Reads up to the empty line.
    async fn head(&mut self, wire: &mut Wire) -> Result<Option<Result<Head, TextResponse>>, WireError> {
        if let Some(head) = &self.head {
            return Ok(Some(Ok(head.clone())));
        }
        if wire.pending.is_empty() && !wire.fill().await? {
            return Ok(None);
        }
        let end = loop {
            if let Some(end) = wire.pending.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                break end + 4;
            }
            let length = wire.pending.len();
            if length > MAX_HEAD_BYTES {
                let refusal =
                    TextResponse::new("431 Request Header Fields Too Large", "the request's head is too long");
                return Ok(Some(Err(refusal)));
            }
            wire.fill_to(length + 1).await?;
        };
        let head = Head::parse(&wire.pending[..end]);
        if let Ok(head) = &head {
            wire.discard(end);
            self.head = Some(head.clone());
        }
        Ok(Some(head))
    }

    async fn body(
        &mut self,
        wire: &mut Wire,
        head: &Head,
        (limit, deadline): (usize, Duration),
    ) -> Result<Result<Vec<u8>, TextResponse>, WireError> {
        if let Some(length) = head.length {
            if length > limit {
                // The response is in Thrift, and needs the beginning of the body.
                return Err(WireError::TooLong { bytes: length, limit });
            }
            wire.fill_request(length, length, deadline).await?;
            return Ok(Ok(wire.take(length)));
        }
        self.chunked.read(wire, limit, deadline).await
    }

    /// The bytes before a response.
    pub(crate) fn reply_head(&self, length: usize) -> Vec<u8> {
        let connection = if self.last { "Connection: close\r\n" } else { "" };
        format!("HTTP/1.1 200 OK\r\nContent-Type: application/x-thrift\r\nContent-Length: {length}\r\n{connection}\r\n")
            .into_bytes()
    }
}

async fn authenticate(
    credentials: Option<&Credentials>,
    peer: SocketAddr,
    authenticator: &dyn Authenticator,
) -> Result<Principal, UserError> {
    match credentials {
        Some(credentials) => authenticator.authenticate(peer, credentials).await,
        None => Err(UserError::new(ErrorKind::InvalidAuthorization, "the request has no Basic credentials")),
    }
}
