//! Serves one request: a probe, a call for the handler of the connection, a request below `/api/`, or a rejection.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use tokio::time::timeout_at;
use tracing::debug;

use super::api;
use super::authorization;
use super::body::{self, BodyError};
use super::cookie::{self, THRIFT};
use super::exchange::{Exchange, Framing};
use super::refusal::{Refusal, close_after};
use super::reply::ReplyBody;
use super::request::{Admitted, RequestHead};
use super::resource::Resource;
use crate::auth::Principal;
use crate::byte_budget::BudgetGuard;
use crate::error::WireError;
use crate::message::Message;
use crate::rejection::{HEAD_DEADLINE, MAX_HEAD_BYTES, refusal};
use crate::scan::{self, MessageKind, ScanError};
use crate::tls::log::Mismatch;

/// The longest body of a rejected request that is discarded to keep the connection usable.
const MAX_DROPPED_BODY_BYTES: usize = 64 * 1024;

/// How long discarding it may take.
const DROPPED_BODY_DEADLINE: Duration = Duration::from_mins(1);

/// An error ends the connection without a response.
pub(super) async fn serve(
    exchange: Arc<Exchange>,
    request: Request<Incoming>,
    framing: Framing,
) -> Result<Response<ReplyBody>, WireError> {
    exchange.serving();
    let mut response = respond(&exchange, request, framing).await;
    if let Ok(response) = &mut response {
        authorization::challenge(&*exchange.client.authenticator, response);
    }
    exchange.served(response.as_ref().map_or(true, |response| response.headers().contains_key(CONNECTION)));
    response
}

async fn respond(
    exchange: &Arc<Exchange>,
    request: Request<Incoming>,
    framing: Framing,
) -> Result<Response<ReplyBody>, WireError> {
    let (parts, mut body) = request.into_parts();
    let client = &exchange.client;
    let resource = Resource::new(&parts.method, parts.uri.path());
    let is_framed_so = match framing {
        Framing::Length(length) => body.size_hint().exact() == Some(length),
        Framing::Chunks => body.size_hint().exact().is_none(),
        Framing::Ambiguous => false,
        Framing::InvalidTarget => {
            return Ok(Refusal::bad_request("the path of the request has a fragment").response(resource, true));
        }
    };
    if !is_framed_so {
        return Ok(Refusal::bad_request("the length of the request is ambiguous").response(resource, true));
    }
    if let Some(log) = client.lacks_tls.as_ref().filter(|_| !matches!(resource, Resource::Probe(_))) {
        log.note(client.peer, Mismatch::LacksTls, &"");
        return Ok(Refusal::lacks_tls().response(resource, true));
    }
    let head = match RequestHead::new(&parts, resource) {
        Ok(head) => head,
        Err(refusal) => return Ok(refusal.response(resource, true)),
    };
    if let Resource::Probe(probe) = resource {
        let goes_on = discard_short(exchange, &head, body);
        let mut response = probe.respond(&*client.authenticator);
        if !goes_on {
            close_after(&mut response);
        }
        return Ok(response);
    }
    let admission = head.admit(client);
    let admitted = if exchange.is_known() {
        admission.await
    } else {
        match timeout_at(client.unknown_until, admission).await {
            Ok(admitted) => admitted,
            // Drivers repeat a request whose connection closes without a response.
            Err(_) => return Ok(Refusal::late_login().response(resource, true)),
        }
    };
    let Admitted { principal, proof_of_server } = match admitted {
        Ok(admitted) => admitted,
        Err(refusal) => return Ok(refusal.response(resource, !discard_short(exchange, &head, body))),
    };
    exchange.authenticated();
    if resource.has_problems() {
        let Some(api) = client.api.as_ref().filter(|_| resource == Resource::Api) else {
            return Ok(Refusal::not_found().response(resource, !discard_short(exchange, &head, body)));
        };
        let request = Request::from_parts(parts, body);
        let mut response = api::respond(exchange, &**api, principal, request, head.length).await;
        response.headers_mut().extend(proof_of_server.map(|proof| (WWW_AUTHENTICATE, proof)));
        return Ok(response);
    }
    let share = exchange.limits.request_memory.share_of(&principal.user);
    match body::receive(exchange, &mut body, head.length, exchange.limits.frame_bytes, &share).await {
        Ok((bytes, budget_guard)) => {
            let login = head.earns_cookie().then(|| principal.clone());
            let mut response = call(exchange, principal, bytes, budget_guard).await?;
            response.headers_mut().extend(proof_of_server.map(|proof| (WWW_AUTHENTICATE, proof)));
            if let Some(principal) = login {
                cookie::set(client, &principal, &mut response);
            }
            Ok(response)
        }
        Err(BodyError::Stalled(error)) => Err(error),
        Err(BodyError::Malformed) => Ok(Refusal::bad_request("malformed body").response(resource, true)),
        Err(BodyError::ChunksTooLong { limit }) => Ok(Refusal::too_long(limit).response(resource, true)),
        Err(BodyError::NoRequestMemory { begun, bytes, limit, waited }) => {
            Ok(refuse_unread(exchange, begun, body, &WireError::NoRequestMemory { bytes, limit, waited }).await)
        }
        Err(BodyError::TooLong { bytes, limit }) => {
            Ok(refuse_unread(exchange, Vec::new(), body, &WireError::TooLong { bytes, limit }).await)
        }
    }
}

/// Rejects a call, of whose message at most the beginning was read, in Thrift.
async fn refuse_unread(
    exchange: &Exchange,
    begun: Vec<u8>,
    mut body: Incoming,
    error: &WireError,
) -> Response<ReplyBody> {
    let head = body::receive_head(&mut body, begun, HEAD_DEADLINE, |head| {
        head.len() >= MAX_HEAD_BYTES || !matches!(scan::header(head), Err(ScanError::Truncated { .. }))
    });
    let head = head.await;
    body::discard_long(exchange, body);
    refuse(exchange, &head, error)
}

/// Discards a short body of a request that is answered from its head. `false` if the connection must end instead.
fn discard_short(exchange: &Exchange, head: &RequestHead, body: Incoming) -> bool {
    let (most, stall) = (MAX_DROPPED_BODY_BYTES.min(exchange.limits.frame_bytes), exchange.limits.stall);
    match head.length {
        Some(0) => true,
        Some(length) if length <= most && !head.expects_continue => {
            exchange.discard(Box::pin(body::discard(body, length, DROPPED_BODY_DEADLINE, stall)));
            true
        }
        _ => false,
    }
}

/// Passes a call to the handler of the connection. The head of the response is sent when the reply begins.
async fn call(
    exchange: &Arc<Exchange>,
    principal: Principal,
    bytes: Vec<u8>,
    budget_guard: BudgetGuard,
) -> Result<Response<ReplyBody>, WireError> {
    // A message that cannot be parsed has no head to answer to.
    let message = match Message::new(bytes) {
        Ok(message) => message,
        Err(error) => return Ok(refuse(exchange, &[], &error.into())),
    };
    if message.header().kind == MessageKind::OneWay {
        // A one-way call must not be answered, and no method of the protocol is one-way.
        return Err(WireError::Decode("a one-way call".to_owned()));
    }
    let reply = exchange.call(principal, message, budget_guard);
    // Dropped together with the handler of the connection.
    let left = reply.await.map_err(|_| WireError::ClosedInside)?;
    Ok(thrift(ReplyBody::Delivered { exchange: Arc::clone(exchange), left }))
}

/// Rejects a call in Thrift; the connection ends.
fn refuse(exchange: &Exchange, head: &[u8], error: &WireError) -> Response<ReplyBody> {
    // At debug level: a client can cause any number of these lines.
    debug!(peer = %exchange.client.peer, why = %error, "request refused");
    let mut response = thrift(ReplyBody::Whole(Bytes::from(refusal(head, error))));
    close_after(&mut response);
    response
}

fn thrift(body: ReplyBody) -> Response<ReplyBody> {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, THRIFT);
    response
}
