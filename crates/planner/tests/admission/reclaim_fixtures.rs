//! Reclaim: the rules of the design, one by one.

use std::collections::BTreeSet;

use model::ledger::{Holder, Request as Reserve};
use model::quota::Limit;
use planner::{Headroom, NodeAmount, Pods, Reclaimed, Request, RunningEngine, admit, awaiting, reclaim};

use crate::sample::{
    AT, POOL, Quota, for_user, hold, node_cores, on_a_node, pool, put_nodes, put_user, quota, request, requests, rules,
    tenant_key, tenant_name,
};

const UNLIMITED: Limit = Limit::Unlimited;

/// An idle engine that was started at this time.
fn engine(id: &str, started_at_ms: i64) -> RunningEngine {
    RunningEngine {
        id: id.into(),
        is_idle: true,
        started_at_ms,
        is_draining: false,
        reclaimed_for: None,
        nodes: Vec::new(),
    }
}

/// Charges so many engines, the last one the newest.
fn run(headroom: &mut Headroom, id: &str, tenant: &str, cores: i64, count: i64) -> Vec<RunningEngine> {
    let engine = |number| {
        let id = format!("{id}{number}");
        hold(headroom, &id, tenant, cores);
        engine(&id, number)
    };
    (1..=count).map(engine).collect()
}

/// The ids of reclaimed engines after a round of admission, each with that of its request.
fn reclaimed(requests: &[Request], headroom: &Headroom, engines: &[RunningEngine]) -> Vec<(String, String)> {
    let mut headroom = headroom.clone();
    let admission = admit(requests, &mut headroom, &rules());
    let reclaimed = reclaim(headroom, &admission.queued, engines, &BTreeSet::new(), AT);
    let ids = |Reclaimed { engine, request }: Reclaimed<'_>| (engine.id.to_string(), request.id().to_owned());
    reclaimed.into_iter().map(ids).collect()
}

fn victims(requests: &[Request], headroom: &Headroom, engines: &[RunningEngine]) -> Vec<String> {
    reclaimed(requests, headroom, engines).into_iter().map(|(engine, _)| engine).collect()
}

/// A guarantees 20 and holds 30, so it borrows 10, and B guarantees 20; engines of 5 CPU.
fn lent() -> (Headroom, Vec<RunningEngine>) {
    let mut headroom = pool(Limit::Of(40), &[("t_a", quota(20, Limit::Of(10))), ("t_b", quota(20, UNLIMITED))]);
    let engines = run(&mut headroom, "a", "t_a", 5, 6);
    (headroom, engines)
}

fn pair(engine: &str, request: &str) -> (String, String) {
    (engine.to_owned(), request.to_owned())
}

#[test]
fn a_guarantee_reclaims_what_others_borrow_of_it_and_no_more() {
    let (headroom, engines) = lent();
    let all = requests("b", "t_b", 5, 4);
    assert_eq!(reclaimed(&all, &headroom, &engines), [pair("a6", "b002"), pair("a5", "b003")]);
    assert_eq!(victims(&requests("b", "t_b", 5, 5), &headroom, &engines), ["a6", "a5"], "the fifth would borrow");
}

#[test]
fn nothing_is_reclaimed_unless_it_is_enough() {
    let mut headroom = pool(Limit::Of(40), &[("t_a", quota(20, UNLIMITED)), ("t_b", quota(20, UNLIMITED))]);
    let mut engines = run(&mut headroom, "a", "t_a", 5, 8);
    for busy in &mut engines[..6] {
        busy.is_idle = false;
    }
    assert_eq!(victims(&[request("b", "t_b", 15)], &headroom, &engines), [""; 0]);
    assert_eq!(victims(&[request("b", "t_b", 10)], &headroom, &engines), ["a8", "a7"]);
}

#[test]
fn two_requests_do_not_count_on_the_same_engine() {
    let (headroom, mut engines) = lent();
    engines.truncate(1);
    let all = requests("b", "t_b", 5, 4);
    assert_eq!(reclaimed(&all, &headroom, &engines), [pair("a1", "b002")]);
    engines[0].is_draining = true;
    assert_eq!(
        victims(&all, &headroom, &engines),
        [""; 0],
        "what drains already is enough for one, and no other may end"
    );
}

#[test]
fn busy_engines_external_programs_and_spared_pools_are_left_alone() {
    let mut headroom = pool(Limit::Of(40), &[("t_a", quota(20, UNLIMITED)), ("t_b", quota(20, UNLIMITED))]);
    let mut engines = run(&mut headroom, "a", "t_a", 5, 6);
    let external = Reserve {
        holder: Holder::External { key: "alice/1".into(), instance: "i".into() },
        ..(*request("a7", "t_a", 1).reservation).clone()
    };
    headroom.ledger.reserve(&external.into(), AT).unwrap();
    engines.push(engine("a7", 9));
    engines[5].is_idle = false;
    engines.push(engine("without a reservation", 10));
    let all = requests("b", "t_b", 4, 3);
    assert_eq!(victims(&all, &headroom, &engines), ["a5"]);
    let mut after = headroom.clone();
    let admission = admit(&all, &mut after, &rules());
    let spared = [POOL.to_owned()].into();
    assert_eq!(reclaim(after, &admission.queued, &engines, &spared, AT), []);
}

#[test]
fn a_request_that_is_short_of_something_else_reclaims_nothing() {
    let (mut headroom, engines) = lent();
    hold(&mut headroom, "b1", "t_b", 7);
    put_user(&mut headroom, "alice", 7);
    headroom.ledger.adopt(&for_user("b2", "t_b", "alice", 3).reservation, "uid", AT).unwrap();
    assert_eq!(victims(&[for_user("b", "t_b", "alice", 5)], &headroom, &engines), [""; 0]);
    assert_eq!(victims(&[for_user("b", "t_b", "alice", 4)], &headroom, &engines), ["a6"]);
}

#[test]
fn a_tenant_without_a_guarantee_reclaims_the_unguaranteed_part_only() {
    let mut headroom = pool(Limit::Of(30), &[("t_a", quota(20, UNLIMITED)), ("t_n", None)]);
    let engines = run(&mut headroom, "a", "t_a", 5, 6);
    assert_eq!(victims(&requests("n", "t_n", 5, 3), &headroom, &engines), ["a6", "a5"]);
    hold(&mut headroom, "n1", "t_n", 10);
    assert_eq!(victims(&[request("n", "t_n", 5)], &headroom, &engines), [""; 0], "its own part is used up");
}

/// Two borrowers with a guarantee of 5 in a pool of 30, which they fill.
fn rivals(held: [i64; 2], weight: u32) -> (Headroom, Vec<RunningEngine>) {
    let a = Some(Quota { guarantee: 5, borrow: UNLIMITED, lend: UNLIMITED, weight });
    let mut headroom = pool(Limit::Of(30), &[("t_a", a), ("t_b", quota(5, UNLIMITED))]);
    let mut engines = run(&mut headroom, "a", "t_a", 1, held[0]);
    engines.extend(run(&mut headroom, "b", "t_b", 1, held[1]));
    (headroom, engines)
}

#[test]
fn a_borrower_reclaims_only_up_to_the_share_of_the_victim() {
    for (held, expected) in [([17, 13], vec!["a17", "a16"]), ([16, 14], vec!["a16"]), ([15, 15], vec![])] {
        let (headroom, engines) = rivals(held, 1);
        assert_eq!(victims(&requests("b", "t_b", 1, 3), &headroom, &engines), expected, "{held:?}");
        assert_eq!(victims(&requests("a", "t_a", 1, 3), &headroom, &engines), [""; 0], "{held:?}");
    }
}

#[test]
fn weights_divide_shares_and_an_infinite_share_reclaims_nothing() {
    // A weighs 2: the 14 that it borrows after the loss count as 7, and B would borrow 6; then 13 and 7.
    for (weight, held, expected) in [(2, [20, 10], 1), (2, [19, 11], 0), (0, [7, 23], 1), (0, [6, 24], 0)] {
        let (headroom, engines) = rivals(held, weight);
        assert_eq!(victims(&requests("b", "t_b", 1, 1), &headroom, &engines).len(), expected, "{weight} {held:?}");
        if weight == 0 {
            assert_eq!(victims(&requests("a", "t_a", 1, 1), &headroom, &engines), [""; 0]);
        }
    }
}

#[test]
fn the_largest_share_loses_first_and_in_it_the_newest_engine() {
    let tenants = [("t_a", quota(2, UNLIMITED)), ("t_b", quota(2, UNLIMITED)), ("t_c", quota(10, UNLIMITED))];
    let mut headroom = pool(Limit::Of(14), &tenants);
    let mut engines = run(&mut headroom, "a", "t_a", 1, 6);
    engines.extend(run(&mut headroom, "b", "t_b", 1, 8));
    engines[13].started_at_ms = 0;
    let all = requests("c", "t_c", 1, 5);
    assert_eq!(victims(&all, &headroom, &engines), ["b7", "b6", "a6", "b5", "a5"], "equal shares: by name");
    engines.reverse();
    assert_eq!(victims(&all, &headroom, &engines), ["b7", "b6", "a6", "b5", "a5"], "in any order of the input");
}

#[test]
fn draining_engines_are_counted_before_others_are_chosen() {
    let (headroom, mut engines) = lent();
    engines[0].is_draining = true;
    assert_eq!(reclaimed(&requests("b", "t_b", 5, 4), &headroom, &engines), [pair("a6", "b003")]);
    engines[0].reclaimed_for = Some(tenant_name("t_b"));
    assert_eq!(awaiting(&headroom, &engines), [tenant_key("t_b")].into());
    engines[0].is_draining = false;
    assert_eq!(awaiting(&headroom, &engines), BTreeSet::new());
}

/// Engines of 2 cores that each fill a node.
fn on_nodes(capacity: Limit) -> (Headroom, Vec<RunningEngine>) {
    let mut headroom = pool(capacity, &[("t_a", quota(2, UNLIMITED)), ("t_b", quota(8, UNLIMITED))]);
    put_nodes(&mut headroom, &[(4, 4), (4, 4), (2, 2)]);
    let mut engines = run(&mut headroom, "a", "t_a", 2, 5);
    for (engine, node) in engines.iter_mut().zip([0, 1, 0, 2, 1]) {
        engine.nodes = vec![(format!("node-{node:03}"), node_cores(2))];
    }
    (headroom, engines)
}

#[test]
fn engines_whose_nodes_are_of_no_use_stay() {
    // The newest are on nodes 1, 2, 0, 1: with the fourth, node 1 is empty, and those on 2 and 0 are not needed.
    let (headroom, engines) = on_nodes(UNLIMITED);
    assert_eq!(victims(&[on_a_node(request("b", "t_b", 4))], &headroom, &engines), ["a5", "a2"]);
    let large = Request { pods: Some(Pods::single(node_cores(3))), ..request("b", "t_b", 4) };
    assert_eq!(
        victims(std::slice::from_ref(&large), &headroom, &engines[2..]),
        [""; 0],
        "no node would be empty enough"
    );
    let anywhere = Request { pods: None, ..large };
    assert_eq!(victims(&[anywhere], &headroom, &engines), [""; 0], "it fits");
}

#[test]
fn engines_on_unknown_nodes_free_none() {
    let (headroom, mut engines) = on_nodes(UNLIMITED);
    for engine in &mut engines {
        engine.nodes = vec![("node-9".to_owned(), NodeAmount::ZERO)];
    }
    assert_eq!(victims(&[on_a_node(request("b", "t_b", 2))], &headroom, &engines), [""; 0]);
}

#[test]
fn borrowers_of_a_pool_without_a_limit_do_not_reclaim_from_each_other() {
    let (headroom, engines) = on_nodes(UNLIMITED);
    let beyond = on_a_node(request("b", "t_b", 2));
    assert_eq!(victims(std::slice::from_ref(&beyond), &headroom, &engines), ["a5"], "within its guarantee");
    let mut headroom = headroom;
    hold(&mut headroom, "b1", "t_b", 8);
    assert_eq!(victims(&[beyond], &headroom, &engines), [""; 0], "no share is larger than another");
}
