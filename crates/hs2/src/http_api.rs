//! The boundary between a listener and what it serves below `/api/`: requests of authenticated clients, as values.
//!
//! hs2 has checked a request before it arrives here: TLS where it is required, `Host` and `Origin`, the credentials
//! (never a cookie), the encoding and the length of the body. A request whose client disconnects is dropped at its next
//! await; what it has begun elsewhere continues.

use std::net::SocketAddr;

use async_trait::async_trait;
use bytes::Bytes;
use http::{Request, Response};

use crate::auth::Principal;

/// The longest body of a request below `/api/`, in bytes.
pub const MAX_API_BODY_BYTES: usize = 1024 * 1024;

/// A complete request of an authenticated client.
#[derive(Debug)]
pub struct ApiRequest {
    pub principal: Principal,
    pub peer: SocketAddr,
    pub request: Request<Bytes>,
}

/// Serves the requests below `/api/`.
#[async_trait]
pub trait HttpApi: Send + Sync + 'static {
    /// Returns the complete response to a request, within the limits of its own waits.
    async fn respond(&self, request: ApiRequest) -> Response<Bytes>;
}
