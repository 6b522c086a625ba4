//! Checks of orphans and terminations: every running engine has a row, and undesired engines terminate in time.

use coordination::DrainOrderNode;
use model::clock::utc;
use model::engine_state::Phase;
use model::labels;
use model::millis;
use model::snapshot::EngineRecord;
use model::span;
use orchestrator::ObservedInstance;
use orchestrator::kubernetes::read::DETAIL_POD;
use orchestrator::observed::{DETAIL_DIRECTORY, DETAIL_PID};
use planner::DELETE_AFTER_GRACE;

use super::checks::{ENDS, ORPHANS};
use super::facts::{Coordinated, Desired, Facts, is_alive};
use super::report::{Finding, Report};
use super::target::{REACTION_TIME, Target};

pub fn check(target: &Target, facts: &Facts, report: &mut Report) {
    let (Ok(desired), Ok(running)) = (&facts.desired, &facts.running) else {
        return report.skip(&[ORPHANS, ENDS], &facts.missing());
    };
    let selector = labels::selector(&target.configuration.cluster.name);
    let ours: Vec<&ObservedInstance> = running
        .listing
        .engines
        .iter()
        .map(AsRef::as_ref)
        .filter(|engine: &&ObservedInstance| engine.matches(&selector))
        .collect();
    let foreign = match running.listing.engines.len() - ours.len() {
        0 => String::new(),
        many => format!(", and {many} of other installations"),
    };
    let orphans: Vec<Finding> = ours
        .iter()
        .filter(|engine| desired.engine(&engine.name).is_none())
        .map(|engine| orphan(desired, engine))
        .collect();
    let summary = format!("{} of {} have a row{foreign}", ours.len() - orphans.len(), ours.len());
    report.checked(ORPHANS, summary, orphans);
    let Ok(coordinated) = &facts.coordinated else {
        return report.skip(&[ENDS], &facts.missing());
    };
    let leaving: Vec<(&ObservedInstance, &EngineRecord)> = ours
        .iter()
        .filter(|engine| engine.phase != Phase::Ended && !desired.is_present(&engine.name))
        .filter_map(|engine| Some((*engine, desired.engine(&engine.name)?)))
        .collect();
    let findings: Vec<Finding> = leaving
        .iter()
        .filter_map(|(engine, record)| overdue(facts.wall_ms, desired, coordinated, engine, record))
        .collect();
    let summary = match leaving.len() {
        0 => "no engine is terminating".to_owned(),
        many => {
            format!("{} of {many} undesired engines are within their deadlines", many - findings.len())
        }
    };
    report.checked(ENDS, summary, findings);
}

fn orphan(desired: &Desired, engine: &ObservedInstance) -> Finding {
    let name = &engine.name;
    let what = match desired.others.get(name) {
        Some(Some(detail)) => format!(
            "it is {}, but its row records its end at {} ({})",
            engine.phase,
            utc(detail.record.ended_at_ms.unwrap_or_default()),
            detail.record.ended_reason.as_deref().unwrap_or("no reason recorded")
        ),
        Some(None) => format!("it is {} and its name was never issued: table engine has no row for it", engine.phase),
        None => format!("it is {} and has no open row of table engine", engine.phase),
    };
    let by_hand = match (engine.phase, engine.details.get(DETAIL_PID), engine.details.get(DETAIL_DIRECTORY)) {
        (Phase::Ended, _, Some(directory)) => format!("rm -r {directory}"),
        (_, Some(pid), _) => format!("kill {pid}"),
        _ => match engine.details.get(DETAIL_POD).and_then(|pod| pod.split_once('/')) {
            Some((namespace, pod)) => format!("kubectl delete pod --namespace {namespace} {pod}"),
            None => "terminate it where it runs".to_owned(),
        },
    };
    Finding::problem(
        name.to_string(),
        what,
        format!("the acting master terminates and removes it; manually: {by_hand}"),
    )
}

fn overdue(
    wall_ms: i64,
    desired: &Desired,
    coordinated: &Coordinated,
    engine: &ObservedInstance,
    record: &EngineRecord,
) -> Option<Finding> {
    let name = &engine.name;
    let order = coordinated.nodes.drains.iter().find(|order| order.engine == *name);
    if let Some(order) = order {
        return late(wall_ms, engine, order);
    }
    let slot = desired.snapshot.slots.iter().find(|slot| slot.key == record.slot);
    let replaced = slot.is_some_and(|slot| coordinated.is_ready(&slot.engine()));
    let why = match (&record.end_reason, slot) {
        (Some(reason), _) => format!("it is to be terminated ({reason})"),
        (None, None) => "its slot is gone".to_owned(),
        (None, Some(slot)) if replaced => format!("its replacement {} is ready", slot.engine()),
        // A stand-in serves until its replacement is ready, without a limit.
        (None, Some(_)) => return None,
    };
    // An engine that is terminating without a drain order is being deleted.
    is_alive(engine).then(|| {
        let mend = "the acting master drains it: see the check \"last tick\" and the log of the master";
        Finding::problem(name.to_string(), format!("{why}, and it has no drain order"), mend)
    })
}

fn late(wall_ms: i64, engine: &ObservedInstance, order: &DrainOrderNode) -> Option<Finding> {
    let name = &engine.name;
    let grace = millis::to_duration(order.content.as_ref().map_or(0, |content| content.grace_ms));
    let limit = grace.saturating_add(DELETE_AFTER_GRACE).saturating_add(REACTION_TIME);
    let age = millis::to_duration(wall_ms - order.ctime_ms);
    (age > limit).then(|| {
        let pid = engine.details.get(DETAIL_PID).map(|pid| format!("; manually: kill -9 {pid}")).unwrap_or_default();
        Finding::problem(
            name.to_string(),
            format!(
                "its drain was ordered {} ago with a grace of {}, and it still runs",
                span::age(age),
                span::age(grace)
            ),
            format!("the acting master deletes it: see the check \"last tick\" and the log of the master{pid}"),
        )
    })
}
