//! The rule that a session gets one engine type: where its engines are of several types, it must name a unit.
//!
//! Dialect, tables and even results depend on the engine type, so load or chance must not choose it. Engines that should
//! run count, ready or not: otherwise the type would depend on which engine is ready first.

use std::collections::BTreeMap;

use model::engine_type::EngineType;
use model::error::{ErrorKind, UserError};
use model::name::UnitName;
use model::snapshot::ProxySnapshot;

use crate::routes::EngineSelector;

/// The most units that the error lists.
const MAX_LISTED: usize = 10;

/// Refuses a session that names no unit if its engines are of several types.
pub(super) fn check(snapshot: &ProxySnapshot, selector: &EngineSelector) -> Result<(), UserError> {
    if selector.unit.is_some() {
        return Ok(());
    }
    let links = snapshot.slots.iter().map(|slot| slot.key.link()).filter(|link| selector.matches(link));
    let mut units: BTreeMap<UnitName, EngineType> = BTreeMap::new();
    for link in links {
        if let Some(spec) = snapshot.catalog.unit(&link.unit) {
            units.insert(link.unit, spec.engine_type);
        }
    }
    let mut types = units.values();
    let first = types.next();
    if types.all(|engine_type| Some(engine_type) == first) {
        return Ok(());
    }
    let listed: Vec<String> =
        units.iter().take(MAX_LISTED).map(|(unit, engine_type)| format!("\"{unit}\" ({engine_type})")).collect();
    let more = if units.len() > MAX_LISTED { ", …" } else { "" };
    let example = units.keys().next().map(ToString::to_string).unwrap_or_default();
    Err(UserError::new(
        ErrorKind::WrongState,
        format!("tenant \"{}\" has engines of several types, and the session names no resource unit", selector.tenant),
    )
    .detail(format!("The resource units are {}{more}.", listed.join(", ")))
    .hint(format!(
        "Connect with ?enginehouse.unit={example}, or run SET enginehouse.unit={example}. An admin names the default \
         with ALTER TENANT {} DEFAULT_UNIT {}.",
        ddl::quoted_name(selector.tenant.as_str()),
        ddl::quoted_string(&example)
    )))
}
