//! The order of grants and the reasons of queued requests: the tables and fixtures of the design.

use std::time::Duration;

use model::quota::Limit;
use planner::{Cause, Headroom, Impossible, NodesFull, PATIENCE, Pods, Request, Shortages, admit};

use crate::sample::{
    AT, NOW_MS, Quota, amounts, for_user, granted, hold, ids, node_cores, on_a_node, overcommitted, pool, put_nodes,
    put_user, quota, request, requests, reserve, rules, tenant_key, waited,
};

const UNLIMITED: Limit = Limit::Unlimited;
const NONE: Limit = Limit::Of(0);

/// The words of all queued requests, such as `TENANT_CPU`, in the order of their positions.
fn words(requests: &[Request], headroom: &mut Headroom) -> Vec<String> {
    let admission = admit(requests, headroom, &rules());
    let word = |queued: &planner::Queued<'_>| queued.shortage().map_or_else(String::new, model::ledger::Shortage::word);
    admission.queued.iter().map(word).collect()
}

#[test]
fn a_tenant_gets_its_guarantee_although_more_is_free() {
    let mut headroom =
        pool(Limit::Of(42), &[("t_a", quota(18, NONE)), ("t_b", quota(12, NONE)), ("t_c", quota(12, NONE))]);
    let all = requests("a", "t_a", 1, 19);
    let admission = admit(&all, &mut headroom, &rules());
    assert_eq!((admission.granted.len(), admission.queued.len(), admission.rejected.len()), (18, 1, 0));
    let error = admission.queued[0].error(Some("ALTER RESOURCE QUOTA q_a GUARANTEE (CPU 19)"));
    assert_eq!((error.sqlstate(), error.error_code()), ("53000", 46_021));
    let detail = "Tenant \"t_a\" on resource pool \"rp_1\": asked 1, left 0 of 18 (TENANT_CPU, retryable, position 1).";
    assert_eq!(error.detail.as_deref(), Some(detail));
    assert!(headroom.ledger.drifts().unwrap().is_empty());
}

#[test]
fn an_overcommitted_pool_is_full_when_its_requests_are() {
    let mut headroom = overcommitted(Limit::Of(22), 0, 200, &[("t_a", None)]);
    let all: Vec<Request> = (0..45)
        .map(|number| {
            let id = format!("a{number:03}");
            Request { reservation: reserve(&id, "t_a", None, amounts(1_000, 500)), ..request(&id, "t_a", 1) }
        })
        .collect();
    let admission = admit(&all, &mut headroom, &rules());
    assert_eq!((admission.granted.len(), admission.queued.len()), (44, 1));
    assert_eq!(admission.queued[0].shortage().map(model::ledger::Shortage::word).as_deref(), Some("POOL_CPU"));
}

#[test]
fn what_is_protected_is_left_free_exactly() {
    for (millis, is_granted) in [(22_100, false), (22_000, true)] {
        let mut headroom = overcommitted(Limit::Of(24), 2, 100, &[("t_a", None)]);
        let reservation = reserve("a", "t_a", None, amounts(millis, millis));
        let admission = [Request { reservation, ..request("a", "t_a", 1) }];
        assert_eq!(granted(&admission, &mut headroom).len() == 1, is_granted, "{millis}");
    }
}

#[test]
fn a_borrow_limit_and_a_lend_limit_bound_the_grants() {
    let mut headroom = pool(Limit::Of(40), &[("t_a", quota(20, Limit::Of(10))), ("t_b", quota(20, UNLIMITED))]);
    hold(&mut headroom, "held", "t_a", 20);
    assert_eq!(granted(&requests("a", "t_a", 5, 3), &mut headroom), ["a000", "a001"]);
    assert_eq!(words(&requests("x", "t_a", 5, 1), &mut headroom), ["TENANT_CPU"]);
    assert_eq!(granted(&requests("b", "t_b", 5, 4), &mut headroom), ["b000", "b001"], "the others are lent");
    let lends = Some(Quota { guarantee: 20, borrow: UNLIMITED, lend: Limit::Of(5), weight: 1 });
    let mut headroom = pool(Limit::Of(40), &[("t_a", quota(20, UNLIMITED)), ("t_b", lends)]);
    hold(&mut headroom, "held", "t_a", 20);
    assert_eq!(granted(&requests("a", "t_a", 5, 2), &mut headroom.clone()), ["a000"]);
    let mut all = requests("a", "t_a", 5, 2);
    all.extend(requests("b", "t_b", 5, 3));
    assert_eq!(granted(&all, &mut headroom), ["b000", "b001", "b002", "a000"], "guarantees come first");
}

/// The tenants of the design's last two rows, of which each requests one engine of 5 CPU, and 5 are free.
fn borrowers(weight: u32) -> (Headroom, [Request; 3]) {
    let b = Some(Quota { guarantee: 10, borrow: UNLIMITED, lend: UNLIMITED, weight });
    let tenants = [("t_a", quota(20, UNLIMITED)), ("t_b", b), ("t_c", quota(10, UNLIMITED))];
    let mut headroom = pool(Limit::Of(40), &tenants);
    for (tenant, held) in [("t_a", 10), ("t_b", 15), ("t_c", 10)] {
        hold(&mut headroom, &format!("held by {tenant}"), tenant, held);
    }
    (headroom, ["t_a", "t_b", "t_c"].map(|tenant| request(tenant, tenant, 5)))
}

#[test]
fn the_guaranteed_come_first_then_the_smallest_share_then_the_older() {
    let (mut headroom, all) = borrowers(1);
    let admission = admit(&all, &mut headroom, &rules());
    assert_eq!(ids(&admission), ["t_a"]);
    let queued: Vec<&str> = admission.queued.iter().map(|queued| queued.request.id()).collect();
    assert_eq!(queued, ["t_c", "t_b"], "C has 125, B 250");
    let (mut headroom, mut all) = borrowers(2);
    all[1].asked_at_ms -= 1;
    let admission = admit(&all[1..], &mut headroom, &rules());
    assert_eq!(ids(&admission), ["t_b"], "both have 125, and B is older");
    let (mut headroom, mut all) = borrowers(2);
    all[2].priority = 1;
    all[1].asked_at_ms -= 1;
    assert_eq!(granted(&all[1..], &mut headroom), ["t_c"], "a higher priority comes before age");
}

#[test]
fn tenants_without_quotas_alternate_although_one_is_older() {
    for capacity in [Limit::Of(6), UNLIMITED] {
        let mut headroom = pool(capacity, &[("t_a", None), ("t_b", None)]);
        hold(&mut headroom, "held", "t_b", 1);
        let mut all: Vec<Request> =
            requests("a", "t_a", 1, 9).into_iter().map(|request| waited(request, 2 * PATIENCE)).collect();
        all.extend(requests("b", "t_b", 1, 9));
        let first: Vec<String> = granted(&all, &mut headroom).into_iter().take(5).collect();
        assert_eq!(first, ["a000", "a001", "b000", "a002", "b001"], "{capacity:?}");
    }
}

#[test]
fn tenants_without_a_guarantee_come_before_those_that_borrow() {
    let tenants = [("t_a", quota(0, UNLIMITED)), ("t_b", None)];
    for capacity in [Limit::Of(10), UNLIMITED] {
        let mut headroom = pool(capacity, &tenants);
        let all = [waited(request("a", "t_a", 1), 2 * PATIENCE), request("b", "t_b", 1)];
        assert_eq!(granted(&all, &mut headroom), ["b", "a"], "{capacity:?}");
    }
}

#[test]
fn in_a_queue_transfers_come_first_then_priority_then_age_then_id() {
    let mut headroom = pool(Limit::Of(100), &[("t_a", None)]);
    hold(&mut headroom, "old", "t_a", 1);
    let mut all = requests("a", "t_a", 1, 5);
    all[1].asked_at_ms -= 5;
    all[2].priority = 7;
    all[4].replaces = Some("old".into());
    let mut reservation = (*all[4].reservation).clone();
    reservation.lineage = "lineage of old".into();
    all[4].reservation = reservation.into();
    all.reverse();
    assert_eq!(granted(&all, &mut headroom), ["a004", "a002", "a001", "a000", "a003"]);
    assert!(headroom.ledger.drifts().unwrap().is_empty());
}

#[test]
fn a_transfer_of_the_same_size_needs_no_capacity() {
    let mut headroom = pool(Limit::Of(10), &[("t_a", quota(5, UNLIMITED)), ("t_b", quota(5, NONE))]);
    hold(&mut headroom, "old", "t_a", 10);
    let transfer = |cores| {
        let mut reservation = (*request("new", "t_a", cores).reservation).clone();
        reservation.lineage = "lineage of old".into();
        Request { reservation: reservation.into(), replaces: Some("old".into()), ..request("new", "t_a", cores) }
    };
    // B waits within its guarantee, so borrowers wait; but the capacity of a transfer is not to be had by B.
    let all = [transfer(10), request("b", "t_b", 1)];
    assert_eq!(granted(&all, &mut headroom.clone()), ["new"]);
    let larger = [transfer(11)];
    let admission = admit(&larger, &mut headroom, &rules());
    let shortage = admission.queued[0].shortage().unwrap();
    assert_eq!((shortage.word().as_str(), shortage.asked, shortage.left), ("POOL_CPU", 1_000, 0));
    assert!(headroom.ledger.reservation("old").unwrap().state.is_charged(), "the charge stays");
}

#[test]
fn a_head_that_does_not_fit_blocks_no_other_tenant() {
    let mut headroom = pool(Limit::Of(10), &[("t_a", None), ("t_b", None)]);
    hold(&mut headroom, "held", "t_a", 4);
    let all = [waited(request("a", "t_a", 9), 10 * PATIENCE), request("b", "t_b", 3), request("c", "t_a", 3)];
    assert_eq!(granted(&all, &mut headroom), ["b", "c"]);
}

#[test]
fn borrowers_wait_for_a_guaranteed_request_that_is_short_of_the_pool() {
    let tenants = [("t_a", quota(10, UNLIMITED)), ("t_b", quota(10, UNLIMITED))];
    let mut headroom = pool(Limit::Of(20), &tenants);
    hold(&mut headroom, "held", "t_a", 15);
    let all = [request("a", "t_a", 2), request("b", "t_b", 6)];
    let admission = admit(&all, &mut headroom.clone(), &rules());
    assert_eq!(ids(&admission), [""; 0]);
    assert_eq!(admission.queued[1].cause, Cause::Yields { request: &all[1] });
    let detail = admission.queued[1].error(None).detail.unwrap();
    assert!(detail.contains("this one would borrow (retryable, position 2)"), "{detail}");
    assert_eq!(granted(&all[..1], &mut headroom.clone()), ["a"], "it would fit");
    // Short of its user as well, the guaranteed request waits for what no borrower has.
    put_user(&mut headroom, "alice", 6);
    headroom.ledger.adopt(&for_user("x", "t_b", "alice", 1).reservation, "uid", AT).unwrap();
    let all = [request("a", "t_a", 2), for_user("b", "t_b", "alice", 6)];
    assert_eq!(granted(&all, &mut headroom), ["a"]);
}

#[test]
fn requests_of_a_tenant_pass_a_large_one_until_its_patience_ends() {
    for (duration, expected) in
        [(PATIENCE.saturating_sub(Duration::from_millis(1)), vec!["small", "other"]), (PATIENCE, vec!["other"])]
    {
        let mut headroom = pool(UNLIMITED, &[("t_a", None)]);
        put_user(&mut headroom, "alice", 8);
        headroom.ledger.adopt(&for_user("held", "t_a", "alice", 4).reservation, "uid", AT).unwrap();
        let all = [
            waited(for_user("large", "t_a", "alice", 6), duration),
            for_user("small", "t_a", "alice", 1),
            Request { asked_at_ms: NOW_MS, ..request("other", "t_a", 1) },
        ];
        let admission = admit(&all, &mut headroom, &rules());
        assert_eq!(ids(&admission), expected, "{duration:?}");
        if let Some(queued) = admission.queued.iter().find(|queued| queued.request.id() == "small") {
            assert!(matches!(&queued.cause, Cause::Behind { request, .. } if request.id() == "large"));
            let error = queued.error(None);
            let detail = "Request \"large\" of the same tenant has waited longer for CPU of user \"alice\" (USER_CPU, \
                          retryable, position 2).";
            assert_eq!((error.detail.as_deref(), error.error_code()), (Some(detail), 46_041));
        }
    }
}

#[test]
fn nothing_waits_behind_a_request_for_the_pool_alone() {
    let mut headroom = pool(Limit::Of(10), &[("t_a", None)]);
    hold(&mut headroom, "held", "t_a", 4);
    let all = [waited(request("large", "t_a", 9), 9 * PATIENCE), request("small", "t_a", 1)];
    assert_eq!(granted(&all, &mut headroom), ["small"]);
}

#[test]
fn borrowers_wait_while_engines_reclaimed_for_a_tenant_drain() {
    // B waits for two engines of A that end one after the other. The first one's slot must not take what it left.
    let tenants = [("t_a", quota(5, UNLIMITED)), ("t_b", quota(5, UNLIMITED))];
    let mut headroom = pool(Limit::Of(20), &tenants);
    for (id, tenant, cores) in [("a1", "t_a", 12), ("b1", "t_b", 5)] {
        hold(&mut headroom, id, tenant, cores);
    }
    let all = [request("a", "t_a", 3), request("b", "t_b", 5)];
    assert_eq!(granted(&all, &mut headroom.clone()), ["a"], "without the rule it is taken");
    let awaiting = planner::AdmissionRules { awaiting: [tenant_key("t_b")].into(), ..rules() };
    let admission = admit(&all, &mut headroom, &awaiting);
    assert_eq!(ids(&admission), [""; 0]);
    assert_eq!(admission.queued[1].cause, Cause::Yields { request: &all[1] });
}

#[test]
fn whole_engines_run_or_are_queued() {
    let mut headroom = pool(UNLIMITED, &[("t_a", None)]);
    put_nodes(&mut headroom, &[(4, 0), (4, 0), (4, 0)]);
    let pods = Some(Pods { driver: node_cores(1), executor: node_cores(1), executors: 2 });
    let all: Vec<Request> =
        requests("a", "t_a", 3, 12).into_iter().map(|request| Request { pods, ..request }).collect();
    let admission = admit(&all, &mut headroom, &rules());
    assert_eq!((admission.granted.len(), admission.queued.len()), (4, 8));
    let positions: Vec<usize> = admission.queued.iter().map(|queued| queued.position).collect();
    assert_eq!(positions, [1, 2, 3, 4, 5, 6, 7, 8]);
    let nodes = Some(NodesFull { asked: 3, left: 0 });
    assert_eq!(admission.queued[0].cause, Cause::Short(Shortages { amounts: Vec::new(), nodes }));
    let error = admission.queued[7].error(None);
    assert_eq!(
        error.text(),
        "not enough nodes for an engine of resource unit \"uc_1\"\n\
         Detail: Resource pool \"rp_1\": asked nodes for 3 pods, left for 0 (POOL_NODES, retryable, position 8).\n\
         Hint: Stop an engine of the resource pool, or add a node to it."
    );
    assert_eq!((error.sqlstate(), error.error_code()), ("53000", 46_015));
}

#[test]
fn a_request_that_can_never_fit_is_rejected_and_has_no_position() {
    let mut headroom = pool(Limit::Of(10), &[("t_a", quota(5, NONE)), ("t_b", quota(5, UNLIMITED))]);
    put_nodes(&mut headroom, &[(4, 0)]);
    let all = [request("above", "t_a", 6), on_a_node(request("large", "t_b", 5)), on_a_node(request("fits", "t_b", 4))];
    let admission = admit(&all, &mut headroom, &rules());
    assert_eq!(ids(&admission), ["fits"]);
    assert!(admission.queued.is_empty());
    let [above, large] = &admission.rejected[..] else { panic!("{:?}", admission.rejected) };
    assert!(matches!(&above.why, Impossible::Short(shortage) if shortage.word() == "TENANT_CPU"));
    let (above, large) = (above.error(Some("ALTER RESOURCE QUOTA q_a GUARANTEE (CPU 19)")), large.error(None));
    assert_eq!((above.sqlstate(), large.sqlstate(), large.error_code()), ("53400", "53400", 46_081));
    assert_eq!(
        large.text(),
        "no node is large enough for an engine of resource unit \"uc_1\"\n\
         Detail: Resource pool \"rp_1\": a pod requests 5 CPU and 5120 MiB, and the largest node has 4 CPU and \
         4096 MiB (POD_LARGER_THAN_ANY_NODE, not retryable).\n\
         Hint: ALTER RESOURCE UNIT with smaller drivers or executors, or add a larger node to the resource pool."
    );
}

#[test]
fn a_closed_scope_queues_its_requests_with_the_refusal() {
    let mut headroom = pool(Limit::Of(10), &[("t_a", None)]);
    let mut closed = *headroom.ledger.scope(&tenant_key("t_a")).unwrap();
    closed.is_open = false;
    headroom.ledger.put_scope(tenant_key("t_a"), closed);
    let all = requests("a", "t_a", 1, 1);
    let admission = admit(&all, &mut headroom, &rules());
    assert!(matches!(&admission.queued[0].cause, Cause::Refused(_)));
    assert_eq!(admission.queued[0].error(None).sqlstate(), "55000");
}
