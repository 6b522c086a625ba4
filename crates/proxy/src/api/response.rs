//! Successful responses.

use axum::body::Body;
use axum::response::Response;
use http::HeaderValue;
use http::header::CONTENT_TYPE;

use super::collect::Whole;
use super::operation::JSON;
use super::rows;

/// Rows with warnings and the cursor of the next page.
pub(super) fn json<'a>(rows: impl IntoIterator<Item = &'a str>, warnings: &[String], next: Option<&str>) -> Response {
    let mut response = Response::new(Body::from(rows::body(rows, warnings, next)));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
    response
}

/// A result without pages.
pub(super) fn whole(result: &Whole, warnings: &[String]) -> Response {
    json(result.rows.iter().map(String::as_str), warnings, None)
}
