//! Engines on demand in plans that start from the last one: they scale as whole plans do.

use std::collections::BTreeMap;
use std::time::Duration;

use model::engine_name::EngineName;
use planner::IncrementalPlanner;

use super::cluster::{Cluster, pools};
use super::{changes, load, on_demand, register, settle, slots, unit, wait};

#[test]
fn an_incremental_plan_scales_as_a_whole_one() {
    let mut cluster = on_demand(&[("sessions", "2"), ("max", "90"), ("idle", "5m")]);
    let mut incremental = IncrementalPlanner::default();
    for step in 0..40_u64 {
        match step % 5 {
            0 => wait(&mut cluster, "t_a", step),
            1 => register(&mut cluster, u32::try_from(step % 3).unwrap()),
            2 => {
                let engines: Vec<EngineName> = slots(&cluster).iter().map(|slot| slot.engine()).collect();
                if let Some(engine) = engines.get(usize::try_from(step).unwrap() % 7) {
                    load(&mut cluster, engine, 0, 100 * (step % 7));
                }
            }
            3 => wait(&mut cluster, "t_a", 0),
            _ => cluster.simulation.advance(Duration::from_secs(7)),
        }
        let whole = cluster.simulation.plan();
        let simulation = &cluster.simulation;
        let mut delta = incremental.compare(simulation.desired.clone(), simulation.observed.clone());
        assert_eq!(incremental.plan(&mut delta), whole, "step {step}");
        incremental.keep(delta);
        cluster.simulation.apply(&whole);
    }
    assert!(slots(&cluster).len() > 5);
}

#[test]
fn links_whose_engines_are_all_in_use_are_scaled_as_by_a_whole_plan() {
    let mut cluster = pools::with(&["t_a", "t_b"], "1", &[]);
    unit(&mut cluster, &[("sessions", "1"), ("max", "9"), ("idle", "5m")]);
    for (tenant, waiting) in [("t_a", 2), ("t_b", 1)] {
        wait(&mut cluster, tenant, waiting);
        settle(&mut cluster);
        register(&mut cluster, 1);
        wait(&mut cluster, tenant, 0);
        settle(&mut cluster);
    }
    let mut incremental = IncrementalPlanner::default();
    let mut planned = |cluster: &Cluster| {
        let (desired, observed) = (cluster.simulation.desired.clone(), cluster.simulation.observed.clone());
        let mut delta = incremental.compare(desired, observed);
        let plan = incremental.plan(&mut delta);
        incremental.keep(delta);
        assert_eq!(plan, planner::plan(&cluster.simulation.desired, &cluster.simulation.observed));
        changes(&plan)
    };
    assert_eq!(slots(&cluster).len(), 3);
    for _ in 0..2 {
        assert_eq!(planned(&cluster), (0, 0, 0), "each engine has a session");
    }
    let engines: Vec<EngineName> = slots(&cluster).iter().map(|slot| slot.engine()).collect();
    load(&mut cluster, &engines[2], 0, 299);
    assert_eq!(planned(&cluster), (0, 0, 0), "idle, and not for long enough");
    load(&mut cluster, &engines[2], 0, 300);
    assert_eq!(planned(&cluster), (0, 0, 1));
    load(&mut cluster, &engines[2], 1, 0);
    assert_eq!(planned(&cluster), (0, 0, 0));
    let lost = cluster.simulation.observed.registrations.clone();
    cluster.simulation.observed.registrations.retain(|registration| registration.engine != engines[0]);
    planned(&cluster);
    cluster.simulation.observed.registrations = lost;
    assert_eq!(planned(&cluster), (0, 0, 0));
    // Nothing is applied, so the second plan differs from the first one in nothing.
    let altered = |cluster: &mut Cluster, max_engines, spare_engines| {
        for unit in cluster.simulation.desired.snapshot.catalog.units.values_mut() {
            (unit.spec.max_engines, unit.spec.spare_engines) = (max_engines, spare_engines);
        }
    };
    altered(&mut cluster, 1, 0);
    for _ in 0..2 {
        assert_eq!(planned(&cluster), (0, 1, 0), "an engine above the maximum ends, although it has a session");
    }
    altered(&mut cluster, 9, 1);
    for _ in 0..2 {
        assert_eq!(planned(&cluster), (2, 0, 0), "a spare engine for each tenant that has sessions");
    }
    altered(&mut cluster, 9, 0);
    assert_eq!(planned(&cluster), (0, 0, 0));
    cluster.simulation.observed.scaling.recent_demand = Some(BTreeMap::new());
    let uid = cluster.uid(&engines[0]);
    cluster.simulation.end(&uid, "killed");
    let mut removed = 0;
    for _ in 0..3 {
        removed += planned(&cluster).1;
        let plan = cluster.simulation.plan();
        cluster.simulation.apply(&plan);
    }
    assert_eq!(removed, 1, "the slot of an engine that has ended, although its last answer counted a session");
}
