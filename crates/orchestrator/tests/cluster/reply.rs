//! Replies, including the streams of watches.

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use serde_json::{Value, json};

use super::Cluster;
use super::request::Request;

pub type Body = UnsyncBoxBody<Bytes, std::io::Error>;

pub struct Reply {
    code: u16,
    body: Value,
}

impl Reply {
    pub fn done(body: Value) -> Self {
        Self { code: 200, body }
    }

    /// A status with its code.
    pub fn failed(status: Value) -> Self {
        Self { code: status["code"].as_u64().unwrap() as u16, body: status }
    }
}

pub fn error(code: u16, reason: &str, message: &str) -> Reply {
    Reply::failed(status(code, reason, message))
}

/// A status in the format of the API server.
pub fn status(code: u16, reason: &str, message: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message})
}

pub fn of(reply: &Reply) -> http::Response<Body> {
    let body = Full::new(Bytes::from(reply.body.to_string())).map_err(|never| match never {}).boxed_unsync();
    http::Response::builder().status(reply.code).header("content-type", "application/json").body(body).unwrap()
}

/// The events of the resource since the given version, for as long as the client listens.
pub fn watch(cluster: Cluster, request: Request) -> http::Response<Body> {
    let from: u64 = request.param("resourceVersion").and_then(|version| version.parse().ok()).unwrap_or(0);
    let (compacted, breaks) = {
        let state = cluster.lock();
        (state.compacted, state.broken_watches)
    };
    if from < compacted {
        let expired = json!({"type": "ERROR", "object": status(410, "Expired", "too old resource version")});
        let body = Full::new(Bytes::from(format!("{expired}\n"))).map_err(|never| match never {}).boxed_unsync();
        return http::Response::builder().status(200).body(body).unwrap();
    }
    let versions = cluster.version.subscribe();
    let events = futures::stream::unfold(
        (cluster, request, versions, from),
        move |(cluster, request, mut versions, from)| async move {
            loop {
                let (lines, upto, is_cut) = {
                    let state = cluster.lock();
                    let new = state.history.iter().filter(|(version, resource, event)| {
                        *version > from && *resource == request.resource && selects(&request, event)
                    });
                    let lines = new.map(|(_, _, event)| format!("{event}\n")).collect::<Vec<_>>().concat();
                    (lines, state.version, state.broken_watches != breaks)
                };
                if is_cut {
                    return None;
                }
                if !lines.is_empty() {
                    let frame = http_body::Frame::data(Bytes::from(lines));
                    return Some((Ok(frame), (cluster, request, versions, upto)));
                }
                versions.changed().await.ok()?;
            }
        },
    );
    http::Response::builder().status(200).body(StreamBody::new(events).boxed_unsync()).unwrap()
}

fn selects(request: &Request, event: &Value) -> bool {
    let object = &event["object"];
    request.selects(object["metadata"]["namespace"].as_str().unwrap_or_default(), object)
}
