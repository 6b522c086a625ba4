//! The reason why a session has no engine: all are full, one is starting, or none will start.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

use model::catalog::Catalog;
use model::configuration::Defaults;
use model::demand::DemandKey;
use model::error::{ErrorKind, UserError};
use model::slot::Slot;
use model::snapshot::ProxySnapshot;
use model::text::as_detail;
use model::type_selector::type_of;

use crate::gateway::Gateway;
use crate::routes::{EngineSelector, FullEngines, SessionLabels};

/// The most engine types that the error lists.
const MAX_LISTED: usize = 10;

/// Which engines are full, and why the engine that is starting is not ready yet; an error if there is neither.
/// With a key of demand, which is returned too, an engine is to be started, unless the master has found that none can ever be.
///
/// A session that is not counted as demand yet is counted by the last reading of the catalog: its engine is on its way while a
/// newer one is read for the next poll. The master plans by the metadata, so an outdated reading starts nothing.
pub(crate) async fn waiting_reason(
    gateway: &Gateway,
    selector: &EngineSelector,
    is_counted: bool,
    key: impl Fn(&ProxySnapshot, &EngineSelector) -> Option<DemandKey>,
) -> Result<(String, Option<DemandKey>), UserError> {
    let full = gateway.routes.full(selector);
    let reason = |snapshot: &ProxySnapshot, selector: &EngineSelector| {
        let reasons: Vec<String> = full.reason().into_iter().chain(starting(snapshot, selector, &full)).collect();
        (!reasons.is_empty()).then(|| with_staleness(gateway, reasons.join("; ")))
    };
    let (snapshot, defaults) = (gateway.catalog.reading().snapshot, &gateway.settings.defaults);
    match (reason(&snapshot, selector), key(&snapshot, selector)) {
        (Some(reason), None) => return Ok((reason, None)),
        (reason, Some(key)) if reason.is_some() || !is_counted => {
            if let Ok(demanded) = demanded(&snapshot, selector, &key) {
                return Ok((reason.unwrap_or(demanded), Some(key)));
            }
        }
        _ => {}
    }
    gateway.catalog.refresh().await;
    let snapshot = gateway.catalog.reading().snapshot;
    let selector = &selector.in_catalog(&snapshot.catalog, defaults);
    match (reason(&snapshot, selector), key(&snapshot, selector)) {
        // An engine that is awaited may fail for good.
        (Some(reason), Some(key)) => demanded(&snapshot, selector, &key).map(|_| (reason, Some(key))),
        (Some(reason), None) => Ok((reason, None)),
        (None, Some(key)) => demanded(&snapshot, selector, &key).map(|reason| (reason, Some(key))),
        (None, None) => Err(no_engine_error(&snapshot, defaults, selector)),
    }
}

/// Whether a unit that the session may use starts engines on demand.
pub(crate) fn starts_on_demand(catalog: &Catalog, defaults: &Defaults, selector: &EngineSelector) -> bool {
    let mut links = catalog.links().into_iter().filter(|link| selector.matches(link));
    links.any(|link| catalog.unit(&link.unit).is_some_and(|unit| unit.starts_on_demand(defaults)))
}

/// What demand waits for, as the master last reported it; an error if no engine can ever be started for it.
fn demanded(snapshot: &ProxySnapshot, selector: &EngineSelector, key: &DemandKey) -> Result<String, UserError> {
    let owner = selector.only_owner();
    let whose = |word: &str| owner.as_ref().map_or_else(String::new, |owner| format!(" {word} {owner}"));
    match snapshot.unmet.iter().find(|unmet| unmet.key == *key) {
        Some(unmet) if unmet.is_in_vain(&snapshot.catalog) => {
            let message = format!("tenant \"{}\" has no engine{}, and none can be started", key.tenant, whose("for"));
            Err(UserError::new(ErrorKind::WrongState, message)
                .detail(as_detail(&unmet.reason))
                .hint("An admin changes the resource pool, the resource unit or the quota that the detail names."))
        }
        Some(unmet) if !unmet.is_futile => Ok(format!("waiting for an engine{}: {}", whose("of"), unmet.reason)),
        // A reason that no longer holds is none.
        Some(_) | None => {
            Ok(format!("waiting for an engine{} to be started{}", whose("of"), place(snapshot, selector)))
        }
    }
}

/// Where the engine is to be started, if there is no choice.
fn place(snapshot: &ProxySnapshot, selector: &EngineSelector) -> String {
    let links = snapshot.catalog.links();
    let mut links = links.iter().filter(|link| selector.matches(link));
    match (links.next(), links.next()) {
        (Some(link), None) => format!(" in resource pool \"{}\" from resource unit \"{}\"", link.pool, link.unit),
        _ => String::new(),
    }
}

/// Adds that this proxy cannot see new engines, if it cannot: the engine may be ready already.
fn with_staleness(gateway: &Gateway, reason: String) -> String {
    match gateway.zookeeper.waiting_hint() {
        Some(hint) => format!("{reason}; {hint}"),
        None => reason,
    }
}

/// The engine that is starting, with its reason. A full engine has started.
fn starting(snapshot: &ProxySnapshot, selector: &EngineSelector, full: &FullEngines) -> Option<String> {
    let is_awaited = |slot: &&Slot| selector.matches_slot(slot) && !full.contains(&slot.engine());
    let slot = snapshot.slots.iter().find(is_awaited)?;
    let name = slot.engine();
    let reason = match snapshot.observed.iter().find(|engine| engine.name == name) {
        Some(engine) => engine.reason.clone().unwrap_or_else(|| format!("it is {}", engine.phase)),
        None => "it is not created yet".to_owned(),
    };
    Some(format!("waiting for engine \"{name}\": {reason}"))
}

fn no_engine_error(snapshot: &ProxySnapshot, defaults: &Defaults, selector: &EngineSelector) -> UserError {
    let links = snapshot.catalog.links();
    let offered = links.iter().find(|link| selector.matches(link));
    let SessionLabels { tenant, pool, unit, engine_type, sharer: _ } = &selector.labels;
    let mut scope = String::new();
    if let Some(asked) = engine_type {
        let _ = write!(scope, " of type {asked}");
    }
    if let Some(pool) = pool {
        let _ = write!(scope, " in resource pool \"{pool}\"");
    }
    if let Some(unit) = unit {
        let _ = write!(scope, " of resource unit \"{unit}\"");
    }
    if let Some(owner) = selector.only_owner() {
        let _ = write!(scope, " for {owner}");
    }
    let error = UserError::new(ErrorKind::WrongState, format!("tenant \"{tenant}\" has no engine{scope}"));
    let types = offered_types(&snapshot.catalog, defaults, selector);
    match offered {
        Some(link) => error.hint(format!(
            "To start an engine, run START ENGINE {} {} {}.",
            ddl::quoted_name(link.tenant.as_str()),
            ddl::quoted_name(link.pool.as_str()),
            ddl::quoted_name(link.unit.as_str())
        )),
        None if engine_type.is_some() && !types.is_empty() => error
            .detail(format!("Its resource units have engines of type {}.", as_list(&types)))
            .hint("Set enginehouse.engine_type to one of them, with a part of the version or without it, or to '' for any."),
        None => error.detail("The tenant uses no resource pool that offers such a resource unit.").hint(format!(
            "An admin adds one with ALTER TENANT {} RESOURCE_POOL_LIST (…).",
            ddl::quoted_name(tenant.as_str())
        )),
    }
}

/// The types of the engines that the session could use if it asked for none, each with its version if that is known.
fn offered_types(catalog: &Catalog, defaults: &Defaults, selector: &EngineSelector) -> BTreeSet<String> {
    let any = selector.of_any_type(catalog, defaults);
    let links = catalog.links().into_iter().filter(|link| any.matches(link));
    links.filter_map(|link| Some(type_of(catalog.pool(&link.pool)?, catalog.unit(&link.unit)?, defaults))).collect()
}

fn as_list(types: &BTreeSet<String>) -> String {
    let listed: Vec<&str> = types.iter().take(MAX_LISTED).map(String::as_str).collect();
    let more = if types.len() > MAX_LISTED { ", …" } else { "" };
    format!("{}{more}", listed.join(", "))
}

/// The error of a statement that waited for an engine until its deadline.
pub(crate) fn waited_too_long(waited: Duration, reason: &str) -> UserError {
    UserError::new(ErrorKind::Timeout, "no engine was ready in time")
        .detail(format!("After {} s: {reason}.", waited.as_secs()))
        .hint("SHOW ENGINES shows what each engine waits for.")
}
