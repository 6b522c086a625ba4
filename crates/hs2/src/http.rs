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

use std::net::SocketAddr;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use model::error::{ErrorKind, UserError};

use crate::auth::{Authenticator, Credentials, Mechanism, Principal};
use crate::error::WireError;
use crate::wire::{LINGER, LINGER_BYTES, Wire};

/// The longest request line with all headers.
const MAX_HEAD_BYTES: usize = 16 * 1024;

/// The longest body of a rejected request that is read and discarded to keep the connection usable.
const MAX_DROPPED_BODY_BYTES: usize = 64 * 1024;

/// The longest line before a chunk.
const MAX_CHUNK_LINE_BYTES: usize = 64;

/// The longest part of a `Host` header that a response repeats.
const MAX_SHOWN_CHARS: usize = 255;

/// The requests of one connection.
#[derive(Debug, Default)]
pub(crate) struct Exchange {
    /// The current request, once its head was read.
    head: Option<Head>,
    /// Its body so far, if it is sent in chunks.
    chunks: Vec<u8>,
    /// The sender of the current request.
    principal: Option<Principal>,
    /// The rest of the body of a rejected request.
    dropped: usize,
    /// The client asked to close the connection after the response.
    last: bool,
}

#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
#[derive(Debug, Clone, PartialEq, Eq)]
struct Head {
    probe: Option<Probe>,
    length: Option<usize>,
    chunked: bool,
    expects_continue: bool,
    credentials: Option<Credentials>,
    host: Option<String>,
    has_origin: bool,
    last: bool,
}

/// A probe of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Probe {
    Live,
    Ready,
}

impl Probe {
    fn asked(method: Option<&str>, path: Option<&str>) -> Option<Self> {
        match (method, path) {
            (Some("GET"), Some("/livez")) => Some(Self::Live),
            (Some("GET"), Some("/readyz")) => Some(Self::Ready),
            _ => None,
        }
    }

    async fn answer(self, wire: &Wire, authenticator: &dyn Authenticator, last: bool) -> Result<(), WireError> {
        let unready = if self == Self::Ready { authenticator.unready() } else { None };
        let answer = match unready {
            None => InWords::new("200 OK", "ok"),
            Some(why) => InWords::new("503 Service Unavailable", why),
        };
        say(wire, &answer, last).await
    }
}

/// A response in plain text instead of Thrift: a rejection or the result of a probe.
#[derive(Debug, PartialEq, Eq)]
struct InWords {
    status: &'static str,
    header: &'static str,
    text: String,
    /// The request's length, if it exceeds the limit: the beginning of its body determines the response in Thrift.
    too_long: Option<usize>,
}

impl InWords {
    fn new(status: &'static str, text: impl Into<String>) -> Self {
        Self { status, header: "", text: text.into(), too_long: None }
    }

    fn unauthorized(error: &UserError) -> Self {
        if error.kind == ErrorKind::ProgramLimit {
            return Self::new("503 Service Unavailable", error.text());
        }
        Self {
            status: "401 Unauthorized",
            header: "WWW-Authenticate: Basic realm=\"enginehouse\"\r\n",
            text: error.text(),
            too_long: None,
        }
    }

    fn too_long(limit: usize) -> Self {
        let error = UserError::new(ErrorKind::ProgramLimit, "request too long")
            .detail(format!("The limit is {limit} bytes."))
            .hint("Send less at a time.");
        Self::new("413 Content Too Large", error.text())
    }
}

impl Exchange {
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
                probe.answer(wire, authenticator, self.last).await?;
                continue;
            }
            if self.principal.is_none() {
                let judged = match foreign(&head, authenticator) {
                    Some(refusal) => Err(refusal),
                    None => authenticate(head.credentials.as_ref(), peer, authenticator)
                        .await
                        .map_err(|error| InWords::unauthorized(&error)),
                };
                match judged {
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
                            say(wire, &refusal, self.last).await?;
                            continue;
                        }
                        _ => return self.refuse(wire, &refusal).await,
                    },
                }
            }
            let body = match self.body(wire, &head, (limit, deadline)).await? {
                Ok(body) => body,
                // The beginning of the body is needed for a response in Thrift.
                Err(InWords { too_long: Some(bytes), .. }) => return Err(WireError::TooLong { bytes, limit }),
                Err(refusal) => return self.refuse(wire, &refusal).await,
            };
            (self.head, self.last) = (None, head.last);
            return Ok(self.principal.take().map(|principal| (principal, body)));
        }
    }

    /// The last response of this connection.
    async fn refuse(&mut self, wire: &mut Wire, refusal: &InWords) -> Result<Option<(Principal, Vec<u8>)>, WireError> {
        self.last = true;
        say(wire, refusal, true).await?;
        wire.part(LINGER_BYTES, LINGER).await;
        Ok(None)
    }

    /// The next response is the last.
    pub(crate) fn end(&mut self) {
        self.last = true;
    }

    /// Reads up to the empty line.
    async fn head(&mut self, wire: &mut Wire) -> Result<Option<Result<Head, InWords>>, WireError> {
        if let Some(head) = &self.head {
            return Ok(Some(Ok(head.clone())));
        }
        if wire.pending.is_empty() && !wire.fill().await? {
            return Ok(None);
        }
        let end = loop {
            if let Some(end) = find(&wire.pending, b"\r\n\r\n") {
                break end + 4;
            }
            let length = wire.pending.len();
            if length > MAX_HEAD_BYTES {
                let refusal = InWords::new("431 Request Header Fields Too Large", "the request's head is too long");
                return Ok(Some(Err(refusal)));
            }
            wire.fill_to(length + 1).await?;
        };
        let head = parse(&wire.pending[..end]);
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
    ) -> Result<Result<Vec<u8>, InWords>, WireError> {
        if let Some(length) = head.length {
            if length > limit {
                return Ok(Err(InWords { too_long: Some(length), ..InWords::too_long(limit) }));
            }
            wire.fill_request(length, length, deadline).await?;
            return Ok(Ok(wire.take(length)));
        }
        loop {
            // Takes all chunks that have arrived, and then removes them at once: chunks of one byte cost no more
            // copies than others.
            let mut at = 0;
            let wanted = loop {
                match chunk(&wire.pending[at..]) {
                    Ok(Chunk { data, .. }) if data.len() > limit.saturating_sub(self.chunks.len()) => {
                        return Ok(Err(InWords::too_long(limit)));
                    }
                    Ok(Chunk { end, .. }) if wire.pending.len() - at < end => break end,
                    Ok(Chunk { data, end }) => {
                        let last = data.is_empty();
                        self.chunks.extend_from_slice(&wire.pending[at + data.start..at + data.end]);
                        at += end;
                        if last {
                            wire.discard(at);
                            return Ok(Ok(std::mem::take(&mut self.chunks)));
                        }
                    }
                    Err(Unfinished::Line) => break wire.pending.len() - at + 1,
                    Err(Unfinished::Malformed) => {
                        return Ok(Err(InWords::new("400 Bad Request", "malformed chunk")));
                    }
                }
            };
            // A chunk is taken whole or not at all, so that the wait is cancel safe.
            wire.discard_some(at);
            wire.fill_growing(wanted, self.chunks.len() + wanted, limit, deadline).await?;
        }
    }

    /// The bytes before a response.
    pub(crate) fn reply_head(&self, length: usize) -> Vec<u8> {
        let connection = if self.last { "Connection: close\r\n" } else { "" };
        format!("HTTP/1.1 200 OK\r\nContent-Type: application/x-thrift\r\nContent-Length: {length}\r\n{connection}\r\n")
            .into_bytes()
    }
}

/// The range of a chunk's data, and the chunk's end, from its first byte.
struct Chunk {
    data: std::ops::Range<usize>,
    end: usize,
}

/// Why the line before a chunk cannot be parsed.
enum Unfinished {
    /// It is incomplete.
    Line,
    /// It is invalid.
    Malformed,
}

/// Parses the line before a chunk. The chunk's data need not have arrived.
fn chunk(bytes: &[u8]) -> Result<Chunk, Unfinished> {
    let line = match find(&bytes[..bytes.len().min(MAX_CHUNK_LINE_BYTES + 2)], b"\r\n") {
        Some(end) => &bytes[..end],
        None if bytes.len() > MAX_CHUNK_LINE_BYTES => return Err(Unfinished::Malformed),
        None => return Err(Unfinished::Line),
    };
    let digits = line.split(|byte| *byte == b';').next().unwrap_or_default();
    let size = std::str::from_utf8(digits).ok().and_then(|digits| usize::from_str_radix(digits.trim(), 16).ok());
    let start = line.len() + 2;
    let data_end = size.and_then(|size| start.checked_add(size)).ok_or(Unfinished::Malformed)?;
    let end = data_end.checked_add(2).ok_or(Unfinished::Malformed)?;
    Ok(Chunk { data: start..data_end, end })
}

/// The rejection of a request that a web page of another site may have sent.
fn foreign(head: &Head, authenticator: &dyn Authenticator) -> Option<InWords> {
    if head.has_origin {
        let text = "requests of web pages are not served: the request has an Origin header";
        return Some(InWords::new("403 Forbidden", text));
    }
    let host = head.host.as_deref()?;
    let name = name_in(host);
    if is_local(name) || authenticator.serves_host(name) {
        return None;
    }
    let shown: String = host.chars().filter(|c| !c.is_control()).take(MAX_SHOWN_CHARS).collect();
    let error = UserError::new(ErrorKind::InvalidAuthorization, format!("host \"{shown}\" is not served here"))
        .hint("Connect with an IP address, or add the name to proxy.hosts.");
    Some(InWords::new("421 Misdirected Request", error.text()))
}

/// The name or address in a `Host` header, without its port.
fn name_in(host: &str) -> &str {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name)
}

/// Whether no other site can have this name: an address, or one of this machine's own names.
fn is_local(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name);
    name.parse::<std::net::IpAddr>().is_ok()
        || name.eq_ignore_ascii_case("localhost")
        || rustix::system::uname().nodename().to_str().is_ok_and(|own| name.eq_ignore_ascii_case(own))
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

async fn say(wire: &Wire, refusal: &InWords, last: bool) -> Result<(), WireError> {
    let InWords { status, header, text, .. } = refusal;
    let connection = if last { "Connection: close\r\n" } else { "" };
    let length = text.len() + 1;
    let answer = format!(
        "HTTP/1.1 {status}\r\n{header}Content-Type: text/plain; charset=utf-8\r\n\
         Content-Length: {length}\r\n{connection}\r\n{text}\n"
    );
    wire.write(answer.as_bytes(), &[]).await
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

fn parse(bytes: &[u8]) -> Result<Head, InWords> {
    let text = std::str::from_utf8(bytes).map_err(|_| InWords::new("400 Bad Request", "the head is not plain text"))?;
    let mut lines = text.split("\r\n");
    let mut request = lines.next().unwrap_or_default().split(' ');
    let (method, path, version) = (request.next(), request.next(), request.next());
    if !matches!(version, Some("HTTP/1.1" | "HTTP/1.0")) {
        return Err(InWords::new("505 HTTP Version Not Supported", "this listener speaks HTTP/1.1"));
    }
    let probe = Probe::asked(method, path);
    if method != Some("POST") && probe.is_none() {
        return Err(InWords {
            status: "405 Method Not Allowed",
            header: "Allow: POST\r\n",
            text: "this is a HiveServer2 listener: connect with a HiveServer2 client in HTTP mode".to_owned(),
            too_long: None,
        });
    }
    let mut head = Head {
        probe,
        length: None,
        chunked: false,
        expects_continue: false,
        credentials: None,
        host: None,
        has_origin: false,
        last: version == Some("HTTP/1.0"),
    };
    for line in lines.filter(|line| !line.is_empty()) {
        let Some((name, value)) = line.split_once(':') else {
            return Err(InWords::new("400 Bad Request", "malformed header"));
        };
        let value = value.trim();
        match name.to_ascii_lowercase().as_str() {
            "content-length" => {
                let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
                let length = value.parse().ok().filter(|_| digits && head.length.is_none());
                head.length = Some(length.ok_or_else(|| InWords::new("400 Bad Request", "malformed length"))?);
            }
            "transfer-encoding" if value.eq_ignore_ascii_case("chunked") => head.chunked = true,
            "transfer-encoding" => return Err(InWords::new("501 Not Implemented", "only chunked is supported")),
            "expect" => head.expects_continue = value.eq_ignore_ascii_case("100-continue"),
            "connection" if value.eq_ignore_ascii_case("close") => head.last = true,
            "connection" if value.eq_ignore_ascii_case("keep-alive") => head.last = false,
            "host" if head.host.is_some() => return Err(InWords::new("400 Bad Request", "two Host headers")),
            "host" => head.host = Some(value.to_owned()),
            "origin" => head.has_origin = true,
            "authorization" => head.credentials = basic(value),
            _ => {}
        }
    }
    match (head.length, head.chunked) {
        (Some(_), true) => Err(InWords::new("400 Bad Request", "both a length and chunks")),
        (None, false) if probe.is_some() => Ok(Head { length: Some(0), ..head }),
        (None, false) => Err(InWords::new("411 Length Required", "the request has no length")),
        _ => Ok(head),
    }
}

/// Parses `Basic base64(user:password)`.
fn basic(value: &str) -> Option<Credentials> {
    let (scheme, token) = value.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let pair = String::from_utf8(STANDARD.decode(token.trim()).ok()?).ok()?;
    let (user, password) = pair.split_once(':')?;
    if user.is_empty() {
        return None;
    }
    Some(Credentials {
        mechanism: Mechanism::HttpBasic,
        authzid: String::new(),
        user: user.to_owned(),
        password: password.to_owned(),
    })
}
