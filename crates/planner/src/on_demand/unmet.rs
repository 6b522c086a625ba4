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

/// Sessions that are unmet, of a group or of a key.
struct Unmet {
    sessions: u64,
    reason: Reason,
    is_futile: bool,
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
    /// The unmet demand, each key once, in the order in which it was assigned. The sessions of a group that are unmet are those
    /// of its last keys, also if these have a seat: an engine that was to leave it may not be granted.
    pub fn unmet(&self, admission: &Admission<'_>, catalog: &Catalog) -> Vec<UnmetDemand> {
        let mut left = self.left(admission);
        let links = LazyCell::new(|| self.links.iter().map(|link| (&link.link, link)).collect::<HashMap<_, _>>());
        let explained = |futility: &Futility| explained(futility, |link| links.get(link).copied());
        let mut unmet = Vec::new();
        for key in self.assignment.keys.iter().rev() {
            let rest = key.rest.as_ref().and_then(|rest| {
                let sessions = rest.sessions;
                let waits = |reason: String| Unmet { sessions, reason: (reason, None), is_futile: false };
                match &rest.outcome {
                    Outcome::Starts(group) | Outcome::Waits(group, _) => take(&mut left, group, sessions),
                    Outcome::WaitsForSeat(futility) => {
                        let why = explained(futility);
                        Some(waits(format!("waits for a seat, and no other engine can be started: {why}")))
                    }
                    Outcome::Futile(futility) => Some(Unmet { is_futile: true, ..waits(explained(futility)) }),
                    Outcome::OutdatedKey => Some(waits("its proxy reads the catalog again".to_owned())),
                }
            });
            let seated = key.seated.iter().rev();
            let seated = seated.filter_map(|seated| take(&mut left, &seated.group, seated.sessions));
            let of_key = rest.into_iter().chain(seated);
            let of_key =
                of_key.reduce(|one, other| Unmet { sessions: one.sessions.saturating_add(other.sessions), ..one });
            let Some(Unmet { sessions, reason: (reason, position), is_futile }) = of_key else { continue };
            let generation = catalog.newest_change(&key.key.tenant);
            unmet.push(UnmetDemand { key: key.key.clone(), sessions, reason, position, is_futile, generation });
        }
        unmet.reverse();
        unmet.truncate(MAX_UNMET);
        unmet
    }

    /// The groups with unmet sessions. What counts is the first request of a group that was not granted.
    fn left(&self, admission: &Admission<'_>) -> BTreeMap<&ScalingGroup, Unmet> {
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
            (&demand.group, Unmet { sessions: scaled.unmet, reason, is_futile: false })
        });
        left.collect()
    }
}

/// Takes up to so many of the sessions of the group that are not reported yet.
fn take(left: &mut BTreeMap<&ScalingGroup, Unmet>, group: &ScalingGroup, most: u64) -> Option<Unmet> {
    let left = left.get_mut(group).filter(|left| left.sessions > 0)?;
    let sessions = most.min(left.sessions);
    left.sessions -= sessions;
    Some(Unmet { sessions, reason: left.reason.clone(), ..*left })
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
