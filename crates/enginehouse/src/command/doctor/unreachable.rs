//! The check of machines that failed: which engines are unreachable, on which node and since when, and whether their replacement is
//! suspended.
//!
//! The acting master decides that; its rows and `waits_for` say so. An engine whose slot has another one is a warning: it harms
//! nothing, and only its machine can end it. Each finding begins with code `EH2603`.

use model::engine_state::Phase;
use model::failed_node;
use model::observation::ObservedEngine;

use super::checks::UNREACHABLE;
use super::facts::{Desired, Facts};
use super::report::{Finding, Report};

/// What the master reports in `waits_for` while no engine is replaced because of its node.
const SUSPENDED: &str = "no engine is replaced because of its node";

pub fn check(facts: &Facts, report: &mut Report) {
    let Ok(desired) = &facts.desired else {
        return report.skip(&[UNREACHABLE], &facts.missing_nodes());
    };
    let waits_for = desired.snapshot.master.waits_for.as_deref();
    let suspended = waits_for.and_then(|text| text.split("; ").find(|part| part.contains(SUSPENDED)));
    let engines = desired.observed.iter().map(|(engine, _)| engine);
    let on_failed: Vec<(&ObservedEngine, (&str, &str))> = engines
        .filter(|engine| !engine.registered && engine.phase < Phase::Ended)
        .filter_map(|engine| Some((engine, failed_node::of_reason(engine.reason.as_deref()?)?)))
        .collect();
    let findings = suspended.map(suspension).into_iter();
    let findings = findings.chain(on_failed.iter().map(|(engine, on)| finding(desired, engine, *on)));
    let summary = match on_failed.len() {
        0 => "no engine is on a node that has failed".to_owned(),
        count => format!("{} on nodes that have failed", super::report::count(count, "engine")),
    };
    report.checked(UNREACHABLE, summary, findings.collect());
}

fn suspension(why: &str) -> Finding {
    Finding::problem(
        "failed nodes",
        format!("EH2603: {why}"),
        "check the network and the control plane (kubectl get nodes); the rule holds again when fewer nodes are not ready. Engines that \
         are lost for certain: RESTART ENGINE … FORCE",
    )
}

fn finding(desired: &Desired, engine: &ObservedEngine, (node, since): (&str, &str)) -> Finding {
    let slots = &desired.snapshot.slots;
    let key = desired.engine(&engine.name).map(|record| &record.slot);
    let slot = slots.iter().find(|slot| Some(&slot.key) == key);
    let replaced = match slot {
        Some(slot) if slot.engine() != engine.name => format!("; engine {} takes its place", slot.engine()),
        Some(_) => "; its slot is given another engine if the node does not return".to_owned(),
        None => "; its slot is gone".to_owned(),
    };
    let mend = format!(
        "if the machine returns, what still runs there is adopted or ends by itself; if it never does: kubectl delete node {node}, \
         which also removes its pods"
    );
    Finding::warning(engine.name.to_string(), format!("EH2603: it is not registered, and {since}{replaced}"), mend)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_suspension_is_that_of_the_planner() {
        let planner = include_str!("../../../../planner/src/unreachable.rs");
        assert!(planner.contains(SUSPENDED));
    }
}
