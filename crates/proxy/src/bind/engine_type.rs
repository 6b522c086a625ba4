//! The rule that a session gets one engine type: where its engines are of several types, it must name one, or a unit.
//!
//! Dialect, tables and even results depend on the engine type, so load or chance must not choose it. Engines that should
//! run count, ready or not: otherwise the type would depend on which engine is ready first. Engines that are started on demand
//! are of the same type; if none should run, those that would be started count. Engines of other owners do not count.

use std::collections::BTreeMap;

use model::catalog::Catalog;
use model::configuration::Defaults;
use model::engine_type::EngineType;
use model::error::{ErrorKind, UserError};
use model::name::{PoolName, TenantName, UnitName};
use model::slot::Link;
use model::snapshot::ProxySnapshot;
use model::type_selector::TypeSelector;

use crate::routes::EngineSelector;

/// The most units that the error lists.
const MAX_LISTED: usize = 10;

/// The unit of a session that names none: the tenant's default, unless its engines are not of the type that the session asks for.
pub(super) fn default_unit<'a>(
    catalog: &'a Catalog,
    defaults: &Defaults,
    (tenant, pool): (&TenantName, Option<&PoolName>),
    asked: Option<&TypeSelector>,
) -> Option<&'a UnitName> {
    let unit = catalog.default_unit(tenant, pool)?;
    let Some(asked) = asked else { return Some(unit) };
    let spec = catalog.unit(unit)?;
    let pools = catalog.tenant(tenant)?.pools.iter().filter(|of_tenant| pool.is_none_or(|named| named == *of_tenant));
    let mut offering = pools.filter_map(|pool| catalog.pool(pool)).filter(|pool| pool.units.contains(unit));
    offering.any(|pool| asked.selects_unit(pool, spec, defaults)).then_some(unit)
}

/// Refuses a session that names no unit if its engines are of several types.
pub(super) fn check(snapshot: &ProxySnapshot, selector: &EngineSelector, defaults: &Defaults) -> Result<(), UserError> {
    of_session(snapshot, selector, defaults).map(drop)
}

/// The one type of the session's engines: of those that should run, else of those that would be started on demand. `None` for
/// a session that names a unit, or has no engine.
pub(super) fn of_session(
    snapshot: &ProxySnapshot,
    selector: &EngineSelector,
    defaults: &Defaults,
) -> Result<Option<EngineType>, UserError> {
    if selector.labels.unit.is_some() {
        return Ok(None);
    }
    let mut links: Vec<Link> =
        snapshot.slots.iter().filter(|slot| selector.matches_slot(slot)).map(|slot| slot.key.link()).collect();
    if links.is_empty() {
        let starts =
            |link: &Link| snapshot.catalog.unit(&link.unit).is_some_and(|unit| unit.starts_on_demand(defaults));
        links.extend(snapshot.catalog.links().into_iter().filter(|link| selector.matches(link) && starts(link)));
    }
    let mut units: BTreeMap<UnitName, EngineType> = BTreeMap::new();
    for link in links {
        if let Some(spec) = snapshot.catalog.unit(&link.unit) {
            units.insert(link.unit, spec.engine_type);
        }
    }
    let mut types = units.values();
    let first = types.next().copied();
    if types.all(|engine_type| Some(*engine_type) == first) {
        return Ok(first);
    }
    let listed: Vec<String> =
        units.iter().take(MAX_LISTED).map(|(unit, engine_type)| format!("\"{unit}\" ({engine_type})")).collect();
    let more = if units.len() > MAX_LISTED { ", …" } else { "" };
    let example = units.keys().next().map(ToString::to_string).unwrap_or_default();
    Err(UserError::new(
        ErrorKind::WrongState,
        format!("tenant \"{}\" has engines of several types, and the session names none of them", selector.labels.tenant),
    )
    .detail(format!("The resource units are {}{more}.", listed.join(", ")))
    .hint(format!(
        "Connect with ?enginehouse.unit={example}, or run SET enginehouse.unit={example}; enginehouse.engine_type names the \
         type alone. An admin names the default with ALTER TENANT {} DEFAULT_UNIT {}.",
        ddl::quoted_name(selector.labels.tenant.as_str()),
        ddl::quoted_string(&example)
    )))
}
