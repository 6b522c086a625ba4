//! Engines of groups, users and sessions: whom they serve, whom they are charged to, and how they share a link's maximum.

use model::demand::ScalingGroup;
use model::engine_labels::EngineLabels;
use model::labels::OWNER;
use model::owner::Owner;
use model::slot::StartedFor;
use planner::{Decision, IncrementalPlanner};
use proptest::prelude::*;

use super::*;

pub(super) fn shared_by(shared_by: &str, options: &[(&str, &str)]) -> Cluster {
    let options: Vec<(&str, &str)> = options.iter().copied().chain([("shared_by", shared_by)]).collect();
    on_demand(&options)
}

#[allow(clippy::unnecessary_wraps)] // As slots and permits have it.
pub(super) fn user(name: &str) -> Option<Owner> {
    Some(Owner::User(name.to_owned()))
}

pub(super) fn of_user(name: &str) -> DemandKey {
    DemandKey { user: Some(name.to_owned()), group: Some("etl".to_owned()), ..key("t_a", None) }
}

/// Sessions of one user with this client application.
fn of_creator(name: &str, creator: &str) -> DemandKey {
    DemandKey { creator: creator.to_owned(), ..of_user(name) }
}

pub(super) fn of_session(id: &str) -> DemandKey {
    DemandKey { session: Some(id.to_owned()), ..of_user("ann") }
}

/// So many sessions wait under the key, since so many seconds after the epoch.
pub(super) fn wait_as(cluster: &mut Cluster, key: &DemandKey, waiting: u64, since_s: i64) {
    let snapshot = &mut cluster.simulation.desired.snapshot;
    snapshot.demand.retain(|demand| demand.key != *key);
    snapshot.demand.push(Demand { key: key.clone(), waiting, since_ms: 1_000 * since_s, until_ms: i64::MAX });
}

pub(super) fn owners(cluster: &Cluster) -> Vec<Option<Owner>> {
    slots(cluster).iter().map(|slot| slot.owner.clone()).collect()
}

pub(super) fn engines_of(cluster: &Cluster, owner: Option<&Owner>) -> Vec<EngineName> {
    slots(cluster).iter().filter(|slot| slot.owner.as_ref() == owner).map(|slot| slot.engine()).collect()
}

fn because(plan: &Plan) -> Vec<&str> {
    plan.decisions().filter(|it| it.verb() == "scale").map(|it| it.reason.as_str()).collect()
}

#[test]
fn a_session_takes_no_seat_of_another_owner() {
    let mut cluster = shared_by("user", &[("sessions", "4"), ("max", "9")]);
    wait_as(&mut cluster, &of_user("ann"), 1, 5);
    wait_as(&mut cluster, &of_user("bob"), 5, 4);
    let plan = tick(&mut cluster);
    let link = "tenant \"t_a\" on resource pool \"rp_1\", unit \"uc_1\"";
    let bob = "adds 2 engines of user \"bob\", because 5 sessions wait";
    let ann = "adds 1 engine of user \"ann\", because 1 session waits";
    assert_eq!(because(&plan), [format!("{link}: {bob}; {ann}")], "one change of the link, the oldest demand first");
    settle(&mut cluster);
    assert_eq!(owners(&cluster), [user("bob"), user("bob"), user("ann")]);
    let started_for = |name: &str| Some(StartedFor { user: name.to_owned(), creator: "IDE".to_owned() });
    let charged: Vec<_> = slots(&cluster).iter().map(|slot| slot.started_for.clone()).collect();
    assert_eq!(charged, [started_for("bob"), started_for("bob"), started_for("ann")]);
    register(&mut cluster, 1);
    for name in ["ann", "bob"] {
        wait_as(&mut cluster, &of_user(name), 0, 0);
    }
    // Nine seats are free, and none of them is Carol's.
    wait_as(&mut cluster, &of_user("carol"), 1, 9);
    assert_eq!(changes(&tick(&mut cluster)), (1, 0, 0));
    assert_eq!(owners(&cluster)[3], user("carol"));
    wait_as(&mut cluster, &of_user("carol"), 0, 0);
    wait_as(&mut cluster, &of_user("ann"), 3, 9);
    assert_eq!(changes(&settle(&mut cluster)), (0, 0, 0), "three seats of hers are free");
}

#[test]
fn members_of_a_group_share_engines_that_their_tenant_is_charged_for() {
    let mut cluster = shared_by("group", &[("sessions", "4"), ("max", "9")]);
    wait_as(&mut cluster, &of_user("ann"), 1, 5);
    wait_as(&mut cluster, &of_user("bob"), 1, 4);
    settle(&mut cluster);
    assert_eq!(owners(&cluster), [Some(Owner::Group("etl".to_owned()))]);
    assert_eq!(slots(&cluster)[0].started_for, None);
    let scopes = &cluster.reservation(&slots(&cluster)[0].engine()).unwrap().request.scopes;
    assert!(scopes.policy().all(|key| key.kind == model::ledger::ScopeKind::Tenant), "{scopes:?}");
}

#[test]
fn the_owner_is_in_permit_and_label() {
    let mut cluster = shared_by("user", &[("sessions", "4")]);
    wait_as(&mut cluster, &of_user("ann"), 1, 5);
    tick(&mut cluster);
    let plan = tick(&mut cluster);
    let is_hers = |decision: &&Decision| match &decision.action {
        Action::CreatePermit { owner, .. } | Action::WritePermitUid { owner, .. } => *owner == user("ann"),
        Action::CreateEngine(engine) => engine.labels.owner == user("ann").map(|owner| owner.label()),
        _ => false,
    };
    let hers: Vec<_> = plan.decisions().filter(is_hers).map(Decision::verb).collect();
    assert_eq!(hers, ["create permit", "create engine", "write uid into permit"]);
    settle(&mut cluster);
    register(&mut cluster, 1);
    wait_as(&mut cluster, &of_user("ann"), 0, 0);
    settle(&mut cluster);
    // A permit that is lost, or that another owner is written in, is created with the owner again.
    cluster.simulation.observed.permits.clear();
    cluster.simulation.observed.registrations.clear();
    let restored = cluster.simulation.plan();
    let permits = restored.decisions().filter_map(|decision| match &decision.action {
        Action::CreatePermit { owner, .. } => Some(owner.clone()),
        _ => None,
    });
    assert_eq!(permits.collect::<Vec<_>>(), [user("ann")]);
    tick(&mut cluster);
    cluster.simulation.observed.permits[0].owner = Some(None);
    assert_eq!(verbs(&tick(&mut cluster)), ["delete permit"]);
    cluster.simulation.observed.registrations.clear();
    settle(&mut cluster);
    assert_eq!(cluster.simulation.observed.permits[0].owner, Some(user("ann")));
}

#[test]
fn an_engine_with_the_label_of_another_owner_is_replaced() {
    for label in [user("bob").map(|owner| owner.label()), None] {
        let mut cluster = shared_by("user", &[("sessions", "4")]);
        wait_as(&mut cluster, &of_user("ann"), 1, 5);
        settle(&mut cluster);
        register(&mut cluster, 1);
        wait_as(&mut cluster, &of_user("ann"), 0, 0);
        settle(&mut cluster);
        let instance = &mut cluster.simulation.observed.instances[0];
        assert_eq!(EngineLabels::decode(&instance.labels).unwrap().owner, user("ann").map(|owner| owner.label()));
        let mut labels = (*instance.labels).clone();
        match &label {
            Some(label) => drop(labels.insert(OWNER.to_owned(), label.clone())),
            None => drop(labels.remove(OWNER)),
        }
        instance.labels = labels.into();
        let before = slots(&cluster)[0].incarnation;
        let plan = tick(&mut cluster);
        assert_eq!(verbs(&plan), ["draw incarnation"], "{label:?}");
        assert_eq!(plan.decisions().next().unwrap().reason, "outdated: its labels differ from those of its slot");
        assert!(slots(&cluster)[0].incarnation > before && owners(&cluster) == [user("ann")]);
    }
}

#[test]
fn all_owners_of_a_link_share_its_maximum() {
    let mut cluster = shared_by("user", &[("sessions", "1"), ("max", "3")]);
    for (name, since_s) in [("ann", 9), ("bob", 7), ("carol", 8), ("dan", 6)] {
        wait_as(&mut cluster, &of_user(name), 1, since_s);
    }
    let plan = settle(&mut cluster);
    assert_eq!(owners(&cluster), [user("dan"), user("bob"), user("carol")], "the oldest demand first");
    let [unmet] = &plan.unmet.as_ref().unwrap()[..] else { panic!("{:?}", plan.unmet) };
    assert_eq!(unmet.reason, "all engines are full, and MAX_ENGINES is 3");
    assert_eq!((unmet.key.user.as_deref(), unmet.is_futile), (Some("ann"), false));
    // The idle one ends, that of either owner.
    register(&mut cluster, 1);
    for name in ["ann", "bob", "carol", "dan"] {
        wait_as(&mut cluster, &of_user(name), 0, 0);
    }
    let [bob] = &engines_of(&cluster, user("bob").as_ref())[..] else { panic!("one engine of Bob's") };
    load(&mut cluster, bob, 0, 1);
    unit(&mut cluster, &[("sessions", "1"), ("max", "2")]);
    settle(&mut cluster);
    assert_eq!(owners(&cluster), [user("dan"), user("carol")]);
    assert_eq!(cluster.simulation.observed.drains[0].reason, "MAX_ENGINES is 2");
}

#[test]
fn a_burst_is_that_of_a_link_and_not_of_each_owner() {
    let mut cluster = shared_by("user", &[("sessions", "1"), ("max", "90")]);
    for number in 0..25 {
        wait_as(&mut cluster, &of_user(&format!("u{number:02}")), 1, number);
    }
    let added: Vec<u32> = (0..3).map(|_| changes(&tick(&mut cluster)).0).collect();
    let burst = cluster.simulation.desired.limits.burst;
    assert_eq!((burst, added), (10, vec![10, 10, 5]));
    settle(&mut cluster);
    let distinct: std::collections::BTreeSet<_> = owners(&cluster).into_iter().collect();
    assert_eq!((slots(&cluster).len(), distinct.len()), (25, 25));
}

#[test]
fn a_quota_of_a_user_limits_its_engines_and_no_others() {
    let mut cluster = shared_by("user", &[("sessions", "1"), ("max", "9"), ("cpu", "1")]);
    commit(&mut cluster, Cluster::quota("q_ann", &[("user", "ann"), ("limit", "2")].into()));
    wait_as(&mut cluster, &of_user("ann"), 4, 1);
    wait_as(&mut cluster, &of_user("bob"), 3, 2);
    let plan = settle(&mut cluster);
    assert_eq!(
        (engines_of(&cluster, user("ann").as_ref()).len(), engines_of(&cluster, user("bob").as_ref()).len()),
        (2, 3)
    );
    let [unmet] = &plan.unmet.as_ref().unwrap()[..] else { panic!("{:?}", plan.unmet) };
    assert_eq!((unmet.sessions, unmet.key.user.as_deref()), (2, Some("ann")));
    assert_eq!(unmet.reason, "queued at position 1: user \"ann\": asked 1, left 0 of 2 (USER_CPU, retryable)");
}

/// The assignment does not know the quota: it seats the second key on the engine that the first one starts.
#[test]
fn sessions_seated_on_an_engine_that_is_not_granted_have_its_reason() {
    let mut cluster = shared_by("user", &[("sessions", "2"), ("max", "9"), ("cpu", "1")]);
    commit(&mut cluster, Cluster::quota("q_ann", &[("user", "ann"), ("limit", "1")].into()));
    wait_as(&mut cluster, &of_user("ann"), 2, 1);
    settle(&mut cluster);
    register(&mut cluster, 2);
    wait_as(&mut cluster, &of_user("ann"), 0, 0);
    for (creator, since_s) in [("a", 1), ("b", 2), ("c", 3)] {
        wait_as(&mut cluster, &of_creator("ann", creator), 1, since_s);
    }
    let unmet = settle(&mut cluster).unmet.unwrap();
    let reason = "queued at position 1: user \"ann\": asked 1, left 0 of 1 (USER_CPU, retryable)";
    let shown: Vec<_> = unmet.iter().map(|unmet| (&*unmet.key.creator, unmet.sessions, &*unmet.reason)).collect();
    assert_eq!(shown, [("a", 1, reason), ("b", 1, reason), ("c", 1, reason)]);
    // All sessions of a key are in one entry, whichever engine they wait for.
    wait_as(&mut cluster, &of_creator("ann", "b"), 4, 2);
    let unmet = settle(&mut cluster).unmet.unwrap();
    let sessions: Vec<_> = unmet.iter().map(|unmet| (&*unmet.key.creator, unmet.sessions)).collect();
    assert_eq!(sessions, [("a", 1), ("b", 4), ("c", 1)]);
}

#[test]
fn the_engine_of_a_session_ends_with_it() {
    let mut cluster = shared_by("session", &[("sessions", "4"), ("max", "9"), ("idle", "never")]);
    for id in ["s-1", "s-2"] {
        wait_as(&mut cluster, &of_session(id), 1, 5);
    }
    settle(&mut cluster);
    register(&mut cluster, 0);
    assert_eq!(changes(&settle(&mut cluster)), (0, 0, 0), "they wait for their sessions");
    let session = |id: &str| Some(Owner::Session(id.to_owned()));
    let [one, two] = ["s-1", "s-2"].map(|id| engines_of(&cluster, session(id).as_ref()).remove(0));
    // The sessions have left the demand and are being opened.
    for id in ["s-1", "s-2"] {
        wait_as(&mut cluster, &of_session(id), 0, 0);
    }
    load(&mut cluster, &one, 0, 20);
    assert_eq!(changes(&settle(&mut cluster)), (0, 0, 0));
    load(&mut cluster, &one, 1, 0);
    load(&mut cluster, &two, 1, 0);
    settle(&mut cluster);
    load(&mut cluster, &one, 0, 1);
    // A release of the same link does not delay it.
    cluster.simulation.observed.scaling.released.insert(slots(&cluster)[0].key.link());
    let plan = tick(&mut cluster);
    assert_eq!(changes(&plan), (0, 0, 1));
    let release = &scaled(&plan)[0].release[0];
    assert_eq!((&release.engine, release.slot.reason.as_str()), (&one, "its session has closed"));
    assert_eq!(engines_of(&cluster, session("s-2").as_ref()), [two]);
}

#[test]
fn an_engine_whose_session_never_came_is_released_once_demand_has_lapsed() {
    let mut cluster = shared_by("session", &[("sessions", "4"), ("idle", "never")]);
    wait_as(&mut cluster, &of_session("s-1"), 1, 5);
    settle(&mut cluster);
    register(&mut cluster, 0);
    wait_as(&mut cluster, &of_session("s-1"), 0, 0);
    let engine = slots(&cluster)[0].engine();
    load(&mut cluster, &engine, 0, 25);
    cluster.simulation.observed.scaling.recent_demand = Some([(ScalingGroup::of(&slots(&cluster)[0]), 1)].into());
    assert_eq!(changes(&settle(&mut cluster)), (0, 0, 0), "its session waited a moment ago");
    cluster.simulation.observed.scaling.recent_demand = Some(BTreeMap::new());
    assert_eq!(changes(&tick(&mut cluster)), (0, 0, 1));
}

#[test]
fn a_key_without_the_owner_starts_nothing() {
    let mut cluster = shared_by("session", &[("sessions", "4")]);
    wait_as(&mut cluster, &of_user("ann"), 1, 5);
    let unmet = settle(&mut cluster).unmet.unwrap();
    assert_eq!((slots(&cluster).len(), unmet[0].reason.as_str()), (0, "its proxy reads the catalog again"));
}

#[test]
fn an_alter_of_shared_by_moves_started_engines_to_their_users() {
    let mut cluster = on_demand(&[("sessions", "4"), ("max", "9")]);
    let started_for = StartedFor { user: "ann".to_owned(), creator: "IDE".to_owned() };
    let started = cluster.start("t_a/rp_1/uc_1");
    let key = slots(&cluster)[0].key.clone();
    cluster.simulation.desired.snapshot.slots[0].started_for = Some(started_for);
    for name in ["user:ann", "creator:IDE"] {
        let (kind, name) = name.split_once(':').unwrap();
        let scope =
            if kind == "user" { model::ledger::ScopeKey::user(name) } else { model::ledger::ScopeKey::creator(name) };
        let snapshot = &mut cluster.simulation.desired.snapshot;
        snapshot.ledger.put_scope(scope.clone(), model::ledger::principal(&snapshot.catalog, &scope).unwrap());
    }
    wait(&mut cluster, "t_a", 5);
    settle(&mut cluster);
    register(&mut cluster, 4);
    wait(&mut cluster, "t_a", 0);
    settle(&mut cluster);
    let followed = slots(&cluster).iter().find(|slot| slot.origin == Origin::Demand).unwrap().engine();
    let options = [("shared_by", "user"), ("sessions", "4"), ("max", "9"), ("on_demand", "true")];
    let change = cluster.change_to(Cluster::unit("uc_1", &options.into()));
    let rows = cluster.explain(&change).unwrap();
    let drained: Vec<_> = rows.iter().filter(|row| row.decision == "drain engine").collect();
    let drain = |engine: &EngineName| drained.iter().find(|row| row.engine == engine.as_str()).map(|row| &*row.because);
    assert_eq!(drain(&followed), Some("SHARED_BY is now 'user'"), "{rows:#?}");
    assert!(drain(&started).is_some_and(|because| because.starts_with("replaced by")), "{rows:#?}");
    cluster.commit(&change).unwrap();
    let [slot] = slots(&cluster) else { panic!("{:?}", slots(&cluster)) };
    assert_eq!((&slot.key, &slot.owner), (&key, &user("ann")));
    cluster::pools::settle(&mut cluster);
    let instance = &cluster.simulation.observed.instances[0];
    assert_eq!(instance.labels.get(OWNER), user("ann").map(|owner| owner.label()).as_ref());
    assert!(slots(&cluster)[0].engine() != started && running(&cluster) == 1);
}

const NAMES: [&str; 4] = ["ann", "bob", "carol", "dan"];
const CREATORS: [&str; 2] = ["IDE", "BI"];

/// What happens between two plans.
#[derive(Debug, Clone)]
enum Event {
    Wait {
        owner: usize,
        creator: usize,
        sessions: u64,
    },
    /// What has been created registers, and its owner's waiting sessions are opened.
    Register,
    /// An engine has so many sessions, or has been idle for so long.
    Load {
        engine: usize,
        sessions: u32,
        idle_s: u64,
    },
    Max(u32),
    Time,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        4 => (0..NAMES.len(), 0..CREATORS.len(), 0_u64..7)
            .prop_map(|(owner, creator, sessions)| Event::Wait { owner, creator, sessions }),
        2 => Just(Event::Register),
        3 => (0_usize..9, 0_u32..3, 0_u64..400)
            .prop_map(|(engine, sessions, idle_s)| Event::Load { engine, sessions, idle_s }),
        1 => (1_u32..9).prop_map(Event::Max),
        1 => Just(Event::Time),
    ];
    prop::collection::vec(event, 1..40)
}

fn happen(cluster: &mut Cluster, event: &Event, since_s: i64) {
    match event {
        Event::Wait { owner, creator, sessions } => {
            wait_as(cluster, &of_creator(NAMES[*owner], CREATORS[*creator]), *sessions, since_s);
        }
        Event::Register => {
            register(cluster, 1);
            cluster.simulation.desired.snapshot.demand.clear();
        }
        Event::Load { engine, sessions, idle_s } => {
            let of_owners: Vec<EngineName> = slots(cluster).iter().map(|slot| slot.engine()).collect();
            if let Some(engine) = of_owners.get(*engine) {
                load(cluster, engine, *sessions, if *sessions == 0 { *idle_s } else { 0 });
            }
        }
        Event::Max(max) => {
            let max = max.to_string();
            let options =
                [("on_demand", "true"), ("shared_by", "user"), ("sessions", "2"), ("cpu", "1"), ("max", &*max)];
            let change = cluster.change_to(Cluster::unit("uc_1", &options.into()));
            let _ = cluster.commit(&change);
        }
        Event::Time => cluster.simulation.advance(Duration::from_secs(31)),
    }
}

fn waiting_as(demand: &[Demand], name: &str) -> u64 {
    demand.iter().filter(|demand| demand.key.user.as_deref() == Some(name)).map(|demand| demand.waiting).sum()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn owners_get_engines_of_their_own_within_the_maximum(events in events()) {
        let mut cluster = shared_by("user", &[("sessions", "2"), ("max", "5"), ("idle", "5m"), ("cpu", "1")]);
        commit(&mut cluster, Cluster::quota("q_ann", &[("user", "ann"), ("limit", "2")].into()));
        let mut incremental = IncrementalPlanner::default();
        for (step, event) in events.iter().enumerate() {
            happen(&mut cluster, event, i64::try_from(step).unwrap());
            let plan = cluster.simulation.plan();
            let simulation = &cluster.simulation;
            let mut delta = incremental.compare(simulation.desired.clone(), simulation.observed.clone());
            prop_assert_eq!(&incremental.plan(&mut delta), &plan, "an incremental plan decides the same");
            incremental.keep(delta);
            let unit = &simulation.desired.snapshot.catalog.units.values().next().unwrap().spec;
            let before = slots(&cluster).len();
            for scaling in scaled(&plan) {
                let added = scaling.slots.added() as usize;
                prop_assert!(added == 0 || before + added <= unit.max_engines as usize, "step {step}: {scaling:?}");
                for addition in &scaling.slots.add {
                    let name = addition.owner.as_ref().unwrap().name();
                    let waiting = waiting_as(&simulation.desired.snapshot.demand, name);
                    prop_assert!(u64::from(addition.count) <= waiting.div_ceil(2), "step {step}: {addition:?}");
                    prop_assert_eq!(addition.started_for.as_ref().map(|it| &*it.user), Some(name));
                }
                let released = scaling.release.iter().map(|release| &release.slot);
                for removal in scaling.slots.remove.iter().chain(released) {
                    let slot = slots(&cluster).iter().find(|slot| slot.key == removal.slot).unwrap();
                    let load = simulation.observed.loads.get(&slot.engine());
                    let is_busy = load.is_some_and(|load| load.sessions > 0);
                    prop_assert!(!is_busy || removal.reason.starts_with("MAX_ENGINES"), "step {step}: {removal:?}");
                }
            }
            cluster.simulation.apply(&plan);
        }
        // Nothing more changes by itself, and who waits has seats of its own or a reason.
        let plan = settle(&mut cluster);
        let unmet: u64 = plan.unmet.iter().flatten().map(|unmet| unmet.sessions).sum();
        let waiting: u64 = cluster.simulation.desired.snapshot.demand.iter().map(|demand| demand.waiting).sum();
        prop_assert!(unmet <= waiting);
        for name in NAMES {
            let waiting = waiting_as(&cluster.simulation.desired.snapshot.demand, name);
            let unmet = plan.unmet.iter().flatten().filter(|unmet| unmet.key.user.as_deref() == Some(name));
            let unmet: u64 = unmet.map(|unmet| unmet.sessions).sum();
            // The load of an engine on its way does not count yet.
            let observed = &cluster.simulation.observed;
            let serves = |engine: &EngineName| observed.registrations.iter().any(|it| it.engine == *engine);
            let load = |engine: &EngineName| observed.loads.get(engine).filter(|_| serves(engine));
            let taken = |engine: &EngineName| load(engine).map_or(0, |load| u64::from(load.sessions));
            let engines = engines_of(&cluster, user(name).as_ref());
            let seats: u64 = engines.iter().map(|engine| 2_u64.saturating_sub(taken(engine))).sum();
            prop_assert!(waiting <= unmet + seats, "{name}: {waiting} wait, {unmet} unmet, {seats} seats");
        }
    }
}
