//! DESCRIBE ENGINE: everything that is known about one engine, as (property, value) rows.

use std::time::Duration;

use metadata::{EngineDetail, ObservedRow, user_error};
use model::clock::utc;
use model::configuration::Configuration;
use model::engine_name::EngineName;
use model::engine_state::EngineState;
use model::error::UserError;
use model::labels;
use model::ledger::{Reservation, queue_position};
use model::millis;
use model::name::PoolName;
use model::owner::Owner;
use model::slot::{Replacement, Slot};
use model::span;

use super::freshness::{Freshness, log_freshness};
use super::idle;
use super::quota::{amounts, amounts_of};
use crate::metadata::answer::Answer;
use crate::metadata::context::Context;

/// Details that are paths of a machine, as the orchestrator of processes calls them.
const PATHS: [&str; 2] = ["directory", "log file"];

pub(in crate::metadata) async fn describe(
    context: &Context,
    pool: &PoolName,
    name: &EngineName,
) -> Result<Answer, UserError> {
    let detail = context.store().engine(name).await.map_err(|error| error.user_error())?;
    let catalog = match &detail {
        Some(detail) => detail.catalog.clone(),
        None => context.store().catalog().await.map_err(|error| error.user_error())?,
    };
    let tenant = detail.as_ref().map(|detail| &detail.record.slot.tenant);
    user_error::unless_allowed_engine(&catalog, &context.caller(), context.kind, (tenant, name))?;
    let Some(detail) = detail else { return Err(user_error::no_engine(name)) };
    if detail.record.slot.pool != *pool {
        return Err(user_error::engine_of_other_pool(name, pool, &detail.record.slot.pool));
    }
    let reservation = context.store().reservation(name.as_str()).await.map_err(|error| error.user_error())?;
    let freshness = Freshness::new(&detail.master, detail.now_ms, context.agent.settings.tick_interval);
    log_freshness(context, &freshness, &detail.master).await;
    Ok(Answer::properties(properties(context, &detail, reservation.as_ref(), &freshness)))
}

fn properties(
    context: &Context,
    detail: &EngineDetail,
    reservation: Option<&Reservation>,
    freshness: &Freshness,
) -> Vec<(String, String)> {
    let record = &detail.record;
    let current = detail.slot.as_ref().is_some_and(|slot| slot.incarnation == record.incarnation);
    let mut rows: Vec<(String, String)> = Vec::new();
    let mut row = |property: &str, value: String| rows.push((property.to_owned(), value));
    row("engine", record.name.to_string());
    row("tenant", record.slot.tenant.to_string());
    row("pool", record.slot.pool.to_string());
    row("unit", record.slot.unit.to_string());
    row("slot", record.slot.to_string());
    row("incarnation", record.incarnation.to_string());
    row("current", current.to_string());
    let slot = detail.slot.as_ref().filter(|slot| slot.owns(record.incarnation));
    row("origin", slot.map(|slot| slot.origin.as_str().to_owned()).unwrap_or_default());
    row("owner", slot.map(owner_of).unwrap_or_default());
    row("state", freshness.shown(state(detail)).as_str().to_owned());
    row("config", sizes(context, detail).unwrap_or_default());
    row("config hash", record.config.clone());
    charged(&mut row, context, detail, reservation);
    if let Some(unit) = detail.catalog.units.get(&record.slot.unit) {
        row("generation", unit.generation.to_string());
    }
    row("issued at", utc(record.issued_at_ms));
    row("uid", record.uid.clone().unwrap_or_default());
    if let Some(slot) = detail.slot.as_ref().filter(|_| current) {
        row("failures in a row", slot.failures.to_string());
        match slot.replacement {
            Replacement::StandIn => {}
            Replacement::Force => row("replacement", "with FORCE".to_owned()),
            Replacement::InPlace => row("replacement", "in place".to_owned()),
        }
    }
    if let Some(seen) = &detail.seen {
        observed(&mut row, seen, context, detail);
        orchestrated(&mut row, seen, context.subject.sees_installation());
    }
    let reason = detail.seen.as_ref().and_then(|row| row.engine.reason.clone()).or(record.ended_reason.clone());
    row("reason", freshness.added_to(reason, context.proxy_lacks.as_deref()).unwrap_or_default());
    if let Some(reason) = &record.end_reason {
        row("condemned", reason.clone());
    }
    if let Some(grace_ms) = record.end_grace_ms {
        row("grace when it ends", span::print(millis::to_duration(grace_ms)));
    }
    if let Some(ended_at) = record.ended_at_ms {
        row("ended at", utc(ended_at));
    }
    let seen_log = detail.seen.as_ref().and_then(|row| row.engine.log_tail.as_ref());
    if let Some(log) = seen_log.or(record.log_tail.as_ref()) {
        row("log", log.clone());
    }
    rows
}

/// Whose sessions its engines serve.
fn owner_of(slot: &Slot) -> String {
    match (&slot.owner, slot.started_for.as_ref()) {
        (None, _) => format!("tenant \"{}\"", slot.key.tenant),
        (Some(owner @ Owner::Session(_)), Some(started_for)) => format!("{owner} of user \"{}\"", started_for.user),
        (Some(owner), _) => owner.to_string(),
    }
}

/// The sizes that it was created with; before it is observed, those that it would be created with.
fn sizes(context: &Context, detail: &EngineDetail) -> Option<String> {
    let made = detail.seen.as_ref().and_then(|row| row.engine.labels.get(labels::UNIT_CONFIGS).cloned());
    let defaults = &context.agent.settings.rules.defaults;
    made.or_else(|| {
        Configuration::from_slot(&detail.catalog, &detail.record.slot, defaults)
            .map(|configuration| configuration.sizes())
    })
}

/// Its reservation, what it is or would be charged, and its position while it is queued.
fn charged(
    row: &mut impl FnMut(&str, String),
    context: &Context,
    detail: &EngineDetail,
    reservation: Option<&Reservation>,
) {
    let reason = detail.seen.as_ref().and_then(|seen| seen.engine.reason.as_deref());
    let position = reason.and_then(queue_position).filter(|_| reservation.is_none());
    let state = match (reservation, position) {
        (Some(reservation), _) => reservation.state.to_string(),
        (None, Some(_)) => "queued".to_owned(),
        (None, None) => "none".to_owned(),
    };
    let defaults = &context.agent.settings.rules.defaults;
    let charge = reservation
        .map(|reservation| reservation.amounts)
        .or_else(|| amounts_of(&detail.catalog, &detail.record.slot, defaults));
    row("reservation", state);
    row("charge", charge.map(|charge| amounts(charge.nominal())).unwrap_or_default());
    row("position", position.map(|position| position.to_string()).unwrap_or_default());
}

fn observed(row: &mut impl FnMut(&str, String), seen: &ObservedRow, context: &Context, detail: &EngineDetail) {
    let (engine, slot, catalog) = (&seen.engine, &detail.record.slot, &detail.catalog);
    let count = |of: Option<u32>| of.map_or_else(|| "unknown".to_owned(), |number| number.to_string());
    row("phase", engine.phase.to_string());
    row("registered", engine.registered.to_string());
    row("drains", engine.draining.to_string());
    row("sessions", count(engine.sessions));
    row("seats", catalog.unit(&slot.unit).map(|unit| unit.seats().to_string()).unwrap_or_default());
    row("stateful sessions", count(engine.stateful));
    row("running", count(engine.running));
    let current = detail.slot.as_ref().filter(|slot| slot.incarnation == detail.record.incarnation);
    idle::rows(row, engine, current, catalog, &context.agent.settings.rules.defaults);
    row("address", engine.address.clone().unwrap_or_default());
    row("node", engine.node.clone().unwrap_or_default());
    row("started at", engine.started_at_ms.map(utc).unwrap_or_default());
    let age = engine.started_at_ms.and_then(|at_ms| u64::try_from(detail.now_ms.saturating_sub(at_ms)).ok());
    row("age", age.map(|ms| span::age(Duration::from_millis(ms))).unwrap_or_default());
    row("observed at", utc(seen.observed_at_ms));
    row("observed in epoch", seen.epoch.to_string());
    for (label, value) in engine.labels.iter() {
        row(&format!("label {label}"), value.clone());
    }
}

/// What the orchestrator knows of the process or the containers, in its own words. Paths of a machine are for those who see the
/// installation.
fn orchestrated(row: &mut impl FnMut(&str, String), seen: &ObservedRow, with_paths: bool) {
    for (property, value) in seen.engine.details.iter() {
        if with_paths || !PATHS.contains(&property.as_str()) {
            row(property, value.clone());
        }
    }
}

fn state(detail: &EngineDetail) -> EngineState {
    match &detail.seen {
        Some(seen) => seen.engine.state(),
        None if detail.record.ended_at_ms.is_some() => EngineState::Ended,
        None => EngineState::Pending,
    }
}
