//! What is seen, and what wakes whom.

use std::sync::Arc;
use std::time::Duration;

use coordination::{
    DrainOrder, NoRebuild, RegistrySnapshot, Supervisor, View, Wakeups, agents, alter_node, bell, drains, observe,
    permits,
};
use tokio::time::timeout;

use super::alter::alteration;
use super::relay::Relay;
use super::{World, engine, permit, within};

pub async fn an_observation_holds_everything(world: World) {
    let lock = world.lock().await;
    assert_eq!(observe(lock.session()).await.unwrap(), coordination::Observation::default());

    let agent = world.session(world.agent()).await;
    agents::register(&agent, "agent-1", "127.0.0.1:1").await.unwrap();
    alter_node::create(&agent, &alteration("a-1")).await.unwrap();
    let ready = world.registered(&lock, "e-1", "uid-1").await;
    permits::create(&lock, &engine("e-2"), &permit(None)).await.unwrap();
    let fact = DrainOrder { uid: None, grace_ms: 0, reason: "forced".to_owned(), namespace: None };
    drains::drain(&lock, &engine("e-3"), None, None, &fact).await.unwrap();

    let seen = observe(lock.session()).await.unwrap();
    assert_eq!(seen.alter.unwrap().children[0].session, Some(agent.id()));
    assert_eq!(seen.agents.iter().map(|it| it.session).collect::<Vec<_>>(), [agent.id()]);
    let permits: Vec<_> =
        seen.permits.iter().map(|it| (it.engine.as_str(), it.uid(), it.registration.is_some())).collect();
    assert_eq!(permits, [("e-1", Some("uid-1"), true), ("e-2", None, false)]);
    assert_eq!(seen.permits[0].ready().unwrap().session, ready.id());
    assert_eq!(seen.drains[0].content, Ok(fact));
}

pub async fn every_change_wakes_the_master(world: World) {
    let lock = world.lock().await;
    let agent = world.session(world.agent()).await;
    let wakeups = Wakeups::start(lock.session());
    within(wakeups.next()).await;

    agents::register(&agent, "agent-1", "127.0.0.1:1").await.unwrap();
    settle(&wakeups).await;
    bell::ring(&agent).await.unwrap();
    settle(&wakeups).await;
    bell::ring(&agent).await.unwrap();
    settle(&wakeups).await;
    alter_node::create(&agent, &alteration("a-1")).await.unwrap();
    settle(&wakeups).await;
    let session = world.registered(&lock, "e-1", "uid-1").await;
    settle(&wakeups).await;
    // The permit's own watches are armed by now: its registration going is an event of theirs.
    session.close().await;
    settle(&wakeups).await;
    let fact = DrainOrder { uid: None, grace_ms: 0, reason: "forced".to_owned(), namespace: None };
    drains::drain(&lock, &engine("e-9"), None, None, &fact).await.unwrap();
    settle(&wakeups).await;
    agent.close().await;
    settle(&wakeups).await;
}

/// Waits for a wake-up and takes those along that come with it.
async fn settle(wakeups: &Wakeups) {
    within(wakeups.next()).await;
    while timeout(Duration::from_millis(200), wakeups.next()).await.is_ok() {}
}

pub async fn suppressed_events_wake_nobody(world: World) {
    let mut settings = world.settings(world.master());
    settings.watch_events = false;
    let election = coordination::Election::new(settings, world.clock.clone(), "suite");
    let lock = within(election.win()).await.unwrap();
    let wakeups = Wakeups::start(lock.session());
    let agent = world.session(world.agent()).await;
    bell::ring(&agent).await.unwrap();
    alter_node::create(&agent, &alteration("a-1")).await.unwrap();
    assert!(timeout(Duration::from_millis(500), wakeups.next()).await.is_err());
    assert!(observe(lock.session()).await.unwrap().alter.is_some(), "reading finds it");

    // A candidate without events follows all the same.
    let mut settings = world.settings(world.master());
    settings.watch_events = false;
    let second = coordination::Election::new(settings, world.clock.clone(), "suite");
    let second = tokio::spawn(async move { second.win().await });
    lock.resign().await;
    within(second).await.unwrap().unwrap();
}

pub async fn a_view_follows_the_registry(world: World) {
    follow(world, true).await;
}

pub async fn a_view_without_events_follows_by_reading_again(world: World) {
    follow(world, false).await;
}

async fn follow(world: World, watch_events: bool) {
    let lock = world.lock().await;
    let mut settings = world.settings(world.proxy());
    settings.watch_events = watch_events;
    let supervisor = Supervisor::start(settings, world.clock.clone(), Arc::new(NoRebuild));
    // With events nothing depends on reading again.
    let reread = if watch_events { Duration::from_mins(10) } else { Duration::from_millis(50) };
    let view = View::start(supervisor.sessions(), reread, world.clock.clone());
    seen(&view, |it| it.read_at.is_some() && it.engines.is_empty()).await;

    let session = world.registered(&lock, "e-1", "uid-1").await;
    let there = seen(&view, |it| it.engines.contains_key(&engine("e-1"))).await;
    let known = &there.engines[&engine("e-1")];
    assert_eq!((known.session, known.draining, known.confirmed), (session.id(), false, true));
    assert_eq!(known.registration.address, "127.0.0.1:4711");

    let agent = world.session(world.agent()).await;
    agents::register(&agent, "agent-1", "127.0.0.1:1").await.unwrap();
    seen(&view, |it| it.agents.len() == 1).await;

    let node = permits::read(lock.session(), &engine("e-1")).await.unwrap().unwrap();
    let fact = DrainOrder { uid: None, grace_ms: 0, reason: "stopped".to_owned(), namespace: None };
    drains::drain(&lock, &engine("e-1"), Some(&node), None, &fact).await.unwrap();
    seen(&view, |it| it.engines.is_empty()).await;
}

pub async fn a_view_keeps_who_vanished_while_its_session_was_built_anew(world: World) {
    let lock = world.lock().await;
    let relay = Relay::start(&world.servers).await;
    let mut settings = world.settings(world.proxy());
    settings.servers.clone_from(&relay.address);
    let supervisor = Supervisor::start(settings, world.clock.clone(), Arc::new(NoRebuild));
    let view = View::start(supervisor.sessions(), Duration::from_millis(50), world.clock.clone());
    let mut engines = Vec::new();
    for name in ["e-1", "e-2", "e-3"] {
        engines.push(world.registered(&lock, name, "uid-1").await);
    }
    let agent = world.session(world.agent()).await;
    agents::register(&agent, "agent-1", "127.0.0.1:1").await.unwrap();
    seen(&view, |it| it.engines.len() == 3 && it.agents.len() == 1).await;

    // The view is cut off. Meanwhile its session, the agent's and those of two engines end, and one engine is told to drain.
    let own = supervisor.session().unwrap();
    relay.cut.send_replace(true);
    world.expire_elsewhere(&own).await;
    agent.close().await;
    for session in &engines[..2] {
        session.close().await;
    }
    let drained = permits::read(lock.session(), &engine("e-2")).await.unwrap().unwrap();
    let fact = DrainOrder { uid: None, grace_ms: 0, reason: "stopped".to_owned(), namespace: None };
    drains::drain(&lock, &engine("e-2"), Some(&drained), None, &fact).await.unwrap();
    assert_eq!(view.snapshot().engines.len(), 3, "cut off, it goes on with what it knows");
    relay.cut.send_replace(false);

    let kept = seen(&view, |it| it.engines.values().any(|it| !it.confirmed)).await;
    let known: Vec<_> = kept.engines.iter().map(|(name, it)| (name.as_str(), it.confirmed)).collect();
    assert_eq!(known, [("e-1", false), ("e-3", true)], "the order to drain is believed at once");
    assert_eq!(kept.agents.len(), 1, "it may be about to register again");
    // How long, a test of the view with a clock of its own says.
    seen(&view, |it| !it.engines.contains_key(&engine("e-1")) && it.agents.is_empty()).await;
    assert!(view.snapshot().engines.contains_key(&engine("e-3")));
}

pub async fn hundreds_of_engines_are_observed_and_watched(world: World) {
    const ENGINES: usize = 300;
    let lock = world.lock().await;
    let last = world.registered(&lock, "e-last", "uid-1").await;
    let wakeups = Wakeups::start(lock.session());
    for number in 1..ENGINES {
        permits::create(&lock, &engine(&format!("e-{number}")), &permit(None)).await.unwrap();
    }
    settle(&wakeups).await;
    let seen = observe(lock.session()).await.unwrap();
    assert_eq!(seen.permits.len(), ENGINES);
    assert_eq!(seen.permits.iter().filter(|it| it.ready().is_some()).count(), 1);
    last.close().await;
    within(wakeups.next()).await;
    assert!(observe(lock.session()).await.unwrap().permits.iter().all(|it| it.registration.is_none()));
}

pub async fn a_burst_of_events_wakes_a_few_times_and_not_once_for_each(world: World) {
    const ENGINES: usize = 200;
    let lock = world.lock().await;
    for number in 0..ENGINES {
        permits::create(&lock, &engine(&format!("e-{number}")), &permit(None)).await.unwrap();
    }
    let wakeups = Wakeups::start(lock.session());
    settle(&wakeups).await;
    let tool = world.as_master().await;
    let mode = zookeeper_client::CreateMode::Ephemeral.with_acls(zookeeper_client::Acls::anyone_all());
    let creates = (0..ENGINES).map(|number| {
        let (tool, mode, path) = (&tool, &mode, world.path(&format!("engines/e-{number}/live")));
        async move { tool.create(&path, b"{}", mode).await.map(drop).unwrap() }
    });
    futures::future::join_all(creates).await;
    let mut woken = 0;
    let counted = timeout(Duration::from_secs(2), async {
        loop {
            wakeups.next().await;
            woken += 1;
        }
    });
    assert!(counted.await.is_err());
    // Each costs every waiter one reading of everything. One event for each round would be 40 in this time.
    assert!((1..=8).contains(&woken), "{ENGINES} events woke {woken} times");
}

/// The first state of the view that fits.
async fn seen(view: &View, fits: impl FnMut(&Arc<RegistrySnapshot>) -> bool) -> Arc<RegistrySnapshot> {
    let mut changes = view.changes();
    let seen = within(changes.wait_for(fits)).await.unwrap();
    Arc::clone(&seen)
}
