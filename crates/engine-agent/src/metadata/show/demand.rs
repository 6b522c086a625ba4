//! SHOW DEMAND: the sessions that wait for an engine, those first that have waited longest, and what they wait for.
//!
//! A row is a key: sessions that any engine serves which serves one of them. Its numbers are those of the proxies, and not older
//! than their lease; the reason is what a master reported with its last plan. A key of which the master reports nothing has an
//! engine on its way, or is newer than the plan.

use std::collections::{BTreeMap, BTreeSet};

use hs2::{SqlType, Value};
use metadata::{Overview, user_error};
use model::catalog::Catalog;
use model::clock::utc;
use model::configuration::Defaults;
use model::demand::{Demand, DemandKey};
use model::demand_report::UnmetDemand;
use model::engine_name::EngineName;
use model::engine_state::EngineState;
use model::error::UserError;
use model::name::{PoolName, TenantName, UnitName};
use model::observation::ObservedEngine;
use model::owner::{Owner, SharedBy};
use model::slot::{Slot, SlotKey};
use model::snapshot::EngineRecord;
use model::type_selector::TypeSelector;

use super::engines::freshness;
use super::freshness::log_freshness;
use crate::metadata::answer::{Answer, maybe, number, text};
use crate::metadata::context::Context;

/// The number of keys that are listed without LIMIT.
const DEFAULT_ROWS: u32 = 1_000;

const COLUMNS: [(&str, SqlType); 11] = [
    ("tenant", SqlType::String),
    ("pool", SqlType::String),
    ("unit", SqlType::String),
    ("engine_type", SqlType::String),
    ("creator", SqlType::String),
    ("owner", SqlType::String),
    ("waiting", SqlType::BigInt),
    ("unmet", SqlType::BigInt),
    ("since", SqlType::String),
    ("waits_for", SqlType::String),
    ("position", SqlType::BigInt),
];

/// What sessions wait for while no reason is known and no engine is on its way.
const NOT_PLANNED: &str = "the next decision of the master";

pub(in crate::metadata) async fn show(
    context: &Context,
    tenant: Option<&TenantName>,
    limit: Option<u32>,
) -> Result<Answer, UserError> {
    let overview = context.store().overview(tenant).await.map_err(|error| error.user_error())?;
    let catalog = &overview.snapshot.catalog;
    if let Some(tenant) = tenant {
        context.require_right_in(catalog, tenant)?;
        if catalog.tenant(tenant).is_none() {
            return Err(user_error::no_tenant(tenant));
        }
    }
    let (mut demand, unmet) = context.store().demand_overview().await.map_err(|error| error.user_error())?;
    let visible: BTreeSet<&TenantName> = match tenant {
        Some(tenant) => [tenant].into(),
        None => context.subject.tenants(catalog, context.kind).into_iter().collect(),
    };
    // A role of the installation also sees the sessions of a tenant that was just dropped.
    let sees_all = tenant.is_none() && context.subject.may_in_any(context.kind);
    demand.retain(|demand| sees_all || visible.contains(&demand.key.tenant));
    log_freshness(context, &freshness(context, &overview), &overview.snapshot.master).await;
    demand.sort_by(|a, b| (a.since_ms, &a.key).cmp(&(b.since_ms, &b.key)));
    let most = limit.unwrap_or(DEFAULT_ROWS) as usize;
    if demand.len() > most {
        context.log.line(format!("{most} rows are shown; LIMIT shows more"));
        demand.truncate(most);
    }
    let unmet: BTreeMap<&DemandKey, &UnmetDemand> = unmet.iter().map(|unmet| (&unmet.key, unmet)).collect();
    let starting = Starting::new(&overview, &context.agent.settings.rules.defaults);
    let mut answer = Answer::new(&COLUMNS);
    for demand in &demand {
        answer.row(values(demand, unmet.get(&demand.key).copied(), &starting));
    }
    Ok(answer)
}

fn values(demand: &Demand, unmet: Option<&UnmetDemand>, starting: &Starting<'_>) -> Vec<Value> {
    let key = &demand.key;
    let waits_for = match unmet {
        Some(unmet) => unmet.reason.clone(),
        None => starting.serving(key).unwrap_or_else(|| NOT_PLANNED.to_owned()),
    };
    // The master's report may be of a moment at which more sessions waited.
    let without_engine = unmet.map_or(0, |unmet| unmet.sessions.min(demand.waiting));
    vec![
        text(key.tenant.as_str()),
        maybe(key.pool.as_ref().map(PoolName::to_string)),
        maybe(key.unit.as_ref().map(UnitName::to_string)),
        maybe(key.engine_type.clone()),
        text(key.creator.as_str()),
        maybe(owners(key)),
        count(demand.waiting),
        count(without_engine),
        text(utc(demand.since_ms)),
        text(waits_for),
        unmet.and_then(|unmet| unmet.position).map_or(Value::Null, |position| count(position as u64)),
    ]
}

/// The owners of the engines that may serve the sessions; `None` if the tenant shares all of them.
fn owners(key: &DemandKey) -> Option<String> {
    let group = key.owner(SharedBy::Group).flatten().map(|group| group.to_string());
    let (user, session) = (key.owner(SharedBy::User).flatten(), key.owner(SharedBy::Session).flatten());
    // The user of a session is specified with it.
    let user = match (session, user) {
        (Some(session), Some(user)) => Some(format!("{session} of {user}")),
        (session, user) => session.or(user).map(|owner| owner.to_string()),
    };
    let owners: Vec<String> = group.into_iter().chain(user).collect();
    (!owners.is_empty()).then(|| owners.join(", "))
}

/// Whether the engines of a slot with this owner may serve the sessions.
fn may_share(key: &DemandKey, owner: Option<&Owner>) -> bool {
    match owner {
        None => true,
        Some(Owner::Group(group)) => key.group.as_ref() == Some(group),
        Some(Owner::User(user)) => key.user.as_ref() == Some(user),
        Some(Owner::Session(session)) => key.session.as_ref() == Some(session),
    }
}

fn count(sessions: u64) -> Value {
    number(u32::try_from(sessions).unwrap_or(u32::MAX))
}

/// The engines that are on their way: they hold a reservation and have not registered.
struct Starting<'a> {
    engines: BTreeMap<&'a TenantName, Vec<StartingEngine<'a>>>,
    catalog: &'a Catalog,
    defaults: &'a Defaults,
}

struct StartingEngine<'a> {
    slot: &'a Slot,
    name: EngineName,
    reason: Option<&'a str>,
}

impl<'a> Starting<'a> {
    fn new(overview: &'a Overview, defaults: &'a Defaults) -> Self {
        let snapshot = &overview.snapshot;
        let seen: BTreeMap<&EngineName, &ObservedEngine> =
            overview.observed.iter().map(|row| (&row.engine.name, &row.engine)).collect();
        let records: BTreeMap<&EngineName, &EngineRecord> =
            snapshot.engines.iter().map(|record| (&record.name, &**record)).collect();
        let mut engines: BTreeMap<&TenantName, Vec<StartingEngine<'a>>> = BTreeMap::new();
        for slot in &snapshot.slots {
            let name = slot.engine();
            let seen = seen.get(&name);
            let stays =
                records.get(&name).is_some_and(|record| record.ended_at_ms.is_none() && record.end_reason.is_none());
            let reservation = snapshot.ledger.reservation(name.as_str());
            let is_charged = reservation.is_some_and(|reservation| reservation.state.is_charged());
            // A master that has not observed a new engine yet has no row of it.
            let state = seen.map_or(EngineState::Pending, |engine| engine.state());
            if stays && is_charged && matches!(state, EngineState::Pending | EngineState::Starting) {
                let reason = seen.and_then(|engine| engine.reason.as_deref());
                engines.entry(&slot.key.tenant).or_default().push(StartingEngine { slot, name, reason });
            }
        }
        Self { engines, catalog: &snapshot.catalog, defaults }
    }

    /// Whether the engines of the slot have the type that the sessions ask for.
    fn has_type(&self, key: &DemandKey, slot: &SlotKey) -> bool {
        let Some(asked) = &key.engine_type else { return true };
        let (pool, unit) = (self.catalog.pool(&slot.pool), self.catalog.unit(&slot.unit));
        let asked = asked.parse::<TypeSelector>().ok();
        let selects = |asked: TypeSelector| Some(asked.selects_unit(pool?, unit?, self.defaults));
        asked.and_then(selects).unwrap_or(false)
    }

    /// The engines that will serve the key: the first with its reason, and how many others.
    fn serving(&self, key: &DemandKey) -> Option<String> {
        let is_of = |engine: &&StartingEngine<'_>| {
            let link = &engine.slot.key;
            key.pool.as_ref().is_none_or(|pool| *pool == link.pool)
                && key.unit.as_ref().is_none_or(|unit| *unit == link.unit)
                && self.has_type(key, link)
                && may_share(key, engine.slot.owner.as_ref())
        };
        let engines: Vec<_> = self.engines.get(&key.tenant)?.iter().filter(is_of).collect();
        let first = engines.first()?;
        let reason = first.reason.unwrap_or("is starting");
        Some(match engines.len() - 1 {
            0 => format!("engine \"{}\": {reason}", first.name),
            1 => format!("engine \"{}\": {reason}; and 1 more engine is starting", first.name),
            more => format!("engine \"{}\": {reason}; and {more} more engines are starting", first.name),
        })
    }
}
