//! Serves one request below `/api/`: receives its body and passes it to the [`HttpApi`] of the handler.

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONNECTION, CONTENT_LENGTH, COOKIE, SET_COOKIE, TRANSFER_ENCODING, UPGRADE};
use http::{Request, Response};
use hyper::body::Incoming;

use super::body::{self, BodyError};
use super::exchange::Exchange;
use super::refusal::Refusal;
use super::reply::ReplyBody;
use super::resource::Resource;
use crate::auth::Principal;
use crate::error::WireError;
use crate::http_api::{ApiRequest, HttpApi, MAX_API_BODY_BYTES};

/// `length` is that of the body; `None` if it comes in chunks.
pub(super) async fn respond(
    exchange: &Exchange,
    api: &dyn HttpApi,
    principal: Principal,
    request: Request<Incoming>,
    length: Option<usize>,
) -> Response<ReplyBody> {
    let (mut parts, mut body) = request.into_parts();
    let share = exchange.limits.request_memory.share_of(&principal.user);
    let received = body::receive(exchange, &mut body, length, MAX_API_BODY_BYTES, &share).await;
    let bytes = match received {
        // Counted as being received until here.
        Ok((bytes, _budget_guard)) => bytes,
        Err(error) => {
            let refusal = match error {
                BodyError::TooLong { limit, .. } => {
                    body::discard_long(exchange, body);
                    Refusal::too_long(limit)
                }
                BodyError::ChunksTooLong { limit } => Refusal::too_long(limit),
                BodyError::NoRequestMemory { bytes, limit, waited, .. } => {
                    body::discard_long(exchange, body);
                    Refusal::no_request_memory(bytes, limit, waited)
                }
                BodyError::Malformed => Refusal::bad_request("malformed body"),
                BodyError::Stalled(WireError::Stalled(limit)) => Refusal::too_slow(limit),
                BodyError::Stalled(error) => Refusal::too_slow(&error.to_string()),
            };
            return refusal.response(Resource::Api, true);
        }
    };
    for credentials in [AUTHORIZATION, COOKIE] {
        parts.headers.remove(credentials);
    }
    let request = Request::from_parts(parts, Bytes::from(bytes));
    exchange.set_serves_api();
    let mut response = api.respond(ApiRequest { principal, peer: exchange.client.peer, request }).await;
    for ours in [CONNECTION, CONTENT_LENGTH, SET_COOKIE, TRANSFER_ENCODING, UPGRADE] {
        response.headers_mut().remove(ours);
    }
    response.map(ReplyBody::Whole)
}
