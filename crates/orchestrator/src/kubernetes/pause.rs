//! The header `Retry-After`, brought to where the client reads: kube keeps the body of an error only, and a server that
//! limits its callers, or a proxy before it, says in a header for how long it wants to be left alone.

use bytes::Bytes;
use http::{Response, StatusCode, header};
use http_body_util::{Either, Full};
use serde_json::json;

/// The answer with the header's seconds in a body that the client understands; any other answer as it is.
pub(super) fn told<B>(response: Response<B>) -> Response<Either<Full<Bytes>, B>> {
    let code = response.status();
    let seconds =
        response.headers().get(header::RETRY_AFTER).and_then(|it| it.to_str().ok()?.trim().parse::<u32>().ok());
    let is_busy = code == StatusCode::TOO_MANY_REQUESTS || code.is_server_error();
    match seconds.filter(|_| is_busy) {
        None => response.map(Either::Right),
        Some(seconds) => {
            let status = json!({"status": "Failure", "code": code.as_u16(), "reason": "TooManyRequests",
                "message": format!("the server is busy ({})", code.as_u16()), "details": {"retryAfterSeconds": seconds}});
            let (mut parts, _) = response.into_parts();
            // They were about the body that is gone.
            parts.headers.remove(header::CONTENT_LENGTH);
            parts.headers.remove(header::CONTENT_ENCODING);
            Response::from_parts(parts, Either::Left(Full::new(Bytes::from(status.to_string()))))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt as _;
    use kube::core::Status;

    async fn body(code: u16, retry_after: Option<&str>) -> Vec<u8> {
        let mut response = Response::builder().status(code);
        if let Some(seconds) = retry_after {
            response = response.header("Retry-After", seconds);
        }
        let told = told(response.body(Full::new(Bytes::from("too many"))).unwrap());
        told.into_body().collect().await.unwrap().to_bytes().to_vec()
    }

    #[tokio::test]
    async fn the_seconds_of_the_header_are_in_the_body_of_a_refusal() {
        for code in [429, 503] {
            let status: Status = serde_json::from_slice(&body(code, Some("7")).await).unwrap();
            assert_eq!((status.code, status.details.unwrap().retry_after_seconds), (code, 7));
        }
    }

    #[tokio::test]
    async fn every_other_answer_stays_as_it_is() {
        for (code, retry_after) in [(200, Some("7")), (404, Some("7")), (429, None), (429, Some("Wed, 21 Oct 2026"))] {
            assert_eq!(body(code, retry_after).await, b"too many", "{code} {retry_after:?}");
        }
    }
}
