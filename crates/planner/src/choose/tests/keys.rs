//! Several keys: their order, what they leave to each other, owners and labels.

use std::collections::BTreeMap;

use model::demand::{Demand, DemandKey, ScalingGroup};
use model::owner::{Owner, SharedBy};
use model::quota::Limit;

use super::state::{NOW_MS, State, demand, group, key, link, pool, pool_name};
use crate::choose::rules::{Design, Rules};
use crate::choose::{Assignment, Futility, GroupState, Label, LinkState, Outcome};
use crate::scale::{EngineCondition, Group, Occupancy, PendingEngine, ReadyEngine, ScalingLimits, StalledSlot};

/// Two pools with one unit each, and one of them with two units.
fn state(demand: Vec<Demand>) -> State {
    let links = vec![link("rp_1", "uc_1"), link("rp_1", "uc_2"), link("rp_2", "uc_1")];
    let pools = ["rp_1", "rp_2"].map(|name| (pool_name(name), pool())).into();
    State { demand, links, pools }
}

fn in_pool(name: &str) -> DemandKey {
    DemandKey { pool: Some(pool_name(name)), ..key() }
}

fn by(creator: &str) -> DemandKey {
    DemandKey { creator: creator.to_owned(), ..key() }
}

fn waiting(assignment: &Assignment) -> Vec<(ScalingGroup, u64)> {
    assignment.groups.iter().map(|(group, of_group)| (group.clone(), of_group.waiting)).collect()
}

/// A case and whether the rules give its result.
type Case = fn(&dyn Rules) -> bool;

pub(super) const CASES: &[(&str, Case)] = &[
    ("a key that specifies more is first", |rules| {
        let older = Demand { since_ms: 0, ..demand(key(), 1) };
        let mut state = state(vec![older, demand(in_pool("rp_1"), 1)]);
        state.links[0].groups.insert(None, GroupState { serving: 1, free_seats: 1, ..GroupState::default() });
        state.links[2].groups.insert(None, GroupState { serving: 1, free_seats: 1, ..GroupState::default() });
        waiting(&state.chosen_by(rules)) == [(group("rp_1", "uc_1"), 1), (group("rp_2", "uc_1"), 1)]
    }),
    ("an older key is before a younger one", |rules| {
        let older = Demand { since_ms: NOW_MS - 9_000, ..demand(by("b"), 1) };
        let mut state = state(vec![demand(by("a"), 1), older]);
        state.links[0].groups.insert(None, GroupState { serving: 1, free_seats: 1, ..GroupState::default() });
        let assignment = state.chosen_by(rules);
        let seated = assignment.keys.iter().find(|key| !key.seated.is_empty());
        seated.is_some_and(|seated| seated.key.creator == "b")
    }),
    ("keys share the engine that the first of them starts", |rules| {
        let mut state = state(vec![demand(by("a"), 1), demand(by("b"), 3), demand(by("c"), 1)]);
        // Each engine that is started makes the other pool the better one.
        for pool in state.pools.values_mut() {
            pool.counter.limit.engines = Limit::Of(10);
        }
        waiting(&state.chosen_by(rules)) == [(group("rp_1", "uc_1"), 4), (group("rp_2", "uc_1"), 1)]
    }),
    ("engines that earlier keys start are counted", |rules| {
        let mut state = state(vec![demand(by("a"), 4), demand(by("b"), 4), demand(by("c"), 4)]);
        state.links.retain(|link| link.link.unit.as_str() == "uc_1");
        let first = |change: fn(&mut LinkState)| {
            let mut state = state.clone();
            change(&mut state.links[0]);
            waiting(&state.chosen_by(rules))
        };
        let both = |one, other| vec![(group("rp_1", "uc_1"), one), (group("rp_2", "uc_1"), other)];
        // By pending engines: one, the other, the first again.
        first(|_| {}) == both(8, 4)
            && first(|link| link.below_max = 1) == both(4, 8)
            && first(|link| link.admissible = 1) == both(4, 8)
    }),
    ("expired demand is ignored", |rules| {
        let expired = Demand { until_ms: NOW_MS, ..demand(by("a"), 1) };
        state(vec![expired]).chosen_by(rules) == Assignment::default()
    }),
    ("engines are those of the owner", |rules| {
        let of = |user: &str| DemandKey { user: Some(user.to_owned()), ..key() };
        let mut state = state(vec![demand(of("ann"), 1), demand(of("bob"), 1)]);
        state.links.truncate(1);
        state.links[0].shared_by = SharedBy::User;
        let ann = Owner::User("ann".to_owned());
        state.links[0].groups.insert(Some(ann), GroupState { serving: 1, free_seats: 4, ..GroupState::default() });
        let groups: BTreeMap<_, _> = state.chosen_by(rules).groups;
        let outcomes = state.chosen_by(rules).keys.into_iter().map(|key| key.rest.is_some());
        groups.keys().all(|group| group.owner.is_some()) && groups.len() == 2 && outcomes.eq([false, true])
    }),
    ("a key without the owner is outdated", |rules| {
        let mut state = state(vec![demand(key(), 1)]);
        for link in &mut state.links {
            link.shared_by = SharedBy::Session;
        }
        let assignment = state.chosen_by(rules);
        assignment.keys.iter().all(|key| key.rest.as_ref().is_some_and(|rest| rest.outcome == Outcome::OutdatedKey))
    }),
    ("the first label without a match is named", |rules| {
        let unit = Some(link("rp_1", "uc_2").link.unit);
        let text = |text: &str| Some(text.to_owned());
        let keys = [
            (DemandKey { tenant: model::TenantName::new("t_2").unwrap(), ..in_pool("rp_3") }, Some(Label::Tenant)),
            (DemandKey { engine_type: text("datafusion"), ..in_pool("rp_3") }, Some(Label::Pool)),
            (DemandKey { unit: unit.clone(), engine_type: text("datafusion"), ..in_pool("rp_2") }, Some(Label::Unit)),
            (DemandKey { engine_type: text("datafusion"), ..key() }, Some(Label::EngineType)),
            (DemandKey { engine_type: text("spark-3.5"), unit, ..key() }, None),
        ];
        keys.into_iter().all(|(key, label)| {
            let assignment = state(vec![demand(key, 1)]).chosen_by(rules);
            let found = assignment.futile().map(|(_, reason)| reason.clone()).next();
            found == label.map(Futility::NoMatch)
        })
    }),
];

/// The cases whose result differs.
pub(super) fn differing(rules: &dyn Rules) -> Vec<&'static str> {
    CASES.iter().filter(|(_, holds)| !holds(rules)).map(|(name, _)| *name).collect()
}

#[test]
fn every_case_of_several_keys_holds() {
    assert_eq!(differing(&Design), Vec::<&str>::new());
}

#[test]
fn the_oldest_of_its_keys_gives_a_group_its_age() {
    let demands = [7, 5, 9].map(|since_ms| Demand { since_ms, ..demand(by(&since_ms.to_string()), 1) });
    let assignment = state(demands.into()).chosen_by(&Design);
    assert_eq!(assignment.groups[&group("rp_1", "uc_1")].since_ms, 5);
}

#[test]
fn an_invalid_type_selects_no_link() {
    let link = LinkState { version: Some("3.5.1".to_owned()), ..link("rp_1", "uc_1") };
    for (label, matches) in
        [("spark", true), ("SPARK-3.5", true), ("spark-3.51", false), ("spark-", false), ("", false)]
    {
        assert_eq!(link.has_type(label), matches, "{label}");
    }
}

#[test]
fn a_group_has_the_seats_that_scaling_counts() {
    let ready = |id, condition, occupancy| ReadyEngine { id, is_on_demand: true, condition, occupancy };
    let sessions = |taken| Occupancy::Sessions { taken, idle_ms: 0 };
    let seats = link("rp_1", "uc_1").seats;
    let group = Group {
        limits: ScalingLimits { seats, min: 0, max: 9, spare: 0, idle_timeout_ms: None, burst: 1 },
        waiting: 0,
        admitted: None,
        is_backing_off: false,
        has_lapsed: false,
        is_cooling: false,
        engines: vec![
            ready(1, EngineCondition::Serving, sessions(1)),
            ready(2, EngineCondition::Serving, Occupancy::Unknown),
            ready(3, EngineCondition::Draining, sessions(0)),
        ],
        pending: vec![PendingEngine { id: 4, is_on_demand: true, has_stand_in: false, is_created: false }],
        stalled: vec![StalledSlot { id: 5, is_on_demand: true, has_stand_in: false, is_backing_off: true }],
    };
    let expected = GroupState { serving: 2, free_seats: 3, pending: 1, is_backing_off: true, is_refused: false };
    assert_eq!(GroupState::from(&group), expected);
}
