//! Checks of the ledger of reservations: what scopes hold agrees with their reservations, reservations agree with the running
//! engines, no request waits for long, and limits can be kept.
//!
//! | code | condition |
//! | --- | --- |
//! | `EH2501` | drift: a scope holds another amount than its reservations |
//! | `EH2502` | less than nothing is left of a limit |
//! | `EH2503` | a request has been queued for 10 minutes |
//! | `EH2504` | guarantees exceed the capacity of their pool |
//! | `EH2505` | a declared capacity exceeds that of the nodes by more than 10 % |

use std::time::Duration;

use model::capacity::{Amount, PoolCapacity};
use model::change::{excess_capacity, excess_guarantees};
use model::clock::utc;
use model::engine_name::EngineName;
use model::ledger::{Counter, Ledger, Reservation, Role, ScopeKey, ScopeKind, State, queue_position};
use model::resource::Component;
use model::span;
use orchestrator::ObservedInstance;

use super::checks::{LEDGER, LIMITS, QUEUE, RESERVATIONS};
use super::facts::{Desired, Facts, RunningEngines, elapsed};
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
    limits(desired, report);
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
    let is_running = |instance: &&ObservedInstance| super::facts::is_alive(instance);
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
    findings.extend(of_engines().filter(|reservation| !is_listed(reservation)).map(|reservation| {
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
    let findings = late.map(|one| one.finding(now_ms)).collect();
    let summary = if waiting.is_empty() {
        "no request is queued".to_owned()
    } else {
        format!("{} queued", count(waiting.len(), "request"))
    };
    report.checked(QUEUE, summary, findings);
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

/// Limits below what is held, and amounts that are promised and do not exist.
fn limits(desired: &Desired, report: &mut Report) {
    let mut findings: Vec<Finding> = Vec::new();
    for (key, scope) in desired.snapshot.ledger.scopes() {
        findings.extend(negative(key, &scope.counter, "").map(|what| below(key, what)));
        if let Role::Pool(pool) = &scope.role {
            findings.extend(negative(key, &pool.shared, "shared part: ").map(|what| below(key, what)));
            findings.extend(negative(key, &pool.unguaranteed, "unguaranteed part: ").map(|what| below(key, what)));
        }
    }
    let catalog = &desired.snapshot.catalog;
    for (name, pool) in &catalog.pools {
        let nodes = desired.nodes.as_deref().filter(|nodes| !nodes.is_empty());
        let total: Option<Amount> = nodes.map(|nodes| PoolCapacity::new(catalog, name, &pool.spec, nodes).total());
        let subject = format!("resource pool \"{name}\"");
        findings.extend(excess_guarantees(catalog, name, &pool.spec, total).map(|what| {
            let mend = format!("lower guarantees of SHOW QUOTAS POOL {name}, or raise its capacity");
            Finding::warning(&subject, format!("EH2504: {what}"), mend).about_set_up()
        }));
        findings.extend(total.and_then(|total| excess_capacity(name, &pool.spec, total)).map(|what| {
            let mend = format!("ALTER RESOURCE POOL {name} CAPACITY NODES, or an amount that its nodes have");
            Finding::warning(&subject, format!("EH2505: {what}"), mend).about_set_up()
        }));
    }
    let limited = desired.snapshot.ledger.scopes().filter(|(_, scope)| scope.is_limited()).count();
    report.checked(LIMITS, format!("{} limited", count(limited, "scope")), findings);
}

/// The components of which less than nothing is left.
fn negative(key: &ScopeKey, counter: &Counter, part: &str) -> Option<String> {
    debug_assert!(part.is_empty() || key.kind == ScopeKind::Pool);
    let short = Component::ALL.into_iter().filter_map(|component| {
        let left = counter.left(component).filter(|left| *left < 0)?;
        Some(component.shown(left))
    });
    let short: Vec<String> = short.collect();
    (!short.is_empty())
        .then(|| format!("EH2502: {part}{} left: nothing is granted, and nothing ends", short.join(", ")))
}

fn below(key: &ScopeKey, what: String) -> Finding {
    let mend = "wait until engines end, stop some, or raise the limit";
    Finding::warning(key.to_string(), what, mend).about_set_up()
}
