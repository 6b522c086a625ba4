//! A tick over 10,000 engines at rest in the orchestrator's fake: list, snapshot, plan, report. The peer, in
//! alternating rounds of the same run, is the snapshot from the database that every tick needs: the ratio shows what the
//! master adds. A second installation has a capacity and quotas; its ticks take turns with those of the first. Each engine
//! has a reservation in both, and no steady tick changes or records anything in the ledger. A separate measurement reads
//! 10,000 permits from the embedded ZooKeeper.
//!
//! Run with `cargo bench -p master --bench tick`, or, to optimize only the workspace's crates, with `--profile dev
//! --config profile.dev.opt-level=3`. `installation` has the real parts.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

#[allow(dead_code)]
#[path = "../../agent-api/tests/agent/mod.rs"]
mod agent;
#[allow(dead_code)]
mod installation;

use std::sync::Arc;
use std::time::{Duration, Instant};

use coordination::{Election, Layout, Permit, observe, permits};
use embedded_zookeeper::{Config, Server};
use futures::stream::{self, StreamExt as _};
use keys::{KeyGeneration, Root, SecretKey};
use master::{Reconciler, Settings};
use model::clock::SystemClock;
use model::engine_state::Phase;
use model::observation::CreatedEngine;
use model::snapshot::Snapshot;
use orchestrator::ObservedInstance;
use orchestrator::memory::Memory;

use installation::{ENGINES, Installation, Still, print_ticks, spread};

const ROUNDS: usize = 15;
/// Permits that are made at once beforehand.
const AT_ONCE: usize = 64;

#[tokio::main]
async fn main() {
    let installation = Installation::founded(Settings::default()).await;
    let limited = Installation::founded(Settings::default()).await;
    limited.limit().await;
    let (mut reconciler, ctx) = at_rest(&installation).await;
    let (mut limited_reconciler, limited_ctx) = at_rest(&limited).await;
    let first = ctx.tick(&mut reconciler).await;
    println!("{ENGINES} engines in memory, SQLite behind a metadata agent; least, middle, most of {ROUNDS}");
    println!("the first tick, which reports all of them: {:.1?}, of it the report {:.1?}", first.0, first.1.report);
    limited_ctx.tick(&mut limited_reconciler).await;
    let before = ctx.ledger_calls() + limited_ctx.ledger_calls();
    let (mut ticks, mut with_quotas) = (Vec::new(), Vec::new());
    let (mut ratios, mut reads, mut of_quotas) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let tick = ctx.tick(&mut reconciler).await;
        let read = ctx.read().await;
        let other = limited_ctx.tick(&mut limited_reconciler).await;
        ratios.push(tick.0.as_secs_f64() / read.as_secs_f64());
        of_quotas.push(other.0.as_secs_f64() / tick.0.as_secs_f64());
        ticks.push(tick);
        with_quotas.push(other);
        reads.push(read);
    }
    println!("a steady tick:");
    print_ticks(&ticks);
    let (least, middle, most) = spread(reads);
    println!("beside it, the snapshot alone: {least:.1?} {middle:.1?} {most:.1?}");
    let (least, middle, most) = spread(ratios);
    println!("a tick in readings of the snapshot: {least:.2} {middle:.2} {most:.2}");
    println!("a steady tick with a capacity and quotas:");
    print_ticks(&with_quotas);
    let (least, middle, most) = spread(of_quotas);
    println!("a tick with them in ticks without: {least:.2} {middle:.2} {most:.2}");
    let charged = installation.snapshot().await.ledger.reservations().filter(|each| each.state.is_charged()).count();
    assert_eq!(charged, ENGINES);
    // The audit, once a minute, is no part of a steady tick.
    let calls = ctx.ledger_calls() + limited_ctx.ledger_calls() - before;
    println!("calls for the ledger in {} steady ticks with {charged} reservations: {calls}", 2 * ROUNDS);
    zookeeper(&installation.snapshot().await).await;
}

/// A master with a ctx, for which all engines of the installation exist.
async fn at_rest(installation: &Installation) -> (Reconciler, Still) {
    let snapshot = installation.snapshot().await;
    let memory = Memory::new(SystemClock::shared());
    let mut made = Vec::new();
    for (at, slot) in snapshot.slots.iter().enumerate() {
        let labels = installation.labels(&snapshot, slot);
        let (name, uid) = (labels.name.clone(), format!("3f1c9a52-7b44-4e0e-9d54-{at:012x}"));
        made.push(CreatedEngine { name: name.clone(), uid: uid.clone(), config: labels.config.clone() });
        memory.put(ObservedInstance {
            name,
            uid,
            labels: Arc::new(labels.encode()),
            annotations: Arc::default(),
            phase: Phase::Running,
            incomplete: false,
            reason: None,
            node: Some("node-1".to_owned()),
            started_at_ms: Some(1_999_999_001_000),
            exit: None,
            log_tail: None,
            fault: None,
            pods: None,
            details: Arc::new([("process pid".to_owned(), "4711".to_owned())].into()),
        });
    }
    installation.made(made).await;
    installation.reconciler(Arc::new(memory)).await
}

/// Reads as many permits. They have no registrations, which saves no request: registrations are read anyway.
async fn zookeeper(snapshot: &Snapshot) {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(Config { data_dir: Some(folder.path().to_owned()), ..Config::default() }).await.unwrap();
    let (root, first) = (Root::new("eh", SecretKey::new([1; 32])), KeyGeneration::FIRST);
    let identity = master::identity(&root.all_roles(first, &[first], coordination::digest).unwrap().master);
    let settings = coordination::SessionSettings::new(server.addr().to_string(), Layout::default(), identity);
    let lock = Election::new(settings, SystemClock::shared(), "the bench").win().await.unwrap();
    let permit = |at: usize| {
        let (record, lock) = (&snapshot.engines[at], &lock);
        async move {
            let (tenant, pool, unit) = (record.slot.tenant.clone(), record.slot.pool.clone(), record.slot.unit.clone());
            permits::create(
                lock,
                &record.name,
                &Permit { tenant, pool, unit, uid: record.uid.clone(), sessions: None, owner: None },
            )
            .await
            .unwrap();
        }
    };
    let made = stream::iter((0..ENGINES).map(permit)).buffer_unordered(AT_ONCE).count().await;
    let mut times: Vec<Duration> = Vec::new();
    for _ in 0..ROUNDS {
        let begin = Instant::now();
        assert_eq!(observe(lock.session()).await.unwrap().permits.len(), made);
        times.push(begin.elapsed());
    }
    let (least, middle, most) = spread(times);
    println!("what a tick reads of ZooKeeper, {made} permits: {least:.1?} {middle:.1?} {most:.1?}");
    lock.resign().await;
}
