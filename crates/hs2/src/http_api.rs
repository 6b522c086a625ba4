//! The boundary between a listener and what it serves below `/api/`: requests of authenticated clients, as values.
//!
//! hs2 has checked a request before it arrives here: TLS where it is required, `Host` and `Origin`, the credentials
//! (never a cookie), the encoding and the length of the body. A request whose client disconnects is dropped at its next
//! await; what it has begun elsewhere continues.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use async_trait::async_trait;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Request, Response, StatusCode};
use model::error::UserError;
use serde::Serialize;

use crate::auth::Principal;

/// The longest body of a request below `/api/`, in bytes.
pub const MAX_API_BODY_BYTES: usize = 1024 * 1024;

const PROBLEM: HeaderValue = HeaderValue::from_static("application/problem+json");

/// A complete request of an authenticated client, without its `Authorization` and `Cookie` headers.
#[derive(Debug)]
pub struct ApiRequest {
    pub principal: Principal,
    pub peer: SocketAddr,
    pub request: Request<Bytes>,
}

/// Serves the requests below `/api/`.
#[async_trait]
pub trait HttpApi: Send + Sync + 'static {
    /// Returns the complete response to a request, within the limits of its own waits. The status is final (not 1xx).
    /// The listener decides about the length, the connection and cookies: headers for them are removed.
    async fn respond(&self, request: ApiRequest) -> Response<Bytes>;
}

/// An error as RFC 9457 defines it. Members that are absent are omitted.
#[derive(Serialize)]
struct Problem<'a, M> {
    title: &'a str,
    status: u16,
    sqlstate: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<&'a str>,
    #[serde(flatten)]
    more: Option<&'a M>,
}

/// The response to a request that failed: a problem of RFC 9457 (`application/problem+json`).
pub fn problem(status: StatusCode, error: &UserError) -> Response<Bytes> {
    problem_with(status, error, None::<&BTreeMap<&str, &str>>)
}

/// The same with more members, which are a struct or a map.
pub fn problem_with(status: StatusCode, error: &UserError, more: Option<&impl Serialize>) -> Response<Bytes> {
    let problem = Problem {
        title: &error.message,
        status: status.as_u16(),
        sqlstate: error.sqlstate(),
        detail: error.detail.as_deref(),
        hint: error.hint.as_deref(),
        more,
    };
    // A struct of texts and numbers has no error.
    let body = serde_json::to_vec(&problem).unwrap_or_default();
    let mut response = Response::new(Bytes::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, PROBLEM);
    response
}
