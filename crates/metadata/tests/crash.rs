//! Crash at each step boundary: the operation has happened completely or not at all, and its id finds out which.
//!
//! The test runs itself as a child that aborts at the failpoint (no destructor, no rollback, no flush), on a real file. Release
//! builds have no failpoints, and so no such test.

#![cfg(debug_assertions)]
#![allow(clippy::unwrap_used, clippy::panic)]

mod contract;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use contract::bench::{AUDIT_KEEP, Bench, abort_of, by, commit, id, link, memory, start_request};
use contract::ledgers;
use metadata::{AuditFilter, Error, Refusal, RegisterRequest, RequestEffect, Store, StoreSettings, failpoints};
use model::alteration::{AlterationProgress, Outcome};
use model::change::{Change, ObjectPatch, PoolPatch, Rules, Setting};
use model::clock::ManualClock;
use model::demand::DemandKey;
use model::demand_report::{DemandReport, WaitingSessions};
use model::end::EndWord;
use model::failpoint::fail;
use model::ledger::{RegistrationState, RegistrationStatus};
use model::name::PoolName;
use model::number::{Epoch, Generation};
use model::observation::Publication;
use model::quota::Capacity;
use model::resource::Resource;
use model::scaling::{AddedSlot, LinkScale, LinkScaled, ScaleRequest, SlotAddition, SlotRemoval, SlotsSeen};
use model::slot::{Renewal, Replacement};

const POINT: &str = "EH_CRASH_POINT";
const FOLDER: &str = "EH_CRASH_FOLDER";

/// Opens the file like a later process. Repeats must do nothing, so they are identical.
async fn open(folder: &Path) -> Bench {
    let settings = StoreSettings::sqlite(&folder.join("metadata.db"));
    let clock = ManualClock::at(1_000_000);
    let mut rules = Rules::default();
    rules.defaults.on_demand.start_on_demand = true;
    let store = Store::open(&settings, rules, clock.clone()).await.unwrap();
    Bench { settings, store, clock }
}

async fn alter(bench: &Bench) -> Result<metadata::Committed, Error> {
    // The base that the first attempt had read; a repeat has the same.
    let base = Some(Generation(1));
    bench.store.commit(&commit("the-alter", memory("uc_1", "2G"), base, bench.soon())).await
}

async fn start(bench: &Bench) -> Result<metadata::EngineAnswer, Error> {
    let request = bench.request("the-start", "START ENGINE t_1 rp_1 uc_1", by("alice"));
    bench.store.start(&start_request(request, link("t_1", "rp_1", "uc_1"))).await
}

/// Registers the capacity of a pool, which it creates.
async fn register(bench: &Bench) -> Result<RegistrationStatus, Error> {
    let patch = PoolPatch { capacity: Setting::Set(Capacity::Registered), ..PoolPatch::default() };
    let pool = PoolName::new("rp_registered").unwrap();
    let object = ObjectPatch::ResourcePool(pool.clone(), patch);
    let create = Change::Create { if_not_exists: false, object };
    bench.store.commit(&commit("the-pool", create, Some(Generation(0)), bench.soon())).await?;
    let register = RegisterRequest {
        request: bench.request("the-registration", "REGISTER", by("carol")),
        pool,
        name: "yarn".to_owned(),
        instance: "i-1".to_owned(),
        kind: None,
        capacity: Resource::Cpu { cpu_m: 1_000 },
        protected: None,
        lease_ms: 3_600_000,
    };
    bench.store.register(&register).await
}

/// A session waits, its engine is added and removed again.
async fn follow_demand(bench: &Bench, epoch: Epoch) {
    let link = link("t_1", "rp_1", "uc_1");
    let key = DemandKey::of_tenant(link.tenant.clone(), "IDE");
    let demand = vec![WaitingSessions { key, sessions: 1, waited_ms: 0 }];
    let report = DemandReport { proxy: "p-1".to_owned(), seq: 1, lease_ms: 60_000, demand };
    bench.store.record_demand(&report).await.unwrap();
    let scale = async |add: u32, remove: Vec<SlotRemoval>| {
        let seen = SlotsSeen::of(&bench.store.snapshot().await.unwrap().slots);
        let add = if add == 0 { Vec::new() } else { vec![SlotAddition::of_tenant(add)] };
        let links = vec![LinkScale { link: link.clone(), seen, add, remove }];
        let request = ScaleRequest { links, reservation_ttl_ms: 60_000, grace_ms: 0 };
        let LinkScaled::Scaled { added, .. } = bench.store.scale(epoch, &request).await.unwrap().remove(0) else {
            panic!("refused")
        };
        added
    };
    let AddedSlot { slot, incarnation } = scale(1, Vec::new()).await.remove(0);
    scale(0, vec![SlotRemoval { slot, incarnation, reason: "no longer needed".to_owned(), word: EndWord::Unneeded }])
        .await;
}

fn refusal() -> Refusal {
    Refusal {
        id: id("the-refusal"),
        caller: by("eve"),
        statement: "DROP TENANT t_1".to_owned(),
        object: None,
        tenant: None,
        sqlstate: "42501".to_owned(),
    }
}

/// The number of rows of the audit for the request.
async fn audited(bench: &Bench, request: &str) -> usize {
    let filter = AuditFilter { limit: 1_000, ..AuditFilter::default() };
    bench.store.audit(&filter).await.unwrap().iter().filter(|row| row.request == id(request)).count()
}

/// Runs a test of this file as a child that aborts at the failpoint.
fn kill_at(test: &str, point: &str, folder: &Path) {
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test])
        .env(POINT, point)
        .env(FOLDER, folder)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap();
    assert!(status.code().is_none(), "the child was to die by a signal at {point}: {status}");
}

/// In such a child: arms the failpoint and returns the folder.
fn doomed() -> Option<(String, PathBuf)> {
    let (point, folder) = (std::env::var(POINT).ok()?, std::env::var(FOLDER).ok()?);
    fail::cfg_callback(&*point, || std::process::abort()).unwrap();
    Some((point, folder.into()))
}

/// The work of the child: everything that passes a failpoint.
async fn everything(point: &str, folder: &Path) {
    let bench = open(folder).await;
    alter(&bench).await.unwrap();
    bench.store.abort(&abort_of("the-abort")).await.unwrap();
    start(&bench).await.unwrap();
    bench.store.raise_epoch(Epoch(0), "me").await.unwrap();
    let slot = bench.store.snapshot().await.unwrap().slots[0].clone();
    let renewal = Renewal {
        slot: slot.key.clone(),
        observed: slot.incarnation,
        failures: 1,
        replacement: Replacement::StandIn,
        condemn: None,
        ends: None,
    };
    bench.store.new_incarnation(Epoch(1), &renewal).await.unwrap();
    bench.store.publish(Epoch(1), &Publication::default()).await.unwrap();
    bench.store.record_refusal(&refusal()).await.unwrap();
    ledgers::reserve_and_end(&bench, Epoch(1)).await;
    register(&bench).await.unwrap();
    follow_demand(&bench, Epoch(1)).await;
    // Make rows old enough to be deleted.
    bench.raw("UPDATE request SET done_at_ms = 1").await;
    bench.raw("UPDATE audit SET at_ms = 1 WHERE request = 'the-start'").await;
    bench.store.housekeep(AUDIT_KEEP, metadata::REQUEST_KEEP).await.unwrap();
    panic!("{point} was not passed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_process_dies_at_every_step() {
    if let Some((point, folder)) = doomed() {
        return everything(&point, &folder).await;
    }
    let mut killed = 0;
    // Migration has a test of its own below.
    let points = failpoints::ALL.iter().filter(|point| !point.starts_with("metadata.migrate."));
    for point in points {
        let folder = tempfile::tempdir().unwrap();
        let bench = Bench::open(StoreSettings::sqlite(&folder.path().join("metadata.db"))).await.founded(1).await;
        let before = bench.store.snapshot().await.unwrap();
        drop(bench);
        kill_at("the_process_dies_at_every_step", point, folder.path());
        killed += 1;
        check(&open(folder.path()).await, point, &before).await;
    }
    println!("crash: points={killed}");
    assert_eq!(killed, failpoints::ALL.len() - 2);
}

async fn check(bench: &Bench, point: &str, before: &model::snapshot::Snapshot) {
    let after = bench.store.snapshot().await.unwrap();
    let outcome = bench.store.outcome(&id("the-alter")).await.unwrap();
    match &outcome {
        None => {
            assert_eq!(after.catalog, before.catalog, "{point}: nothing was committed, nothing changed");
            assert_eq!((&after.slots, &after.engines), (&before.slots, &before.engines), "{point}");
        }
        Some(record) => {
            assert_eq!(
                (record.outcome, record.progress),
                (Outcome::Committed, Some(AlterationProgress::Converging)),
                "{point}"
            );
            let unit = &after.catalog.units.values().next().unwrap().spec;
            assert_eq!(unit.driver_memory.to_string(), "2G", "{point}: what was committed is there");
            assert_ne!(after.slots[0].incarnation, before.slots[0].incarnation, "{point}");
        }
    }
    let inside_commit = point.starts_with("metadata.commit.");
    assert_eq!(outcome.is_none(), inside_commit && point != failpoints::COMMIT_AFTER, "{point}");

    // No row without its effect, no effect without its row.
    let aborted = bench.store.outcome(&id("the-abort")).await.unwrap();
    let started = bench.store.request(&id("the-start")).await.unwrap();
    assert_eq!(audited(bench, "the-alter").await, usize::from(outcome.is_some()), "{point}");
    assert_eq!(audited(bench, "the-abort").await, usize::from(aborted.is_some()), "{point}");
    assert_eq!(audited(bench, "the-start").await, usize::from(started.is_some()), "{point}");

    let registered = bench.store.registration(&PoolName::new("rp_registered").unwrap()).await;
    let is_registered = registered.is_ok_and(|status| status.state == RegistrationState::Registered);
    assert_eq!(audited(bench, "the-registration").await, usize::from(is_registered), "{point}");

    // The same ids again: everything has happened exactly once in the end.
    let committed = alter(bench).await.unwrap();
    assert_eq!(committed.first, outcome.is_none(), "{point}");
    let aborted = bench.store.abort(&abort_of("the-abort")).await.unwrap();
    assert_eq!(aborted.outcome, Outcome::Aborted, "{point}");
    let started = start(bench).await.unwrap();
    let again = start(bench).await.unwrap();
    assert_eq!((started.effect, &started), (RequestEffect::Started, &again), "{point}");
    bench.store.record_refusal(&refusal()).await.unwrap();
    assert_eq!(register(bench).await.unwrap().state, RegistrationState::Registered, "{point}");
    for request in ["the-alter", "the-abort", "the-start", "the-refusal", "the-registration"] {
        assert_eq!(audited(bench, request).await, 1, "{point}: {request}");
    }
    let end = bench.store.snapshot().await.unwrap();
    let started_slots = if point == failpoints::HOUSEKEEPING_AFTER {
        // This test deleted the request as too old, so the repeat is a new request.
        2
    } else {
        1
    };
    assert_eq!(end.slots.len(), 1 + started_slots, "{point}");
    let generations = after.catalog.generation <= end.catalog.generation;
    assert!(generations, "{point}: the counter never goes back");
    let epoch = bench.store.master().await.unwrap().epoch;
    let next = bench.store.raise_epoch(epoch, "another").await.unwrap();
    assert_eq!(next.epoch, epoch.next(), "{point}");
    // A reservation without its charge, or a charge without its reservation, would be there for ever.
    ledgers::is_charged_for_its_reservations(bench, point).await;
    ledgers::reserve_and_end(bench, next.epoch).await;
    ledgers::is_charged_for_its_reservations(bench, point).await;
    let ended = bench.store.reservation("the-reservation").await.unwrap().unwrap();
    assert!(ended.state.is_ended(), "{point}");
    tokio::time::timeout(
        Duration::from_secs(20),
        bench.store.finish(next.epoch, &id("the-alter"), end.catalog.generation),
    )
    .await
    .unwrap()
    .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interrupted_migration_is_repeated() {
    if let Some((_, folder)) = doomed() {
        Store::migrate(&StoreSettings::sqlite(&folder.join("metadata.db"))).await.unwrap();
        return;
    }
    for point in [failpoints::MIGRATE_BEFORE, failpoints::MIGRATE_AFTER] {
        let folder = tempfile::tempdir().unwrap();
        kill_at("an_interrupted_migration_is_repeated", point, folder.path());
        let bench = Bench::open(StoreSettings::sqlite(&folder.path().join("metadata.db"))).await;
        assert_eq!(bench.store.catalog().await.unwrap().generation.get(), 0);
    }
}
