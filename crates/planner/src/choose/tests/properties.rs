//! Properties of assignments of random demand. Each takes the rules under test, so that the mutants are judged by the same.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;

use model::demand::{Demand, DemandKey, ScalingGroup};
use model::quota::Limit;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use super::state::{NOW_MS, State, demand, key, link, pool, pool_name};
use crate::choose::rules::{Design, Rules};
use crate::choose::{AssignedKey, Assignment, GroupState, LinkState, Outcome, PoolCondition, Rest};

/// Whether the property holds for a state.
type Property = fn(&dyn Rules, &State) -> bool;

pub(super) const PROPERTIES: &[(&str, Property)] = &[
    ("every waiting session is assigned once", |rules, state| {
        let assignment = state.chosen_by(rules);
        let current = state.demand.iter().filter(|demand| demand.until_ms > NOW_MS).map(|demand| demand.waiting);
        let assigned = |key: &AssignedKey| {
            let seated: u64 = key.seated.iter().map(|seated| seated.sessions).sum();
            seated + key.rest.as_ref().map_or(0, |rest| rest.sessions)
        };
        assignment.keys.iter().all(|key| assigned(key) == key.waiting)
            && assignment.keys.iter().map(|key| key.waiting).sum::<u64>() == current.sum::<u64>()
    }),
    ("a group is scaled for the sessions of its keys", |rules, state| {
        let assignment = state.chosen_by(rules);
        let (seated, rest) = (seated(&assignment), rest(&assignment));
        let of = |group: &ScalingGroup| {
            seated.get(group).copied().unwrap_or_default() + rest.get(group).copied().unwrap_or_default()
        };
        let has_group = |group: &ScalingGroup| assignment.groups.contains_key(group);
        assignment.groups.iter().all(|(group, of_group)| of_group.waiting == of(group))
            && seated.keys().chain(rest.keys()).all(has_group)
    }),
    ("no seat is taken twice", |rules, state| {
        let assignment = state.chosen_by(rules);
        let starts = |group: &ScalingGroup| {
            let outcomes = assignment.keys.iter().filter_map(|key| key.rest.as_ref()).map(|rest| &rest.outcome);
            outcomes.filter(|outcome| matches!(outcome, Outcome::Starts(of) if of == group)).count() as u64
        };
        seated(&assignment).iter().all(|(group, seated)| {
            let (link, of_group) = found(state, group);
            // The last engine that is started for a key has one session at least.
            let planned = starts(group) * (link.seats.get() - 1);
            *seated <= seats(link, &of_group) + planned
        })
    }),
    ("nothing is started while a matching seat is left", |rules, state| {
        let assignment = state.chosen_by(rules);
        let seated = seated(&assignment);
        assignment.keys.iter().filter(|key| key.rest.is_some()).all(|key| {
            matching(state, &key.key).all(|link| {
                let group = ScalingGroup { link: link.link.clone(), owner: None };
                let (_, of_group) = found(state, &group);
                seated.get(&group).copied().unwrap_or_default() >= seats(link, &of_group)
            })
        })
    }),
    ("only links that may start engines do", |rules, state| {
        let assignment = state.chosen_by(rules);
        assignment.keys.iter().all(|key| match key.rest.as_ref().map(|rest| &rest.outcome) {
            Some(Outcome::Starts(group)) => {
                let (link, of_group) = found(state, group);
                may_ever_start(state, link) && link.below_max > 0 && link.admissible > 0 && !of_group.is_backing_off
            }
            Some(Outcome::Waits(group, _)) => may_ever_start(state, found(state, group).0),
            _ => true,
        })
    }),
    ("waiting is futile only where no engine is or comes", |rules, state| {
        let assignment = state.chosen_by(rules);
        assignment.keys.iter().all(|key| {
            let has_engine = matching(state, &key.key).any(|link| {
                let of_group = link.groups.get(&None).copied().unwrap_or_default();
                of_group.serving > 0 || of_group.pending > 0
            });
            let starts = matching(state, &key.key).any(|link| may_ever_start(state, link));
            match key.rest.as_ref().map(|rest| &rest.outcome) {
                Some(Outcome::Futile(_)) => !has_engine && !starts,
                Some(Outcome::WaitsForSeat(_)) => has_engine && !starts,
                Some(_) => starts,
                None => true,
            }
        })
    }),
    ("the first key waits only if every link has an obstacle", |rules, state| {
        let assignment = state.chosen_by(rules);
        let Some(first) = assignment.keys.first() else { return true };
        let may_start = |link: &LinkState| {
            let of_group = link.groups.get(&None).copied().unwrap_or_default();
            let admits = state.pools[&link.link.pool].admits(&link.engine);
            may_ever_start(state, link)
                && link.below_max > 0
                && link.admissible > 0
                && admits
                && !of_group.is_backing_off
        };
        let waits = matches!(first.rest.as_ref().map(|rest| &rest.outcome), Some(Outcome::Waits(..)));
        !waits || !matching(state, &first.key).any(may_start)
    }),
    ("the order of the demand has no effect", |rules, state| {
        let mut reversed = state.clone();
        reversed.demand.reverse();
        state.chosen_by(rules) == reversed.chosen_by(rules)
    }),
    ("the number of proxies has no effect", |rules, state| {
        let mut split = state.clone();
        let more = split.demand.iter_mut().filter(|demand| demand.waiting > 1).map(|demand| {
            demand.waiting -= 1;
            Demand { waiting: 1, ..demand.clone() }
        });
        let more: Vec<Demand> = more.collect();
        split.demand.extend(more);
        state.chosen_by(rules) == split.chosen_by(rules)
    }),
    ("expired demand has no effect", |rules, state| {
        let mut current = state.clone();
        current.demand.retain(|demand| demand.until_ms > NOW_MS);
        state.chosen_by(rules) == current.chosen_by(rules)
    }),
    ("with its engines on their way nothing more is started", |rules, state| {
        let assignment = state.chosen_by(rules);
        let mut after = state.clone();
        for group in starting(&assignment) {
            let (link, of_group) = found(state, &group);
            let sessions = assignment.groups[&group].waiting.saturating_sub(seats(link, &of_group));
            let link = after.links.iter_mut().find(|link| link.link == group.link).unwrap();
            let engines = sessions.div_ceil(link.seats.get());
            if engines > link.below_max || engines > link.admissible {
                return true;
            }
            link.groups.entry(None).or_default().pending += engines;
            link.below_max -= engines;
            link.admissible -= engines;
            after.pools.get_mut(&link.link.pool).unwrap().hold(&link.engine, engines);
        }
        // Where the keys are not nested, an earlier one may take the seats that were started for a later one.
        let is_nested = state.demand.iter().all(|demand| demand.key.unit.is_none());
        !is_nested || starting(&after.chosen_by(rules)).is_empty()
    }),
];

fn seated(assignment: &Assignment) -> BTreeMap<ScalingGroup, u64> {
    let mut sum = BTreeMap::new();
    for seated in assignment.keys.iter().flat_map(|key| &key.seated) {
        *sum.entry(seated.group.clone()).or_default() += seated.sessions;
    }
    sum
}

/// The sessions without a seat that are assigned to each group.
fn rest(assignment: &Assignment) -> BTreeMap<ScalingGroup, u64> {
    let mut sum = BTreeMap::new();
    for rest in assignment.keys.iter().filter_map(|key| key.rest.as_ref()) {
        if let Outcome::Starts(group) | Outcome::Waits(group, _) = &rest.outcome {
            *sum.entry(group.clone()).or_default() += rest.sessions;
        }
    }
    sum
}

/// The groups that start engines.
fn starting(assignment: &Assignment) -> BTreeSet<ScalingGroup> {
    let rests = assignment.keys.iter().filter_map(|key| key.rest.as_ref());
    let starts = |rest: &Rest| match &rest.outcome {
        Outcome::Starts(group) => Some(group.clone()),
        _ => None,
    };
    rests.filter_map(starts).collect()
}

fn found<'a>(state: &'a State, group: &ScalingGroup) -> (&'a LinkState, GroupState) {
    let link = state.links.iter().find(|link| link.link == group.link).unwrap();
    (link, link.groups.get(&group.owner).copied().unwrap_or_default())
}

fn seats(link: &LinkState, group: &GroupState) -> u64 {
    group.free_seats + group.pending * link.seats.get()
}

fn matching<'a>(state: &'a State, key: &'a DemandKey) -> impl Iterator<Item = &'a LinkState> {
    state.links.iter().filter(|link| {
        key.pool.as_ref().is_none_or(|pool| *pool == link.link.pool)
            && key.unit.as_ref().is_none_or(|unit| *unit == link.link.unit)
    })
}

fn may_ever_start(state: &State, link: &LinkState) -> bool {
    state.pools[&link.link.pool].condition == PoolCondition::Open && link.starts_on_demand && link.can_ever_fit
}

const POOLS: [&str; 3] = ["rp_1", "rp_2", "rp_3"];
const UNITS: [&str; 2] = ["uc_1", "uc_2"];

fn links() -> impl Strategy<Value = Vec<LinkState>> {
    let group = (0_u64..3, 0_u64..6, 0_u64..3, prop::bool::weighted(0.2)).prop_map(
        |(serving, free_seats, pending, is_backing_off)| GroupState {
            serving,
            free_seats: if serving == 0 { 0 } else { free_seats },
            pending,
            is_backing_off,
            is_refused: false,
        },
    );
    let limits = (prop_oneof![0_u64..3, Just(1_000)], prop_oneof![0_u64..3, Just(u64::MAX)], 1_u64..5);
    let flags = (prop::bool::weighted(0.85), prop::bool::weighted(0.85), prop::bool::weighted(0.4));
    let one = (group, limits, flags).prop_map(|(group, (below_max, admissible, seats), flags)| LinkState {
        below_max,
        admissible,
        seats: NonZeroU64::new(seats).unwrap(),
        starts_on_demand: flags.0,
        can_ever_fit: flags.1,
        groups: flags.2.then_some((None, group)).into_iter().collect(),
        ..link("rp_1", "uc_1")
    });
    prop::collection::vec(one, POOLS.len() * UNITS.len()).prop_map(|links| {
        let names = POOLS.into_iter().flat_map(|pool| UNITS.map(|unit| link(pool, unit).link));
        links.into_iter().zip(names).map(|(state, link)| LinkState { link, ..state }).collect()
    })
}

fn demands() -> impl Strategy<Value = Vec<Demand>> {
    let pool = prop::option::of(prop::sample::select(&POOLS[..]));
    let unit = prop::option::weighted(0.3, prop::sample::select(&UNITS[..]));
    let key = (pool, unit, prop::sample::select(vec!["a", "b"])).prop_map(|(pool, unit, creator)| DemandKey {
        pool: pool.map(pool_name),
        unit: unit.map(|unit| link("rp_1", unit).link.unit),
        creator: creator.to_owned(),
        ..key()
    });
    let until = prop_oneof![1 => Just(NOW_MS), 5 => Just(NOW_MS + 1)];
    let one = (key, 1_u64..12, 0_i64..4, until);
    prop::collection::vec(one, 0..5).prop_map(|rows| {
        let row = |(key, waiting, since_ms, until_ms)| Demand { since_ms, until_ms, ..demand(key, waiting) };
        rows.into_iter().map(row).collect()
    })
}

fn states() -> impl Strategy<Value = State> {
    let condition = prop_oneof![
        8 => Just(PoolCondition::Open),
        1 => Just(PoolCondition::NoNodes),
        1 => Just(PoolCondition::NotRegistered),
    ];
    let limit = prop_oneof![Just(Limit::Unlimited), (0_i64..20).prop_map(Limit::Of)];
    let pools = prop::collection::vec((condition, limit), POOLS.len());
    (demands(), links(), pools).prop_map(|(demand, links, pools)| {
        let pools = POOLS.into_iter().zip(pools).map(|(name, (condition, limit))| {
            let mut pool = pool();
            pool.condition = condition;
            pool.counter.limit.engines = limit;
            (pool_name(name), pool)
        });
        State { demand, links, pools: pools.collect() }
    })
}

/// The same states with each call.
pub(super) fn fixed(count: usize) -> Vec<State> {
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let strategy = states();
    (0..count).map(|_| strategy.new_tree(&mut runner).unwrap().current()).collect()
}

/// The properties that the rules violate for the state.
pub(super) fn violated(rules: &dyn Rules, state: &State) -> Vec<&'static str> {
    PROPERTIES.iter().filter(|(_, holds)| !holds(rules, state)).map(|(name, _)| *name).collect()
}

/// The number of random states; `PROPTEST_CASES` can raise it.
fn config() -> ProptestConfig {
    let default = ProptestConfig::default();
    ProptestConfig { cases: default.cases.max(2_000), ..default }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn every_property_holds_for_random_demand(state in states()) {
        prop_assert_eq!(violated(&Design, &state), Vec::<&str>::new(), "{:#?}", state.chosen_by(&Design));
    }
}
