//! Starts that fail: which sessions wait for the next attempt, and for which of them that is in vain.

use std::time::Duration;

use model::demand::{Demand, DemandKey};
use model::end::{EndWord, StartFault};
use model::engine_name::EngineName;
use model::name::{TenantName, UnitName};
use model::number::Generation;
use planner::Plan;

use super::cluster::pools::{commit, pool, running, tick};
use super::cluster::{self, Cluster};
use super::{changes, key, load, on_demand, register, settle, slots, unit, wait};

/// The current engine of the only slot of the unit cannot start, or can again.
fn set_fault(cluster: &mut Cluster, unit: &str, fault: Option<(StartFault, &str)>) -> EngineName {
    let slot = slots(cluster).iter().find(|slot| slot.key.unit.as_str() == unit).unwrap();
    let name = slot.engine();
    let instances = cluster.simulation.observed.instances.iter_mut();
    for instance in instances.filter(|instance| instance.name == name) {
        instance.fault = fault.map(|(fault, _)| fault);
        instance.reason = fault.map(|(_, reason)| reason.to_owned());
    }
    name
}

fn unmet(plan: &Plan) -> (bool, String) {
    let [unmet] = &plan.unmet.as_ref().unwrap()[..] else { panic!("{:?}", plan.unmet) };
    (unmet.is_futile, unmet.reason.clone())
}

#[test]
fn waiting_is_in_vain_while_the_only_start_fails_for_good() {
    let mut cluster = on_demand(&[("sessions", "1")]);
    wait(&mut cluster, "t_a", 1);
    assert_eq!(settle(&mut cluster).unmet.unwrap(), [], "an engine is on its way");
    for (fault, reason) in [(StartFault::Registry, "no registry"), (StartFault::Unschedulable, "no node")] {
        set_fault(&mut cluster, "uc_1", Some((fault, reason)));
        assert_eq!(settle(&mut cluster).unmet.unwrap(), [], "{reason}: it may start later");
    }
    let name = set_fault(&mut cluster, "uc_1", Some((StartFault::Image, "no image \"x\"")));
    let plan = tick(&mut cluster);
    assert_eq!(unmet(&plan), (true, format!("resource unit \"uc_1\": engine \"{name}\" cannot start: no image \"x\"")));
    let newest = cluster.simulation.desired.snapshot.catalog.newest_change(&TenantName::new("t_a").unwrap());
    assert!(newest > Generation::default() && plan.unmet.unwrap()[0].generation == newest);
    assert_eq!(changes(&settle(&mut cluster)), (0, 0, 0), "no other engine is started for them");
    // The image exists now, and the kubelet has pulled it.
    set_fault(&mut cluster, "uc_1", None);
    assert_eq!(settle(&mut cluster).unmet.unwrap(), []);
    register(&mut cluster, 0);
    assert_eq!(settle(&mut cluster).unmet.unwrap(), []);
}

#[test]
fn a_start_that_ended_for_good_backs_off_and_is_tried_again() {
    let mut cluster = on_demand(&[("sessions", "1")]);
    wait(&mut cluster, "t_a", 1);
    settle(&mut cluster);
    let name = set_fault(&mut cluster, "uc_1", Some((StartFault::OutOfMemory, "exit code 137")));
    let uid = cluster.uid(&name);
    cluster.simulation.end(&uid, "out of memory");
    let plan = settle(&mut cluster);
    let record = cluster.simulation.desired.snapshot.engines.iter().find(|record| record.name == name).unwrap();
    assert_eq!((record.ended_word, record.retryable), (Some(EndWord::Failed), Some(false)));
    let (is_futile, reason) = unmet(&plan);
    assert!(is_futile && reason.contains("out of memory"), "{reason}");
    cluster.simulation.advance(Duration::from_secs(4));
    let plan = settle(&mut cluster);
    assert_eq!((plan.unmet.unwrap(), running(&cluster)), (vec![], 1), "the next start is on its way");
}

#[test]
fn an_alteration_that_replaces_the_engine_ends_the_futility() {
    let mut cluster = on_demand(&[("sessions", "1")]);
    wait(&mut cluster, "t_a", 1);
    settle(&mut cluster);
    set_fault(&mut cluster, "uc_1", Some((StartFault::Configuration, "secret \"s\" not found")));
    assert!(unmet(&tick(&mut cluster)).0);
    unit(&mut cluster, &[("sessions", "1"), ("memory", "2G")]);
    let plan = settle(&mut cluster);
    assert_eq!(plan.unmet.unwrap(), [], "{:?}", plan.rows);
}

#[test]
fn units_whose_engines_fail_do_not_delay_another() {
    let mut cluster = cluster::pools::with(&["t_a"], "100", &[]);
    let units = ["uc_1", "uc_2", "uc_3", "uc_4"];
    for unit in units {
        commit(&mut cluster, Cluster::unit(unit, &[("on_demand", "true"), ("sessions", "1")].into()));
    }
    pool(&mut cluster, &[("units", &units.join(","))]);
    let wait_for = |cluster: &mut Cluster, unit: &str, waiting: u64| {
        let snapshot = &mut cluster.simulation.desired.snapshot;
        let key = DemandKey { unit: Some(UnitName::new(unit).unwrap()), ..key("t_a", None) };
        snapshot.demand.retain(|demand| demand.key != key);
        let (since_ms, until_ms) = (snapshot.now_ms, i64::MAX);
        snapshot.demand.push(Demand { key, waiting, since_ms, until_ms });
    };
    for unit in units {
        wait_for(&mut cluster, unit, 1);
    }
    settle(&mut cluster);
    assert_eq!(running(&cluster), 4);
    // One cannot pull its image, two exit, one of them for good.
    set_fault(&mut cluster, "uc_1", Some((StartFault::Image, "no image")));
    for (unit, fault) in [("uc_2", StartFault::OutOfMemory), ("uc_3", StartFault::Exited)] {
        let name = set_fault(&mut cluster, unit, Some((fault, "exit")));
        let uid = cluster.uid(&name);
        cluster.simulation.end(&uid, "exit");
    }
    let healthy = set_fault(&mut cluster, "uc_4", None);
    let plan = settle(&mut cluster);
    let futile = |plan: &Plan| {
        let unmet =
            plan.unmet.iter().flatten().map(|unmet| (unmet.key.unit.as_ref().unwrap().to_string(), unmet.is_futile));
        unmet.collect::<Vec<_>>()
    };
    let of = |unit: &str, is_futile| (unit.to_owned(), is_futile);
    assert_eq!(futile(&plan), [of("uc_1", true), of("uc_2", true), of("uc_3", false)]);
    assert!(cluster.simulation.register(&healthy));
    load(&mut cluster, &healthy, 1, 0);
    wait_for(&mut cluster, "uc_4", 1);
    let plan = settle(&mut cluster);
    assert_eq!(futile(&plan), [of("uc_1", true), of("uc_2", true), of("uc_3", false)]);
    let started = slots(&cluster).iter().filter(|slot| slot.key.unit.as_str() == "uc_4").count();
    assert_eq!((started, running(&cluster)), (2, 3), "another session of the healthy unit has another engine");
}
