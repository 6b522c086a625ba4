//! The demand that no engine was found for, with what it waits for.

use std::cell::LazyCell;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use model::catalog::Catalog;
use model::demand::ScalingGroup;
use model::demand_report::UnmetDemand;
use model::observation::MAX_UNMET;
use model::slot::{Link, SlotKey};
use model::text::as_fragment;

use super::groups::GroupDemand;
use super::links::LinkOptions;
use crate::admit::{Admission, Queued, Rejected};
use crate::choose::{Assignment, Futility, Label, Outcome};
use crate::scale::{Scaled, UnmetReason};

/// Why sessions are unmet, and the position of their request in the queue.
type Reason = (String, Option<usize>);

/// The sessions of a group that are unmet and not reported yet.
struct Left {
    sessions: u64,
    reason: Reason,
}

/// Why a request was not granted.
#[derive(Clone, Copy)]
enum NotGranted<'a> {
    Queued(&'a Queued<'a>),
    Rejected(&'a Rejected<'a>),
}

impl NotGranted<'_> {
    fn reason(self) -> Reason {
        match self {
            Self::Queued(queued) => (queued.reason(), Some(queued.position)),
            Self::Rejected(rejected) => (rejected.reason(), None),
        }
    }
}

/// What was assigned, wanted and scaled.
pub(super) struct Planned<'a> {
    pub assignment: &'a Assignment,
    pub links: &'a [LinkOptions<'a>],
    pub groups: &'a [GroupDemand],
    /// The requests for engines without a slot, by id, with the index of their group.
    pub wanted: &'a HashMap<Arc<str>, usize>,
    /// The result for each group.
    pub scaled: &'a [Scaled<&'a SlotKey>],
}

impl Planned<'_> {
    /// The unmet demand, in the order in which it was assigned. The sessions of a group that are unmet are those of its last keys.
    pub fn unmet(&self, admission: &Admission<'_>, catalog: &Catalog) -> Vec<UnmetDemand> {
        let mut left = self.left(admission);
        let links = LazyCell::new(|| self.links.iter().map(|link| (&link.link, link)).collect::<HashMap<_, _>>());
        let explained = |futility: &Futility| explained(futility, |link| links.get(link).copied());
        let mut unmet = Vec::new();
        for key in self.assignment.keys.iter().rev() {
            let Some(rest) = &key.rest else { continue };
            let mut report = |sessions: u64, (reason, position): Reason, is_futile: bool| {
                let generation = catalog.newest_change(&key.key.tenant);
                unmet.push(UnmetDemand { key: key.key.clone(), sessions, reason, position, is_futile, generation });
            };
            match &rest.outcome {
                Outcome::Starts(group) | Outcome::Waits(group, _) => {
                    let Some(left) = left.get_mut(group) else { continue };
                    let sessions = rest.sessions.min(left.sessions);
                    if sessions > 0 {
                        left.sessions -= sessions;
                        report(sessions, left.reason.clone(), false);
                    }
                }
                Outcome::WaitsForSeat(futility) => {
                    let why = explained(futility);
                    let reason = format!("waits for a seat, and no other engine can be started: {why}");
                    report(rest.sessions, (reason, None), false);
                }
                Outcome::Futile(futility) => report(rest.sessions, (explained(futility), None), true),
                Outcome::OutdatedKey => {
                    report(rest.sessions, ("its proxy reads the catalog again".to_owned(), None), false);
                }
            }
        }
        unmet.reverse();
        unmet.truncate(MAX_UNMET);
        unmet
    }

    /// The groups with unmet sessions. What counts is the first request of a group that was not granted.
    fn left(&self, admission: &Admission<'_>) -> BTreeMap<&ScalingGroup, Left> {
        let queued = admission.queued.iter().map(|queued| (queued.request, NotGranted::Queued(queued)));
        let rejected = admission.rejected.iter().map(|rejected| (rejected.request, NotGranted::Rejected(rejected)));
        let mut first: HashMap<usize, NotGranted<'_>> = HashMap::new();
        for (request, why) in queued.chain(rejected) {
            if let Some(group) = self.wanted.get(request.id()) {
                first.entry(*group).or_insert(why);
            }
        }
        let groups = self.groups.iter().zip(self.scaled).enumerate().filter(|(_, (_, scaled))| scaled.unmet > 0);
        let left = groups.map(|(at, (demand, scaled))| {
            let reason = waits_for(scaled.unmet_reason, &self.links[demand.link], first.get(&at).copied());
            (&demand.group, Left { sessions: scaled.unmet, reason })
        });
        left.collect()
    }
}

fn waits_for(limit: Option<UnmetReason>, link: &LinkOptions<'_>, request: Option<NotGranted<'_>>) -> Reason {
    match (limit, request) {
        (Some(UnmetReason::Max), _) => {
            (format!("all engines are full, and MAX_ENGINES is {}", link.unit.max_engines), None)
        }
        (Some(UnmetReason::BackOff), _) => ("the last start has failed and is repeated after a while".to_owned(), None),
        (Some(UnmetReason::Burst), _) => ("more engines are started soon".to_owned(), None),
        (_, Some(request)) => request.reason(),
        (Some(UnmetReason::Quota) | None, None) => ("waits for capacity".to_owned(), None),
    }
}

/// Why no engine can be started: a fragment of a sentence.
fn explained<'l>(futility: &Futility, link: impl Fn(&Link) -> Option<&'l LinkOptions<'l>>) -> String {
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
            let refusal = link(&group.link).and_then(|link| link.refusals.get(&group.owner));
            let refusal = refusal.map_or("its engines cannot start", String::as_str);
            format!("resource unit \"{}\": {refusal}", group.link.unit)
        }
        Futility::NeverFits(group) => {
            let limit = link(&group.link).and_then(|link| link.impossible.clone()).unwrap_or_else(|| of(group));
            format!("an engine of resource unit \"{}\" can never fit: {limit}", group.link.unit)
        }
    };
    as_fragment(&text)
}
