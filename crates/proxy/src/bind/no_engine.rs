//! The reason why a session has no engine: either one is starting, or none will start.

use std::fmt::Write as _;
use std::time::Duration;

use model::error::{ErrorKind, UserError};
use model::snapshot::ProxySnapshot;

use crate::gateway::Gateway;
use crate::routes::EngineSelector;

/// Why the engine that is starting is not ready yet; an error if none is starting.
pub(crate) async fn waiting_reason(gateway: &Gateway, selector: &EngineSelector) -> Result<String, UserError> {
    if let Some(reason) = starting(&gateway.catalog.reading().snapshot, selector) {
        return Ok(with_staleness(gateway, reason));
    }
    gateway.catalog.refresh().await;
    let snapshot = gateway.catalog.reading().snapshot;
    match starting(&snapshot, selector) {
        Some(reason) => Ok(with_staleness(gateway, reason)),
        None => Err(no_engine_error(&snapshot, selector)),
    }
}

/// Adds that this proxy cannot see new engines, if it cannot: the engine may be ready already.
fn with_staleness(gateway: &Gateway, reason: String) -> String {
    match gateway.zookeeper.waiting_hint() {
        Some(hint) => format!("{reason}; {hint}"),
        None => reason,
    }
}

/// The engine that is starting, with its reason.
fn starting(snapshot: &ProxySnapshot, selector: &EngineSelector) -> Option<String> {
    let slot = snapshot.slots.iter().find(|slot| selector.matches(&slot.key.link()))?;
    let name = slot.engine();
    let reason = match snapshot.observed.iter().find(|engine| engine.name == name) {
        Some(engine) => engine.reason.clone().unwrap_or_else(|| format!("it is {}", engine.phase)),
        None => "it is not created yet".to_owned(),
    };
    Some(format!("waiting for engine \"{name}\": {reason}"))
}

fn no_engine_error(snapshot: &ProxySnapshot, selector: &EngineSelector) -> UserError {
    let links = snapshot.catalog.links();
    let offered = links.iter().find(|link| selector.matches(link));
    let mut scope = String::new();
    if let Some(pool) = &selector.pool {
        let _ = write!(scope, " in resource pool \"{pool}\"");
    }
    if let Some(unit) = &selector.unit {
        let _ = write!(scope, " of resource unit \"{unit}\"");
    }
    let error = UserError::new(ErrorKind::WrongState, format!("tenant \"{}\" has no engine{scope}", selector.tenant));
    match offered {
        Some(link) => error.hint(format!(
            "To start an engine, run START ENGINE {} {} {}.",
            ddl::quoted_name(link.tenant.as_str()),
            ddl::quoted_name(link.pool.as_str()),
            ddl::quoted_name(link.unit.as_str())
        )),
        None => error.detail("The tenant uses no resource pool that offers such a resource unit.").hint(format!(
            "An admin adds one with ALTER TENANT {} RESOURCE_POOL_LIST (…).",
            ddl::quoted_name(selector.tenant.as_str())
        )),
    }
}

/// The error of a statement that waited for an engine until its deadline.
pub(crate) fn waited_too_long(waited: Duration, reason: &str) -> UserError {
    UserError::new(ErrorKind::Timeout, "no engine was ready in time")
        .detail(format!("After {} s: {reason}.", waited.as_secs()))
        .hint("SHOW ENGINES shows what each engine waits for.")
}
