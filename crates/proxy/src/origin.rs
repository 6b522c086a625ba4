//! The origin of a call as the log has it: a span with the number of the connection and the client's address.
//!
//! A span is allocated and formatted, which calls that poll or fetch do without: they enter one only when they have something to say.

use hs2::{Connection, Message, Method};
use tracing::{Span, info_span};

/// The span of a connection's call.
pub(crate) fn span(connection: &Connection) -> Span {
    info_span!("connection", id = connection.id(), peer = %connection.peer())
}

/// The same, or none for a call that polls or fetches.
pub(crate) fn span_of_call(connection: &Connection, message: &Message) -> Span {
    match message.method() {
        Some(Method::GetOperationStatus | Method::FetchResults) => Span::none(),
        _ => span(connection),
    }
}
