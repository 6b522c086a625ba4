//! Owners: where a unit is shared by group, user or session, a session is given an engine of its own owner only.

use std::sync::Arc;
use std::time::Duration;

use hs2::Session;
use hs2::session::StatementProgress;
use model::demand::DemandKey;
use model::demand_report::UnmetDemand;
use model::name::TenantName;
use model::observation::Publication;
use model::owner::Owner;
use proxy::IdleLimits;

use crate::agents::{run, try_run};
use crate::cluster::{Cluster, sessions_of};
use crate::engines::RunningEngine;
use crate::fixture::wire::Wire;
use crate::fixture::{ShiftedClock, WAIT, engine_name, eventually, slot};

/// An installation whose unit is shared like this and starts engines on demand.
async fn shared_by(word: &str) -> Cluster {
    let cluster = Cluster::new().await;
    let mut admin = cluster.objects().await;
    share_by(&cluster, &mut admin, word).await;
    cluster
}

async fn share_by(cluster: &Cluster, admin: &mut Session, word: &str) {
    let _settling = cluster.master.keep_settling();
    run(admin, &format!("ALTER RESOURCE UNIT uc_1 START_ON_DEMAND TRUE, SHARED_BY '{word}'")).await;
}

/// What a master does to start an engine with the owner.
async fn launch(cluster: &Cluster, number: u64, owner: Owner) -> RunningEngine {
    cluster.register(&slot("t_1", "rp_1", "uc_1"), engine_name(number), None, Some(owner)).await
}

/// The same, without an owner.
async fn launch_shared(cluster: &Cluster, number: u64) -> RunningEngine {
    cluster.register(&slot("t_1", "rp_1", "uc_1"), engine_name(number), None, None).await
}

fn user(name: &str) -> Owner {
    Owner::User(name.to_owned())
}

async fn bound(cluster: &Cluster, user: &str) -> Session {
    let mut session = cluster.session(user).await;
    run(&mut session, "SELECT 1").await;
    session
}

fn key() -> DemandKey {
    DemandKey {
        engine_type: Some("datafusion".to_owned()),
        ..DemandKey::of_tenant(TenantName::new("t_1").unwrap(), "default")
    }
}

/// The recorded keys once there are so many.
async fn demanded(cluster: &Cluster, count: usize) -> Vec<DemandKey> {
    eventually("the demand", async || {
        let mut keys: Vec<DemandKey> =
            cluster.store.demand().await.unwrap().into_iter().map(|demand| demand.key).collect();
        keys.sort();
        (keys.len() == count).then_some(keys)
    })
    .await
}

async fn first_line(statement: &mut hs2::session::Statement<'_>) -> String {
    eventually("the log", async || {
        statement.poll().await.unwrap();
        statement.logs().await.unwrap().into_iter().next()
    })
    .await
}

/// The first line of a session that waits for an engine of its owner.
fn starting(owner: &str) -> String {
    format!("waiting for an engine of {owner} to be started in resource pool \"rp_1\" from resource unit \"uc_1\"")
}

/// Waits until the proxy has read an option: sessions of ann then wait like this.
async fn waits(cluster: &Cluster, line: &str) {
    eventually("the option", async || {
        let mut ann = cluster.session("ann").await;
        let found = first_line(&mut ann.execute("SELECT 1").await.unwrap()).await;
        ann.close().await.unwrap();
        (found == line).then_some(())
    })
    .await;
    demanded(cluster, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_user_is_given_an_engine_of_its_own() {
    let cluster = shared_by("user").await;
    let of_ann = launch(&cluster, 1, user("ann")).await;
    let mut of_anns = vec![bound(&cluster, "ann").await, bound(&cluster, "ann").await];
    let mut bob = cluster.session("bob").await;
    let mut waiting = bob.execute("SELECT 42 AS answer").await.unwrap();
    assert_eq!(first_line(&mut waiting).await, starting("user \"bob\""));
    let of_bob = launch(&cluster, 2, user("bob")).await;
    assert_eq!(waiting.collect(WAIT).await.unwrap().rows[0][0].to_string(), "42");
    of_anns.push(bound(&cluster, "ann").await);
    assert_eq!((of_ann.datafusion.load().0, of_bob.datafusion.load().0), (3, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn demand_names_the_owners_that_the_units_of_a_session_can_have() {
    let cluster = Cluster::new().await;
    let mut admin = cluster.objects().await;
    share_by(&cluster, &mut admin, "user").await;
    let (mut ann, mut also_ann, mut bob) =
        (cluster.session("ann").await, cluster.session("ann").await, cluster.session("bob").await);
    ann.execute("SELECT 1").await.unwrap();
    also_ann.execute("SELECT 1").await.unwrap();
    bob.execute("SELECT 1").await.unwrap();
    let of = |user: &str| DemandKey { user: Some(user.to_owned()), ..key() };
    assert_eq!(demanded(&cluster, 2).await, [of("ann"), of("bob")]);
    for session in [ann, also_ann, bob] {
        session.close().await.unwrap();
    }
    demanded(&cluster, 0).await;
    // Without authentication users have no groups: each is a group of its own.
    share_by(&cluster, &mut admin, "group").await;
    waits(&cluster, &starting("user \"ann\" as a group")).await;
    let mut ann = cluster.session("ann").await;
    ann.execute("SELECT 1").await.unwrap();
    assert_eq!(demanded(&cluster, 1).await, [DemandKey { group: Some("user:ann".to_owned()), ..key() }]);
    ann.close().await.unwrap();
    share_by(&cluster, &mut admin, "session").await;
    waits(&cluster, &starting("this session")).await;
    let mut sessions = [cluster.session("ann").await, cluster.session("ann").await];
    for session in &mut sessions {
        session.execute("SELECT 1").await.unwrap();
    }
    let found = demanded(&cluster, 2).await;
    let mut ids: Vec<String> =
        sessions.iter().map(|session| hs2::Handle::try_from(session.handle()).unwrap().to_string()).collect();
    ids.sort();
    assert_eq!(found.iter().map(|key| key.session.clone().unwrap()).collect::<Vec<_>>(), ids);
    // The engine of a session is charged to its user.
    assert!(found.iter().all(|key| key.user.as_deref() == Some("ann") && key.group.is_none()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_in_vain_names_the_owner() {
    let cluster = shared_by("user").await;
    let key = DemandKey { user: Some("ann".to_owned()), ..key() };
    let reason = "an engine of unit \"uc_1\" can never fit into resource pool \"rp_1\"".to_owned();
    let generation = cluster.store.snapshot().await.unwrap().catalog.generation;
    let unmet = UnmetDemand { key, sessions: 1, reason, position: None, is_futile: true, generation };
    cluster.master.report(Publication { unmet: Some(vec![unmet]), ..Publication::default() }).await;
    let mut ann = cluster.session("ann").await;
    let error = try_run(&mut ann, "SELECT 1").await.unwrap_err();
    assert_eq!(error.message, "tenant \"t_1\" has no engine for user \"ann\", and none can be started");
    let mut bob = cluster.session("bob").await;
    let mut statement = bob.execute("SELECT 1").await.unwrap();
    assert_eq!(first_line(&mut statement).await, starting("user \"bob\""));
    let mut admin = cluster.session("admin").await;
    let _settling = cluster.master.keep_settling();
    run(&mut admin, "ALTER RESOURCE UNIT uc_1 START_ON_DEMAND FALSE").await;
    let error = eventually("the option", async || {
        let error = try_run(&mut ann, "SELECT 1").await.unwrap_err();
        (!error.message.ends_with("none can be started")).then_some(error)
    })
    .await;
    assert_eq!(error.message, "tenant \"t_1\" has no engine for user \"ann\"");
    assert_eq!(error.hint.as_deref(), Some("To start an engine, run START ENGINE t_1 rp_1 uc_1."));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_from_before_an_alter_is_given_no_new_session() {
    let cluster = Cluster::new().await;
    let mut admin = cluster.objects().await;
    let shared = launch_shared(&cluster, 1).await;
    let mut before = cluster.session("ann").await;
    eventually("the engine", async || try_run(&mut before, "SELECT 1").await.ok()).await;
    share_by(&cluster, &mut admin, "user").await;
    // The proxy may bind sessions to it until it has read the catalog again.
    eventually("a session that waits", async || {
        let mut ann = cluster.session("ann").await;
        let mut statement = ann.execute("SELECT 1").await.unwrap();
        (statement.poll().await.unwrap() == StatementProgress::Running).then_some(())
    })
    .await;
    sessions_of(&shared, 1).await;
    run(&mut before, "SELECT 1").await;
    let own = launch(&cluster, 2, user("ann")).await;
    let _ann = bound(&cluster, "ann").await;
    assert_eq!((shared.datafusion.load().0, own.datafusion.load().0), (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_a_stale_registry_offers_to_another_user_refuses() {
    let cluster = shared_by("user").await;
    let of_ann = launch(&cluster, 1, user("ann")).await;
    let wire = Wire::to(cluster.address(&of_ann).await.parse().unwrap()).await;
    // The nodes as a proxy might have read them of another engine.
    let tool = zookeeper_client::Client::connector().with_auth("digest", cluster.fixture.master_login().as_bytes());
    let tool = tool.connect(&cluster.fixture.zookeeper.addr().to_string()).await.unwrap();
    let permit = format!("/enginehouse/engines/{}", of_ann.name);
    for (path, address) in [(format!("{permit}/live"), Some(wire.address())), (permit, None)] {
        let (data, _) = tool.get_data(&path).await.unwrap();
        let mut node: serde_json::Value = serde_json::from_slice(&data).unwrap();
        assert_eq!(node["owner"]["name"], "ann", "{path}");
        node["owner"]["name"] = "bob".into();
        if let Some(address) = address {
            node["address"] = address.to_string().into();
        }
        tool.set_data(&path, &serde_json::to_vec(&node).unwrap(), None).await.unwrap();
    }
    let mut bob = cluster.session("bob").await;
    let mut waiting = bob.execute("SELECT 42 AS answer").await.unwrap();
    eventually("an attempt of the proxy", async || {
        assert_eq!(waiting.poll().await.unwrap(), StatementProgress::Running);
        (wire.accepted() > 0).then_some(())
    })
    .await;
    assert_eq!(waiting.poll().await.unwrap(), StatementProgress::Running);
    let of_bob = launch(&cluster, 2, user("bob")).await;
    assert_eq!(waiting.collect(WAIT).await.unwrap().rows[0][0].to_string(), "42");
    assert_eq!((of_ann.datafusion.load().0, of_bob.datafusion.load().0), (0, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_keeps_its_own_engine_while_it_is_idle() {
    let clock = Arc::new(ShiftedClock::default());
    let unbinding = IdleLimits { unbind_after: Some(Duration::from_mins(5)), session: None, http_session: None };
    let cluster = Cluster::with_clock(clock.clone(), |settings| {
        settings.idle = unbinding;
        settings.limits.sweep_interval = Duration::from_millis(50);
    })
    .await;
    let mut admin = cluster.objects().await;
    share_by(&cluster, &mut admin, "session").await;
    let mut ann = cluster.session("ann").await;
    let id = hs2::Handle::try_from(ann.handle()).unwrap().to_string();
    let mut other = cluster.session("ann").await;
    let own = launch(&cluster, 1, Owner::Session(id)).await;
    run(&mut ann, "SELECT 1").await;
    let mut waiting = other.execute("SELECT 1").await.unwrap();
    assert_eq!(first_line(&mut waiting).await, starting("this session"));
    waiting.cancel().await.unwrap();
    // A session of an engine that others share is swept meanwhile.
    share_by(&cluster, &mut admin, "tenant").await;
    let shared = launch_shared(&cluster, 2).await;
    let mut of_tenant = bound(&cluster, "bob").await;
    sessions_of(&shared, 1).await;
    clock.advance(Duration::from_mins(6));
    sessions_of(&shared, 0).await;
    assert_eq!(own.datafusion.load().0, 1);
    run(&mut ann, "SELECT 1").await;
    assert_eq!(own.datafusion.load().0, 1);
    ann.close().await.unwrap();
    sessions_of(&own, 0).await;
    run(&mut of_tenant, "SELECT 1").await;
}
