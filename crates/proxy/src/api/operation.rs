//! An operation of the API: one entry of the table that the routes and the `OpenAPI` document are built from.
//!
//! Its handler and its description come from the same types: the parameters are those that the handler deserializes, and
//! the names are those in the path. What a handler accepts and what the document promises therefore cannot diverge.

use std::future::Future;

use axum::body::Body;
use axum::response::Response;
use axum::routing::{self, MethodRouter};
use http::HeaderValue;
use http::header::CONTENT_TYPE;
use serde::de::DeserializeOwned;
use utoipa::openapi::content::ContentBuilder;
use utoipa::openapi::header::HeaderBuilder;
use utoipa::openapi::path::{self, HttpMethod, OperationBuilder, ParameterBuilder, ParameterIn};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::schema::{AdditionalProperties, ArrayBuilder, ObjectBuilder, SchemaType, Type};
use utoipa::openapi::{Ref, RefOr, Required, ResponseBuilder, Schema};
use utoipa::{IntoParams, ToSchema};

use super::execution::Call;
use super::extract::{Document, Names, NoParameters, Parameters};
use super::problem::{ApiError, PROBLEM_JSON};

/// The media type of results.
pub(super) const JSON: &str = "application/json";
/// The name of the schema of a problem.
pub(super) const PROBLEM: &str = "Problem";

/// A column of a result, each of which may be null.
pub(super) type Column = (&'static str, Type);

/// What the rows of a response are.
#[derive(Clone, Copy)]
pub(super) enum Rows {
    /// These columns.
    Of(&'static [Column]),
    /// Those of the statement in the request.
    OfStatement,
    /// None: the response is one object with these members.
    One(&'static [Column]),
}

/// The description of an operation, apart from its parameters and its body.
pub(super) struct About {
    /// The name of the operation in generated clients.
    pub(super) id: &'static str,
    /// One sentence.
    pub(super) summary: &'static str,
    pub(super) rows: Rows,
    /// The statuses of success.
    pub(super) success: &'static [(u16, &'static str)],
}

pub(super) struct Operation {
    pub(super) path: &'static str,
    pub(super) method: HttpMethod,
    pub(super) handler: MethodRouter,
    pub(super) description: path::Operation,
    /// The schemas that the description refers to, by name.
    pub(super) schemas: Vec<(String, RefOr<Schema>)>,
}

impl Operation {
    /// An operation that only reads.
    pub(super) fn get<Q, F, A>(path: &'static str, about: &About, run: F) -> Self
    where
        Q: DeserializeOwned + IntoParams + Send + 'static,
        F: Fn(Call, Names, Q) -> A + Clone + Send + Sync + 'static,
        A: Future<Output = Result<Response, ApiError>> + Send + 'static,
    {
        let handler = routing::get(move |call: Call, names: Names, Parameters(query): Parameters<Q>| {
            let run = run.clone();
            async move { run(call, names, query).await }
        });
        let mut description = description(path, about);
        for parameter in Q::into_params(|| Some(ParameterIn::Query)) {
            description = description.parameter(parameter);
        }
        Self { path, method: HttpMethod::Get, handler, description: description.build(), schemas: Vec::new() }
    }

    /// An operation that may change something, with a JSON body. The body may be missing if none of its members is
    /// required.
    pub(super) fn post<B, F, A>(path: &'static str, about: &About, run: F) -> Self
    where
        B: DeserializeOwned + ToSchema + Send + 'static,
        F: Fn(Call, Names, B) -> A + Clone + Send + Sync + 'static,
        A: Future<Output = Result<Response, ApiError>> + Send + 'static,
    {
        let handler =
            routing::post(move |call: Call, names: Names, _: Parameters<NoParameters>, Document(body): Document<B>| {
                let run = run.clone();
                async move { run(call, names, body).await }
            });
        Self::with_body::<B>(path, about, HttpMethod::Post, handler)
    }

    /// An operation that creates or replaces what the path names, with a JSON body.
    pub(super) fn put<B, F, A>(path: &'static str, about: &About, run: F) -> Self
    where
        B: DeserializeOwned + ToSchema + Send + 'static,
        F: Fn(Call, Names, B) -> A + Clone + Send + Sync + 'static,
        A: Future<Output = Result<Response, ApiError>> + Send + 'static,
    {
        let handler =
            routing::put(move |call: Call, names: Names, _: Parameters<NoParameters>, Document(body): Document<B>| {
                let run = run.clone();
                async move { run(call, names, body).await }
            });
        Self::with_body::<B>(path, about, HttpMethod::Put, handler)
    }

    fn with_body<B>(path: &'static str, about: &About, method: HttpMethod, handler: MethodRouter) -> Self
    where
        B: DeserializeOwned + ToSchema,
    {
        let is_required = serde_json::from_str::<B>("{}").is_err();
        let schema = Ref::from_schema_name(B::name());
        let content = ContentBuilder::new().schema(Some(RefOr::<Schema>::Ref(schema))).build();
        let required = if is_required { Required::True } else { Required::False };
        let body = RequestBodyBuilder::new().required(Some(required)).content(JSON, content).build();
        let key = ParameterBuilder::new()
            .name("Idempotency-Key")
            .parameter_in(ParameterIn::Header)
            .required(Required::False)
            .description(Some(
                "Names the request: a repeat with the same key returns the first outcome. 1 to 255 visible ASCII \
                 characters.",
            ))
            .schema(Some(ObjectBuilder::new().schema_type(Type::String)));
        let description = description(path, about).parameter(key).request_body(Some(body)).build();
        let mut schemas = vec![(B::name().into_owned(), B::schema())];
        B::schemas(&mut schemas);
        Self { path, method, handler, description, schemas }
    }

    /// An operation that ends something, without a body.
    pub(super) fn delete<F, A>(path: &'static str, about: &About, run: F) -> Self
    where
        F: Fn(Call, Names) -> A + Clone + Send + Sync + 'static,
        A: Future<Output = Result<Response, ApiError>> + Send + 'static,
    {
        let handler = routing::delete(move |call: Call, names: Names, _: Parameters<NoParameters>| {
            let run = run.clone();
            async move { run(call, names).await }
        });
        let description = description(path, about).build();
        Self { path, method: HttpMethod::Delete, handler, description, schemas: Vec::new() }
    }

    /// As [`Self::delete`], with parameters.
    pub(super) fn delete_as<Q, F, A>(path: &'static str, about: &About, run: F) -> Self
    where
        Q: DeserializeOwned + IntoParams + Send + 'static,
        F: Fn(Call, Names, Q) -> A + Clone + Send + Sync + 'static,
        A: Future<Output = Result<Response, ApiError>> + Send + 'static,
    {
        let handler = routing::delete(move |call: Call, names: Names, Parameters(query): Parameters<Q>| {
            let run = run.clone();
            async move { run(call, names, query).await }
        });
        let mut description = description(path, about);
        for parameter in Q::into_params(|| Some(ParameterIn::Query)) {
            description = description.parameter(parameter);
        }
        Self { path, method: HttpMethod::Delete, handler, description: description.build(), schemas: Vec::new() }
    }

    /// The same operation, refused without an idempotency key.
    pub(super) fn requiring_key(mut self) -> Self {
        for parameter in self.description.parameters.iter_mut().flatten() {
            if let RefOr::T(parameter) = parameter
                && parameter.parameter_in == ParameterIn::Header
            {
                parameter.required = Required::True;
            }
        }
        self
    }

    /// The `OpenAPI` document, which is no statement.
    pub(super) fn document(path: &'static str, (id, summary): (&str, &str), text: fn() -> &'static str) -> Self {
        let handler = routing::get(move |_: Parameters<NoParameters>| async move {
            let mut response = Response::new(Body::from(text()));
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
            response
        });
        let description = OperationBuilder::new()
            .operation_id(Some(id))
            .summary(Some(summary))
            .response("200", ResponseBuilder::new().description("The document.").content(JSON, ContentBuilder::new()))
            .response("default", problem())
            .build();
        Self { path, method: HttpMethod::Get, handler, description, schemas: Vec::new() }
    }
}

/// The description without parameters of the query and without a body.
fn description(path: &str, about: &About) -> OperationBuilder {
    let mut description = OperationBuilder::new().operation_id(Some(about.id)).summary(Some(about.summary));
    for name in path.split('/').filter_map(|segment| segment.strip_prefix('{')?.strip_suffix('}')) {
        let parameter = ParameterBuilder::new()
            .name(name)
            .parameter_in(ParameterIn::Path)
            .required(Required::True)
            .description(Some(format!("The name of the {name}.")))
            .schema(Some(ObjectBuilder::new().schema_type(Type::String)));
        description = description.parameter(parameter);
    }
    for (status, text) in about.success {
        let content = ContentBuilder::new().schema(Some(result_schema(about.rows))).build();
        let mut response = ResponseBuilder::new().description(*text).content(JSON, content);
        let id = HeaderBuilder::new()
            .schema(Some(ObjectBuilder::new().schema_type(Type::String)))
            .description(Some("The request id, which SHOW AUDIT and SHOW ALTERATIONS show."));
        response = response.header("Enginehouse-Request", id.build());
        description = description.response(status.to_string(), response);
    }
    description.response("default", problem())
}

fn problem() -> ResponseBuilder {
    let content = ContentBuilder::new().schema(Some(RefOr::<Schema>::Ref(Ref::from_schema_name(PROBLEM)))).build();
    ResponseBuilder::new().description("The request was refused or failed.").content(PROBLEM_JSON, content)
}

/// The schema of a problem.
pub(super) fn problem_schema() -> Schema {
    let text = |description: &str| ObjectBuilder::new().schema_type(Type::String).description(Some(description));
    let integer = |description: &str| ObjectBuilder::new().schema_type(Type::Integer).description(Some(description));
    ObjectBuilder::new()
        .description(Some("Problem details (RFC 9457)."))
        .property("title", text("The primary message."))
        .property("status", ObjectBuilder::new().schema_type(Type::Integer).description(Some("The HTTP status.")))
        .property("sqlstate", text("The SQLSTATE: five characters."))
        .property("detail", text("More about the error."))
        .property("hint", text("What to do next."))
        .property("errorCode", integer("The code of the ledger, such as 46021; only of errors of reservations."))
        .property("code", text("The word of that code, such as TENANT_CPU."))
        .property(
            "retryable",
            ObjectBuilder::new().schema_type(Type::Boolean).description(Some("Whether the request may succeed later.")),
        )
        .property(
            "scope",
            ObjectBuilder::new()
                .description(Some("What has the limit."))
                .property("kind", text("user, creator, tenant or pool."))
                .property("name", text("Of a tenant: that of the tenant, a slash, and that of the pool.")),
        )
        .property("of", text("The counter that is short: limit, shared or unguaranteed."))
        .property("component", text("cpu, memory or engines."))
        .property("asked", integer("What the request adds, in thousandths of a core, bytes or engines."))
        .property("left", integer("What is left in the same unit; negative if the limit was lowered."))
        .property("limit", integer("The limit in the same unit."))
        .required("title")
        .required("status")
        .required("sqlstate")
        .into()
}

fn result_schema(rows: Rows) -> Schema {
    let members = |columns: &[Column]| {
        columns.iter().fold(ObjectBuilder::new(), |row, (name, of)| {
            let nullable: SchemaType = [of.clone(), Type::Null].into_iter().collect();
            row.property(*name, ObjectBuilder::new().schema_type(nullable)).required(*name)
        })
    };
    let row = match rows {
        Rows::Of(columns) => members(columns),
        Rows::OfStatement => {
            ObjectBuilder::new().additional_properties(Some(AdditionalProperties::<Schema>::FreeForm(true)))
        }
        Rows::One(columns) => return members(columns).into(),
    };
    let text_or_null: SchemaType = [Type::String, Type::Null].into_iter().collect();
    ObjectBuilder::new()
        .property("rows", ArrayBuilder::new().items(row))
        .property(
            "warnings",
            ArrayBuilder::new()
                .items(ObjectBuilder::new().schema_type(Type::String))
                .description(Some("For example that the rows are stale.")),
        )
        .property(
            "next",
            ObjectBuilder::new()
                .schema_type(text_or_null)
                .description(Some("The cursor of the next page; null on the last page, and without pages.")),
        )
        .required("rows")
        .required("warnings")
        .required("next")
        .into()
}
