//! Responses in plain text instead of Thrift: rejections, and the results of probes.

use model::error::{ErrorKind, UserError};

use crate::error::WireError;
use crate::tls::tls_required;
use crate::wire::Wire;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct TextResponse {
    status: &'static str,
    /// A header line of its own, with its end.
    header: &'static str,
    text: String,
}

impl TextResponse {
    pub(super) fn new(status: &'static str, text: impl Into<String>) -> Self {
        Self { status, header: "", text: text.into() }
    }

    pub(super) fn bad_request(text: &str) -> Self {
        Self::new("400 Bad Request", text)
    }

    pub(super) fn unauthorized(error: &UserError) -> Self {
        if error.kind == ErrorKind::ProgramLimit {
            return Self::new("503 Service Unavailable", error.text());
        }
        let header = "WWW-Authenticate: Basic realm=\"enginehouse\"\r\n";
        Self { status: "401 Unauthorized", header, text: error.text() }
    }

    pub(super) fn lacks_tls() -> Self {
        Self { header: "Upgrade: TLS/1.2\r\n", ..Self::new("426 Upgrade Required", tls_required().text()) }
    }

    pub(super) fn method_not_allowed() -> Self {
        let text = "this is a HiveServer2 listener: connect with a HiveServer2 client in HTTP mode";
        Self { header: "Allow: POST\r\n", ..Self::new("405 Method Not Allowed", text) }
    }

    pub(super) fn too_long(limit: usize) -> Self {
        let error = UserError::new(ErrorKind::ProgramLimit, "request too long")
            .detail(format!("The limit is {limit} bytes."))
            .hint("Send less at a time.");
        Self::new("413 Content Too Large", error.text())
    }

    /// Sends the response; `last` announces the end of the connection.
    pub(super) async fn send(&self, wire: &Wire, last: bool) -> Result<(), WireError> {
        let Self { status, header, text } = self;
        let connection = if last { "Connection: close\r\n" } else { "" };
        let length = text.len() + 1;
        let response = format!(
            "HTTP/1.1 {status}\r\n{header}Content-Type: text/plain; charset=utf-8\r\n\
             Content-Length: {length}\r\n{connection}\r\n{text}\n"
        );
        wire.write(response.as_bytes(), &[]).await
    }
}
