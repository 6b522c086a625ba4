//! SHOW ENGINES: desired and observed state. A desired engine without an instance is *pending*, with a reason; one that
//! terminates is listed until it has ended.

use std::time::Duration;

use ddl::EngineScope;
use hs2::{SqlType, Value};
use metadata::{ObservedRow, Overview};
use model::catalog::UnitSpec;
use model::clock::utc;
use model::configuration::Configuration;
use model::engine_name::EngineName;
use model::engine_state::EngineState;
use model::error::UserError;
use model::labels;
use model::name::TenantName;
use model::observation::ObservedEngine;
use model::owner::Owner;
use model::rights::StatementKind;
use model::slot::{Origin, Slot, SlotKey};

use super::freshness::{Freshness, log_freshness};
use super::{foreign, idle};
use crate::metadata::answer::{Answer, maybe, number, text};
use crate::metadata::context::Context;
use crate::metadata::starting;

const COLUMNS: [(&str, SqlType); 15] = [
    ("tenant", SqlType::String),
    ("pool", SqlType::String),
    ("unit", SqlType::String),
    ("engine", SqlType::String),
    ("state", SqlType::String),
    ("config", SqlType::String),
    ("current", SqlType::Boolean),
    ("origin", SqlType::String),
    ("owner", SqlType::String),
    ("sessions", SqlType::BigInt),
    ("seats", SqlType::BigInt),
    ("running", SqlType::BigInt),
    ("address", SqlType::String),
    ("started_at", SqlType::String),
    ("reason", SqlType::String),
];

/// One engine as SHOW prints it.
pub(in crate::metadata) struct EngineRow {
    pub(in crate::metadata) slot: SlotKey,
    pub(in crate::metadata) name: EngineName,
    pub(in crate::metadata) state: EngineState,
    pub(in crate::metadata) config: Option<String>,
    pub(in crate::metadata) current: bool,
    /// `None` if the slot is gone.
    pub(in crate::metadata) origin: Option<Origin>,
    /// Whose sessions it serves; `None`: the tenant's, or the slot is gone.
    pub(in crate::metadata) owner: Option<Owner>,
    pub(in crate::metadata) sessions: Option<u32>,
    /// How many may be open at once; `None` if its unit is gone.
    pub(in crate::metadata) seats: Option<u32>,
    pub(in crate::metadata) running: Option<u32>,
    pub(in crate::metadata) address: Option<String>,
    pub(in crate::metadata) started_at: Option<String>,
    pub(in crate::metadata) reason: Option<String>,
}

pub(in crate::metadata) async fn show(context: &Context, scope: &EngineScope) -> Result<Answer, UserError> {
    let tenant = tenant_of(scope);
    let overview = context.store().overview(Some(tenant)).await.map_err(|error| error.user_error())?;
    context.require_right_in(&overview.snapshot.catalog, tenant)?;
    refuse_unknown(context, &overview, scope)?;
    let mut answer = Answer::new(&COLUMNS);
    for row in rows(context, &overview, |key| within(scope, key)) {
        answer.row(values(row));
    }
    let master = &overview.snapshot.master;
    for row in foreign::rows(context, scope, &overview.snapshot.catalog, &master.cluster_warnings) {
        answer.row(row);
    }
    foreign::log_missing(context, master);
    log_freshness(context, &freshness(context, &overview), &overview.snapshot.master).await;
    Ok(answer)
}

fn tenant_of(scope: &EngineScope) -> &TenantName {
    match scope {
        EngineScope::Tenant(tenant) | EngineScope::Pool(tenant, _) | EngineScope::Unit(tenant, _, _) => tenant,
    }
}

fn within(scope: &EngineScope, key: &SlotKey) -> bool {
    match scope {
        EngineScope::Tenant(tenant) => key.tenant == *tenant,
        EngineScope::Pool(tenant, pool) => key.tenant == *tenant && key.pool == *pool,
        EngineScope::Unit(tenant, pool, unit) => key.tenant == *tenant && key.pool == *pool && key.unit == *unit,
    }
}

/// A name that does not exist is an error, not an empty result.
fn refuse_unknown(context: &Context, overview: &Overview, scope: &EngineScope) -> Result<(), UserError> {
    let catalog = &overview.snapshot.catalog;
    let (tenant, pool, unit) = match scope {
        EngineScope::Tenant(tenant) => (tenant, None, None),
        EngineScope::Pool(tenant, pool) => (tenant, Some(pool), None),
        EngineScope::Unit(tenant, pool, unit) => (tenant, Some(pool), Some(unit)),
    };
    if catalog.tenant(tenant).is_none() {
        return Err(metadata::user_error::no_tenant(tenant));
    }
    let sees_all = context.subject.may_in_any(StatementKind::ShowObjects);
    if let Some(pool) = pool.filter(|pool| sees_all && catalog.pool(pool).is_none()) {
        return Err(metadata::user_error::no_pool(pool));
    }
    match unit.filter(|unit| sees_all && catalog.unit(unit).is_none()) {
        Some(unit) => Err(metadata::user_error::no_unit(unit)),
        None => Ok(()),
    }
}

pub(in crate::metadata) fn freshness(context: &Context, overview: &Overview) -> Freshness {
    let snapshot = &overview.snapshot;
    Freshness::new(&snapshot.master, snapshot.now_ms, context.agent.settings.tick_interval)
}

/// The engines in the order of their slots, the current one of each first.
pub(in crate::metadata) fn rows(
    context: &Context,
    overview: &Overview,
    reaches: impl Fn(&SlotKey) -> bool,
) -> Vec<EngineRow> {
    let (freshness, lacks) = (freshness(context, overview), context.proxy_lacks.as_deref());
    let snapshot = &overview.snapshot;
    let seen = |name: &EngineName| overview.observed.iter().find(|row| row.engine.name == *name);
    let defaults = &context.agent.settings.rules.defaults;
    let configuration = |key: &SlotKey| {
        Configuration::from_slot(&snapshot.catalog, key, defaults).map(|configuration| configuration.sizes())
    };
    let mut rows = Vec::new();
    for slot in snapshot.slots.iter().filter(|slot| reaches(&slot.key)) {
        let name = slot.engine();
        rows.push(row(&slot.key, name.clone(), (true, Some(slot)), seen(&name), configuration(&slot.key)));
    }
    let is_present = |name: &EngineName| snapshot.slots.iter().any(|slot| slot.engine() == *name);
    for engine in &snapshot.engines {
        let ends = engine.ended_at_ms.is_none() && engine.uid.is_some();
        if reaches(&engine.slot) && !is_present(&engine.name) && (ends || seen(&engine.name).is_some()) {
            let slot = snapshot.slots.iter().find(|slot| slot.key == engine.slot && slot.owns(engine.incarnation));
            let slot = slot.map(AsRef::as_ref);
            rows.push(row(&engine.slot, engine.name.clone(), (false, slot), seen(&engine.name), None));
        }
    }
    let start_deadline = context.agent.settings.start_deadline;
    for row in &mut rows {
        row.seats = snapshot.catalog.unit(&row.slot.unit).map(UnitSpec::seats);
        let added = seen(&row.name).and_then(|observed| {
            let slot = snapshot.slots.iter().find(|slot| row.current && slot.key == row.slot);
            let idle = || idle::reason(&observed.engine, slot?, &snapshot.catalog, defaults, snapshot.now_ms);
            starting::progress(&observed.engine, snapshot.now_ms, start_deadline, Duration::from_secs(1)).or_else(idle)
        });
        if let Some(added) = added {
            row.reason = Some(row.reason.take().map_or(added.clone(), |reason| format!("{reason}; {added}")));
        }
        row.state = freshness.shown(row.state);
        row.reason = freshness.added_to(row.reason.take(), lacks);
    }
    rows.sort_by(|a, b| (&a.slot, !a.current, &a.name).cmp(&(&b.slot, !b.current, &b.name)));
    rows
}

fn row(
    key: &SlotKey,
    name: EngineName,
    (current, slot): (bool, Option<&Slot>),
    seen: Option<&ObservedRow>,
    desired: Option<String>,
) -> EngineRow {
    let engine = seen.map(|row| &row.engine);
    let state = engine.map_or(EngineState::Pending, ObservedEngine::state);
    let nothing_seen = || (engine.is_none()).then(|| "not observed by the master yet".to_owned());
    EngineRow {
        slot: key.clone(),
        name,
        state,
        config: engine.and_then(|engine| engine.labels.get(labels::UNIT_CONFIGS).cloned()).or(desired),
        current,
        origin: slot.map(|slot| slot.origin),
        owner: slot.and_then(|slot| slot.owner.clone()),
        sessions: engine.and_then(|engine| engine.sessions),
        seats: None,
        running: engine.and_then(|engine| engine.running),
        address: engine.and_then(|engine| engine.address.clone()),
        started_at: engine.and_then(|engine| engine.started_at_ms).map(utc),
        reason: engine.and_then(|engine| engine.reason.clone()).or_else(nothing_seen),
    }
}

fn values(row: EngineRow) -> Vec<Value> {
    let count = |of: Option<u32>| of.map_or(Value::Null, number);
    vec![
        text(row.slot.tenant.as_str()),
        text(row.slot.pool.as_str()),
        text(row.slot.unit.as_str()),
        text(row.name.as_str()),
        text(row.state.as_str()),
        maybe(row.config),
        Value::Bool(row.current),
        maybe(row.origin.map(|origin| origin.as_str().to_owned())),
        maybe(row.owner.map(|owner| owner.to_string())),
        count(row.sessions),
        count(row.seats),
        count(row.running),
        maybe(row.address),
        maybe(row.started_at),
        maybe(row.reason),
    ]
}
