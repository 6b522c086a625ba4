//! The scaling groups of the links: those with slots, with demand, or with spare engines.

use std::collections::{BTreeMap, BTreeSet};

use model::demand::ScalingGroup;
use model::owner::Owner;
use model::slot::{Link, StartedFor};

use super::links::LinkOptions;
use super::slots::LinkSlots;
use crate::choose::{AssignedKey, Assignment, Outcome};

/// A group with what its engines are started for.
#[derive(Debug)]
pub(super) struct GroupDemand {
    pub group: ScalingGroup,
    /// The index of its link.
    pub link: usize,
    /// The sessions that are assigned to it.
    pub waiting: u64,
    /// Since when the oldest of its keys has been waiting; `None` without demand.
    pub since_ms: Option<i64>,
    /// Whom its new engines are charged to: the client application whose sessions have waited longest. `None` if only the tenant
    /// is charged.
    pub started_for: Option<StartedFor>,
    /// How many engines without a slot were granted.
    pub granted: u64,
}

/// The groups of all links, link by link, those of one link with the oldest demand first.
pub(super) fn all(links: &[LinkOptions<'_>], assignment: &Assignment) -> Vec<GroupDemand> {
    let mut owners: BTreeMap<&Link, BTreeSet<Option<&Owner>>> = BTreeMap::new();
    for group in assignment.groups.keys() {
        owners.entry(&group.link).or_default().insert(group.owner.as_ref());
    }
    let oldest = oldest_users(assignment);
    let mut groups = Vec::new();
    for (at, link) in links.iter().enumerate() {
        let mut of_link = owners.remove(&link.link).unwrap_or_default();
        of_link.extend(link.slots.iter().flat_map(LinkSlots::owners));
        if link.unit.shared_by.is_kind_of(None) {
            of_link.insert(None);
        }
        let mut of_link: Vec<GroupDemand> = of_link
            .into_iter()
            .map(|owner| {
                let group = ScalingGroup { link: link.link.clone(), owner: owner.cloned() };
                let demand = assignment.groups.get(&group);
                let user = oldest.get(&group).filter(|_| link.unit.shared_by.charges_users());
                GroupDemand {
                    link: at,
                    waiting: demand.map_or(0, |demand| demand.waiting),
                    since_ms: demand.map(|demand| demand.since_ms),
                    started_for: user.map(|(_, started_for)| started_for.clone()),
                    granted: 0,
                    group,
                }
            })
            .collect();
        of_link.sort_by_key(|group| group.since_ms.unwrap_or(i64::MAX));
        groups.extend(of_link);
    }
    groups
}

/// The user and the client application of the oldest key of each group, with the key's age. Keys that are waiting for an engine
/// come before those that have a seat.
fn oldest_users(assignment: &Assignment) -> BTreeMap<ScalingGroup, ((bool, i64), StartedFor)> {
    let mut oldest: BTreeMap<ScalingGroup, ((bool, i64), StartedFor)> = BTreeMap::new();
    for key in &assignment.keys {
        let Some(user) = &key.key.user else { continue };
        let started_for = StartedFor { user: user.clone(), creator: key.key.creator.clone() };
        for (group, is_seated) in groups_of(key) {
            let rank = (is_seated, key.since_ms);
            match oldest.get_mut(group) {
                Some((of_other, _)) if *of_other <= rank => {}
                Some(other) => *other = (rank, started_for.clone()),
                None => drop(oldest.insert(group.clone(), (rank, started_for.clone()))),
            }
        }
    }
    oldest
}

/// The groups that the key's sessions are assigned to, each with whether they have a seat there.
fn groups_of(key: &AssignedKey) -> impl Iterator<Item = (&ScalingGroup, bool)> {
    let rest = key.rest.as_ref().and_then(|rest| match &rest.outcome {
        Outcome::Starts(group) | Outcome::Waits(group, _) => Some((group, false)),
        Outcome::WaitsForSeat(_) | Outcome::Futile(_) | Outcome::OutdatedKey => None,
    });
    key.seated.iter().map(|seated| (&seated.group, true)).chain(rest)
}
