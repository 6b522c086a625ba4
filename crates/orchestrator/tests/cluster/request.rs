//! A parsed request to the API server.

use serde_json::Value;

use super::reply::{Reply, error};

pub struct Request {
    pub method: String,
    pub path: String,
    pub query: Vec<(String, String)>,
    pub resource: String,
    pub namespace: String,
    pub name: String,
    /// Whether the reply has the object's metadata only.
    pub is_of_metadata: bool,
    pub body: Value,
}

impl Request {
    pub async fn read(request: http::Request<kube::client::Body>) -> Self {
        let (parts, body) = request.into_parts();
        let bytes = body.collect_bytes().await.unwrap();
        let path = parts.uri.path().to_owned();
        let query = form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes()).into_owned().collect();
        // /api/v1/… or /apis/<group>/<version>/…
        let mut words: Vec<&str> = path.split('/').skip(if path.starts_with("/apis/") { 4 } else { 3 }).collect();
        let mut namespace = String::new();
        if words.len() > 2 && words[0] == "namespaces" {
            words[1].clone_into(&mut namespace);
            words.drain(..2);
        }
        let accepted = parts.headers.get(http::header::ACCEPT).map_or("", |accepted| accepted.to_str().unwrap());
        Self {
            is_of_metadata: accepted.starts_with("application/json;as=PartialObjectMetadata;"),
            method: parts.method.to_string(),
            resource: words[0].to_owned(),
            name: words.get(1).copied().unwrap_or_default().to_owned(),
            namespace,
            query,
            body: serde_json::from_slice(&bytes).unwrap_or_default(),
            path,
        }
    }

    /// Method and path, for display and for faults.
    pub fn line(&self) -> String {
        format!("{} {}", self.method, self.path)
    }

    pub fn key(&self) -> (String, String, String) {
        (self.resource.clone(), self.namespace.clone(), self.name.clone())
    }

    pub fn is_watch(&self) -> bool {
        self.param("watch") == Some("true")
    }

    pub fn is_list(&self) -> bool {
        self.method == "GET" && self.name.is_empty()
    }

    pub fn permission(&self) -> String {
        let verb = match (self.method.as_str(), self.is_list()) {
            ("GET", true) => "list",
            ("GET", false) => "get",
            ("POST", _) => "create",
            ("PUT", _) => "update",
            ("PATCH", _) => "patch",
            _ => "delete",
        };
        format!("{verb} {}", self.resource)
    }

    pub fn param(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Whether it selects an object of its resource: by namespace, labels and fields.
    pub fn selects(&self, namespace: &str, object: &Value) -> bool {
        let labels = self.param("labelSelector").unwrap_or_default();
        let bears = |requirement: &str| {
            if let Some((label, values)) = requirement.split_once(" in (") {
                let value = object["metadata"]["labels"][label].as_str();
                return value.is_some_and(|value| values.trim_end_matches(')').split(',').any(|one| one == value));
            }
            let (label, value) = requirement.split_once('=').unwrap();
            object["metadata"]["labels"][label] == value
        };
        let fields = self.param("fieldSelector").unwrap_or_default();
        let has = |pair: &str| {
            let (field, value) = pair.split_once('=').unwrap();
            let found = field.split('.').fold(object, |object, part| &object[part]);
            found == value
        };
        (self.namespace.is_empty() || self.namespace == namespace)
            && requirements(labels).into_iter().all(bears)
            && fields.split(',').filter(|pair| !pair.is_empty()).all(has)
    }

    pub fn not_found(&self) -> Reply {
        error(404, "NotFound", &format!("{} \"{}\" not found", self.resource, self.name))
    }
}

/// The requirements of a label selector, which commas separate outside of parentheses.
fn requirements(selector: &str) -> Vec<&str> {
    let mut depth = 0;
    let parts = selector.split(|c: char| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        c == ',' && depth == 0
    });
    parts.filter(|part| !part.is_empty()).collect()
}
