//! Extractors: the names in the path, the query and the body of a request, with problems as rejections.

use axum::Json;
use axum::body::to_bytes;
use axum::extract::{FromRequest, FromRequestParts, Query, RawPathParams, Request};
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderMap, StatusCode};
use model::EngineName;
use model::error::{ErrorKind, UserError};
use model::name::{PoolName, QuotaName, TenantName, UnitName};
use model::text::as_detail;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use utoipa::IntoParams;

use super::problem::ApiError;

/// The names of objects in the path.
pub(super) struct Names(Vec<(String, String)>);

impl Names {
    fn get(&self, parameter: &str) -> Result<&str, UserError> {
        let found = self.0.iter().find(|(name, _)| name == parameter);
        found.map(|(_, value)| value.as_str()).ok_or_else(|| UserError::internal("the route lacks a parameter"))
    }

    pub(super) fn tenant(&self) -> Result<TenantName, UserError> {
        TenantName::new(self.get("tenant")?)
    }

    pub(super) fn pool(&self) -> Result<PoolName, UserError> {
        PoolName::new(self.get("pool")?)
    }

    pub(super) fn unit(&self) -> Result<UnitName, UserError> {
        UnitName::new(self.get("unit")?)
    }

    pub(super) fn quota(&self) -> Result<QuotaName, UserError> {
        QuotaName::new(self.get("quota")?)
    }

    /// The id of a reservation, which may be any text.
    pub(super) fn reservation(&self) -> Result<&str, UserError> {
        self.get("reservation")
    }

    pub(super) fn engine(&self) -> Result<EngineName, UserError> {
        EngineName::new(self.get("engine")?)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Names {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let found = RawPathParams::from_request_parts(parts, state).await.map_err(|rejection| {
            UserError::new(ErrorKind::InvalidName, "invalid path")
                .detail(as_detail(rejection.body_text().trim_end_matches('.')))
        })?;
        Ok(Self(found.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()))
    }
}

/// The query of a request, whose unknown parameters are refused by its type.
pub(super) struct Parameters<Q>(pub(super) Q);

impl<Q: DeserializeOwned, S: Sync> FromRequestParts<S> for Parameters<Q> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let query = Query::<Q>::try_from_uri(&parts.uri).map_err(|rejection| {
            UserError::new(ErrorKind::Syntax, "invalid query string")
                .detail(as_detail(rejection.body_text().trim_end_matches('.')))
        })?;
        Ok(Self(query.0))
    }
}

/// No parameters.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct NoParameters {}

/// The JSON body of a request. An empty body counts as an object without members.
pub(super) struct Document<B>(pub(super) B);

impl<B: DeserializeOwned, S: Sync> FromRequest<S> for Document<B> {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        let (parts, body) = request.into_parts();
        let body = to_bytes(body, hs2::http_api::MAX_API_BODY_BYTES).await.map_err(|_| {
            let error = UserError::new(ErrorKind::ProgramLimit, "request too long");
            ApiError::with_status(StatusCode::PAYLOAD_TOO_LARGE, error)
        })?;
        if !body.is_empty() && !is_json(&parts.headers) {
            let error = UserError::new(ErrorKind::NotSupported, "the body is not application/json")
                .hint("Send Content-Type: application/json.");
            return Err(ApiError::with_status(StatusCode::UNSUPPORTED_MEDIA_TYPE, error));
        }
        let body = if body.is_empty() { b"{}" } else { body.as_ref() };
        // serde would read a struct from an array, too.
        if body.iter().find(|byte| !byte.is_ascii_whitespace()).is_some_and(|byte| *byte != b'{') {
            return Err(UserError::new(ErrorKind::Syntax, "invalid request body")
                .detail("It is not a JSON object.")
                .into());
        }
        let document = Json::<B>::from_bytes(body).map_err(|rejection| {
            UserError::new(ErrorKind::Syntax, "invalid request body")
                .detail(as_detail(rejection.body_text().trim_end_matches('.')))
        })?;
        Ok(Self(document.0))
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let Some(Ok(value)) = headers.get(CONTENT_TYPE).map(http::HeaderValue::to_str) else { return false };
    let media_type = value.split(';').next().unwrap_or_default();
    media_type.trim().eq_ignore_ascii_case("application/json")
}
