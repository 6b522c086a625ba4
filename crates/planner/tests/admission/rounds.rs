//! Rounds of admission and reclaim until nothing changes: no sequence of rounds goes on for ever.
//!
//! Every engine is always idle and has a slot, so what is reclaimed is queued again. Engines drain for different times.

use std::collections::BTreeSet;

use model::ledger::{End, State};
use model::quota::Limit;
use planner::{AdmissionRules, Headroom, Request, RunningEngine, admit, awaiting, reclaim};
use proptest::prelude::*;

use crate::sample::{AT, Quota, pool, quota, request, rules, tenant_name};

/// More than any of these worlds needs, and less than for ever.
const MOST_ROUNDS: usize = 300;

struct Slot {
    name: String,
    tenant: &'static str,
    cores: i64,
    incarnation: u32,
    /// Its engine, with the rounds until it has drained.
    engine: Option<(RunningEngine, usize)>,
}

impl Slot {
    fn request(&self) -> Request {
        request(&format!("{}#{:03}", self.name, self.incarnation), self.tenant, self.cores)
    }
}

struct Rounds {
    headroom: Headroom,
    slots: Vec<Slot>,
    /// How many rounds each reclaimed engine drains, in turns.
    drains: Vec<usize>,
    reclaimed: usize,
    /// Whether borrowers wait while reclaimed engines drain.
    has_waits: bool,
}

impl Rounds {
    fn new(headroom: Headroom, slots: Vec<(&'static str, i64)>, drains: Vec<usize>) -> Self {
        let slot = |(number, (tenant, cores))| Slot {
            name: format!("{tenant}-{number:02}"),
            tenant,
            cores,
            incarnation: 1,
            engine: None,
        };
        let slots = slots.into_iter().enumerate().map(slot).collect();
        Self { headroom, slots, drains, reclaimed: 0, has_waits: true }
    }

    /// Ends engines that have drained. Their slots request others.
    fn end_drained(&mut self) {
        for slot in &mut self.slots {
            let Some((engine, left)) = slot.engine.as_mut().filter(|(engine, _)| engine.is_draining) else { continue };
            *left -= 1;
            if *left == 0 {
                let end = End { id: engine.id.clone(), state: State::Released, reason: "reclaimed".into() };
                self.headroom.ledger.end(&end, AT).unwrap();
                slot.incarnation += 1;
                slot.engine = None;
            }
        }
    }

    fn engines(&self) -> Vec<RunningEngine> {
        self.slots.iter().filter_map(|slot| Some(slot.engine.as_ref()?.0.clone())).collect()
    }

    /// One round; returns whether anything changed or is about to.
    fn round(&mut self, now: usize) -> bool {
        self.end_drained();
        let requests: Vec<Request> =
            self.slots.iter().filter(|slot| slot.engine.is_none()).map(Slot::request).collect();
        let waits = if self.has_waits { awaiting(&self.headroom, &self.engines()) } else { BTreeSet::new() };
        let admission = admit(&requests, &mut self.headroom, &AdmissionRules { awaiting: waits, ..rules() });
        for granted in &admission.granted {
            let engine = RunningEngine {
                id: granted.reservation.id.clone(),
                is_idle: true,
                started_at_ms: now as i64,
                is_draining: false,
                reclaimed_for: None,
                nodes: Vec::new(),
            };
            let slot = self.slots.iter_mut().find(|slot| slot.request().id() == granted.id()).unwrap();
            slot.engine = Some((engine, 0));
        }
        let engines = self.engines();
        let victims = reclaim(self.headroom.clone(), &admission.queued, &engines, &BTreeSet::new(), AT);
        for victim in &victims {
            let is_victim = |engine: &RunningEngine| engine.id == victim.engine.id;
            let mut all = self.slots.iter_mut().filter_map(|slot| slot.engine.as_mut());
            let (engine, left) = all.find(|(engine, _)| is_victim(engine)).unwrap();
            engine.is_draining = true;
            engine.reclaimed_for = Some(tenant_name(victim.request.reservation.scopes.tenant_name()));
            *left = self.drains[self.reclaimed % self.drains.len()];
            self.reclaimed += 1;
        }
        let drains = engines.iter().any(|engine| engine.is_draining);
        !admission.granted.is_empty() || !victims.is_empty() || drains
    }

    /// Returns whether the rounds end.
    fn settle(&mut self) -> bool {
        (0..MOST_ROUNDS).any(|now| !self.round(now))
    }

    fn held(&self, tenant: &str) -> i64 {
        let slots = self.slots.iter().filter(|slot| slot.tenant == tenant && slot.engine.is_some());
        slots.map(|slot| slot.cores).sum()
    }
}

/// A fills the pool with engines of 3 before B, which has the same quota, requests one of 8.
fn late_rival() -> Rounds {
    let tenants = [("t_a", quota(2, Limit::Unlimited)), ("t_b", quota(2, Limit::Unlimited))];
    let mut slots = vec![("t_a", 3); 6];
    slots.push(("t_b", 8));
    let mut rounds = Rounds::new(pool(Limit::Of(20), &tenants), slots, vec![1, 3]);
    let late = rounds.slots.pop().unwrap();
    assert!(rounds.settle());
    assert_eq!((rounds.held("t_a"), rounds.reclaimed), (18, 0));
    rounds.slots.push(late);
    rounds
}

#[test]
fn a_reclaim_of_engines_that_end_one_by_one_happens_once() {
    let mut rounds = late_rival();
    assert!(rounds.settle());
    assert_eq!((rounds.held("t_a"), rounds.held("t_b"), rounds.reclaimed), (12, 8, 2));
}

#[test]
fn without_the_wait_of_borrowers_the_same_reclaim_never_ends() {
    let mut rounds = late_rival();
    rounds.has_waits = false;
    assert!(!rounds.settle());
    assert!(rounds.reclaimed > MOST_ROUNDS / 4, "{}", rounds.reclaimed);
    assert_eq!(rounds.held("t_b"), 0);
}

#[test]
fn guarantees_are_met_although_others_came_first() {
    let tenants = [("t_a", quota(4, Limit::Unlimited)), ("t_b", quota(8, Limit::Unlimited)), ("t_n", None)];
    let mut rounds = Rounds::new(pool(Limit::Of(20), &tenants), vec![("t_a", 2); 10], vec![3, 1]);
    assert!(rounds.settle());
    assert_eq!(rounds.held("t_a"), 20);
    let mut late = Rounds::new(Headroom::default(), vec![("t_b", 2); 5], vec![1]).slots;
    late.extend(Rounds::new(Headroom::default(), vec![("t_n", 2); 5], vec![1]).slots);
    rounds.slots.extend(late);
    assert!(rounds.settle());
    assert!(rounds.held("t_a") >= 4 && rounds.held("t_b") >= 8, "{} {}", rounds.held("t_a"), rounds.held("t_b"));
    assert_eq!(rounds.held("t_n"), 8, "the unguaranteed part");
}

/// The rounds of tenants A, B and C after the early slots have settled and the late ones have come.
fn after_late(mut rounds: Rounds, late: Vec<(&'static str, i64)>) -> Rounds {
    assert!(rounds.settle());
    let mut later = Rounds::new(Headroom::default(), late, vec![1]).slots;
    for slot in &mut later {
        slot.name.insert_str(0, "late-");
    }
    rounds.slots.extend(later);
    rounds
}

/// B has a queued engine of 4 before one of 1. What C borrows could be reclaimed for the small one only, whose turn comes
/// after that of the slot that is reclaimed.
#[test]
fn nothing_is_reclaimed_for_a_request_behind_one_of_its_tenant() {
    let tenants =
        [("t_a", quota(0, Limit::Unlimited)), ("t_b", quota(0, Limit::Unlimited)), ("t_c", quota(2, Limit::Unlimited))];
    let early = vec![("t_a", 4), ("t_c", 2), ("t_b", 2), ("t_c", 1), ("t_b", 5)];
    let rounds = Rounds::new(pool(Limit::Of(23), &tenants), early, vec![1]);
    let mut rounds = after_late(rounds, vec![("t_c", 4), ("t_b", 4), ("t_b", 1), ("t_c", 4), ("t_c", 1)]);
    assert!(rounds.settle(), "{} reclaims", rounds.reclaimed);
    assert_eq!((rounds.held("t_b"), rounds.held("t_c"), rounds.reclaimed), (7, 12, 0));
}

/// C has no quota, and B borrows with engines of 1 and of 2, of which the small one is its guarantee.
#[test]
fn a_request_without_a_guarantee_leaves_the_victim_its_own() {
    let without_weight = Quota { guarantee: 1, borrow: Limit::Unlimited, lend: Limit::Unlimited, weight: 0 };
    let tenants = [("t_a", quota(0, Limit::Unlimited)), ("t_b", Some(without_weight)), ("t_c", None)];
    let early = vec![("t_a", 4), ("t_b", 1), ("t_c", 1), ("t_c", 5), ("t_b", 2), ("t_c", 4)];
    let rounds = Rounds::new(pool(Limit::Of(19), &tenants), early, vec![1]);
    let mut rounds = after_late(rounds, vec![("t_a", 1), ("t_c", 4)]);
    assert!(rounds.settle(), "{} reclaims", rounds.reclaimed);
    assert!(rounds.held("t_b") >= 1, "{}", rounds.held("t_b"));
}

/// The number of random worlds; `PROPTEST_CASES` overrides it.
fn cases() -> u32 {
    std::env::var_os("PROPTEST_CASES").map_or(400, |_| ProptestConfig::default().cases)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn rounds_of_admission_and_reclaim_reach_a_fixed_point(
        guarantees in
            prop::collection::vec(prop::option::weighted(0.8, (0..8i64, 0..3u32, prop::option::of(0..8i64))), 3),
        capacity in 5..30i64,
        early in prop::collection::vec((0..3usize, 1..6i64), 0..10),
        late in prop::collection::vec((0..3usize, 1..6i64), 0..10),
        drains in prop::collection::vec(1..4usize, 1..5),
    ) {
        let quota = |(guarantee, weight, lend): (i64, u32, Option<i64>)| Quota {
            guarantee,
            borrow: Limit::Unlimited,
            lend: lend.map_or(Limit::Unlimited, Limit::Of),
            weight,
        };
        let names = ["t_a", "t_b", "t_c"];
        let tenants: Vec<_> = names.into_iter().zip(guarantees.into_iter().map(|each| each.map(quota))).collect();
        let slots = |all: Vec<(usize, i64)>| all.into_iter().map(|(tenant, cores)| (names[tenant], cores)).collect();
        let mut rounds = Rounds::new(pool(Limit::Of(capacity), &tenants), slots(early), drains.clone());
        prop_assert!(rounds.settle(), "the early slots");
        let mut later = Rounds::new(Headroom::default(), slots(late), drains).slots;
        for slot in &mut later {
            slot.name.insert_str(0, "late-");
        }
        rounds.slots.extend(later);
        prop_assert!(rounds.settle(), "with the late ones, after {} reclaims", rounds.reclaimed);
        prop_assert!(rounds.headroom.ledger.drifts().unwrap().is_empty());
    }
}
