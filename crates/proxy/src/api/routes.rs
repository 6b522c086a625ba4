//! The table of all operations, and what is built from it: the router and the `OpenAPI` document.

use std::sync::LazyLock;

use axum::Router;

use super::operation::Operation;
use super::{
    alterations, audit, demand, document, engine_history, engines, master, objects, problem, quotas, registrations,
    reservations, statements,
};

/// The document that the API serves.
static DOCUMENT: LazyLock<String> = LazyLock::new(|| document::text(operations()));

/// Every operation.
pub(super) fn operations() -> Vec<Operation> {
    let about = ("getOpenApi", "Returns this document.");
    let mut operations = vec![Operation::document("/api/v1/openapi.json", about, || DOCUMENT.as_str())];
    operations.extend(objects::operations());
    operations.push(quotas::operation());
    operations.extend(engines::operations());
    operations.push(demand::operation());
    operations.push(engine_history::operation());
    operations.extend(reservations::operations());
    operations.extend(registrations::operations());
    operations.extend([alterations::operation(), audit::operation(), master::operation(), statements::operation()]);
    operations
}

pub(super) fn router() -> Router {
    let routes = operations().into_iter().fold(Router::new(), |router, operation| {
        // Operations of one path are merged.
        router.route(operation.path, operation.handler)
    });
    routes.fallback(problem::unknown_path).method_not_allowed_fallback(problem::other_method)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;
    use utoipa::openapi::HttpMethod;

    /// `UPDATE_PAGES=1 cargo test --workspace --lib openapi` writes the file.
    #[test]
    fn docs_openapi_json_is_the_document_of_the_routes() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
        if std::env::var_os("UPDATE_PAGES").is_some() {
            std::fs::write(&file, DOCUMENT.as_str()).unwrap();
        }
        let committed = std::fs::read_to_string(&file).unwrap();
        assert!(committed == *DOCUMENT, "docs/openapi.json differs from the routes: UPDATE_PAGES=1 writes it");
    }

    #[test]
    fn the_page_lists_every_operation_and_no_other() {
        let page = include_str!("../../../../docs/rest.md");
        let (_, section) = page.split_once("\n## Operations\n").unwrap();
        let (section, _) = section.split_once("\n## ").unwrap();
        let rows = section.lines().filter(|line| line.starts_with("| `"));
        let listed: BTreeSet<String> = rows
            .flat_map(|line| line.split('`').skip(1).step_by(2))
            .filter(|word| ["GET ", "POST ", "PUT ", "DELETE "].iter().any(|method| word.starts_with(method)))
            .map(str::to_owned)
            .collect();
        let method = |method: &HttpMethod| match method {
            HttpMethod::Get => "GET",
            HttpMethod::Delete => "DELETE",
            HttpMethod::Put => "PUT",
            _ => "POST",
        };
        let path = |path: &'static str| path.strip_prefix("/api/v1").unwrap();
        let known = operations();
        let known = known.iter().map(|operation| format!("{} {}", method(&operation.method), path(operation.path)));
        assert_eq!(listed, known.collect());
    }

    #[test]
    fn the_document_has_every_operation_once_and_no_other() {
        let parsed: serde_json::Value = serde_json::from_str(&DOCUMENT).unwrap();
        let mut documented: Vec<(String, String, String)> = Vec::new();
        for (path, item) in parsed["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                let id = operation["operationId"].as_str().unwrap().to_owned();
                documented.push((path.clone(), method.clone(), id));
            }
        }
        let mut ids: Vec<&String> = documented.iter().map(|(_, _, id)| id).collect();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), documented.len(), "an operationId stands twice");
        assert_eq!(documented.len(), operations().len());
        assert_eq!(parsed["openapi"], "3.1.0");
    }
}
