//! Sessions of a tenant whose engines are of several types must name a unit.
//!
//! Dialect, tables and even results depend on the engine type, so that a session must not get one by load or by chance.
//! What counts are the engines that should run, ready or not: otherwise the type would depend on which is ready first.

use std::collections::BTreeMap;

use model::engine_type::EngineType;
use model::error::{ErrorKind, UserError};
use model::name::UnitName;
use model::snapshot::ProxySnapshot;

use super::no_engine::fits;
use crate::routes::Wanted;

/// The most units that the error lists.
const MAX_LISTED: usize = 10;

/// Refuses a session without a unit if the engines that it could get are of several types.
pub(super) fn check(snapshot: &ProxySnapshot, wanted: &Wanted) -> Result<(), UserError> {
    if wanted.unit.is_some() {
        return Ok(());
    }
    let links = snapshot.slots.iter().map(|slot| slot.key.link()).filter(|link| fits(link, wanted));
    let mut units: BTreeMap<UnitName, EngineType> = BTreeMap::new();
    for link in links {
        if let Some(spec) = snapshot.catalog.unit(&link.unit) {
            units.insert(link.unit, spec.engine_type);
        }
    }
    let mut types = units.values();
    let first = types.next();
    if types.all(|it| Some(it) == first) {
        return Ok(());
    }
    let listed: Vec<String> =
        units.iter().take(MAX_LISTED).map(|(unit, engine_type)| format!("\"{unit}\" ({engine_type})")).collect();
    let more = if units.len() > MAX_LISTED { ", …" } else { "" };
    let example = units.keys().next().map(ToString::to_string).unwrap_or_default();
    Err(UserError::new(
        ErrorKind::WrongState,
        format!("tenant \"{}\" has engines of several types, and the session names no resource unit", wanted.tenant),
    )
    .detail(format!("The resource units are {}{more}.", listed.join(", ")))
    .hint(format!(
        "Connect with ?enginehouse.unit={example}, or run SET enginehouse.unit={example}. An admin names the default \
         with ALTER TENANT {} DEFAULT_UNIT {}.",
        ddl::quoted_name(wanted.tenant.as_str()),
        ddl::quoted_string(&example)
    )))
}
