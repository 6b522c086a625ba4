//! The demand that no engine was found for, with what it waits for.

use std::collections::BTreeMap;

use model::catalog::Catalog;
use model::demand::ScalingGroup;
use model::demand_report::UnmetDemand;
use model::observation::MAX_UNMET;
use model::slot::SlotKey;
use model::text::as_fragment;

use super::links::LinkOptions;
use crate::admit::Admission;
use crate::choose::{Assignment, Futility, Label, Outcome};
use crate::scale::{Scaled, UnmetReason};

/// The unmet demand, in the order in which it was assigned. The sessions of a group that are unmet are those of its last keys.
pub(super) fn of(
    assignment: &Assignment,
    scaled: &BTreeMap<ScalingGroup, Scaled<SlotKey>>,
    links: &[LinkOptions<'_>],
    group_of: impl Fn(&str) -> Option<ScalingGroup>,
    admission: &Admission<'_>,
    catalog: &Catalog,
) -> Vec<UnmetDemand> {
    let mut left: BTreeMap<&ScalingGroup, u64> = scaled.iter().map(|(group, scaled)| (group, scaled.unmet)).collect();
    let queued: BTreeMap<ScalingGroup, (String, Option<usize>)> = queued(group_of, admission);
    let mut unmet = Vec::new();
    for key in assignment.keys.iter().rev() {
        let Some(rest) = &key.rest else { continue };
        let report = |sessions: u64, reason: String, position: Option<usize>, is_futile: bool| UnmetDemand {
            key: key.key.clone(),
            sessions,
            reason,
            position,
            is_futile,
            generation: catalog.newest_change(&key.key.tenant),
        };
        match &rest.outcome {
            Outcome::Starts(group) | Outcome::Waits(group, _) => {
                let Some(of_group) = left.get_mut(group) else { continue };
                let sessions = rest.sessions.min(*of_group);
                if sessions == 0 {
                    continue;
                }
                *of_group -= sessions;
                let limit = scaled.get(group).and_then(|scaled| scaled.unmet_reason);
                let (reason, position) = waits_for(group, limit, links, &queued);
                unmet.push(report(sessions, reason, position, false));
            }
            Outcome::WaitsForSeat(futility) => {
                let reason =
                    format!("waits for a seat, and no other engine can be started: {}", explained(futility, links));
                unmet.push(report(rest.sessions, reason, None, false));
            }
            Outcome::Futile(futility) => unmet.push(report(rest.sessions, explained(futility, links), None, true)),
            Outcome::OutdatedKey => {
                unmet.push(report(rest.sessions, "its proxy reads the catalog again".to_owned(), None, false));
            }
        }
    }
    unmet.reverse();
    unmet.truncate(MAX_UNMET);
    unmet
}

/// For each group the first of its requests that was not granted: why, and its position.
fn queued(
    group_of: impl Fn(&str) -> Option<ScalingGroup>,
    admission: &Admission<'_>,
) -> BTreeMap<ScalingGroup, (String, Option<usize>)> {
    let mut first = BTreeMap::new();
    for queued in &admission.queued {
        if let Some(group) = group_of(queued.request.id()) {
            first.entry(group).or_insert_with(|| (queued.reason(), Some(queued.position)));
        }
    }
    for rejected in &admission.rejected {
        if let Some(group) = group_of(rejected.request.id()) {
            first.entry(group).or_insert_with(|| (rejected.reason(), None));
        }
    }
    first
}

fn waits_for(
    group: &ScalingGroup,
    limit: Option<UnmetReason>,
    links: &[LinkOptions<'_>],
    queued: &BTreeMap<ScalingGroup, (String, Option<usize>)>,
) -> (String, Option<usize>) {
    let link = links.iter().find(|link| link.link == group.link);
    match (limit, queued.get(group)) {
        (Some(UnmetReason::Max), _) => {
            let most = link.map_or(0, |link| link.unit.max_engines);
            (format!("all engines are full, and MAX_ENGINES is {most}"), None)
        }
        (Some(UnmetReason::BackOff), _) => ("the last start has failed and is repeated after a while".to_owned(), None),
        (Some(UnmetReason::Burst), _) => ("more engines are started soon".to_owned(), None),
        (_, Some(queued)) => queued.clone(),
        (Some(UnmetReason::Quota) | None, None) => ("waits for capacity".to_owned(), None),
    }
}

/// Why no engine can be started: a fragment of a sentence.
fn explained(futility: &Futility, links: &[LinkOptions<'_>]) -> String {
    let of = |group: &ScalingGroup| format!("resource pool \"{}\"", group.link.pool);
    let text = match futility {
        Futility::NoMatch(Label::Tenant) => "the tenant uses no resource pool that offers a unit".to_owned(),
        Futility::NoMatch(Label::Pool) => "the tenant does not use the resource pool".to_owned(),
        Futility::NoMatch(Label::Unit) => "no resource pool of the tenant offers the unit".to_owned(),
        Futility::NoMatch(Label::EngineType) => "no unit of the tenant has the engine type".to_owned(),
        Futility::PoolHasNoNodes(group) => format!("{} has no nodes", of(group)),
        Futility::PoolIsNotRegistered(group) => format!("no program has registered a capacity of {}", of(group)),
        Futility::NotOnDemand(group) => {
            format!("resource unit \"{}\" does not start engines on demand", group.link.unit)
        }
        Futility::StartFails(group) => {
            let link = links.iter().find(|link| link.link == group.link);
            let refusal = link.and_then(|link| link.refusals.get(&group.owner));
            let refusal = refusal.map_or("its engines cannot start", String::as_str);
            format!("resource unit \"{}\": {refusal}", group.link.unit)
        }
        Futility::NeverFits(group) => {
            let link = links.iter().find(|link| link.link == group.link);
            let limit = link.and_then(|link| link.impossible.clone()).unwrap_or_else(|| of(group));
            format!("an engine of resource unit \"{}\" can never fit: {limit}", group.link.unit)
        }
    };
    as_fragment(&text)
}
