//! Every slot has its engine, and it gets ready.
//!
//! What is being made, or waits for its turn behind a stand-in, is as it should be as long as that takes no longer than
//! an engine may take to start.

use std::time::Duration;

use model::clock::utc;
use model::engine_name::EngineName;
use model::engine_state::Phase;
use model::slot::Slot;
use model::span;
use orchestrator::Observed;

use super::checks::{READINESS, WANTED};
use super::facts::{Coordinated, Desired, Facts, Running, is_alive};
use super::report::{Finding, Report};
use super::target::Target;

/// What a start may take beyond its deadline until somebody has noticed.
const NOTICE: Duration = Duration::from_secs(10);

/// How the master's reason of an engine that could not be created begins; the number of its failures follows.
const NOT_CREATED: &str = "could not be created, failure ";

/// How one slot stands.
enum SlotState {
    /// Registered, and running as far as can be seen.
    Ready,
    /// On its way within its time.
    OnItsWay,
    /// It is not there.
    Missing(Finding),
    /// It is there, or was, and never got ready.
    NotReady(Finding),
}

/// What a slot is judged by.
struct SlotView<'a> {
    target: &'a Target,
    desired: &'a Desired,
    coordinated: &'a Coordinated,
    running: &'a Running,
}

/// Looks at every slot.
pub fn look(target: &Target, facts: &Facts, report: &mut Report) {
    let (Ok(desired), Ok(coordinated), Ok(running)) = (&facts.desired, &facts.coordinated, &facts.running) else {
        return report.skip(&[WANTED, READINESS], &facts.missing());
    };
    let view = SlotView { target, desired, coordinated, running };
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
    let on_the_way = if coming == 0 { String::new() } else { format!(", {coming} on their way") };
    report.checked(
        WANTED,
        format!("{} of {slots} wanted are there{on_the_way}", slots - missing.len() - coming),
        missing,
    );
    report.checked(READINESS, format!("{ready} of {slots} wanted are ready{on_the_way}"), not_ready);
}

impl Facts {
    /// Why what needs all of it is not looked at.
    pub fn missing(&self) -> String {
        let running = self.running.as_ref().err().cloned();
        [self.missing_nodes(), running.unwrap_or_default()]
            .into_iter()
            .filter(|it| !it.is_empty())
            .collect::<Vec<_>>()
            .join("; ")
    }

    /// Why what needs database and ZooKeeper is not looked at.
    pub fn missing_nodes(&self) -> String {
        let reasons = [self.desired.as_ref().err(), self.coordinated.as_ref().err()];
        reasons.into_iter().flatten().cloned().collect::<Vec<_>>().join("; ")
    }
}

fn state_of(view: &SlotView<'_>, slot: &Slot) -> SlotState {
    let name = slot.engine();
    let there = view.running.listing.find(&name);
    let unreadable = view.running.listing.unreadable.iter().any(|it| it.name == name.as_str());
    match there.filter(|engine| is_alive(engine)) {
        Some(engine) if view.coordinated.is_ready(&name) => {
            debug_assert_eq!(engine.name, name);
            SlotState::Ready
        }
        // It is reported under its own name.
        None if unreadable => SlotState::OnItsWay,
        engine if slot.failures > 0 => failing(view, slot, engine, there),
        Some(engine) => starting(view, slot, engine),
        None => absent(view, slot, there),
    }
}

/// Engines of the slot have failed one after another. That is a finding at every moment of it: in the attempt, which may
/// take minutes, and in the back-off after it.
fn failing(view: &SlotView<'_>, slot: &Slot, engine: Option<&Observed>, ended: Option<&Observed>) -> SlotState {
    let name = slot.engine();
    let record = view.desired.engine(&name);
    let before = record.and_then(|it| it.failure_before.clone());
    let end = record.and_then(|it| it.ended_reason.clone());
    let seen = view.desired.seen(&name).and_then(|it| it.reason.clone());
    let (now, why) = match (engine, ended) {
        (Some(_), _) => (format!("engine {name} is being started"), before),
        (None, Some(ended)) => {
            let how = ended.reason.clone().or(end).unwrap_or_else(|| ended.phase.to_string());
            (format!("engine {name} ended"), Some(how))
        }
        (None, None) => (format!("engine {name} is not there"), end.or(before).or(seen)),
    };
    let failures = super::report::count(slot.failures as usize, "engine");
    let last = why.as_ref().map(|why| format!("; the last failure: {why}")).unwrap_or_default();
    let cause = why.map(|why| format!("engines of the slot fail one after another: {}", without_names(&why, &name)));
    let finding = Finding::problem(
        slot.key.to_string(),
        format!("{failures} of this slot in a row failed; {now}{last}"),
        format!(
            "DESCRIBE ENGINE {} '{name}' shows the end of its log; ALTER what it is made from if that is wrong",
            slot.key.pool
        ),
    );
    SlotState::NotReady(finding.because(cause))
}

/// A reason as other engines may have it too: without the engine's name, and without the number of its failures.
fn without_names(reason: &str, name: &EngineName) -> String {
    let refused = reason.strip_prefix(NOT_CREATED).and_then(|rest| rest.split_once(": "));
    let reason = refused.map_or_else(|| reason.to_owned(), |(_, why)| format!("could not be created: {why}"));
    reason.replace(name.as_str(), "…")
}

fn starting(view: &SlotView<'_>, slot: &Slot, engine: &Observed) -> SlotState {
    let name = &engine.name;
    let deadline = view.target.configuration.engines.start_deadline.0;
    let now_ms = view.target.clock.wall_ms();
    let age = Duration::from_millis((now_ms - engine.started_at_ms.unwrap_or(now_ms)).max(0).unsigned_abs());
    if age <= deadline + NOTICE {
        return SlotState::OnItsWay;
    }
    let reason = engine.reason.clone().or_else(|| view.desired.seen(name)?.reason.clone());
    let reason = reason.map(|it| format!(": {it}")).unwrap_or_default();
    SlotState::NotReady(Finding::problem(
        slot.key.to_string(),
        format!("engine {name} runs since {} and is not registered{reason}", span::age(age)),
        format!("RESTART ENGINE {} '{name}' FORCE; {}", slot.key.pool, log_of(engine)),
    ))
}

fn log_of(engine: &Observed) -> String {
    match engine.details.get(orchestrator::observed::DETAIL_LOG) {
        Some(path) => format!("its log is {path}"),
        None => "its log says why".to_owned(),
    }
}

fn absent(view: &SlotView<'_>, slot: &Slot, ended: Option<&Observed>) -> SlotState {
    let name = slot.engine();
    let record = view.desired.engine(&name);
    let seen = view.desired.seen(&name).and_then(|it| it.reason.clone());
    let describe = format!("DESCRIBE ENGINE {} '{name}' tells more", slot.key.pool);
    let summary = record.and_then(|it| it.ended_reason.clone());
    if let Some(how) = ended.map(|it| it.reason.clone().unwrap_or_else(|| it.phase.to_string())).or(summary) {
        let what = format!("engine {name} ended: {how}");
        let acting = format!(
            "its slot gets another one from the acting master; {describe}; ALTER what it is made from if that is wrong"
        );
        return if ended.is_some_and(|it| it.phase == Phase::Terminating) {
            SlotState::OnItsWay
        } else {
            SlotState::NotReady(Finding::problem(slot.key.to_string(), what, acting))
        };
    }
    let now_ms = view.desired.snapshot.now_ms;
    let issued_at_ms = record.map_or(now_ms, |it| it.issued_at_ms);
    let age = Duration::from_millis((now_ms - issued_at_ms).max(0).unsigned_abs());
    let cause = seen.as_ref().map(|it| without_names(it, &name));
    let why = seen.map(|it| format!(": {it}")).unwrap_or_default();
    if let Some(uid) = record.and_then(|it| it.uid.as_ref()) {
        return SlotState::Missing(Finding::problem(
            slot.key.to_string(),
            format!("engine {name} (uid {uid}) was made and is not there{why}"),
            format!("the acting master gives its slot another one after a back-off; {describe}"),
        ));
    }
    if stand_in(view, slot).is_some() {
        let deadline = view.target.configuration.engines.start_deadline.0;
        if age <= deadline + NOTICE {
            return SlotState::OnItsWay;
        }
        return SlotState::Missing(Finding::warning(
            slot.key.to_string(),
            format!("engine {name} is wanted since {} and not made{why}; an older one serves", utc(issued_at_ms)),
            describe,
        ));
    }
    let cause = cause.map(|cause| format!("engines are wanted and were not made: {cause}"));
    let finding = Finding::problem(
        slot.key.to_string(),
        format!("engine {name} is wanted since {} ({} ago) and was not made{why}", utc(issued_at_ms), span::age(age)),
        format!("the acting master makes it: look at the check \"last tick\", and at its log; {describe}"),
    );
    SlotState::Missing(finding.because(cause))
}

/// An older engine of the slot that serves.
fn stand_in<'a>(view: &SlotView<'a>, slot: &Slot) -> Option<&'a Observed> {
    let older = view.desired.snapshot.engines.iter().filter(|it| it.slot == slot.key && it.end_reason.is_none());
    older.filter(|it| it.incarnation < slot.incarnation).find_map(|it| {
        view.running.listing.find(&it.name).filter(|engine| is_alive(engine) && view.coordinated.is_ready(&it.name))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn engines_that_fail_for_one_cause_have_one_reason() {
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
