//! Every call over a real connection to a real store, and the errors of lost responses.

#![allow(clippy::unwrap_used, clippy::panic)]

mod agent;

use std::sync::Arc;
use std::time::Duration;

use agent::{Agent, caller, commit, id, unit};
use agent_api::{AgentApi as _, AgentClient, ApiError, ApiErrorKind, EngineStatus, engine_status};
use hs2::{Client, ClientError};
use keys::Role;
use model::alteration::{Abort, AlterationProgress, Outcome, Source};
use model::cause::chain;
use model::change::{ObjectPatch, Setting, UnitPatch};
use model::engine_state::Phase;
use model::ledger::{
    Amounts, Change, Holder, LedgerRecord, LedgerRecorded, Refusal, Request, Role as ScopeRole, ScopeKey, ScopedChange,
    State, engine_scopes, lineage_of,
};
use model::number::{Epoch, Generation, Incarnation};
use model::observation::{CreatedEngine, EndedEngine, EngineFacts, ObservedEngine, Publication};
use model::owner::{Owner, SharedBy};
use model::quota::Limit;
use model::resource::{Amount, Triple};
use model::scaling::{LinkScale, LinkScaled, ScaleRequest, SlotAddition, SlotsSeen};
use model::shared::Shared;
use model::slot::{Link, Renewal, Replacement, StartedFor};
use model::{PoolName, TenantName, UnitName};
use tokio::time::timeout;

fn abort_of(text: &str) -> Abort {
    Abort {
        id: id(text),
        object: None,
        base_generation: Generation(3),
        statement: "ALTER …".to_owned(),
        requested_by: "ann".to_owned(),
        source: Source { via: Some("superset".to_owned()), ..Source::default() },
        requested_at_ms: 7,
        decided_by: "master 1".to_owned(),
        reason: "its agent is gone".to_owned(),
    }
}

#[tokio::test]
async fn every_call_does_what_the_store_does() {
    let agent = Agent::start().await;
    let (client, store) = (agent.client(Role::Master), agent.store.clone());
    assert_eq!(client.master().await.unwrap(), store.master().await.unwrap());
    let raised = client.raise_epoch(Epoch(0), "lock-1/9").await.unwrap();
    assert_eq!((raised.epoch, &raised), (Epoch(1), &store.master().await.unwrap()));

    let record = commit(&store, "a-1", unit("uc_1", 1)).await;
    assert_eq!(client.outcome(&id("a-1")).await.unwrap(), Some(record.clone()));
    assert_eq!(client.outcome(&id("a-2")).await.unwrap(), None, "undecided");
    assert_eq!(client.abort(&abort_of("a-1")).await.unwrap(), record, "the commit came first");
    let aborted = client.abort(&abort_of("a-2")).await.unwrap();
    assert_eq!(
        (aborted.outcome, Some(&aborted)),
        (Outcome::Aborted, store.outcome(&id("a-2")).await.unwrap().as_ref())
    );

    let early = client.finish(Epoch(1), &id("a-1"), Generation(0)).await.unwrap_err();
    assert_eq!(early.kind(), ApiErrorKind::Conflict);
    let hour = Duration::from_hours(1);
    assert_eq!(client.stalled(Epoch(1), &id("a-1"), hour, "quota").await.unwrap(), AlterationProgress::Converging);
    assert_eq!(
        client.stalled(Epoch(1), &id("a-1"), Duration::ZERO, "quota").await.unwrap(),
        AlterationProgress::Stalled
    );
    assert_eq!(client.superseded(Epoch(1), &id("a-1")).await.unwrap_err().kind(), ApiErrorKind::Conflict);
    assert_eq!(client.finish(Epoch(1), &id("a-1"), record.generation).await.unwrap(), AlterationProgress::Converged);

    agent::founded(&store).await;
    let snapshot = client.snapshot().await.unwrap();
    assert_eq!(
        snapshot,
        store.snapshot().await.map(|stored| model::snapshot::Snapshot { now_ms: snapshot.now_ms, ..stored }).unwrap()
    );
    let of_proxy = client.proxy_snapshot().await.unwrap().slots;
    assert!(of_proxy.iter().eq(snapshot.slots.iter().map(AsRef::as_ref)), "{of_proxy:?}");

    let slot = snapshot.slots[0].clone();
    let report = Publication {
        engines: vec![ObservedEngine {
            name: slot.engine(),
            uid: Some("uid-1".to_owned()),
            phase: Phase::Running,
            reason: None,
            node: Some("ü\u{1F980}".to_owned()),
            address: None,
            registered: true,
            answered: true,
            draining: false,
            sessions: Some(1),
            running: None,
            idle_since_ms: Some(1_000),
            stateful: Some(0),
            started_at_ms: None,
            log_tail: None,
            labels: Arc::new([("k".to_owned(), "v".to_owned())].into()),
            details: Arc::new([("process pid".to_owned(), "7".to_owned())].into()),
        }],
        waits_for: Some("something".to_owned()),
        ..Publication::default()
    };
    client.publish(Epoch(1), &report).await.unwrap();
    let facts = EngineFacts {
        created: vec![
            CreatedEngine { name: slot.engine(), uid: "uid-1".to_owned(), config: "c".to_owned() },
            CreatedEngine { name: slot.engine(), uid: "uid-2".to_owned(), config: "c".to_owned() },
        ],
        ended: vec![EndedEngine {
            name: model::EngineName::new("unknown").unwrap(),
            reason: "r".to_owned(),
            class: None,
            log_tail: None,
        }],
        served: vec![(slot.engine(), 3)],
    };
    let recorded = client.record(Epoch(1), &facts).await.unwrap();
    assert_eq!(recorded.other_uid, [(slot.engine(), "uid-1".to_owned())]);
    assert_eq!(recorded.unknown.len(), 1);
    assert_eq!(store.overview(None).await.unwrap().observed[0].engine, report.engines[0]);

    let renewal = Renewal {
        slot: slot.key.clone(),
        observed: slot.incarnation,
        failures: 2,
        replacement: Replacement::StandIn,
        condemn: None,
        ends: None,
    };
    let incarnation = client.new_incarnation(Epoch(1), &renewal).await.unwrap();
    assert_eq!(store.snapshot().await.unwrap().slots[0].incarnation, incarnation);
    let again = client.new_incarnation(Epoch(1), &renewal).await.unwrap_err();
    assert_eq!(again.kind(), ApiErrorKind::Conflict, "{again}");
    agent.stop().await;
}

#[tokio::test]
async fn changes_and_records_of_the_ledger_reach_the_store() {
    let agent = Agent::start().await;
    let (store, client) = (&agent.store, agent.client(Role::Master));
    client.raise_epoch(Epoch(0), "holder").await.unwrap();
    commit(store, "a-1", unit("uc_1", 1)).await;
    agent::founded(store).await;
    let slot = client.snapshot().await.unwrap().slots[0].clone();
    let amounts = Amounts::same(Amount { cpu_m: 1_000, memory: 1 << 30, engines: 1 }).unwrap();
    let scopes = engine_scopes(&slot.key, slot.incarnation, Some(&slot));
    let request = Arc::new(Request {
        id: slot.engine().as_str().into(),
        holder: Holder::Engine { unit: slot.key.unit.clone(), incarnation: slot.incarnation },
        lineage: lineage_of(&slot.key, slot.incarnation, Some(&slot)),
        scopes: scopes.clone(),
        amounts,
        asked: None,
        ttl_ms: Some(60_000),
    });
    let reserve = ScopedChange { scopes: scopes.clone(), change: Change::Reserve(request) };
    let unknown = ScopedChange { scopes, change: Change::Cancel { id: "e-9".into() } };
    let decided = client.ledger(Epoch(1), &[reserve.clone(), unknown]).await.unwrap();
    assert_eq!(decided[0].as_ref().unwrap().state, State::Locked);
    assert_eq!(decided[1], Err(Refusal::Unknown("e-9".into())));
    let snapshot = client.snapshot().await.unwrap();
    assert_eq!(snapshot.ledger, store.snapshot().await.unwrap().ledger);
    assert_eq!(snapshot.ledger.reservations().count(), 1);
    let pool = slot.key.pool.clone();
    for (record, expected) in [
        (LedgerRecord::Admission([(pool.clone(), 2)].into()), LedgerRecorded::Done),
        (LedgerRecord::Capacity([(pool.clone(), Triple::all(Limit::Unlimited))].into()), LedgerRecorded::Done),
        (LedgerRecord::Expiry, LedgerRecorded::Expired(Vec::new())),
        (LedgerRecord::Audit, LedgerRecorded::Audited(Vec::new())),
    ] {
        assert_eq!(client.record_ledger(Epoch(1), &record).await.unwrap(), expected);
        let deposed = client.record_ledger(Epoch(0), &record).await.map_err(|error| error.kind());
        // An expiry without anything to end writes nothing.
        assert!(record == LedgerRecord::Expiry || deposed == Err(ApiErrorKind::Deposed), "{record:?}: {deposed:?}");
    }
    let ledger = client.snapshot().await.unwrap().ledger;
    let ScopeRole::Pool(row) = ledger.scope(&ScopeKey::pool(&pool)).unwrap().role else { panic!("no pool") };
    assert_eq!((row.queued, row.counted_epoch), (2, Epoch(1)));
    let deposed = client.ledger(Epoch(0), std::slice::from_ref(&reserve)).await.unwrap_err();
    assert_eq!(deposed.kind(), ApiErrorKind::Deposed, "{deposed}");
    // Another agent may know the call.
    agent.knows_no(Some("Ledger"));
    let unknown = client.ledger(Epoch(1), &[reserve]).await.unwrap_err();
    assert_eq!(unknown.kind(), ApiErrorKind::Unavailable, "{unknown}");
    agent.stop().await;
}

/// In a rolling upgrade the master may be of this version and the agent of the one before.
#[tokio::test]
async fn an_agent_without_the_batch_call_receives_a_call_for_each_slot() {
    for is_old in [false, true] {
        let agent = Agent::start().await;
        agent.knows_no(is_old.then_some("NewIncarnations"));
        let (store, client) = (&agent.store, agent.client(Role::Master));
        client.raise_epoch(Epoch(0), "holder").await.unwrap();
        commit(store, "a-1", unit("uc_1", 2)).await;
        agent::founded(store).await;
        let slots = store.snapshot().await.unwrap().slots;
        let stale = Renewal {
            slot: slots[0].key.clone(),
            observed: Incarnation(1),
            failures: 1,
            replacement: Replacement::StandIn,
            condemn: None,
            ends: None,
        };
        let renew = |at: usize| Renewal {
            slot: slots[at].key.clone(),
            observed: slots[at].incarnation,
            failures: 3,
            replacement: Replacement::StandIn,
            condemn: None,
            ends: None,
        };
        let drawn = client.new_incarnations(Epoch(1), &[stale, renew(0), renew(1)]).await.unwrap();
        let now: Vec<_> =
            store.snapshot().await.unwrap().slots.iter().map(|slot| (slot.incarnation, slot.failures)).collect();
        assert_eq!(drawn[1..], [Ok(now[0].0), Ok(now[1].0)]);
        assert!(drawn[0].is_err() && now[0].1 == 3 && now[0].0 != slots[0].incarnation, "{drawn:?}");
        store.raise_epoch(Epoch(1), "another").await.unwrap();
        let deposed = client.new_incarnations(Epoch(1), &[renew(0)]).await.unwrap_err();
        assert_eq!(deposed.kind(), ApiErrorKind::Deposed, "{deposed}");
        agent.stop().await;
    }
}

#[tokio::test]
async fn a_deposed_master_receives_the_row_of_its_successor() {
    let agent = Agent::start().await;
    let client = agent.client(Role::Master);
    client.raise_epoch(Epoch(0), "one").await.unwrap();
    let current = client.raise_epoch(Epoch(1), "two").await.unwrap();
    let error = client.publish(Epoch(1), &Publication::default()).await.unwrap_err();
    assert_eq!(error, ApiError::Deposed(Box::new(current)));
    agent.stop().await;
}

/// F2 and F5 of the attacks: the key of a proxy neither acts as the master nor reads secret properties.
#[tokio::test]
async fn a_proxy_makes_only_the_calls_of_proxies() {
    let agent = Agent::start().await;
    let proxy = agent.client(Role::Proxy);
    proxy.master().await.unwrap();
    proxy.proxy_snapshot().await.unwrap();
    proxy.outcome(&id("a-1")).await.unwrap();
    let refused = [
        proxy.snapshot().await.map(drop),
        proxy.raise_epoch(Epoch(0), "proxy").await.map(drop),
        proxy.finish(Epoch(0), &id("a-1"), Generation(1)).await.map(drop),
        proxy.stalled(Epoch(0), &id("a-1"), Duration::ZERO, "why").await.map(drop),
        proxy.superseded(Epoch(0), &id("a-1")).await.map(drop),
        proxy.publish(Epoch(0), &Publication::default()).await,
        proxy.record(Epoch(0), &EngineFacts::default()).await.map(drop),
        proxy.abort(&abort_of("a-1")).await.map(drop),
        proxy.new_incarnations(Epoch(0), &[]).await.map(drop),
        proxy.ledger(Epoch(0), &[]).await.map(drop),
        proxy.record_ledger(Epoch(0), &LedgerRecord::Audit).await.map(drop),
        proxy.demand().await.map(drop),
        proxy.scale(Epoch(0), &ScaleRequest { links: Vec::new(), reservation_ttl_ms: 0, grace_ms: 0 }).await.map(drop),
    ];
    for (at, refused) in refused.into_iter().enumerate() {
        let Err(ApiError::Refused(error)) = refused else { panic!("call {at}: {refused:?}") };
        assert_eq!(error.sqlstate(), "42501", "call {at}: {error}");
    }
    assert_eq!(agent.store.master().await.unwrap().epoch, Epoch(0), "nothing was written");
    agent.stop().await;
}

#[tokio::test]
async fn an_agent_that_is_gone_is_unavailable_and_found_again_when_it_is_back() {
    let agent = Agent::start().await;
    let client = agent.client(Role::Master);
    client.master().await.unwrap();
    let (address, store) = (agent.address.clone(), agent.store.clone());
    agent.stop().await;
    let error = client.raise_epoch(Epoch(0), "one").await.unwrap_err();
    assert_eq!(error.kind(), ApiErrorKind::Unavailable, "nothing was sent: {error}");
    let ApiError::Unavailable(cause) = &error else { panic!("{error}") };
    assert!(cause.source().unwrap().is::<ClientError>(), "the cause keeps its type: {cause:?}");
    assert_eq!(chain(&error).to_string(), error.to_string(), "each cause is printed once");
    let agent = Agent::start_at(&address, store).await;
    client.raise_epoch(Epoch(0), "one").await.unwrap();
    // The server closes the connection between two calls: the next one needs no help.
    let (address, store) = (agent.address.clone(), agent.store.clone());
    agent.stop().await;
    let agent = Agent::start_at(&address, store).await;
    assert_eq!(client.raise_epoch(Epoch(1), "two").await.unwrap().epoch, Epoch(2));
    agent.stop().await;
}

#[tokio::test]
async fn an_answer_that_does_not_come_leaves_only_effects_unknown() {
    let agent = Agent::start().await;
    let short = Duration::from_secs(1);
    let client = AgentClient::new(agent.endpoint(), caller(&agent.keys, Role::Master), short);
    // On a machine with much to do even a connection may take longer than that.
    let limit = Duration::from_secs(20);
    timeout(limit, async { while client.master().await.is_err() {} }).await.unwrap();
    agent.mute(true);
    let error = timeout(limit, client.raise_epoch(Epoch(0), "one")).await.expect("it has a deadline").unwrap_err();
    assert_eq!(error.kind(), ApiErrorKind::OutcomeUnknown, "{error}");
    let error = timeout(limit, client.master()).await.expect("it has a deadline").unwrap_err();
    assert_eq!(error.kind(), ApiErrorKind::Unavailable, "{error}");
    // A call that waits for another one does not wait longer than its own deadline.
    let both = async { tokio::join!(client.master(), client.master()) };
    let (one, other) = timeout(limit, both).await.expect("both have one");
    assert!(one.is_err() && other.is_err());
    agent.mute(false);
    // The same call again returns the outcome, and does no harm.
    let patient = agent.client(Role::Master);
    assert_eq!(patient.raise_epoch(Epoch(0), "one").await.unwrap().epoch, Epoch(1));
    agent.stop().await;
}

#[tokio::test]
async fn an_abandoned_call_affects_no_other() {
    let agent = Agent::start().await;
    let client = agent.client(Role::Master);
    client.master().await.unwrap();
    agent.mute(true);
    let given_up = timeout(Duration::from_millis(100), client.snapshot()).await;
    assert!(given_up.is_err());
    agent.mute(false);
    assert_eq!(client.master().await.unwrap().epoch, Epoch(0));
    agent.stop().await;
}

#[tokio::test]
async fn an_engine_agent_reports_its_load() {
    let agent = Agent::start().await;
    let options = caller(&agent.keys, Role::Proxy).metadata_agent(&agent.endpoint(), "").unwrap();
    let mut client = Client::connect(&options).await.unwrap();
    let status = engine_status(&mut client, Duration::from_secs(10)).await.unwrap();
    let expected = EngineStatus {
        engine: "e-1".to_owned(),
        uid: "u-1".to_owned(),
        sessions: 3,
        running: 2,
        draining: true,
        idle: Some(Duration::from_secs(5)),
        retiring: true,
        stateful: Some(1),
        seats: Some(10),
        served: Some(7),
    };
    assert_eq!(status, expected);
    agent.stop().await;
}

/// Slots of users are added over a connection, and reach masters and proxies with their owners.
#[tokio::test]
async fn owners_of_slots_travel_with_calls_and_snapshots() {
    let agent = Agent::start().await;
    let (client, store) = (agent.client(Role::Master), agent.store.clone());
    client.raise_epoch(Epoch(0), "lock-1/9").await.unwrap();
    let patch = UnitPatch {
        start_on_demand: Setting::Set(true),
        shared_by: Some(SharedBy::User),
        max_engines: Some(4),
        ..UnitPatch::default()
    };
    let unit = ObjectPatch::ResourceUnit(UnitName::new("uc_1").unwrap(), patch);
    let record = commit(&store, "a-1", model::change::Change::Create { if_not_exists: false, object: unit }).await;
    client.finish(Epoch(1), &id("a-1"), record.generation).await.unwrap();
    agent::founded(&store).await;
    let link = Link {
        tenant: TenantName::new("t_1").unwrap(),
        pool: PoolName::new("rp_1").unwrap(),
        unit: UnitName::new("uc_1").unwrap(),
    };
    let addition = |name: &str| SlotAddition {
        owner: Some(Owner::User(name.to_owned())),
        started_for: Some(StartedFor { user: name.to_owned(), creator: "IDE".to_owned() }),
        count: 1,
    };
    let add = vec![addition("ann"), addition("Bob Ü@example.org")];
    let links = vec![LinkScale { link, seen: SlotsSeen::default(), add, remove: Vec::new() }];
    let request = ScaleRequest { links, reservation_ttl_ms: 60_000, grace_ms: 0 };
    let scaled = client.scale(Epoch(1), &request).await.unwrap();
    assert!(matches!(&scaled[..], [LinkScaled::Scaled { added, short: None }] if added.len() == 2), "{scaled:?}");
    let again = client.scale(Epoch(1), &request).await.unwrap();
    assert!(matches!(&again[..], [LinkScaled::Refused(_)]), "a repeat after a lost answer: {again:?}");
    let of_master: Vec<_> = client.snapshot().await.unwrap().slots.into_iter().map(Shared::into_inner).collect();
    for slots in [of_master, client.proxy_snapshot().await.unwrap().slots] {
        let owners: Vec<_> = slots.iter().map(|slot| (slot.owner.clone(), slot.started_for.clone())).collect();
        let of = |addition: SlotAddition| (addition.owner, addition.started_for);
        assert_eq!(owners, [of(addition("ann")), of(addition("Bob Ü@example.org"))]);
    }
    agent.stop().await;
}
