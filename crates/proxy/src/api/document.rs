//! The `OpenAPI` document of a table of operations.

use utoipa::openapi::path::PathsBuilder;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{ComponentsBuilder, InfoBuilder, OpenApiBuilder, PathItem};

use super::operation::{Operation, PROBLEM, problem_schema};

/// The version of the API, the one in its path.
const VERSION: &str = "1";
/// The names of the schemes of authentication, of which an installation has at least one.
const BASIC: &str = "basic";
const BEARER: &str = "bearer";

/// The document as JSON.
pub(super) fn text(operations: Vec<Operation>) -> String {
    let mut paths = PathsBuilder::new();
    let mut components = ComponentsBuilder::new().schema(PROBLEM, problem_schema());
    for operation in operations {
        paths = paths.path(operation.path, PathItem::new(operation.method, operation.description));
        components = components.schemas_from_iter(operation.schemas);
    }
    let basic = SecurityScheme::Http(Http::new(HttpAuthScheme::Basic));
    let bearer = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
    let about = "Control statements as resources, and POST /api/v1/statements for any of them.";
    let document = OpenApiBuilder::new()
        .info(InfoBuilder::new().title("Enginehouse").version(VERSION).description(Some(about)))
        .paths(paths)
        .components(Some(components.security_scheme(BASIC, basic).security_scheme(BEARER, bearer).build()))
        .security(Some([BASIC, BEARER].map(|scheme| SecurityRequirement::new(scheme, Vec::<String>::new()))))
        .build();
    let mut text = serde_json::to_string_pretty(&document).unwrap_or_default();
    text.push('\n');
    text
}
