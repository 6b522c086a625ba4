//! Rules with a counterexample: each case fails if the rule is left out.

use std::sync::Arc;

use model::ledger::{
    Actual, Amounts, Change, Confirmation, Ledger, Of, Refusal, Request, Role, Scope, ScopeKey, Scopes, Shortage, State,
};
use model::quota::{Guarantee, Limit};
use model::resource::{Amount, Component, Resource, Triple};

use crate::sample::{
    NO_GUARANTEE, at, capacity, claim, cores, cpu, end, engine, external, guarantee, held, ledger, pool, pool_name,
    short, tenant, tenant_name,
};

fn arc(request: Request) -> Arc<Request> {
    Arc::new(request)
}

/// Two requests take a tenant's last exclusive CPU: both are added to the shared part as far as they exceed it.
#[test]
fn the_shared_part_grows_by_what_exceeds_the_exclusive_one() {
    let half = guarantee(10_000, Limit::Unlimited, Limit::Of(0));
    let mut ledger =
        ledger(capacity(20_000), &[("t_a", half), ("t_b", guarantee(5_000, Limit::Unlimited, Limit::Of(0)))]);
    ledger.reserve(&arc(engine("t_a", "one", 1, cores(6_000))), at(1)).unwrap();
    ledger.reserve(&arc(engine("t_a", "two", 1, cores(7_000))), at(1)).unwrap();
    let row = ledger.scope(&pool()).unwrap().pool_component(Component::Cpu).unwrap();
    assert_eq!((row.shared_held, row.shared), (3_000, Limit::Of(5_000)));
    let refused = short(ledger.reserve(&arc(engine("t_a", "three", 1, cores(2_500))), at(1)).unwrap_err());
    assert_eq!(refused.of, Of::Shared);
    ledger.reserve(&arc(engine("t_b", "four", 1, cores(5_000))), at(1)).unwrap();
}

/// A component that a guarantee does not name is not free for its tenant: it counts as unguaranteed.
#[test]
fn a_component_without_a_guarantee_is_limited_like_a_tenant_without_a_quota() {
    let mut memory = guarantee(0, Limit::Of(0), Limit::Unlimited);
    (memory.memory, memory.cpu_m) = (memory.cpu_m, None);
    memory.memory = memory.memory.map(|guarantee| Guarantee { amount: 8, ..guarantee });
    let mut pool = capacity(10_000);
    pool.capacity.memory = Limit::Of(10);
    let mut ledger = ledger(pool, &[("t_a", guarantee(10_000, Limit::Of(0), Limit::Unlimited)), ("t_b", memory)]);
    let amounts = |memory| Amounts::same(Amount { cpu_m: 1, memory, engines: 1 }).unwrap();
    let refused = short(ledger.reserve(&arc(engine("t_a", "one", 1, amounts(3))), at(1)).unwrap_err());
    assert_eq!((refused.of, refused.limit), (Of::Unguaranteed, 2));
    ledger.reserve(&arc(engine("t_a", "one", 2, amounts(2))), at(1)).unwrap();
}

/// RESTART after ALTER: the old engine's charge is returned, not that of the new size.
#[test]
fn a_release_returns_what_was_charged() {
    let mut ledger = ledger(capacity(40_000), &[("t_a", NO_GUARANTEE)]);
    let (old, new) = (engine("t_a", "l", 1, cores(4_000)), engine("t_a", "l", 2, cores(1_000)));
    ledger.reserve(&arc(old.clone()), at(1)).unwrap();
    ledger.reserve(&arc(new.clone()), at(2)).unwrap();
    assert_eq!((held(&ledger, &tenant("t_a")), held(&ledger, &pool())), (4_000, 5_000), "the maximum, and both");
    ledger.end(&end(&old, State::Released), at(3)).unwrap();
    assert_eq!((held(&ledger, &tenant("t_a")), held(&ledger, &pool())), (1_000, 1_000));
    ledger.end(&end(&new, State::Lost), at(3)).unwrap();
    assert_eq!((held(&ledger, &tenant("t_a")), held(&ledger, &pool())), (0, 0));
}

/// A replacement of the same size waits for the pool only, and for no quota that has been lowered.
#[test]
fn a_replacement_of_the_same_size_is_granted_above_the_limit_of_its_tenant() {
    let mut ledger = ledger(capacity(10_000), &[("t_a", guarantee(4_000, Limit::Of(0), Limit::Unlimited))]);
    ledger.reserve(&arc(engine("t_a", "l", 1, cores(4_000))), at(1)).unwrap();
    // Nothing ends because a limit is lowered.
    let lowered = guarantee(1_000, Limit::Of(3_500), Limit::Unlimited);
    ledger.set_limits(&tenant("t_a"), &Scope::tenant(&lowered)).unwrap();
    ledger.reserve(&arc(engine("t_a", "l", 2, cores(4_000))), at(2)).unwrap();
    assert_eq!(held(&ledger, &tenant("t_a")), 4_000);
    let refused = short(ledger.reserve(&arc(engine("t_a", "l", 3, cores(4_000))), at(2)).unwrap_err());
    assert_eq!(refused.word(), "POOL_CPU");
}

/// Between the end of an engine and its successor, no other request can take the capacity.
#[test]
fn a_transfer_keeps_the_capacity_for_the_successor() {
    let mut ledger = ledger(capacity(10_000), &[("t_a", NO_GUARANTEE), ("t_b", NO_GUARANTEE)]);
    let (old, new) = (engine("t_a", "l", 1, cores(8_000)), engine("t_a", "l", 2, cores(9_000)));
    ledger.reserve(&arc(old.clone()), at(1)).unwrap();
    let other = arc(engine("t_b", "m", 1, cores(1_500)));
    ledger.reserve(&other, at(1)).unwrap();
    let refused = short(ledger.transfer(&old.id, &arc(new.clone()), at(2)).unwrap_err());
    assert_eq!((refused.asked, refused.left, held(&ledger, &tenant("t_a"))), (1_000, 500, 8_000));
    ledger.end(&end(&other, State::Released), at(3)).unwrap();
    for _ in 0..2 {
        let successor = ledger.transfer(&old.id, &arc(new.clone()), at(4)).unwrap();
        assert_eq!((successor.state, ledger.reservation(&old.id).unwrap().state), (State::Locked, State::Released));
        assert_eq!((held(&ledger, &tenant("t_a")), held(&ledger, &pool())), (9_000, 9_000));
    }
    let smaller = arc(engine("t_a", "l", 3, cores(2_000)));
    ledger.transfer(&new.id, &smaller, at(5)).unwrap();
    assert_eq!(held(&ledger, &pool()), 2_000);
}

#[test]
fn two_programs_never_run_under_one_reservation() {
    let mut ledger = ledger(capacity(10_000), &[("t_a", NO_GUARANTEE)]);
    ledger.put_scope(ScopeKey::user("alice"), Scope::principal(cpu(5_000)));
    let request = arc(external("x", Some("alice"), cores(2_000)));
    ledger.reserve(&request, at(1)).unwrap();
    let resource = Resource::Cpu { cpu_m: 3_000 };
    let actual = Some(Actual { resource, amounts: cores(3_000) });
    let confirmation =
        |uid: &str| Confirmation { claim: claim(&request, uid), actual: actual.clone(), lease_ms: Some(50) };
    let mut foreign = confirmation("one");
    foreign.claim.user = "eve".to_owned();
    assert_eq!(ledger.confirm(&foreign, at(2)), Err(Refusal::Unknown("x".into())));
    let used = ledger.confirm(&confirmation("one"), at(2)).unwrap();
    assert_eq!((used.state, used.deadline_ms), (State::Used, Some(52)));
    assert_eq!(held(&ledger, &ScopeKey::user("alice")), 3_000, "what is used is charged, also if it is more");
    assert_eq!(ledger.confirm(&confirmation("one"), at(3)).unwrap(), used, "a repeat");
    assert_eq!(ledger.confirm(&confirmation("two"), at(3)), Err(Refusal::Unknown("x".into())));
    assert_eq!(ledger.renew(&claim(&request, "one"), 50, at(40)).unwrap().deadline_ms, Some(90));
    assert!(ledger.renew(&claim(&request, "one"), 50, at(90)).is_err(), "its lease has ended");
}

#[test]
fn a_confirmation_after_the_deadline_is_refused_for_external_holders_only() {
    let mut ledger = ledger(capacity(10_000), &[("t_a", NO_GUARANTEE)]);
    let (engine, program) = (arc(engine("t_a", "l", 1, cores(1))), arc(external("x", None, cores(1))));
    for request in [&engine, &program] {
        ledger.reserve(request, at(0)).unwrap();
    }
    let confirm = |request: &Request| Confirmation { claim: claim(request, "u"), actual: None, lease_ms: Some(50) };
    assert_eq!(ledger.confirm(&confirm(&program), at(300)), Err(Refusal::Unknown("x".into())));
    let used = ledger.confirm(&confirm(&engine), at(3_600)).unwrap();
    assert_eq!((used.state, used.deadline_ms), (State::Used, None));
}

/// A running engine is charged whatever the limits, before anything else is granted.
#[test]
fn an_adopted_engine_is_charged_regardless_of_limits() {
    let mut ledger = ledger(capacity(1_000), &[("t_a", NO_GUARANTEE)]);
    let running = arc(engine("t_a", "l", 1, cores(5_000)));
    for _ in 0..2 {
        assert_eq!(ledger.adopt(&running, "uid", at(1)).unwrap().state, State::Used);
        assert_eq!(held(&ledger, &pool()), 5_000);
    }
    let refused = short(ledger.reserve(&arc(engine("t_a", "m", 1, cores(1))), at(1)).unwrap_err());
    assert_eq!(refused.left, -4_000);
    ledger.end(&end(&running, State::Lost), at(2)).unwrap();
    ledger.adopt(&running, "uid", at(3)).unwrap();
    assert_eq!(held(&ledger, &pool()), 5_000, "a lost engine that still runs");
}

#[test]
fn a_name_whose_reservation_has_ended_is_not_reserved_again() {
    let mut ledger = ledger(capacity(1_000), &[("t_a", NO_GUARANTEE)]);
    let request = arc(engine("t_a", "l", 1, cores(1_000)));
    ledger.reserve(&request, at(1)).unwrap();
    let early = ledger.end(&end(&request, State::Expired), at(2));
    assert!(matches!(early, Err(Refusal::WrongState { .. })), "its deadline has not passed");
    ledger.end(&end(&request, State::Expired), at(400)).unwrap();
    assert_eq!(ledger.reserve(&request, at(401)).unwrap().state, State::Expired);
    assert_eq!(held(&ledger, &pool()), 0);
    let other = arc(engine("t_a", "l", 1, cores(999)));
    assert_eq!(ledger.reserve(&other, at(402)), Err(Refusal::OtherRequest("l-1".into())));
}

#[test]
fn a_closed_scope_grants_nothing_and_returns_charges() {
    let mut ledger = ledger(capacity(1_000), &[("t_a", NO_GUARANTEE)]);
    let request = arc(engine("t_a", "l", 1, cores(500)));
    ledger.reserve(&request, at(1)).unwrap();
    let mut closed = *ledger.scope(&tenant("t_a")).unwrap();
    closed.is_open = false;
    ledger.set_limits(&tenant("t_a"), &closed).unwrap();
    let refused = ledger.reserve(&arc(engine("t_a", "m", 1, cores(1))), at(2));
    assert_eq!(refused, Err(Refusal::Closed(tenant("t_a"))));
    ledger.end(&end(&request, State::Released), at(3)).unwrap();
    assert_eq!(held(&ledger, &tenant("t_a")), 0);
}

#[test]
fn a_capacity_is_granted_until_its_lease_ends() {
    let mut ledger = ledger(capacity(1_000), &[("t_a", NO_GUARANTEE)]);
    let mut row = *ledger.scope(&pool()).unwrap();
    if let Role::Pool(pool) = &mut row.role {
        pool.open_until_ms = 100;
    }
    ledger.put_scope(pool(), row);
    ledger.reserve(&arc(engine("t_a", "l", 1, cores(1))), at(99)).unwrap();
    let refused = ledger.reserve(&arc(engine("t_a", "m", 1, cores(1))), at(100));
    assert_eq!(refused, Err(Refusal::Closed(pool())));
}

/// Of several short scopes the pool comes first, then tenant, creator and user; in each CPU, memory and engines.
#[test]
fn the_first_short_scope_is_that_of_the_design() {
    let few = |limit| Triple::all(Limit::Of(limit));
    let mut all = capacity(0);
    all.capacity = few(20);
    let mut full = engine("t_a", "l", 1, Amounts::same(Amount::all(10)).unwrap());
    full.scopes = Scopes::new(&tenant_name("t_a"), &pool_name("rp_1"), Some("alice"), Some("IDE"));
    let tenant_quota = Guarantee { amount: 15, borrow: Limit::Of(0), lend: Limit::Unlimited };
    let mut ledger = ledger(all, &[("t_a", Triple::all(Some(tenant_quota)))]);
    ledger.put_scope(ScopeKey::user("alice"), Scope::principal(few(15)));
    ledger.put_scope(ScopeKey::creator("IDE"), Scope::principal(few(15)));
    ledger.reserve(&arc(full.clone()), at(1)).unwrap();
    let next = Request { id: "m-1".into(), lineage: "m".into(), ..full };
    let words =
        |ledger: &Ledger| -> Vec<String> { ledger.shortages(&next, 1).unwrap().iter().map(Shortage::word).collect() };
    assert_eq!(
        words(&ledger),
        [
            "TENANT_CPU",
            "TENANT_MEMORY",
            "TENANT_ENGINES",
            "CREATOR_CPU",
            "CREATOR_MEMORY",
            "CREATOR_ENGINES",
            "USER_CPU",
            "USER_MEMORY",
            "USER_ENGINES",
        ]
    );
    let lower = capacity(15).scope(&[NO_GUARANTEE]).unwrap();
    ledger.set_limits(&pool(), &lower).unwrap();
    assert_eq!(words(&ledger).first().map(String::as_str), Some("POOL_CPU"));
}

#[test]
fn an_alteration_of_a_guarantee_moves_what_is_held_between_the_parts() {
    let mut ledger = ledger(capacity(10_000), &[("t_a", NO_GUARANTEE)]);
    ledger.reserve(&arc(engine("t_a", "l", 1, cores(6_000))), at(1)).unwrap();
    let quota = guarantee(5_000, Limit::Unlimited, Limit::Of(1_000));
    ledger.set_limits(&tenant("t_a"), &Scope::tenant(&quota)).unwrap();
    let row = ledger.scope(&pool()).unwrap().pool_component(Component::Cpu).unwrap();
    assert_eq!((row.shared_held, row.unguaranteed_held), (2_000, 0), "4 of 6 are exclusive");
    assert!(ledger.drifts().unwrap().is_empty());
}

#[test]
fn only_external_reservations_end_by_their_deadline() {
    let mut ledger = ledger(capacity(10_000), &[("t_a", NO_GUARANTEE)]);
    let program = |id| arc(external(id, None, cores(1)));
    ledger.reserve(&program("locked"), at(0)).unwrap();
    ledger.reserve(&program("used"), at(0)).unwrap();
    let lease = Confirmation { claim: claim(&program("used"), "u"), actual: None, lease_ms: Some(10) };
    ledger.confirm(&lease, at(0)).unwrap();
    ledger.enqueue(&program("waiting"), 20, at(0)).unwrap();
    ledger.reserve(&arc(engine("t_a", "l", 1, cores(1))), at(0)).unwrap();
    let mut expire = |now_ms| -> Vec<(&str, State)> {
        let expired = |id: &'static str| {
            let change = Change::Expire { id: id.into() };
            (id, ledger.apply(&change, at(now_ms)).unwrap().state)
        };
        ["used", "waiting", "locked", "l-1"].into_iter().map(expired).collect()
    };
    let (lost, expired) = (State::Lost, State::Expired);
    assert_eq!(
        expire(9),
        [("used", State::Used), ("waiting", State::Waiting), ("locked", State::Locked), ("l-1", State::Locked)]
    );
    assert_eq!(
        expire(19),
        [("used", lost), ("waiting", State::Waiting), ("locked", State::Locked), ("l-1", State::Locked)]
    );
    assert_eq!(expire(20), [("used", lost), ("waiting", expired), ("locked", State::Locked), ("l-1", State::Locked)]);
    assert_eq!(expire(10_000), [("used", lost), ("waiting", expired), ("locked", expired), ("l-1", State::Locked)]);
    assert_eq!(held(&ledger, &pool()), 1, "a master ends engines");
}

#[test]
fn an_audit_corrects_and_reports_what_is_wrong() {
    let mut ledger = ledger(capacity(10_000), &[("t_a", NO_GUARANTEE)]);
    ledger.reserve(&arc(engine("t_a", "l", 1, cores(1_000))), at(1)).unwrap();
    let before: Vec<_> = ledger.scopes().map(|(key, scope)| (key.clone(), *scope)).collect();
    let mut wrong = *ledger.scope(&tenant("t_a")).unwrap();
    wrong.counter.held.cpu_m = 3_000;
    ledger.put_scope(tenant("t_a"), wrong);
    let drifts: Vec<String> = ledger.audit().unwrap().iter().map(ToString::to_string).collect();
    assert_eq!(drifts, ["tenant \"t_a\" on resource pool \"rp_1\": 3 CPU instead of 1"]);
    assert_eq!(ledger.scopes().map(|(key, scope)| (key.clone(), *scope)).collect::<Vec<_>>(), before);
    assert!(ledger.audit().unwrap().is_empty());
}
