//! Checks of the ledger of reservations: what scopes hold agrees with their reservations, reservations agree with the running
//! engines, no request waits for long, and limits can be kept.
//!
//! | code | condition |
//! | --- | --- |
//! | `EH2501` | drift: a scope holds another amount than its reservations |
//! | `EH2502` | less than nothing has been left of a limit for 10 minutes |
//! | `EH2503` | a request has been queued for 10 minutes, or at all for a pool whose capacity no program has registered |
//! | `EH2504` | guarantees exceed the capacity of their pool |
//! | `EH2505` | a declared capacity exceeds that of the nodes by more than 10 % |

use std::time::Duration;

use model::clock::utc;
use model::engine_name::EngineName;
use model::ledger::{Ledger, Reservation, Role, ScopeKey, State, lineage_of, queue_position};
use model::quota::Capacity;
use model::shared::Shared;
use model::slot::Replacement;
use model::span;
use orchestrator::ObservedInstance;

use super::checks::{LEDGER, LIMITS, QUEUE, RESERVATIONS};
use super::facts::{Desired, Facts, RunningEngines, elapsed};
use super::limits;
use super::report::{Finding, Report, count};

/// How long a request may be queued.
const QUEUE_PATIENCE: Duration = Duration::from_mins(10);

pub fn check(facts: &Facts, report: &mut Report) {
    let Ok(desired) = &facts.desired else {
        return report.skip(&[LEDGER, RESERVATIONS, QUEUE, LIMITS], &facts.missing());
    };
    let ledger = &desired.snapshot.ledger;
    drifts(ledger, report);
    queue(desired, report);
    limits::check(desired, report);
    match &facts.running {
        Ok(running) => reservations(desired, running, report),
        Err(reason) => report.skip(&[RESERVATIONS], reason),
    }
}

/// I1: what a scope holds is the sum of its reservations.
fn drifts(ledger: &Ledger, report: &mut Report) {
    let mend = "the acting master corrects it within reservations.audit and logs both values; report it as a defect";
    let findings = if let Ok(drifts) = ledger.drifts() {
        drifts
            .into_iter()
            .map(|drift| Finding::problem(drift.scope.to_string(), format!("EH2501: it holds {drift}"), mend))
            .collect()
    } else {
        let what = "EH2501: a sum of reservations is outside of 64 bits or below 0";
        vec![Finding::problem("ledger", what, mend)]
    };
    let charged = ledger.reservations().filter(|reservation| reservation.state.is_charged()).count();
    let summary = format!("{} charged to {}", count(charged, "reservation"), count(ledger.scopes().count(), "scope"));
    report.checked(LEDGER, summary, findings);
}

/// I4: every running engine has a reservation. I5: every used reservation of an engine has an instance.
fn reservations(desired: &Desired, running: &RunningEngines, report: &mut Report) {
    let ledger = &desired.snapshot.ledger;
    let is_charged =
        |name: &EngineName| ledger.reservation(name.as_str()).is_some_and(|reservation| reservation.state.is_charged());
    let is_running = |instance: &&Shared<ObservedInstance>| super::facts::is_alive(instance);
    let uncharged = running.listing.engines.iter().filter(is_running).filter(|instance| {
        let record = desired.engine(&instance.name);
        record.is_some_and(|record| record.ended_at_ms.is_none()) && !is_charged(&instance.name)
    });
    let mut findings: Vec<Finding> = uncharged
        .map(|instance| {
            let what = "it runs, and no scope is charged for it";
            Finding::problem(
                instance.name.to_string(),
                what,
                "the acting master adopts its reservation: see the check \"last tick\"",
            )
        })
        .collect();
    let of_engines = || {
        let all = ledger.reservations().filter(|reservation| reservation.state == State::Used);
        all.filter(|reservation| !reservation.request.holder.is_external())
    };
    let is_listed = |reservation: &Reservation| {
        let id = &**reservation.id();
        running.listing.engines.iter().any(|instance| instance.name.as_str() == id)
            || running.listing.unreadable.iter().any(|unreadable| unreadable.name == id)
    };
    // IN PLACE and FORCE: the charge of an engine that is gone stays until it passes to the slot's current engine.
    let passes_on = |reservation: &Reservation| {
        let slots = desired.snapshot.slots.iter().filter(|slot| slot.replacement != Replacement::StandIn);
        let mut lineages = slots.map(|slot| lineage_of(&slot.key, slot.incarnation, Some(slot)));
        lineages.any(|lineage| lineage == reservation.request.lineage)
    };
    let is_left = |reservation: &&Reservation| !is_listed(reservation) && !passes_on(reservation);
    findings.extend(of_engines().map(AsRef::as_ref).filter(is_left).map(|reservation| {
        let what = "its reservation is used, and the engine does not exist";
        Finding::problem(
            reservation.id().to_string(),
            what,
            "the acting master ends it after a probe: see the check \"last tick\"",
        )
    }));
    let summary = format!("{} used by engines", count(of_engines().count(), "reservation"));
    report.checked(RESERVATIONS, summary, findings);
}

/// Requests that have waited for long.
fn queue(desired: &Desired, report: &mut Report) {
    let now_ms = desired.snapshot.now_ms;
    let mut waiting: Vec<Waiting> = Vec::new();
    for slot in &desired.snapshot.slots {
        let name = slot.engine();
        let reason = desired.seen(&name).and_then(|engine| engine.reason.clone());
        if let Some(reason) = reason.filter(|reason| queue_position(reason).is_some()) {
            let issued = desired.engine(&name).map_or(now_ms, |record| record.issued_at_ms);
            let whom = slot.started_for.as_ref().map(|started_for| format!("user {} of ", started_for.user));
            let whom = format!("{}tenant {}", whom.unwrap_or_default(), slot.key.tenant);
            waiting.push(Waiting { id: name.to_string(), whom, since_ms: issued, reason });
        }
    }
    for reservation in desired.snapshot.ledger.reservations().filter(|reservation| reservation.state == State::Waiting)
    {
        let scopes = &reservation.request.scopes;
        let whom = scopes.user_name().map(|user| format!("user {user} of ")).unwrap_or_default();
        waiting.push(Waiting {
            id: reservation.id().to_string(),
            whom: format!("{whom}tenant {}", scopes.tenant_name()),
            since_ms: reservation.asked_at_ms,
            reason: format!("waits for resource pool \"{}\"", scopes.pool_name()),
        });
    }
    let late = waiting.iter().filter(|one| elapsed(one.since_ms, now_ms) >= QUEUE_PATIENCE);
    let mut findings: Vec<Finding> = late.map(|one| one.finding(now_ms)).collect();
    findings.extend(unregistered(desired));
    let summary = if waiting.is_empty() {
        "no request is queued".to_owned()
    } else {
        format!("{} queued", count(waiting.len(), "request"))
    };
    report.checked(QUEUE, summary, findings);
}

/// Pools whose requests wait until a program registers their capacity.
fn unregistered(desired: &Desired) -> Vec<Finding> {
    let (catalog, now_ms) = (&desired.snapshot.catalog, desired.snapshot.now_ms);
    let mut findings = Vec::new();
    for (name, pool) in &catalog.pools {
        let Some(scope) = desired.snapshot.ledger.scope(&ScopeKey::pool(name)) else { continue };
        let queued = match scope.role {
            Role::Pool(row) => usize::try_from(row.queued).unwrap_or(0),
            Role::Principal | Role::Tenant(_) => 0,
        };
        if pool.spec.capacity != Some(Capacity::Registered) || scope.admits_at(now_ms) || queued == 0 {
            continue;
        }
        let state = match scope.registered_until_ms() {
            Some(until_ms) => format!("the lease of its registered capacity has ended ({})", utc(until_ms)),
            None => "no program has registered its capacity".to_owned(),
        };
        let what = format!("EH2503: {} queued, and {state}", count(queued, "request"));
        let mend = "start the program that registers it, or ALTER RESOURCE POOL with another CAPACITY";
        findings.push(Finding::warning(format!("resource pool \"{name}\""), what, mend).about_set_up());
    }
    findings
}

struct Waiting {
    id: String,
    whom: String,
    since_ms: i64,
    reason: String,
}

impl Waiting {
    fn finding(&self, now_ms: i64) -> Finding {
        let Self { id, whom, since_ms, reason } = self;
        let age = span::age(elapsed(*since_ms, now_ms));
        let what = format!("EH2503: the request of {whom} has waited for {age} (since {}): {reason}", utc(*since_ms));
        let mend = "SHOW QUOTAS shows what is held: stop engines, or raise the limit that is named";
        Finding::warning(id.clone(), what, mend).about_set_up()
    }
}
