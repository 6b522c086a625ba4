//! The REST API below `/api/v1`: control statements as resources, for programs.
//!
//! hs2 has authenticated the client and read the whole request before it arrives here. A request passes through `admission`,
//! is routed by the table of `routes` and checked by `extract`; its operation builds a statement of the control language,
//! which `execution` runs at a metadata agent exactly like one of a session; `rows` and `collect` turn the result into JSON,
//! and `problem` every error.
//!
//! Invariants: no operation decides about rights, because metadata agents do; a statement is built as a syntax tree and
//! printed by `ddl`, so no text of a request is ever part of another statement; the document at `/api/v1/openapi.json` and
//! the routes are built from the same table.
//!
//! Reservations of programs that are no engines, and the registration of a pool's capacity, are calls of their own
//! (`reservations`, `registrations`): a metadata agent executes them without a statement.
//!
//! Actions on an engine are resources below it (`…/restart`), and no suffix of its name (`…:restart`): the router matches
//! whole segments, and names need no rule about colons.
//!
//! A request of a client that disconnects is dropped, and with it the waits of its statement; a statement that has begun at
//! a metadata agent runs to its end. A client that repeats a request with the same `Idempotency-Key` receives the first
//! outcome (`idempotency`).

pub(crate) mod admission;
mod alterations;
mod audit;
mod collect;
mod demand;
mod document;
mod engine_history;
mod engines;
mod execution;
mod extract;
mod hex;
mod idempotency;
mod link_scope;
mod master;
mod objects;
mod operation;
mod page;
mod problem;
mod quotas;
mod registrations;
mod reservation_call;
mod reservations;
mod response;
mod routes;
mod rows;
mod statements;

use std::sync::{Arc, Weak};

use async_trait::async_trait;
use axum::Router;
use axum::body::Body;
use axum::response::IntoResponse as _;
use bytes::Bytes;
use hs2::{ApiRequest, HttpApi};
use http::header::{CACHE_CONTROL, HeaderName};
use http::{HeaderValue, Request, Response};
use model::alteration::RequestId;
use model::error::{ErrorKind, UserError};
use tower::ServiceExt as _;

use crate::gateway::Gateway;
use execution::Call;
use problem::ApiError;

/// The header of each response that names the request id.
const REQUEST_ID: HeaderName = HeaderName::from_static("enginehouse-request");
/// The longest response, in bytes: rows, warnings, and what surrounds them.
const MAX_RESPONSE_BYTES: usize = collect::MAX_RESULT_BYTES + (2 << 20);

/// Serves the requests below `/api/` of one proxy.
pub(crate) struct Api {
    /// Owns this.
    gateway: Weak<Gateway>,
    router: Router,
}

impl Api {
    pub(crate) fn new(gateway: Weak<Gateway>) -> Self {
        Self { gateway, router: routes::router() }
    }

    async fn serve(&self, request: ApiRequest, id: RequestId) -> Result<axum::response::Response, ApiError> {
        let ApiRequest { principal, peer, request } = request;
        let Some(gateway) = self.gateway.upgrade() else { return Err(shutting_down().into()) };
        gateway.check_accepts_sessions().map_err(|_| shutting_down())?;
        let admitted = Arc::new(gateway.api_calls.admit(&principal.user)?);
        let client = peer.ip().to_canonical();
        let is_keyed = idempotency::is_keyed(request.headers());
        let call = Call { gateway, principal: Arc::new(principal), client, id, is_keyed, admitted };
        let mut request: Request<Body> = request.map(Body::from);
        request.extensions_mut().insert(call);
        match self.router.clone().oneshot(request).await {
            Ok(response) => Ok(response),
            Err(never) => match never {},
        }
    }
}

/// The error of a call to a proxy that drains.
fn shutting_down() -> UserError {
    UserError::new(ErrorKind::Unavailable, "the proxy is shutting down")
        .hint("Repeat the request; you will be routed to another proxy.")
}

#[async_trait]
impl HttpApi for Api {
    async fn respond(&self, request: ApiRequest) -> Response<Bytes> {
        let id = match idempotency::request_id(&request.principal.user, request.request.headers()) {
            Ok(id) => id,
            Err(error) => return buffered(ApiError::from(error).into_response(), None).await,
        };
        let response = match self.serve(request, id.clone()).await {
            Ok(response) => response,
            Err(error) => error.into_response(),
        };
        buffered(response, Some(&id)).await
    }
}

/// A response as hs2 sends it.
async fn buffered(response: axum::response::Response, id: Option<&RequestId>) -> Response<Bytes> {
    let (mut parts, body) = response.into_parts();
    let Ok(body) = axum::body::to_bytes(body, MAX_RESPONSE_BYTES).await else {
        let error = UserError::internal("the response could not be buffered");
        return hs2::http_api::problem(http::StatusCode::INTERNAL_SERVER_ERROR, &error);
    };
    parts.headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Some(id) = id.and_then(|id| HeaderValue::from_str(id.as_str()).ok()) {
        parts.headers.insert(REQUEST_ID, id);
    }
    Response::from_parts(parts, body)
}
