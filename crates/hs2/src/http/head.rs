//! The head of a request: its parser, and the checks before the body is read.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use model::error::{ErrorKind, UserError};

use super::text_response::TextResponse;
use crate::auth::{Authenticator, Credentials, Mechanism};
use crate::error::WireError;
use crate::wire::Wire;

/// The longest part of a `Host` header that a response repeats.
const MAX_SHOWN_CHARS: usize = 255;

#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) probe: Option<Probe>,
    pub(super) length: Option<usize>,
    chunked: bool,
    pub(super) expects_continue: bool,
    pub(super) credentials: Option<Credentials>,
    host: Option<String>,
    has_origin: bool,
    pub(super) last: bool,
}

/// A probe of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Probe {
    Live,
    Ready,
}

impl Probe {
    fn new(method: Option<&str>, path: Option<&str>) -> Option<Self> {
        match (method, path) {
            (Some("GET"), Some("/livez")) => Some(Self::Live),
            (Some("GET"), Some("/readyz")) => Some(Self::Ready),
            _ => None,
        }
    }

    pub(super) async fn respond(
        self,
        wire: &Wire,
        authenticator: &dyn Authenticator,
        last: bool,
    ) -> Result<(), WireError> {
        let unready = if self == Self::Ready { authenticator.unready() } else { None };
        let response = match unready {
            None => TextResponse::new("200 OK", "ok"),
            Some(reason) => TextResponse::new("503 Service Unavailable", reason),
        };
        response.send(wire, last).await
    }
}

impl Head {
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, TextResponse> {
        let text = std::str::from_utf8(bytes).map_err(|_| TextResponse::bad_request("the head is not plain text"))?;
        let mut lines = text.split("\r\n");
        let mut request = lines.next().unwrap_or_default().split(' ');
        let (method, path, version) = (request.next(), request.next(), request.next());
        if !matches!(version, Some("HTTP/1.1" | "HTTP/1.0")) {
            return Err(TextResponse::new("505 HTTP Version Not Supported", "this listener speaks HTTP/1.1"));
        }
        let probe = Probe::new(method, path);
        if method != Some("POST") && probe.is_none() {
            return Err(TextResponse::method_not_allowed());
        }
        let mut head = Self {
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
                return Err(TextResponse::bad_request("malformed header"));
            };
            let value = value.trim();
            match name.to_ascii_lowercase().as_str() {
                "content-length" => {
                    let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
                    let length = value.parse().ok().filter(|_| digits && head.length.is_none());
                    head.length = Some(length.ok_or_else(|| TextResponse::bad_request("malformed length"))?);
                }
                "transfer-encoding" if value.eq_ignore_ascii_case("chunked") => head.chunked = true,
                "transfer-encoding" => {
                    return Err(TextResponse::new("501 Not Implemented", "only chunked is supported"));
                }
                "expect" => head.expects_continue = value.eq_ignore_ascii_case("100-continue"),
                "connection" if value.eq_ignore_ascii_case("close") => head.last = true,
                "connection" if value.eq_ignore_ascii_case("keep-alive") => head.last = false,
                "host" if head.host.is_some() => return Err(TextResponse::bad_request("two Host headers")),
                "host" => head.host = Some(value.to_owned()),
                "origin" => head.has_origin = true,
                "authorization" => head.credentials = basic(value),
                _ => {}
            }
        }
        match (head.length, head.chunked) {
            (Some(_), true) => Err(TextResponse::bad_request("both a length and chunks")),
            (None, false) if probe.is_some() => Ok(Self { length: Some(0), ..head }),
            (None, false) => Err(TextResponse::new("411 Length Required", "the request has no length")),
            _ => Ok(head),
        }
    }

    /// Rejects a request that a web page of another site may have sent.
    pub(super) fn check_origin(&self, authenticator: &dyn Authenticator) -> Result<(), TextResponse> {
        if self.has_origin {
            let text = "requests of web pages are not served: the request has an Origin header";
            return Err(TextResponse::new("403 Forbidden", text));
        }
        let Some(host) = &self.host else { return Ok(()) };
        let name = name_in(host);
        if is_local(name) || authenticator.serves_host(name) {
            return Ok(());
        }
        let shown: String = host.chars().filter(|c| !c.is_control()).take(MAX_SHOWN_CHARS).collect();
        let error = UserError::new(ErrorKind::InvalidAuthorization, format!("host \"{shown}\" is not served here"))
            .hint("Connect with an IP address, or add the name to proxy.hosts.");
        Err(TextResponse::new("421 Misdirected Request", error.text()))
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
