//! Observations, wake-ups and the view of a proxy.

use std::sync::Arc;
use std::time::Duration;

use coordination::{
    DrainOrder, NoRebuild, RegistrySnapshot, Supervisor, View, Wakeups, agents, alter_node, bell, drains, observe,
    permits,
};
use tokio::time::timeout;

use super::alter::alteration;
use super::relay::Relay;
use super::{Installation, engine, permit, within};

pub async fn an_observation_contains_every_node(installation: Installation) {
    let lock = installation.lock().await;
    assert_eq!(observe(lock.session()).await.unwrap(), coordination::Observation::default());

    let agent = installation.session(installation.agent()).await;
    agents::register(&agent, "agent-1", agents::AgentRegistration::plain("127.0.0.1:1", &[])).await.unwrap();
    alter_node::create(&agent, &alteration("a-1")).await.unwrap();
    let ready = installation.registered(&lock, "e-1", "uid-1").await;
    permits::create(&lock, &engine("e-2"), &permit(None)).await.unwrap();
    let fact = DrainOrder { uid: None, grace_ms: 0, reason: "forced".to_owned(), namespace: None };
    drains::drain(&lock, &engine("e-3"), None, None, &fact).await.unwrap();

    let seen = observe(lock.session()).await.unwrap();
    assert_eq!(seen.alter.unwrap().children[0].session, Some(agent.id()));
    assert_eq!(seen.agents.iter().map(|agent| agent.session).collect::<Vec<_>>(), [agent.id()]);
    let permits: Vec<_> =
        seen.permits.iter().map(|node| (node.engine.as_str(), node.uid(), node.registration.is_some())).collect();
    assert_eq!(permits, [("e-1", Some("uid-1"), true), ("e-2", None, false)]);
    assert_eq!(seen.permits[0].ready().unwrap().session, ready.id());
    assert_eq!(seen.drains[0].content, Ok(fact));
}

pub async fn every_change_wakes_the_master(installation: Installation) {
    let lock = installation.lock().await;
    let agent = installation.session(installation.agent()).await;
    let wakeups = Wakeups::start(lock.session());
    within(wakeups.next()).await;

    agents::register(&agent, "agent-1", agents::AgentRegistration::plain("127.0.0.1:1", &[])).await.unwrap();
    settle(&wakeups).await;
    bell::ring(&agent).await.unwrap();
    settle(&wakeups).await;
    bell::ring(&agent).await.unwrap();
    settle(&wakeups).await;
    alter_node::create(&agent, &alteration("a-1")).await.unwrap();
    settle(&wakeups).await;
    let session = installation.registered(&lock, "e-1", "uid-1").await;
    settle(&wakeups).await;
    // The watch of the registration is armed by now: its deletion is an event.
    session.close().await;
    settle(&wakeups).await;
    let fact = DrainOrder { uid: None, grace_ms: 0, reason: "forced".to_owned(), namespace: None };
    drains::drain(&lock, &engine("e-9"), None, None, &fact).await.unwrap();
    settle(&wakeups).await;
    agent.close().await;
    settle(&wakeups).await;
}

/// Waits for a wake-up and consumes the ones that follow closely.
async fn settle(wakeups: &Wakeups) {
    within(wakeups.next()).await;
    while timeout(Duration::from_millis(200), wakeups.next()).await.is_ok() {}
}

pub async fn suppressed_events_cause_no_wake_up(installation: Installation) {
    let mut settings = installation.settings(installation.master());
    settings.watch_events = false;
    let election = coordination::Election::new(settings, installation.clock.clone(), "suite");
    let lock = within(election.win()).await.unwrap();
    let wakeups = Wakeups::start(lock.session());
    let agent = installation.session(installation.agent()).await;
    bell::ring(&agent).await.unwrap();
    alter_node::create(&agent, &alteration("a-1")).await.unwrap();
    assert!(timeout(Duration::from_millis(500), wakeups.next()).await.is_err());
    assert!(observe(lock.session()).await.unwrap().alter.is_some(), "a read finds it");

    // A candidate without events is elected as well.
    let mut settings = installation.settings(installation.master());
    settings.watch_events = false;
    let second = coordination::Election::new(settings, installation.clock.clone(), "suite");
    let second = tokio::spawn(async move { second.win().await });
    lock.resign().await;
    within(second).await.unwrap().unwrap();
}

pub async fn a_view_follows_the_registry(installation: Installation) {
    follow(installation, true).await;
}

pub async fn a_view_without_events_follows_the_registry(installation: Installation) {
    follow(installation, false).await;
}

async fn follow(installation: Installation, watch_events: bool) {
    let lock = installation.lock().await;
    let mut settings = installation.settings(installation.proxy());
    settings.watch_events = watch_events;
    let supervisor = Supervisor::start(settings, installation.clock.clone(), Arc::new(NoRebuild));
    // With events nothing depends on the interval.
    let reread = if watch_events { Duration::from_mins(10) } else { Duration::from_millis(50) };
    let view = View::start(supervisor.sessions(), reread, installation.clock.clone());
    seen(&view, |registry| registry.read_at.is_some() && registry.engines.is_empty()).await;

    let session = installation.registered(&lock, "e-1", "uid-1").await;
    let there = seen(&view, |registry| registry.engines.contains_key(&engine("e-1"))).await;
    let known = &there.engines[&engine("e-1")];
    assert_eq!((known.session, known.draining, known.confirmed), (session.id(), false, true));
    assert_eq!(known.registration.address, "127.0.0.1:4711");

    let agent = installation.session(installation.agent()).await;
    agents::register(&agent, "agent-1", agents::AgentRegistration::plain("127.0.0.1:1", &[])).await.unwrap();
    seen(&view, |registry| registry.agents.len() == 1).await;

    let node = permits::read(lock.session(), &engine("e-1")).await.unwrap().unwrap();
    let fact = DrainOrder { uid: None, grace_ms: 0, reason: "stopped".to_owned(), namespace: None };
    drains::drain(&lock, &engine("e-1"), Some(&node), None, &fact).await.unwrap();
    seen(&view, |registry| registry.engines.is_empty()).await;
}

pub async fn a_view_keeps_missing_engines_after_its_session_was_replaced(installation: Installation) {
    let lock = installation.lock().await;
    let relay = Relay::start(&installation.servers).await;
    let mut settings = installation.settings(installation.proxy());
    settings.servers.clone_from(&relay.address);
    let supervisor = Supervisor::start(settings, installation.clock.clone(), Arc::new(NoRebuild));
    let view = View::start(supervisor.sessions(), Duration::from_millis(50), installation.clock.clone());
    let mut engines = Vec::new();
    for name in ["e-1", "e-2", "e-3"] {
        engines.push(installation.registered(&lock, name, "uid-1").await);
    }
    let agent = installation.session(installation.agent()).await;
    agents::register(&agent, "agent-1", agents::AgentRegistration::plain("127.0.0.1:1", &[])).await.unwrap();
    seen(&view, |registry| registry.engines.len() == 3 && registry.agents.len() == 1).await;

    // The view is partitioned. Meanwhile its session, the agent's and those of two engines end, and one engine is ordered to drain.
    let own = supervisor.session().unwrap();
    relay.cut.send_replace(true);
    installation.expire_elsewhere(&own).await;
    agent.close().await;
    for session in &engines[..2] {
        session.close().await;
    }
    let drained = permits::read(lock.session(), &engine("e-2")).await.unwrap().unwrap();
    let fact = DrainOrder { uid: None, grace_ms: 0, reason: "stopped".to_owned(), namespace: None };
    drains::drain(&lock, &engine("e-2"), Some(&drained), None, &fact).await.unwrap();
    assert_eq!(view.snapshot().engines.len(), 3, "while partitioned it keeps its last state");
    relay.cut.send_replace(false);

    let kept = seen(&view, |registry| registry.engines.values().any(|engine| !engine.confirmed)).await;
    let known: Vec<_> = kept.engines.iter().map(|(name, engine)| (name.as_str(), engine.confirmed)).collect();
    assert_eq!(known, [("e-1", false), ("e-3", true)], "a drain order takes effect at once");
    assert_eq!(kept.agents.len(), 1, "it may register again");
    // A unit test of the view checks for how long.
    seen(&view, |registry| !registry.engines.contains_key(&engine("e-1")) && registry.agents.is_empty()).await;
    assert!(view.snapshot().engines.contains_key(&engine("e-3")));
}

pub async fn hundreds_of_engines_are_observed_and_watched(installation: Installation) {
    const ENGINES: usize = 300;
    let lock = installation.lock().await;
    let last = installation.registered(&lock, "e-last", "uid-1").await;
    let wakeups = Wakeups::start(lock.session());
    for number in 1..ENGINES {
        permits::create(&lock, &engine(&format!("e-{number}")), &permit(None)).await.unwrap();
    }
    settle(&wakeups).await;
    let seen = observe(lock.session()).await.unwrap();
    assert_eq!(seen.permits.len(), ENGINES);
    assert_eq!(seen.permits.iter().filter(|node| node.ready().is_some()).count(), 1);
    last.close().await;
    within(wakeups.next()).await;
    assert!(observe(lock.session()).await.unwrap().permits.iter().all(|node| node.registration.is_none()));
}

pub async fn a_burst_of_events_is_coalesced(installation: Installation) {
    const ENGINES: usize = 200;
    let lock = installation.lock().await;
    for number in 0..ENGINES {
        permits::create(&lock, &engine(&format!("e-{number}")), &permit(None)).await.unwrap();
    }
    let wakeups = Wakeups::start(lock.session());
    settle(&wakeups).await;
    let tool = installation.as_master().await;
    let mode = zookeeper_client::CreateMode::Ephemeral.with_acls(zookeeper_client::Acls::anyone_all());
    let creates = (0..ENGINES).map(|number| {
        let (tool, mode, path) = (&tool, &mode, installation.path(&format!("engines/e-{number}/live")));
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
    // Each wake-up costs one read of everything. Without coalescing there would be 40 in this time.
    assert!((1..=8).contains(&woken), "{ENGINES} events woke {woken} times");
}

/// The first state of the view with that property.
async fn seen(view: &View, fits: impl FnMut(&Arc<RegistrySnapshot>) -> bool) -> Arc<RegistrySnapshot> {
    let mut changes = view.changes();
    let seen = within(changes.wait_for(fits)).await.unwrap();
    Arc::clone(&seen)
}
