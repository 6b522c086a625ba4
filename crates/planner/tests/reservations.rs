//! Admission in plans: the fixtures of the design, queue positions, nodes, external requests, reclaim, and what EXPLAIN shows.
#![allow(clippy::unwrap_used, clippy::panic)]

mod cluster;

use std::collections::BTreeMap;
use std::time::Duration;

use cluster::pools::{
    commit, count, idle, measure, nodes, pool, queued, quota, reasons, retired, running, settle, start, tick, verbs,
    with, with_nodes,
};
use cluster::{Cluster, slot_key};
use model::engine_name::EngineName;
use model::instance::InstanceKind;
use model::ledger::State;
use model::slot::Replacement;
use planner::{EngineLoad, IncrementalPlanner, NodeAmount, Plan, Verdict, explain_restart, explain_start};

/// R4-14

#[test]
fn a_tenant_starts_as_many_engines_as_it_is_guaranteed() {
    let mut cluster = with(&["t_a", "t_b", "t_c"], "1", &[("capacity", "42")]);
    for (tenant, cpu) in [("t_a", "18"), ("t_b", "12"), ("t_c", "12")] {
        quota(&mut cluster, tenant, cpu, "0");
    }
    start(&mut cluster, "t_a", 19);
    let plan = settle(&mut cluster);
    assert_eq!((running(&cluster), count(&plan, "rp_1")), (18, Some(1)));
    let reason = "queued at position 1: tenant \"t_a\" on resource pool \"rp_1\": asked 1, left 0 of 18 (TENANT_CPU, \
                  retryable)";
    assert_eq!(reasons(&plan), [reason]);
    let shown = plan.rows.iter().find(|row| row.name == queued(&plan)[0].engine).unwrap();
    assert_eq!(shown.reason.as_deref(), Some(reason));
    quota(&mut cluster, "t_a", "19", "0");
    assert_eq!((reasons(&settle(&mut cluster)).len(), running(&cluster)), (0, 19));
}

/// R4-16

#[test]
fn an_overcommitted_node_runs_twice_as_many_engines_as_it_has_cores() {
    let mut cluster = with_nodes("1", &[("capacity", "nodes"), ("overcommit", "200"), ("nodes", "node-0")]);
    start(&mut cluster, "t_a", 45);
    let plan = tick(&mut cluster);
    let reason = "queued at position 1: resource pool \"rp_1\" grants no reservations: no capacity of it is registered, or \
                  its lease has ended (POOL_NOT_REGISTERED, retryable)";
    assert!(reasons(&plan).contains(&reason), "{:?}", reasons(&plan));
    measure(&mut cluster, 22);
    nodes(&mut cluster, &[22]);
    let plan = settle(&mut cluster);
    assert_eq!(running(&cluster), 44);
    let reason = "queued at position 1: resource pool \"rp_1\": asked 0.5, left 0 of 22 (POOL_CPU, retryable)";
    assert_eq!(reasons(&plan), [reason]);
}

/// R0-15

#[test]
fn what_is_protected_of_the_nodes_stays_free() {
    for (cpu, is_granted) in [("2.1", false), ("2", true)] {
        let options = [("capacity", "nodes"), ("protected", "2"), ("nodes", "node-0,node-1,node-2")];
        let mut cluster = with_nodes("20", &options);
        measure(&mut cluster, 24);
        start(&mut cluster, "t_a", 1);
        settle(&mut cluster);
        commit(&mut cluster, Cluster::unit("uc_2", &[("cpu", cpu)].into()));
        pool(&mut cluster, &[("units", "uc_1,uc_2")]);
        cluster.start("t_a/rp_1/uc_2");
        let plan = settle(&mut cluster);
        assert_eq!(running(&cluster) == 2, is_granted, "{cpu}");
        if !is_granted {
            let reason = "queued at position 1: resource pool \"rp_1\": asked 2.1, left 2 of 22 (POOL_CPU, retryable)";
            assert_eq!(reasons(&plan), [reason]);
        }
    }
}

#[test]
fn positions_count_from_one_in_each_pool_and_tenants_alternate() {
    let mut cluster = with(&["t_a", "t_b"], "1", &[("capacity", "3")]);
    start(&mut cluster, "t_a", 4);
    cluster.simulation.advance(Duration::from_secs(1));
    start(&mut cluster, "t_b", 3);
    let plan = tick(&mut cluster);
    assert_eq!(count(&plan, "rp_1"), Some(4));
    let of = |tenant: &str| {
        cluster.simulation.observed.instances.iter().filter(|at| at.name.as_str().starts_with(tenant)).count()
    };
    assert_eq!((of("t-a"), of("t-b")), (2, 1), "although all of A's requests are older");
    let mut positions: Vec<String> =
        reasons(&plan).iter().map(|reason| reason.split(':').next().unwrap().to_owned()).collect();
    positions.sort();
    assert_eq!(positions, (1..=4).map(|at| format!("queued at position {at}")).collect::<Vec<_>>());
}

#[test]
fn what_can_never_fit_says_so_and_delays_no_alteration() {
    let mut cluster = with(&["t_a"], "6", &[("capacity", "5")]);
    commit(&mut cluster, Cluster::unit("uc_1", &[("min", "1")].into()));
    let plan = settle(&mut cluster);
    let reason = "cannot start: resource pool \"rp_1\": asked 6, left 5 of 5 (POOL_CPU, not retryable)";
    assert_eq!((reasons(&plan), count(&plan, "rp_1")), (vec![reason], Some(0)));
    assert!(cluster.simulation.desired.snapshot.alterations.is_empty());
    pool(&mut cluster, &[("capacity", "6")]);
    assert!(reasons(&settle(&mut cluster)).is_empty());
}

#[test]
fn a_user_is_charged_for_what_is_started_for_it() {
    let mut cluster = with(&["t_a"], "1", &[]);
    commit(&mut cluster, Cluster::quota("q_1", &[("user", "alice"), ("limit", "1")].into()));
    let names = [(); 2].map(|()| cluster.start_for("t_a/rp_1/uc_1", "alice"));
    let plan = tick(&mut cluster);
    let reason = "queued at position 1: user \"alice\": asked 1, left 0 of 1 (USER_CPU, retryable)";
    assert_eq!(reasons(&plan), [reason]);
    assert_eq!(queued(&plan)[0].until_ms, Some(1_000_000 + 60_000), "smaller requests pass until its patience ends");
    assert!(plan.next_due(1_000_000).is_some());
    assert_eq!(cluster.reservation(&names[0]).unwrap().deadline_ms, Some(1_000_000 + 360_000));
}

#[test]
fn a_scope_without_a_row_is_reported_and_nothing_is_created() {
    let mut cluster = with(&["t_a"], "1", &[]);
    cluster.simulation.desired.snapshot.ledger = model::ledger::Ledger::default();
    start(&mut cluster, "t_a", 1);
    let plan = tick(&mut cluster);
    let reason = "cannot start: the ledger has no row of tenant \"t_a\" on resource pool \"rp_1\"";
    assert_eq!((reasons(&plan), running(&cluster)), (vec![reason], 0));
}

#[test]
fn a_replacement_of_the_same_size_waits_for_the_pool_only() {
    let mut cluster = with(&["t_a"], "1", &[("capacity", "1")]);
    quota(&mut cluster, "t_a", "1", "0");
    start(&mut cluster, "t_a", 1);
    settle(&mut cluster);
    cluster.restart(&slot_key("t_a/rp_1/uc_1/0"), Replacement::StandIn);
    let plan = settle(&mut cluster);
    let reason = "queued at position 1: resource pool \"rp_1\": asked 1, left 0 of 1 (POOL_CPU, retryable)";
    assert_eq!((reasons(&plan), running(&cluster)), (vec![reason], 1), "the stand-in serves");
    pool(&mut cluster, &[("capacity", "2")]);
    let plan = settle(&mut cluster);
    assert!(plan.waits.is_empty(), "{:?}", plan.waits);
    assert_eq!(running(&cluster), 1);
}

#[test]
fn engines_fit_on_nodes_counting_those_that_are_not_there_yet() {
    let mut cluster = with(&["t_a"], "1", &[("nodes", "node-0,node-1")]);
    cluster.simulation.desired.defaults.instances = InstanceKind::Pod;
    nodes(&mut cluster, &[2, 1]);
    let first = start(&mut cluster, "t_a", 1).remove(0);
    let plan = cluster.simulation.plan();
    cluster.apply_first(&plan, 1);
    assert!(cluster.reservation(&first).is_some(), "reserved, and its master died");
    start(&mut cluster, "t_a", 3);
    let plan = tick(&mut cluster);
    let reason =
        "queued at position 1: resource pool \"rp_1\": asked nodes for 1 pod, left for 0 (POOL_NODES, retryable)";
    assert_eq!((reasons(&plan), running(&cluster)), (vec![reason], 3));
    // One is on a node, which reports it as used; the others are on none yet.
    let observed = &mut cluster.simulation.observed;
    observed.instances[0].node = Some("node-1".to_owned());
    observed.capacity[1].used = NodeAmount { cpu_millis: 1_000, memory_bytes: 1 << 30 };
    assert_eq!(reasons(&tick(&mut cluster)), [reason]);
    nodes(&mut cluster, &[3, 1]);
    cluster.simulation.observed.capacity[1].used = NodeAmount { cpu_millis: 1_000, memory_bytes: 1 << 30 };
    assert!(reasons(&tick(&mut cluster)).is_empty());
}

#[test]
fn external_requests_wait_in_the_same_queue() {
    let mut cluster = with(&["t_a", "t_b"], "1", &[("capacity", "2")]);
    cluster.request_external("x-1", "t_b", "rp_1", 1).unwrap();
    cluster.request_external("x-2", "t_b", "rp_1", 1).unwrap();
    start(&mut cluster, "t_a", 1);
    let plan = tick(&mut cluster);
    assert_eq!(count(&plan, "rp_1"), Some(1));
    let admitted = plan.chains.iter().find(|chain| chain.decisions[0].verb() == "admit").unwrap();
    assert_eq!((admitted.decisions.len(), admitted.decisions[0].engine.as_ref()), (1, None));
    let state = |id: &str| cluster.simulation.desired.snapshot.ledger.reservation(id).unwrap().state;
    assert_eq!([state("x-1"), state("x-2")], [State::Locked, State::Waiting]);
    cluster.simulation.advance(Duration::from_mins(1));
    assert_eq!(count(&cluster.simulation.plan(), "rp_1"), Some(0), "its wait has ended");
}

/// A fills the pool, B requests an engine within its guarantee.
fn borrowed(reclaim: &str) -> (Cluster, Vec<EngineName>) {
    let mut cluster = with(&["t_a", "t_b"], "1", &[("capacity", "3"), ("reclaim", reclaim)]);
    quota(&mut cluster, "t_a", "1", "unlimited");
    quota(&mut cluster, "t_b", "1", "unlimited");
    let mut engines = Vec::new();
    for _ in 0..3 {
        cluster.simulation.advance(Duration::from_secs(1));
        engines.extend(start(&mut cluster, "t_a", 1));
        settle(&mut cluster);
    }
    (cluster, engines)
}

#[test]
fn an_idle_engine_of_a_borrower_is_retired_for_a_guarantee() {
    let (mut cluster, engines) = borrowed("idle");
    start(&mut cluster, "t_b", 1);
    assert!(retired(&tick(&mut cluster)).is_empty(), "no agent has reported that its engine is idle");
    idle(&mut cluster);
    cluster.simulation.observed.loads.insert(engines[2].clone(), EngineLoad { sessions: 1, running: 0 });
    let plan = tick(&mut cluster);
    let [(engine, tenant)] = &retired(&plan)[..] else { panic!("{:?}", verbs(&plan)) };
    assert_eq!((*engine, tenant.as_str()), (&engines[1], "t_b"), "the newest one that is idle");
    let chain = plan.chains.iter().find(|chain| chain.decisions[0].verb() == "retire engine").unwrap();
    assert_eq!(
        (chain.stage, chain.decisions[0].reason.as_str()),
        (planner::Stage::Renew, "reclaimed for tenant \"t_b\"")
    );
    // Its slot is queued, and so is everything that borrows, until B has its engine.
    let plan = tick(&mut cluster);
    assert!(retired(&plan).is_empty() && verbs(&plan).contains(&"drain engine"), "{:?}", verbs(&plan));
    let plan = settle(&mut cluster);
    assert_eq!((running(&cluster), count(&plan, "rp_1")), (3, Some(1)));
    let of_b = cluster.simulation.observed.instances.iter().filter(|at| at.name.as_str().starts_with("t-b")).count();
    assert_eq!(of_b, 1);
}

#[test]
fn neither_a_spared_pool_nor_a_stand_in_nor_a_small_share_is_reclaimed() {
    let (mut cluster, _) = borrowed("none");
    start(&mut cluster, "t_b", 1);
    idle(&mut cluster);
    assert!(retired(&tick(&mut cluster)).is_empty());
    let (mut cluster, _) = borrowed("idle");
    for ordinal in 0..3 {
        cluster.restart(&slot_key(&format!("t_a/rp_1/uc_1/{ordinal}")), Replacement::StandIn);
    }
    start(&mut cluster, "t_b", 1);
    idle(&mut cluster);
    assert!(retired(&tick(&mut cluster)).is_empty(), "all of A's engines stand in");
}

#[test]
fn an_incremental_plan_retires_engines_that_it_does_not_cover() {
    let (mut cluster, _) = borrowed("idle");
    idle(&mut cluster);
    let mut planner = IncrementalPlanner::default();
    for is_short in [false, true] {
        if is_short {
            start(&mut cluster, "t_b", 1);
        }
        let full = cluster.simulation.plan();
        let mut delta = planner.compare(cluster.simulation.desired.clone(), cluster.simulation.observed.clone());
        let plan = planner.plan(&mut delta);
        planner.keep(delta);
        assert_eq!(plan, full);
        assert_eq!(retired(&plan).len(), usize::from(is_short));
    }
}

#[test]
fn explain_start_compares_with_each_limit_and_shows_the_decisions() {
    let mut cluster = with(&["t_a"], "2", &[("capacity", "5")]);
    quota(&mut cluster, "t_a", "3", "0");
    let explain = |cluster: &Cluster| {
        let slot = cluster.slot("t_a/rp_1/uc_1", None);
        explain_start(&cluster.simulation.desired, &cluster.simulation.observed, slot)
    };
    let texts = |explained: &planner::ExplainedStart| -> Vec<String> {
        let text = |row: &planner::ScopeRow| {
            let verdict = row.verdict.as_str();
            format!("{}, {}: {} of {} / {} {verdict}", row.scope, row.resource, row.asked, row.left, row.limit)
        };
        explained.scopes.iter().map(text).collect()
    };
    let explained = explain(&cluster);
    assert_eq!(
        texts(&explained),
        [
            "resource pool \"rp_1\", CPU: 2 of 5 / 5 fits",
            "shared part of resource pool \"rp_1\", CPU: 2 of 5 / 5 fits",
            "tenant \"t_a\" on resource pool \"rp_1\", CPU: 2 of 3 / 3 fits",
        ]
    );
    assert_eq!(explained.rows[0].decision, "reserve");
    start(&mut cluster, "t_a", 1);
    settle(&mut cluster);
    let explained = explain(&cluster);
    assert_eq!(explained.scopes[2].verdict, Verdict::Queued);
    let last = explained.rows.last().unwrap();
    let because =
        "queued at position 1: tenant \"t_a\" on resource pool \"rp_1\": asked 2, left 1 of 3 (TENANT_CPU, retryable)";
    assert_eq!((last.decision.as_str(), last.because.as_str()), ("wait", because));
    quota(&mut cluster, "t_a", "1", "0");
    assert_eq!(explain(&cluster).scopes[2].verdict, Verdict::Never);
    let key = slot_key("t_a/rp_1/uc_1/0");
    let restart =
        explain_restart(&cluster.simulation.desired, &cluster.simulation.observed, &key, Replacement::StandIn).unwrap();
    assert_eq!(restart.scopes[0].asked, "2");
    assert_eq!(
        (restart.scopes[2].asked.as_str(), restart.scopes[2].verdict),
        ("0", Verdict::Never),
        "once per lineage"
    );
    assert!(
        explain_restart(
            &cluster.simulation.desired,
            &cluster.simulation.observed,
            &slot_key("t_a/rp_1/uc_1/7"),
            Replacement::StandIn
        )
        .is_none()
    );
}

#[test]
fn a_changed_counter_or_quota_plans_only_what_is_not_steady() {
    let mut cluster = with(&["t_a"], "1", &[("capacity", "9")]);
    start(&mut cluster, "t_a", 3);
    settle(&mut cluster);
    let mut planner = IncrementalPlanner::default();
    let mut rows: BTreeMap<bool, Plan> = BTreeMap::new();
    for is_changed in [false, true] {
        if is_changed {
            cluster.simulation.next_number();
            let change = cluster.change_to(Cluster::quota("q_9", &[("user", "bob"), ("limit", "1")].into()));
            cluster.commit(&change).unwrap();
            cluster.simulation.desired.snapshot.alterations.clear();
        }
        let mut delta = planner.compare(cluster.simulation.desired.clone(), cluster.simulation.observed.clone());
        rows.insert(is_changed, planner.plan(&mut delta));
        planner.keep(delta);
    }
    let shared = rows[&false].rows.iter().zip(&rows[&true].rows).all(|(one, other)| std::sync::Arc::ptr_eq(one, other));
    assert!(shared, "unchanged rows are those of the plan before");
}
