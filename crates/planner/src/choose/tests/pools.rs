//! The rules as a table of six pools.
//!
//! A key names unit `uc_1`, which all pools offer. Its engines have 4 seats. What a cell does not name is unlimited and empty.

use model::quota::Limit;

use super::state::{NOW_MS, State, demand, key, link, pool};
use crate::choose::rules::{Design, Rules};
use crate::choose::{Assignment, Futility, GroupState, Obstacle, Outcome, PoolCondition};

/// Words of a cell: `35%` of the pool's CPU is left (an engine takes 1 %), `mem35` and `eng35` of its memory and engines; `busy2` has 2 pending engines of another unit; `queued`
/// admits no engine; `max` has `MAX_ENGINES`; `back-off`; `new` and `old` have grown by less than a minute ago and by a minute
/// ago; `closed` has no registration; `empty` has no nodes; `manual` has `START_ON_DEMAND` FALSE; `large` never has enough;
/// `free3` has 3 free seats; `starting1` has a pending engine; `full` has an engine without free seats.
///
/// Results: `rp_1:3` takes 3 seats of `rp_1`; `rp_1+3` starts engines in `rp_1` for 3 sessions, or waits for them.
const TABLE: &str = "
| case | W | rp_1 | rp_2 | rp_3 | rp_4 | rp_5 | rp_6 | result |
| list order | 1 | – | – | – | – | – | – | rp_1+1 |
| larger fraction | 1 | 35% | 55% | 95% | 65% | 85% | 15% | rp_3+1 |
| equal in steps of 10 % | 1 | 89% | 91% | 95% | 99% | 30% | 10% | rp_2+1 |
| a step begins at its multiple | 1 | 89% | 90% | 80% | 60% | 10% | 0% | rp_2+1 |
| unlimited is 100 % | 1 | 99% | 99% | 99% | 99% | – | 99% | rp_5+1 |
| the minimum over components | 1 | 95% mem15 | 85% eng35 | 45% | 55% eng45 | 15% eng95 | mem35 | rp_3+1 |
| admitted before a larger fraction | 1 | queued | queued | 15% | 25% | queued | queued | rp_4+1 |
| a pool without enough is queued | 1 | 0% | 0% busy9 | 0% | 0% | 0% | 1% busy9 new | rp_6+1 |
| fewer pending engines | 1 | busy3 | busy2 | busy1 | busy2 | busy1 | busy3 | rp_3+1 |
| fraction before pending engines | 1 | 55% | 95% busy9 | 85% | 75% | 65% | 45% | rp_2+1 |
| new capacity last | 1 | new | new | old | new | new | new | rp_3+1 |
| pending engines before new capacity | 1 | busy1 | new | busy1 | busy1 | busy1 | busy1 | rp_2+1 |
| all new | 1 | new | new | new | new | new | new | rp_1+1 |
| below max before all others | 1 | max | max | 5% busy9 new queued | max | max | max | rp_3+1 short |
| no back-off before all others | 1 | back-off | back-off | back-off | back-off | 5% busy9 new queued | back-off | rp_5+1 short |
| all blocked, same order | 1 | back-off 55% | max 65% | back-off 95% | max 75% | max 35% | back-off 85% | rp_3+1 back-off |
| all at the maximum | 1 | max | max | max | max | max | max | rp_1+1 max |
| all in back-off, back-off named first | 1 | back-off max queued | back-off | back-off | back-off | back-off | back-off | rp_2+1 back-off |
| back-off named before max | 1 | back-off max | max | max | max | max | max | rp_1+1 back-off |
| all short | 1 | queued 15% | queued 35% | queued 25% | queued | queued 45% | queued | rp_4+1 short |
| closed, empty, manual and large are skipped | 1 | closed | empty | manual | large | 5% busy9 new | max | rp_5+1 |
| all empty or closed: the first | 1 | empty | closed | empty | closed | empty | closed | futile+1 empty rp_1 |
| all closed or empty: the first | 1 | closed | empty | closed | empty | closed | empty | futile+1 closed rp_1 |
| the open ones are manual | 1 | empty | closed | manual | manual | closed | empty | futile+1 manual rp_3 |
| what starts on demand is large | 1 | empty | manual | closed | large | large | manual | futile+1 large rp_4 |
| not futile while an engine is full | 1 | closed | manual full | large | empty | empty | empty | seat+1 large rp_3 |
| not futile while one starts | 9 | closed | manual starting2 | large | empty | empty | empty | rp_2:8 seat+1 large rp_3 |
| a start that fails for good is skipped | 1 | fails | fails | 5% busy9 new | fails | fails | max | rp_3+1 |
| all starts fail for good | 1 | empty | manual | fails | fails | large | closed | futile+1 fails rp_3 |
| not futile while another start is repeated | 1 | fails | back-off | fails | fails | fails | fails | rp_2+1 back-off |
| not futile while one that failed serves | 1 | fails full | fails | fails | fails | fails | fails | seat+1 fails rp_1 |
| free seats in list order | 5 | – | free3 | free4 | – | – | – | rp_2:3 rp_3:2 |
| free seats before pending ones | 5 | starting1 | free3 | – | – | – | – | rp_2:3 rp_1:2 |
| seats of pools that start nothing | 9 | closed free1 | empty free1 | manual free2 | large free3 | max free1 | back-off free1 | \
     rp_1:1 rp_2:1 rp_3:2 rp_4:3 rp_5:1 rp_6:1 |
| the rest goes to one link | 30 | free3 | starting1 | starting1 | 85% | 95% | 45% | rp_1:3 rp_2:4 rp_3:4 rp_1+19 |
";

const CASES: usize = 35;

struct Case {
    name: String,
    state: State,
    expected: String,
}

fn cases() -> Vec<Case> {
    let rows = TABLE.replace("\\\n", "");
    let rows: Vec<&str> = rows.lines().filter(|line| line.starts_with("| ")).skip(1).collect();
    rows.into_iter().map(|row| case(&row.trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>())).collect()
}

fn case(columns: &[&str]) -> Case {
    let [name, waiting, pools @ .., expected] = columns else { panic!("{columns:?}") };
    assert_eq!(pools.len(), 6, "{name}");
    let unit = link("rp_1", "uc_1").link.unit;
    let key = model::demand::DemandKey { unit: Some(unit), ..key() };
    let mut state = State { demand: vec![demand(key, waiting.parse().unwrap())], ..State::default() };
    for (index, words) in pools.iter().enumerate() {
        add_pool(&mut state, &format!("rp_{}", index + 1), words);
    }
    Case { name: (*name).to_owned(), state, expected: (*expected).split_whitespace().collect::<Vec<_>>().join(" ") }
}

/// The text without its prefix, as a number.
fn number(word: &str, prefix: &str) -> Option<u64> {
    word.strip_prefix(prefix)?.parse().ok()
}

fn add_pool(state: &mut State, name: &str, words: &str) {
    let (mut pool, mut asked, mut other) = (pool(), link(name, "uc_1"), link(name, "uc_2"));
    let mut group = GroupState::default();
    for word in words.split(' ') {
        if let Some(percent) = word.strip_suffix('%') {
            pool.counter.limit.cpu_m = Limit::Of(100_000);
            pool.counter.held.cpu_m = 100_000 - 1_000 * percent.parse::<i64>().unwrap();
        } else if let Some(percent) = number(word, "mem") {
            pool.counter.limit.memory = Limit::Of(100);
            pool.counter.held.memory = 100 - percent as i64;
        } else if let Some(percent) = number(word, "eng") {
            pool.counter.limit.engines = Limit::Of(100);
            pool.counter.held.engines = 100 - percent as i64;
        } else if let Some(engines) = number(word, "busy") {
            other.groups.insert(None, GroupState { pending: engines, ..GroupState::default() });
        } else if let Some(seats) = number(word, "free") {
            group = GroupState { serving: 1, free_seats: seats, ..group };
        } else if let Some(engines) = number(word, "starting") {
            group.pending = engines;
        } else {
            match word {
                "queued" => asked.admissible = 0,
                "max" => asked.below_max = 0,
                "back-off" => group.is_backing_off = true,
                "fails" => (group.is_backing_off, group.is_refused) = (true, true),
                "new" => pool.grown_at_ms = Some(NOW_MS - 59_999),
                "old" => pool.grown_at_ms = Some(NOW_MS - 60_000),
                "closed" => pool.condition = PoolCondition::NotRegistered,
                "empty" => pool.condition = PoolCondition::NoNodes,
                "manual" => asked.starts_on_demand = false,
                "large" => asked.can_ever_fit = false,
                "full" => group.serving = 1,
                "–" => {}
                _ => panic!("{word}"),
            }
        }
    }
    asked.groups.insert(None, group);
    state.pools.insert(asked.link.pool.clone(), pool);
    state.links.extend([asked, other]);
}

/// The assignment of the only key.
fn printed(assignment: &Assignment) -> String {
    let [key] = &assignment.keys[..] else { return "no key".to_owned() };
    let mut parts: Vec<String> =
        key.seated.iter().map(|seated| format!("{}:{}", seated.group.link.pool, seated.sessions)).collect();
    parts.extend(key.rest.as_ref().map(|rest| {
        let sessions = rest.sessions;
        match &rest.outcome {
            Outcome::Starts(group) => format!("{}+{sessions}", group.link.pool),
            Outcome::Waits(group, Obstacle::BackOff) => format!("{}+{sessions} back-off", group.link.pool),
            Outcome::Waits(group, Obstacle::AtMaximum) => format!("{}+{sessions} max", group.link.pool),
            Outcome::Waits(group, Obstacle::ShortOfCapacity) => format!("{}+{sessions} short", group.link.pool),
            Outcome::WaitsForSeat(reason) => format!("seat+{sessions} {}", word(reason)),
            Outcome::Futile(reason) => format!("futile+{sessions} {}", word(reason)),
            Outcome::OutdatedKey => format!("outdated+{sessions}"),
        }
    }));
    parts.join(" ")
}

fn word(reason: &Futility) -> String {
    match reason {
        Futility::NoMatch(label) => format!("{label:?}"),
        Futility::PoolHasNoNodes(group) => format!("empty {}", group.link.pool),
        Futility::PoolIsNotRegistered(group) => format!("closed {}", group.link.pool),
        Futility::NotOnDemand(group) => format!("manual {}", group.link.pool),
        Futility::NeverFits(group) => format!("large {}", group.link.pool),
        Futility::StartFails(group) => format!("fails {}", group.link.pool),
    }
}

/// The rows whose result differs.
pub(super) fn differing(rules: &dyn Rules) -> Vec<String> {
    let differs = |case: Case| {
        let found = printed(&case.state.chosen_by(rules));
        (found != case.expected).then(|| format!("{}: {found} instead of {}", case.name, case.expected))
    };
    cases().into_iter().filter_map(differs).collect()
}

#[test]
fn six_pools_are_chosen_by_the_ordered_rules() {
    assert_eq!(cases().len(), CASES);
    assert_eq!(differing(&Design), Vec::<String>::new());
}
