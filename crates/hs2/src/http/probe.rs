//! The probes of a process, on the port of every role: `GET /livez` (the process responds) and `GET /readyz` (clients
//! should be sent to it, [`Authenticator::unready`]). They need no credentials and, where TLS is required, no TLS.

use http::{Method, Response, StatusCode};

use super::reply::{ReplyBody, text};
use crate::auth::Authenticator;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Probe {
    Live,
    Ready,
}

impl Probe {
    pub(super) fn new(method: &Method, path: &str) -> Option<Self> {
        match (method, path) {
            (&Method::GET, "/livez") => Some(Self::Live),
            (&Method::GET, "/readyz") => Some(Self::Ready),
            _ => None,
        }
    }

    pub(super) fn respond(self, authenticator: &dyn Authenticator) -> Response<ReplyBody> {
        let unready = if self == Self::Ready { authenticator.unready() } else { None };
        match unready {
            None => text(StatusCode::OK, "ok".to_owned()),
            Some(reason) => text(StatusCode::SERVICE_UNAVAILABLE, reason),
        }
    }
}
