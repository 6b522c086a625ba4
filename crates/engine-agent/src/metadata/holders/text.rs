//! The statements of calls in the audit. No parser reads them.

use std::fmt::Write as _;
use std::time::Duration;

use agent_api::{HolderClaim, RegistrationCall, ReservationCall, Target};
use ddl::quoted_string;
use model::resource::Resource;
use model::rights::StatementKind;
use model::span;

/// The statement whose rights a reading needs.
pub(super) const SHOW_RESERVATIONS: StatementKind = StatementKind::ShowReservations;

/// The text of a call by the user that the audit has; `None` for one that it has not.
pub(super) fn of(user: &str, call: &ReservationCall) -> Option<String> {
    let mut text = String::new();
    match call {
        ReservationCall::Reserve(ask) => {
            let _ = write!(text, "RESERVE TENANT {}", ask.tenant);
            let _ = match &ask.target {
                Target::Pool(pool) => write!(text, " POOL {pool}"),
                Target::Queue(queue) => write!(text, " QUEUE {}", quoted_string(queue)),
            };
            add(&mut text, "USER", ask.user.as_deref().unwrap_or(user));
            add(&mut text, "CREATOR", &ask.creator);
            add(&mut text, "INSTANCE", &ask.instance);
            add_resource(&mut text, Some(&ask.resource));
            add_span(&mut text, "WAIT", ask.wait_ms);
            add_span(&mut text, "TTL", ask.ttl_ms);
        }
        ReservationCall::Confirm { claim, resource, lease_ms } => {
            add_claim(&mut text, "CONFIRM", user, claim);
            add_resource(&mut text, resource.as_ref());
            add_span(&mut text, "LEASE", *lease_ms);
        }
        ReservationCall::Release { claim } => add_claim(&mut text, "RELEASE", user, claim),
        ReservationCall::Registration { pool, call: RegistrationCall::Register(register) } => {
            let _ = write!(text, "REGISTER RESOURCE POOL {pool}");
            add(&mut text, "NAME", &register.name);
            add(&mut text, "INSTANCE", &register.instance);
            if let Some(kind) = register.kind {
                add(&mut text, "RESOURCE_KIND", kind.name());
            }
            add_json(&mut text, "CAPACITY", Some(&register.capacity));
            add_json(&mut text, "PROTECTED", register.protected.as_ref());
            add_span(&mut text, "LEASE", register.lease_ms);
        }
        ReservationCall::Registration { pool, call: RegistrationCall::Unregister { instance, force } } => {
            let _ = write!(text, "UNREGISTER RESOURCE POOL {pool}");
            if let Some(instance) = instance {
                add(&mut text, "INSTANCE", instance);
            }
            if *force {
                text.push_str(" FORCE");
            }
        }
        ReservationCall::Renew { .. }
        | ReservationCall::Get { .. }
        | ReservationCall::List(_)
        | ReservationCall::Registration { call: RegistrationCall::Renew { .. } | RegistrationCall::Get, .. } => {
            return None;
        }
    }
    Some(text)
}

fn add(text: &mut String, word: &str, value: &str) {
    let _ = write!(text, " {word} {}", quoted_string(value));
}

fn add_claim(text: &mut String, verb: &str, user: &str, claim: &HolderClaim) {
    let _ = write!(text, "{verb} RESERVATION {}", quoted_string(&claim.id));
    add(text, "USER", claim.user.as_deref().unwrap_or(user));
    add(text, "INSTANCE", &claim.instance);
}

fn add_resource(text: &mut String, resource: Option<&Resource>) {
    add_json(text, "RESOURCE", resource);
}

fn add_json(text: &mut String, word: &str, resource: Option<&Resource>) {
    if let Some(json) = resource.and_then(|resource| resource.to_json().ok()) {
        add(text, word, &json);
    }
}

fn add_span(text: &mut String, word: &str, ms: Option<i64>) {
    if let Some(ms) = ms.and_then(|ms| u64::try_from(ms).ok()) {
        add(text, word, &span::print(Duration::from_millis(ms)));
    }
}
