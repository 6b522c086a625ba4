//! What programs send, as values.

use std::time::Duration;

use model::ledger::{ReservationStatus, State};
use model::resource::{Kind, Resource};
use model::span;
use serde::Deserialize;
use serde_json::{Map, Value};

/// The key of a request: a repeat under the same key is the same request.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RequestKey(String);

impl RequestKey {
    /// A new key.
    pub fn random() -> Self {
        Self(uuid::Uuid::new_v4().simple().to_string())
    }

    /// A key that the program has stored: 1 to 255 visible ASCII characters.
    pub fn new(key: impl Into<String>) -> Option<Self> {
        let key = key.into();
        ((1..=255).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_graphic())).then_some(Self(key))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Where capacity is requested.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A resource pool.
    Pool(String),
    /// A queue, for its resource pool.
    Queue(String),
}

/// A request for a reservation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReservationRequest {
    pub tenant: String,
    pub target: Target,
    pub resource: Resource,
    /// The instance of the program.
    pub instance: String,
    /// The user that is charged; `None`: the one who logs in.
    pub user: Option<String>,
    /// The client application that is charged; `None`: `default`.
    pub creator: Option<String>,
    /// How long it may wait in the queue; `None`: it is refused if it cannot be granted.
    pub wait: Option<Duration>,
    /// The time to confirm; `None`: the default of the installation.
    pub ttl: Option<Duration>,
}

impl ReservationRequest {
    /// A request on a pool that does not wait, with the defaults of the installation.
    pub fn on_pool(
        tenant: impl Into<String>,
        pool: impl Into<String>,
        resource: Resource,
        instance: impl Into<String>,
    ) -> Self {
        Self {
            tenant: tenant.into(),
            target: Target::Pool(pool.into()),
            resource,
            instance: instance.into(),
            user: None,
            creator: None,
            wait: None,
            ttl: None,
        }
    }

    pub(crate) fn to_json(&self) -> Value {
        let mut body = Body::default();
        body.text("tenant", Some(&self.tenant));
        match &self.target {
            Target::Pool(pool) => body.text("pool", Some(pool)),
            Target::Queue(queue) => body.text("queue", Some(queue)),
        }
        body.resource("resource", Some(&self.resource));
        body.text("instance", Some(&self.instance));
        body.text("user", self.user.as_deref());
        body.text("creator", self.creator.as_deref());
        body.span("wait", self.wait);
        body.span("ttl", self.ttl);
        Value::Object(body.0)
    }
}

/// The reservation that a program holds, by which it confirms, renews and releases it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    pub id: String,
    pub pool: String,
    /// The instance that uses it.
    pub instance: String,
    /// The user that is charged; `None`: the one who logs in.
    pub user: Option<String>,
}

impl Claim {
    /// The claim of an instance to a reservation of the user who logs in.
    pub fn new(reservation: &ReservationStatus, instance: impl Into<String>) -> Self {
        Self { id: reservation.id.to_string(), pool: reservation.pool.clone(), instance: instance.into(), user: None }
    }

    pub(crate) fn to_json(&self, actual: Option<&Resource>, lease: Option<Duration>) -> Value {
        let mut body = Body::default();
        body.text("pool", Some(&self.pool));
        body.text("instance", Some(&self.instance));
        body.text("user", self.user.as_deref());
        body.resource("resource", actual);
        body.span("lease", lease);
        Value::Object(body.0)
    }
}

/// The capacity of a pool that a program provides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolCapacity {
    pub pool: String,
    /// The program.
    pub name: String,
    /// The instance of the program; no other one can register meanwhile.
    pub instance: String,
    /// A component that its kind does not have is unlimited.
    pub capacity: Resource,
    /// What of it is kept for others.
    pub protected: Option<Resource>,
    /// The kind of both; `None`: that of the pool.
    pub kind: Option<Kind>,
    /// How long it is valid without a renewal; `None`: the default of the installation.
    pub lease: Option<Duration>,
}

impl PoolCapacity {
    /// All of a capacity, of the pool's kind and with the lease of the installation.
    pub fn new(
        pool: impl Into<String>,
        name: impl Into<String>,
        instance: impl Into<String>,
        capacity: Resource,
    ) -> Self {
        let (pool, name, instance) = (pool.into(), name.into(), instance.into());
        Self { pool, name, instance, capacity, protected: None, kind: None, lease: None }
    }

    pub(crate) fn to_json(&self) -> Value {
        let mut body = Body::default();
        body.text("name", Some(&self.name));
        body.text("instance", Some(&self.instance));
        body.resource("capacity", Some(&self.capacity));
        body.resource("protected", self.protected.as_ref());
        body.text("kind", self.kind.map(Kind::name));
        body.span("lease", self.lease);
        Value::Object(body.0)
    }

    pub(crate) fn renewal(instance: &str, lease: Option<Duration>) -> Value {
        let mut body = Body::default();
        body.text("instance", Some(instance));
        body.span("lease", lease);
        Value::Object(body.0)
    }
}

/// Which reservations a list has.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ListFilter {
    pub tenant: Option<String>,
    pub pool: Option<String>,
    /// The user that is charged.
    pub user: Option<String>,
    /// `None`: those that have not ended.
    pub state: Option<State>,
    /// The most rows, 1 to 1000; `None`: 100.
    pub limit: Option<u32>,
    /// The cursor of the page, from the page before.
    pub cursor: Option<String>,
}

impl ListFilter {
    pub(crate) fn parameters(&self) -> Vec<(&'static str, String)> {
        [
            ("tenant", self.tenant.clone()),
            ("pool", self.pool.clone()),
            ("user", self.user.clone()),
            ("state", self.state.map(|state| state.to_string())),
            ("limit", self.limit.map(|limit| limit.to_string())),
            ("cursor", self.cursor.clone()),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
        .collect()
    }
}

/// A page of a list.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ReservationsPage {
    pub rows: Vec<ReservationStatus>,
    /// The cursor of the next page; `None` on the last one.
    pub next: Option<String>,
}

/// The members of a body.
#[derive(Default)]
struct Body(Map<String, Value>);

impl Body {
    fn text(&mut self, member: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.0.insert(member.to_owned(), Value::from(value));
        }
    }

    fn resource(&mut self, member: &str, resource: Option<&Resource>) {
        // A resource consists of texts and numbers, and has no error.
        if let Some(json) = resource.and_then(|resource| serde_json::to_value(resource).ok()) {
            self.0.insert(member.to_owned(), json);
        }
    }

    fn span(&mut self, member: &str, span: Option<Duration>) {
        self.text(member, span.map(span::print).as_deref());
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    #[test]
    fn a_request_has_the_members_that_are_given() {
        let resource = Resource::Load { memory: 1 << 30, cpu_m: 500 };
        let mut request = ReservationRequest::on_pool("t_1", "rp_1", resource, "i-1");
        let resource = json!({"type": "Load", "memory": 1_073_741_824_i64, "cpu_m": 500});
        let expected = json!({"tenant": "t_1", "pool": "rp_1", "instance": "i-1", "resource": resource});
        assert_eq!(request.to_json(), expected);
        request.wait = Some(Duration::from_secs(90));
        request.target = Target::Queue("root.a".to_owned());
        let json = request.to_json();
        assert_eq!((&json["wait"], &json["queue"], json.get("pool")), (&json!("90s"), &json!("root.a"), None));
    }

    #[test]
    fn a_registration_has_the_members_that_are_given() {
        let mut capacity = PoolCapacity::new("rp_1", "yarn", "i-1", Resource::Cpu { cpu_m: 4_000 });
        let cpu = json!({"type": "Cpu", "cpu_m": 4_000});
        assert_eq!(capacity.to_json(), json!({"name": "yarn", "instance": "i-1", "capacity": cpu}));
        (capacity.kind, capacity.lease) = (Some(Kind::Cpu), Some(Duration::from_secs(90)));
        capacity.protected = Some(Resource::Cpu { cpu_m: 1 });
        let json = capacity.to_json();
        assert_eq!((&json["kind"], &json["lease"]), (&json!("Cpu"), &json!("90s")));
        assert_eq!(json["protected"], json!({"type": "Cpu", "cpu_m": 1}));
        assert_eq!(PoolCapacity::renewal("i-1", None), json!({"instance": "i-1"}));
    }

    #[test]
    fn keys_are_visible_ascii() {
        assert!(RequestKey::new("nightly-2026").is_some() && RequestKey::new(RequestKey::random().as_str()).is_some());
        for bad in ["", "a b", "\u{e4}", &"k".repeat(256)] {
            assert_eq!(RequestKey::new(bad), None);
        }
    }
}
