//! Engines that run as their owner: as whom they are created, and whom a start that is refused concerns.

use super::owners::{engines_of, of_session, of_user, owners, shared_by, user, wait_as};
use super::*;

/// The users that engines are created to run as, in the order of their slots.
fn users(plan: &Plan) -> Vec<Option<String>> {
    let created = plan.decisions().filter_map(|decision| match &decision.action {
        Action::CreateEngine(engine) => Some(engine.user.clone()),
        _ => None,
    });
    created.collect()
}

#[test]
fn an_engine_runs_as_the_user_whom_its_slot_names() {
    let named = |name: &str| Some(name.to_owned());
    let of_bob = DemandKey { user: named("bob"), ..of_session("s-2") };
    for (sharing, run_as, expected) in [
        ("user", "owner", [named("ann"), named("bob")]),
        ("session", "owner", [named("ann"), named("bob")]),
        ("user", "service", [None, None]),
    ] {
        let mut cluster = shared_by(sharing, &[("sessions", "4"), ("run_as", run_as)]);
        let keys =
            if sharing == "user" { [of_user("ann"), of_user("bob")] } else { [of_session("s-1"), of_bob.clone()] };
        wait_as(&mut cluster, &keys[0], 1, 4);
        wait_as(&mut cluster, &keys[1], 1, 5);
        tick(&mut cluster);
        assert_eq!(users(&cluster.simulation.plan()), expected, "{sharing} {run_as}");
    }
}

#[test]
fn an_engine_is_replaced_when_it_is_to_run_as_another_user() {
    let mut cluster = shared_by("user", &[("sessions", "4")]);
    wait_as(&mut cluster, &of_user("ann"), 1, 5);
    settle(&mut cluster);
    register(&mut cluster, 1);
    wait_as(&mut cluster, &of_user("ann"), 0, 0);
    settle(&mut cluster);
    let before = slots(&cluster)[0].engine();
    let options = [("on_demand", "true"), ("shared_by", "user"), ("sessions", "4"), ("run_as", "owner")];
    let change = cluster.change_to(Cluster::unit("uc_1", &options.into()));
    cluster.commit(&change).unwrap();
    assert_ne!(slots(&cluster)[0].engine(), before);
    let created: Vec<_> = (0..3).flat_map(|_| users(&tick(&mut cluster))).collect();
    assert_eq!(created, [Some("ann".to_owned())]);
    let stands_in = cluster.simulation.observed.instances.iter().any(|instance| instance.name == before);
    assert!(stands_in && owners(&cluster) == [user("ann")], "the older one serves until the newer has registered");
}

#[test]
fn a_start_that_is_refused_for_one_owner_concerns_no_other() {
    let mut cluster = shared_by("user", &[("sessions", "1"), ("max", "9"), ("run_as", "owner")]);
    let reason = |name: &str| format!("user \"{name}\" has no account");
    let refuse = |cluster: &mut Cluster, name: &str| {
        for engine in engines_of(cluster, user(name).as_ref()) {
            let (reason, retry_in) = (reason(name), Duration::from_mins(5));
            let failure = planner::CreateFailure { reason, failures: 1, retry_in, is_retryable: false };
            cluster.simulation.observed.create_failures.insert(engine, failure);
        }
    };
    for (name, since_s) in [("ann", 3), ("bob", 4), ("carol", 5)] {
        wait_as(&mut cluster, &of_user(name), 1, since_s);
    }
    tick(&mut cluster);
    refuse(&mut cluster, "ann");
    refuse(&mut cluster, "carol");
    let unmet = |plan: &Plan| -> Vec<(String, bool, String)> {
        let unmet = plan.unmet.iter().flatten();
        unmet.map(|unmet| (unmet.key.user.clone().unwrap(), unmet.is_futile, unmet.reason.clone())).collect()
    };
    let refused = |cluster: &Cluster, name: &str| {
        let engine = engines_of(cluster, user(name).as_ref()).remove(0);
        let text = format!(
            "resource unit \"uc_1\": engine \"{engine}\" cannot start: it could not be created: {}",
            reason(name)
        );
        (name.to_owned(), true, text)
    };
    // Each at once with the own reason, although Bob's engine is on its way.
    let plan = settle(&mut cluster);
    assert_eq!(unmet(&plan), ["ann", "carol"].map(|name| refused(&cluster, name)));
    // Bob's engine is full, and another one is started.
    register(&mut cluster, 1);
    wait_as(&mut cluster, &of_user("bob"), 1, 9);
    assert_eq!(changes(&settle(&mut cluster)), (0, 0, 0));
    assert_eq!(engines_of(&cluster, user("bob").as_ref()).len(), 2);
    // So does a user who comes later.
    wait_as(&mut cluster, &of_user("dan"), 1, 9);
    assert_eq!(unmet(&settle(&mut cluster)), ["ann", "carol"].map(|name| refused(&cluster, name)));
    assert_eq!(engines_of(&cluster, user("dan").as_ref()).len(), 1);
}
