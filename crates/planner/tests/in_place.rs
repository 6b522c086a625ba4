//! IN PLACE in plans: turns, the charge that passes on, and what interrupts a replacement.
#![allow(clippy::unwrap_used, clippy::panic)]

mod cluster;

use std::collections::BTreeSet;
use std::time::Duration;

use cluster::pools::{commit, pool, queued, reasons, running, settle, start, tick, verbs, with};
use cluster::{Cluster, Step, slot_key};
use model::engine_name::EngineName;
use model::engine_state::Phase;
use model::ledger::{Change, ScopeKey, State};
use model::name::PoolName;
use model::slot::Replacement;
use planner::{Action, Plan, Transition, Verdict, explain_restart};

const FIRST: &str = "t_a/rp_1/uc_1/0";

/// ALTER RESOURCE UNIT … IN PLACE
fn alter(cluster: &mut Cluster, options: &[(&str, &str)], replacement: Replacement) {
    let change = cluster.change_to(Cluster::unit("uc_1", &options.iter().copied().collect()));
    cluster.commit_with(&change, replacement).unwrap();
}

/// A tenant with so many engines of 1 CPU that serve, in a pool of this capacity.
fn serving(count: usize, capacity: &str) -> Cluster {
    let mut cluster = with(&["t_a", "t_b"], "1", &[("capacity", capacity)]);
    start(&mut cluster, "t_a", count);
    settle(&mut cluster);
    assert_eq!(running(&cluster), count);
    cluster
}

fn held(cluster: &Cluster) -> i64 {
    let pool = ScopeKey::pool(&PoolName::new("rp_1").unwrap());
    cluster.simulation.desired.snapshot.ledger.scope(&pool).unwrap().counter.held.cpu_m
}

fn registered(cluster: &Cluster, tenant: &str) -> usize {
    let registrations = cluster.simulation.observed.registrations.iter();
    registrations.filter(|registration| registration.engine.as_str().starts_with(tenant)).count()
}

fn drained(plan: &Plan) -> Vec<(&EngineName, &str)> {
    let drains = plan.decisions().filter(|decision| matches!(decision.action, Action::Drain { .. }));
    drains.map(|decision| (decision.engine.as_ref().unwrap(), decision.reason.as_str())).collect()
}

/// Ends what drains, and plans until nothing is listed under the names.
fn finish_drains(cluster: &mut Cluster) {
    cluster.simulation.exit_drained();
    tick(cluster);
}

#[test]
fn a_full_pool_is_replaced_one_slot_after_the_other() {
    let mut cluster = serving(3, "3");
    cluster.simulation.advance(Duration::from_secs(1));
    start(&mut cluster, "t_b", 1);
    alter(&mut cluster, &[("memory", "2G")], Replacement::InPlace);
    let mut transferred = 0;
    cluster.settle(|cluster, step| {
        assert!(running(cluster) <= 3 && registered(cluster, "t-a") >= 2);
        assert_eq!((held(cluster), registered(cluster, "t-b")), (3_000, 0), "nothing is returned in between");
        if let Step::Plan(plan) = step {
            transferred += verbs(plan).iter().filter(|verb| **verb == "transfer reservation").count();
        }
    });
    assert_eq!((transferred, registered(&cluster, "t-a")), (3, 3));
    let plan = cluster.simulation.plan();
    assert_eq!(queued(&plan).len(), 1, "the other tenant's: {:?}", plan.waits);
    assert!(cluster.simulation.desired.snapshot.alterations.is_empty());
}

#[test]
fn the_older_engine_drains_with_its_grace_and_the_next_waits_until_it_is_gone() {
    let mut cluster = serving(2, "2");
    let old = cluster.engine(FIRST);
    alter(&mut cluster, &[("memory", "2G")], Replacement::InPlace);
    let plan = tick(&mut cluster);
    let new = cluster.engine(FIRST);
    assert_eq!(drained(&plan), [(&old, format!("replaced in place by {new}").as_str())]);
    let Some(Action::Drain { grace, successor, .. }) = plan.decisions().map(|decision| &decision.action).next() else {
        panic!("{:?}", verbs(&plan))
    };
    assert_eq!((*grace, successor), (cluster.simulation.desired.limits.grace(None), &None));
    let wait = |plan: &Plan, engine: &EngineName| {
        plan.waits.iter().find(|wait| wait.engine == *engine).map(|wait| wait.reason.clone())
    };
    let second = cluster.engine("t_a/rp_1/uc_1/1");
    let turn = "waits for its turn: engines of unit \"uc_1\" are replaced 1 at a time";
    assert_eq!(wait(&plan, &second).as_deref(), Some(turn));
    for phase in [Phase::Running, Phase::Terminating, Phase::Ended] {
        let observed = &mut cluster.simulation.observed;
        observed.instances.iter_mut().filter(|instance| instance.name == old).for_each(|at| at.phase = phase);
        let plan = cluster.simulation.plan();
        let expected = format!("waits until engine {old}, which it replaces in place, is gone");
        assert_eq!(wait(&plan, &new), Some(expected), "{phase:?}");
        assert!(!verbs(&plan).contains(&"create engine") && drained(&plan).is_empty());
    }
    cluster.simulation.observed.instances.retain(|instance| instance.name != old);
    let plan = tick(&mut cluster);
    let first: Vec<&str> = verbs(&plan).into_iter().take(3).collect();
    assert_eq!(first, ["transfer reservation", "create permit", "create engine"]);
    assert_eq!(cluster.reservation(&new).map(|held| held.state), Some(State::Locked));
    assert!(drained(&tick(&mut cluster)).is_empty(), "it is down until it has registered");
    assert!(cluster.simulation.register(&new));
    tick(&mut cluster);
    let next = cluster.simulation.plan();
    assert!(drained(&plan).is_empty() && drained(&next).len() <= 1);
    settle(&mut cluster);
    assert_eq!(running(&cluster), 2);
}

#[test]
fn slots_that_wait_in_place_delay_no_alteration() {
    let mut cluster = serving(3, "3");
    let old = cluster.engine(FIRST);
    alter(&mut cluster, &[("memory", "2G")], Replacement::InPlace);
    let finished = |plan: &Plan| {
        let transitions = plan.decisions().filter_map(|decision| match &decision.action {
            Action::Finish { transition, .. } => Some(*transition),
            _ => None,
        });
        transitions.collect::<Vec<_>>()
    };
    let plan = tick(&mut cluster);
    assert_eq!(finished(&plan), [], "the drain order of the slot that has its turn is missing");
    assert!(plan.waits_for.is_some_and(|reason| reason.contains("t_a/rp_1/uc_1/0")));
    let plan = tick(&mut cluster);
    let is_waiting = |reason: &str| reason.starts_with("waits for its turn") || reason.ends_with(", is gone");
    let new = plan.waits.iter().filter(|wait| is_waiting(&wait.reason));
    assert_eq!((finished(&plan), new.count()), (vec![Transition::Converged], 3), "{:?}", plan.waits);
    // Its sessions stay open for longer than an alteration may converge.
    cluster.simulation.advance(2 * cluster.simulation.desired.limits.alter_deadline);
    let plan = tick(&mut cluster);
    assert_eq!((finished(&plan), registered(&cluster, "t-a")), (vec![], 2));
    assert!(cluster.simulation.observed.instances.iter().any(|instance| instance.name == old), "it drains");
    settle(&mut cluster);
    assert_eq!(registered(&cluster, "t-a"), 3);
}

#[test]
fn a_larger_successor_takes_its_turn_only_if_the_difference_is_left() {
    let mut cluster = serving(3, "4");
    alter(&mut cluster, &[("cpu", "2")], Replacement::InPlace);
    let plan = settle(&mut cluster);
    let reason = "queued at position 1: resource pool \"rp_1\": asked 1, left 0 of 4 (POOL_CPU, retryable)";
    assert_eq!((reasons(&plan), running(&cluster), held(&cluster)), (vec![reason], 3, 4_000));
    assert_eq!(registered(&cluster, "t-a"), 3, "the older engines serve");
    assert!(cluster.simulation.desired.snapshot.alterations.is_empty(), "it delays no alteration");
    pool(&mut cluster, &[("capacity", "6")]);
    let plan = settle(&mut cluster);
    assert_eq!((reasons(&plan).len(), held(&cluster)), (0, 6_000));
}

#[test]
fn a_slot_that_fits_does_not_wait_behind_one_that_does_not() {
    let mut cluster = serving(2, "3");
    // The second slot's engine is as large already as the statement makes all of them.
    alter(&mut cluster, &[("cpu", "2")], Replacement::InPlace);
    settle(&mut cluster);
    alter(&mut cluster, &[("memory", "2G")], Replacement::InPlace);
    let plan = settle(&mut cluster);
    let large = cluster.engine(FIRST);
    assert_eq!(cluster.reservation(&large).map(|held| held.state), Some(State::Used), "it was replaced");
    assert_eq!((reasons(&plan).len(), running(&cluster), held(&cluster)), (1, 2, 3_000));
}

#[test]
fn what_others_request_cannot_take_the_difference_while_the_older_engine_drains() {
    let mut cluster = serving(1, "2");
    alter(&mut cluster, &[("cpu", "2")], Replacement::InPlace);
    tick(&mut cluster);
    start(&mut cluster, "t_b", 1);
    for _ in 0..3 {
        let plan = tick(&mut cluster);
        assert_eq!((queued(&plan).len(), held(&cluster)), (1, 1_000), "{:?}", plan.waits);
    }
    finish_drains(&mut cluster);
    settle(&mut cluster);
    assert_eq!((registered(&cluster, "t-a"), registered(&cluster, "t-b"), held(&cluster)), (1, 0, 2_000));
}

#[test]
fn a_configuration_that_no_engine_starts_with_takes_down_one_slot() {
    let mut cluster = serving(3, "3");
    alter(&mut cluster, &[("memory", "2G")], Replacement::InPlace);
    start(&mut cluster, "t_b", 1);
    let mut failures = 0;
    for _ in 0..200 {
        tick(&mut cluster);
        cluster.simulation.exit_drained();
        let starting = cluster.simulation.about_to_register();
        for engine in &starting {
            let uid = cluster.uid(engine);
            cluster.simulation.end(&uid, "unknown property");
            failures += 1;
        }
        cluster.simulation.advance(Duration::from_secs(20));
        assert_eq!((registered(&cluster, "t-a"), registered(&cluster, "t-b"), held(&cluster)), (2, 0, 3_000));
    }
    assert!(failures > 5, "{failures}");
    assert_eq!(cluster.simulation.desired.snapshot.slots[0].replacement, Replacement::InPlace);
    alter(&mut cluster, &[("memory", "3G")], Replacement::InPlace);
    settle(&mut cluster);
    assert_eq!((registered(&cluster, "t-a"), held(&cluster)), (3, 3_000));
}

#[test]
fn a_slot_replaces_its_engines_normally_again_after_one_has_registered() {
    let mut cluster = serving(1, "1");
    alter(&mut cluster, &[("memory", "2G")], Replacement::InPlace);
    settle(&mut cluster);
    let uid = cluster.uid(&cluster.engine(FIRST));
    cluster.simulation.end(&uid, "killed");
    start(&mut cluster, "t_b", 1);
    settle(&mut cluster);
    assert_eq!(cluster.simulation.desired.snapshot.slots[0].replacement, Replacement::StandIn);
    assert_eq!(running(&cluster), 1, "the charge was returned, as after any failure");
}

#[test]
fn a_slot_that_never_had_capacity_holds_up_no_other() {
    let mut cluster = serving(2, "2");
    cluster.simulation.advance(Duration::from_secs(1));
    start(&mut cluster, "t_a", 1);
    assert_eq!(queued(&tick(&mut cluster)).len(), 1);
    alter(&mut cluster, &[("memory", "2G")], Replacement::InPlace);
    let old: BTreeSet<String> =
        cluster.simulation.observed.instances.iter().map(|instance| instance.uid.clone()).collect();
    let plan = settle(&mut cluster);
    assert_eq!((queued(&plan).len(), running(&cluster)), (1, 2));
    assert!(cluster.simulation.observed.instances.iter().all(|instance| !old.contains(&instance.uid)));
}

/// A slot whose older engine is gone, and whose successor was not created: its master died.
fn down() -> (Cluster, EngineName) {
    let mut cluster = serving(1, "1");
    let old = cluster.engine(FIRST);
    alter(&mut cluster, &[("memory", "2G")], Replacement::InPlace);
    tick(&mut cluster);
    cluster.simulation.exit_drained();
    let plan = cluster.simulation.plan();
    // The end is recorded and the instance cleared, nothing is transferred yet.
    assert!(!verbs(&plan).contains(&"transfer reservation"), "{:?}", verbs(&plan));
    cluster.simulation.apply(&plan);
    assert!(cluster.simulation.observed.instances.is_empty());
    (cluster, old)
}

#[test]
fn a_new_master_transfers_once_wherever_the_last_one_died() {
    for died_after in 0..5 {
        let (mut cluster, old) = down();
        let plan = cluster.simulation.plan();
        cluster.apply_first(&plan, died_after);
        let new = cluster.engine(FIRST);
        let has_transferred = died_after > 0;
        let states = [&old, &new].map(|engine| cluster.reservation(engine).map(|held| held.state));
        assert_eq!(states[1], has_transferred.then_some(State::Locked), "{died_after}");
        assert_eq!(held(&cluster), 1_000);
        let plan = tick(&mut cluster);
        let transfers = verbs(&plan).into_iter().filter(|verb| verb.contains("reserv")).count();
        assert_eq!(transfers, usize::from(!has_transferred), "{died_after}: {:?}", verbs(&plan));
        settle(&mut cluster);
        assert_eq!((running(&cluster), held(&cluster)), (1, 1_000));
    }
}

#[test]
fn a_charge_without_a_slot_that_waits_for_it_is_returned() {
    let stop: fn(&mut Cluster) = |cluster| cluster.stop(&slot_key(FIRST));
    let again: fn(&mut Cluster) = |cluster| {
        cluster.stop(&slot_key(FIRST));
        start(cluster, "t_a", 1);
        cluster.restart(&slot_key(FIRST), Replacement::InPlace);
    };
    let stand_in: fn(&mut Cluster) = |cluster| cluster.restart(&slot_key(FIRST), Replacement::StandIn);
    for (what, interrupt) in [("stopped", stop), ("started again", again), ("restarted", stand_in)] {
        let (mut cluster, old) = down();
        interrupt(&mut cluster);
        let plan = tick(&mut cluster);
        assert!(verbs(&plan).contains(&"end reservation"), "{what}: {:?}", verbs(&plan));
        assert!(cluster.reservation(&old).is_none_or(|held| held.state == State::Released), "{what}");
        settle(&mut cluster);
        assert_eq!(held(&cluster), 1_000 * i64::try_from(running(&cluster)).unwrap(), "{what}");
    }
}

#[test]
fn a_further_statement_passes_the_charge_to_the_newest_engine() {
    for replacement in [Replacement::InPlace, Replacement::Force] {
        let (mut cluster, old) = down();
        start(&mut cluster, "t_b", 1);
        cluster.restart(&slot_key(FIRST), replacement);
        let plan = tick(&mut cluster);
        let from = plan.decisions().find_map(|decision| match &decision.action {
            Action::Ledger(change) => match &change.change {
                Change::Transfer { from, .. } => Some(from.to_string()),
                _ => None,
            },
            _ => None,
        });
        assert_eq!(from.as_deref(), Some(old.as_str()), "{replacement:?}");
    }
}

#[test]
fn an_orphan_of_an_older_engine_delays_the_create() {
    let (mut cluster, old) = down();
    let record = cluster.simulation.desired.snapshot.engines.iter().any(|record| record.name == old);
    assert!(!record, "its end is recorded");
    let plan = cluster.simulation.plan();
    cluster.apply_first(&plan, 1);
    let new = cluster.engine(FIRST);
    assert_eq!(cluster.reservation(&new).map(|held| held.state), Some(State::Locked));
    // A late create of a deposed master: an orphan.
    let slot = cluster.simulation.desired.snapshot.slots[0].clone();
    assert_eq!(slot.key.engine(slot.born), old);
    assert!(cluster.late_create_of(&slot.key, slot.born));
    let plan = tick(&mut cluster);
    assert!(!verbs(&plan).contains(&"create engine"), "{:?}", verbs(&plan));
    settle(&mut cluster);
    assert_eq!((running(&cluster), held(&cluster)), (1, 1_000));
}

#[test]
fn a_late_create_that_has_ended_leaves_the_charge_with_its_slot() {
    let (mut cluster, old) = down();
    let slot = cluster.simulation.desired.snapshot.slots[0].clone();
    // By a deposed master, of the current engine, before anything was reserved for it.
    assert!(cluster.late_create_of(&slot.key, slot.incarnation));
    cluster.simulation.observed.instances.last_mut().unwrap().phase = Phase::Ended;
    let plan = tick(&mut cluster);
    assert!(verbs(&plan).contains(&"record end") && !verbs(&plan).contains(&"end reservation"), "{:?}", verbs(&plan));
    assert!(cluster.reservation(&old).is_some_and(|reservation| reservation.state.is_charged()));
    settle(&mut cluster);
    assert_eq!((running(&cluster), held(&cluster)), (1, 1_000));
}

#[test]
fn a_late_create_is_charged_before_the_charge_of_its_predecessor_ends() {
    let (mut cluster, _) = down();
    let slot = cluster.simulation.desired.snapshot.slots[0].clone();
    assert!(cluster.late_create_of(&slot.key, slot.incarnation));
    let plan = cluster.simulation.plan();
    assert!(verbs(&plan).contains(&"end reservation"), "{:?}", verbs(&plan));
    for count in 0..=plan.decisions().count() {
        let mut died = cluster.clone();
        died.apply_first(&plan, count);
        assert!(held(&died) >= 1_000, "a master that dies after {count} decisions has returned the charge");
    }
}

#[test]
fn force_creates_by_transfer_what_is_queued_when_the_older_engine_is_gone() {
    let mut cluster = serving(1, "1");
    let old = cluster.engine(FIRST);
    cluster.simulation.advance(Duration::from_mins(2));
    commit(&mut cluster, Cluster::unit("uc_1", &[("priority", "0")].into()));
    start(&mut cluster, "t_b", 1);
    cluster.restart(&slot_key(FIRST), Replacement::Force);
    let plan = tick(&mut cluster);
    assert_eq!(queued(&plan).len(), 2, "{:?}", plan.waits);
    cluster.simulation.observed.instances.clear();
    cluster.simulation.observed.registrations.clear();
    let plan = tick(&mut cluster);
    assert!(verbs(&plan).contains(&"transfer reservation"), "{:?}", verbs(&plan));
    assert!(cluster.reservation(&old).is_none_or(|held| held.state == State::Released));
    settle(&mut cluster);
    assert_eq!((registered(&cluster, "t-a"), registered(&cluster, "t-b"), held(&cluster)), (1, 0, 1_000));
}

#[test]
fn no_turn_is_taken_while_registrations_may_be_missing_and_then_idle_slots_are_first() {
    let mut cluster = serving(2, "2");
    alter(&mut cluster, &[("memory", "2G")], Replacement::InPlace);
    let second = cluster.simulation.observed.instances[1].name.clone();
    cluster.simulation.observed.registrations.retain(|registration| registration.engine != second);
    cluster.simulation.observed.registry_complete = false;
    let plan = tick(&mut cluster);
    assert!(drained(&plan).is_empty(), "{:?}", verbs(&plan));
    cluster.simulation.observed.registry_complete = true;
    let plan = tick(&mut cluster);
    assert_eq!(drained(&plan).first().map(|(engine, _)| (*engine).clone()), Some(second));
}

#[test]
fn explain_shows_the_drain_before_the_create_and_what_is_queued() {
    let mut cluster = serving(1, "1");
    let change = cluster.change_to(Cluster::unit("uc_1", &[("memory", "2G")].into()));
    let rows = cluster.explain_with(&change, Replacement::InPlace).unwrap();
    let at = |decision: &str| rows.iter().position(|row| row.decision == decision);
    assert!(
        at("drain engine") < at("transfer reservation") && at("transfer reservation") < at("create engine"),
        "{rows:?}"
    );
    let change = cluster.change_to(Cluster::unit("uc_1", &[("cpu", "2")].into()));
    let rows = cluster.explain_with(&change, Replacement::InPlace).unwrap();
    let last = rows.last().unwrap();
    let because = "queued at position 1: resource pool \"rp_1\": asked 1, left 0 of 1 (POOL_CPU, retryable)";
    assert_eq!((last.decision.as_str(), last.because.as_str()), ("wait", because));
    let explain = |cluster: &Cluster, replacement| {
        let planner::Simulation { desired, observed, .. } = &cluster.simulation;
        explain_restart(desired, observed, &slot_key(FIRST), replacement).unwrap()
    };
    let restart = explain(&cluster, Replacement::InPlace);
    assert!(restart.scopes.iter().all(|row| row.asked == "0" && row.verdict == Verdict::Fits), "{:?}", restart.scopes);
    assert!(explain(&cluster, Replacement::StandIn).scopes.iter().any(|row| row.verdict == Verdict::Queued));
    alter(&mut cluster, &[("memory", "2G")], Replacement::InPlace);
    settle(&mut cluster);
    assert_eq!(running(&cluster), 1);
}
