//! Checks of slots: every slot has its engine, and the engine becomes ready.
//!
//! An engine that is being created, or that waits for its turn behind a stand-in, passes until the start deadline; one that
//! replaces an older engine in place, while that one ends: the check of the drains reports it if it takes too long.
//!
//! | code | condition |
//! | --- | --- |
//! | `EH2602` | three starts in a row have failed of the engines of one (tenant, pool, unit) and owner |

use std::collections::BTreeMap;

use model::clock::utc;
use model::demand::ScalingGroup;
use model::engine_name::EngineName;
use model::engine_state::{EngineState, Phase};
use model::ledger::queue_position;
use model::shared::Shared;
use model::slot::{Replacement, Slot};
use model::span;
use orchestrator::ObservedInstance;

use super::checks::{DESIRED, READINESS};
use super::facts::{Coordinated, Desired, Facts, RunningEngines, elapsed, is_alive};
use super::report::{Finding, Report};
use super::target::{REACTION_TIME, Target};

/// The beginning of the master's reason for an engine that could not be created; the number of failures follows.
const NOT_CREATED: &str = "could not be created, failure ";

/// The failed starts in a row of a scaling group from which on they have a code.
const FAILED_STARTS: u32 = 3;

enum SlotState {
    /// Registered and, as far as can be observed, running.
    Ready,
    /// Starting, within its deadline.
    OnItsWay,
    /// The engine does not exist.
    Missing(Finding),
    /// The engine exists or existed, and never became ready.
    NotReady(Finding),
}

/// The state that decides about a slot.
struct SlotView<'a> {
    target: &'a Target,
    desired: &'a Desired,
    coordinated: &'a Coordinated,
    running: &'a RunningEngines,
    /// The failed starts in a row of each scaling group.
    failures: BTreeMap<ScalingGroup, u32>,
}

pub fn check(target: &Target, facts: &Facts, report: &mut Report) {
    let (Ok(desired), Ok(coordinated), Ok(running)) = (&facts.desired, &facts.coordinated, &facts.running) else {
        return report.skip(&[DESIRED, READINESS], &facts.missing());
    };
    let failures = failures(&desired.snapshot.slots);
    let view = SlotView { target, desired, coordinated, running, failures };
    let (mut ready, mut coming) = (0_usize, 0_usize);
    let (mut missing, mut not_ready) = (Vec::new(), Vec::new());
    for slot in &desired.snapshot.slots {
        match state_of(&view, slot) {
            SlotState::Ready => ready += 1,
            SlotState::OnItsWay => coming += 1,
            SlotState::Missing(finding) => missing.push(finding),
            SlotState::NotReady(finding) => not_ready.push(finding),
        }
    }
    let slots = desired.snapshot.slots.len();
    let on_the_way = if coming == 0 { String::new() } else { format!(", {coming} starting") };
    report.checked(
        DESIRED,
        format!("{} of {slots} desired engines exist{on_the_way}", slots - missing.len() - coming),
        missing,
    );
    report.checked(READINESS, format!("{ready} of {slots} desired engines are ready{on_the_way}"), not_ready);
}

/// The failed starts in a row of each scaling group.
fn failures(slots: &[Shared<Slot>]) -> BTreeMap<ScalingGroup, u32> {
    let mut failures: BTreeMap<ScalingGroup, u32> = BTreeMap::new();
    for slot in slots.iter().filter(|slot| slot.failures > 0) {
        let of_group = failures.entry(ScalingGroup::of(slot)).or_default();
        *of_group = of_group.saturating_add(slot.failures);
    }
    failures
}

fn state_of(view: &SlotView<'_>, slot: &Slot) -> SlotState {
    let name = slot.engine();
    let there = view.running.listing.find(&name);
    let unreadable = view.running.listing.unreadable.iter().any(|engine| engine.name == name.as_str());
    match there.filter(|engine| is_alive(engine)) {
        Some(engine) if view.coordinated.is_ready(&name) => {
            debug_assert_eq!(engine.name, name);
            SlotState::Ready
        }
        // It is reported under its own name.
        None if unreadable => SlotState::OnItsWay,
        engine if slot.failures > 0 => failing(view, slot, engine, there),
        Some(engine) => lost(view, slot, engine).unwrap_or_else(|| starting(view, slot, engine)),
        None => absent(view, slot, there),
    }
}

/// Consecutive engines of the slot failed. That is a finding at every moment: during an attempt, which may take minutes, and
/// during the back-off after it.
fn failing(
    view: &SlotView<'_>,
    slot: &Slot,
    engine: Option<&ObservedInstance>,
    ended: Option<&ObservedInstance>,
) -> SlotState {
    let name = slot.engine();
    let record = view.desired.engine(&name);
    let before = record.and_then(|record| record.failure_before.clone());
    let end = record.and_then(|record| record.ended_reason.clone());
    let seen = view.desired.seen(&name).and_then(|engine| engine.reason.clone());
    let (now, why) = match (engine, ended) {
        (Some(_), _) => (format!("engine {name} is being started"), before),
        (None, Some(ended)) => {
            let how = ended.reason.clone().or(end).unwrap_or_else(|| ended.phase.to_string());
            (format!("engine {name} ended"), Some(how))
        }
        (None, None) => (format!("engine {name} does not exist"), end.or(before).or(seen)),
    };
    let failures = super::report::count(slot.failures as usize, "engine");
    let of_group = view.failures.get(&ScalingGroup::of(slot)).copied().unwrap_or(slot.failures);
    let code = if of_group >= FAILED_STARTS { "EH2602: " } else { "" };
    let of_others = match of_group.saturating_sub(slot.failures) {
        0 => String::new(),
        others => format!(", and {others} of the other slots of its unit and owner"),
    };
    let last = why.as_ref().map(|why| format!("; the last failure: {why}")).unwrap_or_default();
    let cause = why.map(|why| format!("{code}consecutive engines of the slot failed: {}", without_names(&why, &name)));
    let finding = Finding::problem(
        slot.key.to_string(),
        format!("{code}{failures} of this slot failed in a row{of_others}; {now}{last}"),
        format!(
            "DESCRIBE ENGINE {} '{name}' shows the end of its log; if its configuration is wrong, ALTER its unit, pool or tenant",
            slot.key.pool
        ),
    );
    SlotState::NotReady(finding.because(cause))
}

/// A reason without the engine's name and its number of failures, so that engines with one cause have one reason.
fn without_names(reason: &str, name: &EngineName) -> String {
    let refused = reason.strip_prefix(NOT_CREATED).and_then(|rest| rest.split_once(": "));
    let reason = refused.map_or_else(|| reason.to_owned(), |(_, why)| format!("could not be created: {why}"));
    reason.replace(name.as_str(), "…")
}

/// The engine was registered and no longer is: it hangs, is stopped, or cannot reach ZooKeeper.
fn lost(view: &SlotView<'_>, slot: &Slot, engine: &ObservedInstance) -> Option<SlotState> {
    let name = &engine.name;
    let observed = view.desired.seen(name).filter(|row| row.uid.as_ref() == Some(&engine.uid))?;
    if observed.state() != EngineState::Lost {
        return None;
    }
    let reason = observed.reason.clone().or_else(|| engine.reason.clone());
    let reason = reason.unwrap_or_else(|| "lost its registration".to_owned());
    let finding = Finding::problem(
        slot.key.to_string(),
        format!("engine {name} {reason}"),
        format!(
            "the acting master replaces it if it does not answer; at once: RESTART ENGINE {} '{name}' FORCE; {}",
            slot.key.pool,
            log_of(engine)
        ),
    );
    Some(SlotState::NotReady(finding))
}

fn starting(view: &SlotView<'_>, slot: &Slot, engine: &ObservedInstance) -> SlotState {
    let name = &engine.name;
    let deadline = view.target.configuration.engines.start_deadline.0;
    let now_ms = view.target.clock.wall_ms();
    let age = elapsed(engine.started_at_ms.unwrap_or(now_ms), now_ms);
    if age <= deadline + REACTION_TIME {
        return SlotState::OnItsWay;
    }
    let reason = engine.reason.clone().or_else(|| view.desired.seen(name)?.reason.clone());
    let reason = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
    SlotState::NotReady(Finding::problem(
        slot.key.to_string(),
        format!("engine {name} has been running for {} and is not registered{reason}", span::age(age)),
        format!("RESTART ENGINE {} '{name}' FORCE; {}", slot.key.pool, log_of(engine)),
    ))
}

fn log_of(engine: &ObservedInstance) -> String {
    match engine.details.get(orchestrator::observed::DETAIL_LOG) {
        Some(path) => format!("its log is {path}"),
        None => "see its log".to_owned(),
    }
}

fn absent(view: &SlotView<'_>, slot: &Slot, ended: Option<&ObservedInstance>) -> SlotState {
    let name = slot.engine();
    let record = view.desired.engine(&name);
    let seen = view.desired.seen(&name).and_then(|engine| engine.reason.clone());
    let describe = format!("see DESCRIBE ENGINE {} '{name}'", slot.key.pool);
    let summary = record.and_then(|record| record.ended_reason.clone());
    if let Some(how) = ended.map(|engine| engine.reason.clone().unwrap_or_else(|| engine.phase.to_string())).or(summary)
    {
        let what = format!("engine {name} ended: {how}");
        let acting = format!(
            "the acting master creates another one for the slot; {describe}; if its configuration is wrong, ALTER its unit, pool or tenant"
        );
        return if ended.is_some_and(|engine| engine.phase == Phase::Terminating) {
            SlotState::OnItsWay
        } else {
            SlotState::NotReady(Finding::problem(slot.key.to_string(), what, acting))
        };
    }
    let now_ms = view.desired.snapshot.now_ms;
    let issued_at_ms = record.map_or(now_ms, |record| record.issued_at_ms);
    let age = elapsed(issued_at_ms, now_ms);
    // The check of the queue reports it, if it waits for long.
    if seen.as_deref().is_some_and(|reason| queue_position(reason).is_some()) {
        return SlotState::OnItsWay;
    }
    let cause = seen.as_ref().map(|reason| without_names(reason, &name));
    let why = seen.map(|reason| format!(": {reason}")).unwrap_or_default();
    if let Some(uid) = record.and_then(|record| record.uid.as_ref()) {
        return SlotState::Missing(Finding::problem(
            slot.key.to_string(),
            format!("engine {name} (uid {uid}) was created and no longer exists{why}"),
            format!("the acting master creates another one for the slot after a back-off; {describe}"),
        ));
    }
    if stand_in(view, slot).is_some() {
        let deadline = view.target.configuration.engines.start_deadline.0;
        if age <= deadline + REACTION_TIME {
            return SlotState::OnItsWay;
        }
        return SlotState::Missing(Finding::warning(
            slot.key.to_string(),
            format!(
                "engine {name} has been desired since {} and was not created{why}; an older one serves",
                utc(issued_at_ms)
            ),
            describe,
        ));
    }
    if slot.replacement == Replacement::InPlace && has_older(view, slot) {
        return SlotState::OnItsWay;
    }
    let cause = cause.map(|cause| format!("desired engines were not created: {cause}"));
    let finding = Finding::problem(
        slot.key.to_string(),
        format!(
            "engine {name} has been desired since {} ({} ago) and was not created{why}",
            utc(issued_at_ms),
            span::age(age)
        ),
        format!("the acting master creates it: see the check \"last tick\" and the log of the master; {describe}"),
    );
    SlotState::Missing(finding.because(cause))
}

/// An older engine of the slot that serves.
fn stand_in<'a>(view: &SlotView<'a>, slot: &Slot) -> Option<&'a ObservedInstance> {
    let mut older = view.desired.snapshot.engines.iter().filter(|record| {
        record.slot == slot.key && record.incarnation < slot.incarnation && record.end_reason.is_none()
    });
    older.find_map(|record| {
        let engine = view.running.listing.find(&record.name)?;
        (is_alive(engine) && view.coordinated.is_ready(&record.name)).then_some(engine)
    })
}

/// Whether an instance of an older engine of the slot is left.
fn has_older(view: &SlotView<'_>, slot: &Slot) -> bool {
    let records = view.desired.snapshot.engines.iter();
    let mut older = records.filter(|record| record.slot == slot.key && record.incarnation < slot.incarnation);
    older.any(|record| view.running.listing.find(&record.name).is_some())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn engines_with_one_cause_have_one_reason() {
        let reason = |name: &str, text: &str| without_names(text, &EngineName::new(name).unwrap());
        let one =
            reason("e-1", "could not be created, failure 3: there are 50 engines: orchestrator.max_engines is 50");
        let other =
            reason("e-2", "could not be created, failure 12: there are 50 engines: orchestrator.max_engines is 50");
        assert_eq!(one, "could not be created: there are 50 engines: orchestrator.max_engines is 50");
        assert_eq!(one, other);
        assert_eq!(reason("e-1", "pod e-1 exceeds a quota"), "pod … exceeds a quota");
    }
}
