//! Registered capacities: what a program that provides the capacity of a pool registers, and for how long.
//!
//! A pool with `CAPACITY REGISTERED` grants requests from the registration of its capacity until the lease of the registration
//! ends. One instance of one program is registered at a time. A registration changes limits, and nothing that the pool holds.
//!
//! A stale provider: the instance whose registration has ended, or was replaced by another one, can renew nothing. It must
//! register again, which fails while another instance is registered.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::scope::Scope;
use crate::clock::utc;
use crate::error::{ErrorKind, UserError};
use crate::quota::Limit;
use crate::resource::{Amount, Component, Kind, RequestPolicy, Resource, Triple};

/// A registered capacity as it is stored with its pool. The end of its lease is that of the pool's row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registration {
    /// The program.
    pub name: String,
    /// The instance of the program; no other one can register while the lease lasts.
    pub instance: String,
    /// The user who registered it.
    pub user: String,
    pub kind: Kind,
    pub capacity: Resource,
    /// What the program keeps of it for others.
    pub protected: Option<Resource>,
    /// What is offered: capacity − protected, in requests. A component that `kind` does not have is unlimited.
    pub offered: Triple<Limit>,
    pub lease_ms: i64,
    /// By the database's clock, in milliseconds since 1970.
    pub registered_at_ms: i64,
}

/// The components that a resource of this kind has.
const fn has(kind: Kind, component: Component) -> bool {
    match kind {
        Kind::Memory => matches!(component, Component::Memory),
        Kind::Cpu => matches!(component, Component::Cpu),
        Kind::Load => matches!(component, Component::Memory | Component::Cpu),
        Kind::LoadInstance | Kind::Queue | Kind::DriverAndExecutor => true,
        Kind::Special => false,
    }
}

/// What a pool with this `RESOURCE_KIND` is offered. `KIND_MISMATCH` unless `kind` and the resources are promotable to
/// that of the pool, and the resources to `kind`; 22023 if more is protected than there is.
pub fn offered(
    of_pool: Kind,
    kind: Kind,
    capacity: &Resource,
    protected: Option<&Resource>,
) -> Result<Triple<Limit>, UserError> {
    let (policy, registered) = (RequestPolicy::of(of_pool)?, RequestPolicy::of(kind)?);
    policy.accepts(kind)?;
    for resource in [Some(capacity), protected].into_iter().flatten() {
        registered.charge(resource)?;
    }
    let amount = policy.charge(capacity)?;
    let kept = protected.map(|protected| policy.charge(protected)).transpose()?.unwrap_or(Amount::ZERO);
    let exceeds = |component| has(capacity.kind(), component) && kept.get(component) > amount.get(component);
    if let Some(component) = Component::ALL.into_iter().find(|component| exceeds(*component)) {
        let [kept, amount] = [&kept, &amount].map(|amount| component.shown(amount.get(component)));
        return Err(UserError::new(ErrorKind::InvalidValue, "protected amount exceeds the capacity")
            .detail(format!("{kept} are to be protected of {amount}.")));
    }
    Ok(Triple::from_fn(|component| {
        if has(capacity.kind(), component) {
            Limit::Of(amount.get(component).saturating_sub(kept.get(component)))
        } else {
            Limit::Unlimited
        }
    }))
}

/// The state of a pool's registration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RegistrationState {
    /// Requests are granted.
    Registered,
    /// Its lease has ended; any instance may register.
    Expired,
    /// No capacity is registered.
    Unregistered,
}

impl RegistrationState {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Registered => "registered",
            Self::Expired => "expired",
            Self::Unregistered => "unregistered",
        }
    }
}

impl fmt::Display for RegistrationState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The registration of a pool at one moment, as programs read it. Times are UTC. All but the first two members are absent
/// unless a capacity is or was registered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegistrationStatus {
    pub pool: String,
    pub state: RegistrationState,
    pub name: Option<String>,
    pub instance: Option<String>,
    pub user: Option<String>,
    pub kind: Option<Kind>,
    pub capacity: Option<Resource>,
    pub protected: Option<Resource>,
    pub registered_at: Option<String>,
    /// When the lease ends or has ended.
    pub expires_at: Option<String>,
}

impl RegistrationStatus {
    pub fn unregistered(pool: impl Into<String>) -> Self {
        Self {
            pool: pool.into(),
            state: RegistrationState::Unregistered,
            name: None,
            instance: None,
            user: None,
            kind: None,
            capacity: None,
            protected: None,
            registered_at: None,
            expires_at: None,
        }
    }

    pub fn new(pool: impl Into<String>, registration: &Registration, until_ms: i64, now_ms: i64) -> Self {
        let registration = registration.clone();
        Self {
            pool: pool.into(),
            state: if until_ms > now_ms { RegistrationState::Registered } else { RegistrationState::Expired },
            name: Some(registration.name),
            instance: Some(registration.instance),
            user: Some(registration.user),
            kind: Some(registration.kind),
            capacity: Some(registration.capacity),
            protected: registration.protected,
            registered_at: Some(utc(registration.registered_at_ms)),
            expires_at: Some(utc(until_ms)),
        }
    }
}

impl Scope {
    /// When the lease of the pool's registered capacity ends; `None` if nothing is registered.
    pub const fn registered_until_ms(&self) -> Option<i64> {
        match self.role {
            super::scope::Role::Pool(row) if self.is_open && row.open_until_ms != i64::MAX => Some(row.open_until_ms),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::error::{KIND_MISMATCH, KIND_UNKNOWN};
    use crate::resource::LoadInstance;

    fn resource(json: &str) -> Resource {
        Resource::from_json(json).unwrap()
    }

    #[test]
    fn what_is_protected_is_not_offered_and_what_is_not_named_is_unlimited() {
        let load = resource(r#"{"type": "Load", "memory": "8G", "cpu": 4}"#);
        let kept = resource(r#"{"type": "Cpu", "cpu": 1}"#);
        let found = offered(Kind::DriverAndExecutor, Kind::Load, &load, Some(&kept)).unwrap();
        let expected = Triple { cpu_m: Limit::Of(3_000), memory: Limit::Of(8 << 30), engines: Limit::Unlimited };
        assert_eq!(found, expected);
        let engines = Resource::LoadInstance(LoadInstance { memory: 1, cpu_m: 2, instances: 3 });
        let found = offered(Kind::LoadInstance, Kind::LoadInstance, &engines, None).unwrap();
        assert_eq!(found, Triple { cpu_m: Limit::Of(2), memory: Limit::Of(1), engines: Limit::Of(3) });
        let found = offered(Kind::Load, Kind::Cpu, &kept, Some(&kept)).unwrap();
        assert_eq!((found.cpu_m, found.memory), (Limit::Of(0), Limit::Unlimited), "nothing is left");
    }

    #[test]
    fn other_kinds_and_a_protected_amount_above_the_capacity_are_refused() {
        let load = resource(r#"{"type": "Load", "memory": "8G", "cpu": 4}"#);
        let code = |of_pool, kind, capacity: &Resource, kept: Option<&Resource>| {
            let error = offered(of_pool, kind, capacity, kept).unwrap_err();
            assert_eq!(error.sqlstate(), "22023", "{}", error.text());
            error.error_code()
        };
        assert_eq!(code(Kind::Memory, Kind::Load, &load, None), KIND_MISMATCH, "not promotable to that of the pool");
        assert_eq!(code(Kind::Load, Kind::Cpu, &load, None), KIND_MISMATCH, "not of the kind that is registered");
        let queue = resource(r#"{"type": "Queue", "queue": "q", "memory": 1, "cpu_m": 1, "instances": 1}"#);
        assert_eq!(code(Kind::Load, Kind::Queue, &queue, None), KIND_MISMATCH);
        assert_eq!(code(Kind::Special, Kind::Load, &load, None), KIND_UNKNOWN);
        let more = resource(r#"{"type": "Cpu", "cpu": 5}"#);
        assert_eq!(code(Kind::Load, Kind::Load, &load, Some(&more)), 0);
    }

    #[test]
    fn a_status_tells_whether_the_lease_has_ended() {
        let capacity = resource(r#"{"type": "Cpu", "cpu": 4}"#);
        let registration = Registration {
            name: "provider".to_owned(),
            instance: "i-1".to_owned(),
            user: "carol".to_owned(),
            kind: Kind::Cpu,
            offered: offered(Kind::Cpu, Kind::Cpu, &capacity, None).unwrap(),
            capacity,
            protected: None,
            lease_ms: 10,
            registered_at_ms: 5,
        };
        let state = |now_ms| RegistrationStatus::new("rp_1", &registration, 15, now_ms).state;
        assert_eq!((state(14), state(15)), (RegistrationState::Registered, RegistrationState::Expired));
        let json = serde_json::to_string(&registration).unwrap();
        assert_eq!(serde_json::from_str::<Registration>(&json).unwrap(), registration);
        let none = RegistrationStatus::unregistered("rp_1");
        assert_eq!((none.state, none.expires_at), (RegistrationState::Unregistered, None));
    }
}
