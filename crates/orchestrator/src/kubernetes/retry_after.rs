//! A response layer that moves the header `Retry-After` into the body. `kube` keeps only the body of an error, but a server
//! that limits its clients, or a proxy before it, sends the delay in a header.

use bytes::Bytes;
use http::{Response, StatusCode, header};
use http_body_util::{Either, Full};
use serde_json::json;

/// A 429 or 5xx with the header gets a status body with its seconds; any other response is unchanged.
pub(super) fn into_body<B>(response: Response<B>) -> Response<Either<Full<Bytes>, B>> {
    let code = response.status();
    let seconds =
        response.headers().get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse::<u32>().ok());
    let is_overloaded = code == StatusCode::TOO_MANY_REQUESTS || code.is_server_error();
    match seconds.filter(|_| is_overloaded) {
        None => response.map(Either::Right),
        Some(seconds) => {
            let status = json!({"status": "Failure", "code": code.as_u16(), "reason": "TooManyRequests",
                "message": format!("server overloaded ({})", code.as_u16()),
                "details": {"retryAfterSeconds": seconds}});
            let (mut parts, _) = response.into_parts();
            // They describe the replaced body.
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
        let response = into_body(response.body(Full::new(Bytes::from("too many"))).unwrap());
        response.into_body().collect().await.unwrap().to_bytes().to_vec()
    }

    #[tokio::test]
    async fn the_seconds_of_the_header_are_in_the_body_of_an_error() {
        for code in [429, 503] {
            let status: Status = serde_json::from_slice(&body(code, Some("7")).await).unwrap();
            assert_eq!((status.code, status.details.unwrap().retry_after_seconds), (code, 7));
        }
    }

    #[tokio::test]
    async fn every_other_response_is_unchanged() {
        for (code, retry_after) in [(200, Some("7")), (404, Some("7")), (429, None), (429, Some("Wed, 21 Oct 2026"))] {
            assert_eq!(body(code, retry_after).await, b"too many", "{code} {retry_after:?}");
        }
    }
}
