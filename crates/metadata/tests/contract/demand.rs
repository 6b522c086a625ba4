//! Cases of demand: what proxies have recorded, and for how long.

use std::time::Duration;

use metadata::{SCHEMA_VERSION, Store, StoreErrorKind};
use model::change::Rules;
use model::clock::SystemClock;
use model::demand::{Demand, DemandKey, MAX_DEMAND_KEYS};
use model::demand_report::{DemandRecorded, DemandReport, UnmetDemand, WaitingSessions};
use model::name::{PoolName, TenantName};
use model::number::Generation;
use model::observation::Publication;

use super::bench::{AUDIT_KEEP, Bench, asked};

/// Longer than any case.
const LONG_MS: i64 = 1_000_000;
/// How often a report is repeated that the database refuses because of others.
const MOST_REPORTS: u32 = 50;

fn key(tenant: &str) -> DemandKey {
    DemandKey::of_tenant(TenantName::new(tenant).unwrap(), "IDE")
}

fn report(proxy: &str, seq: i64, demand: &[(DemandKey, u64)]) -> DemandReport {
    let demand = demand.iter().cloned().map(|(key, sessions)| WaitingSessions { key, sessions, waited_ms: 0 });
    DemandReport { proxy: proxy.to_owned(), seq, lease_ms: LONG_MS, demand: demand.collect() }
}

async fn recorded(bench: &Bench, report: DemandReport) -> DemandRecorded {
    bench.store.record_demand(&report).await.unwrap()
}

/// The recorded keys with their sessions.
async fn waiting(bench: &Bench) -> Vec<(DemandKey, u64)> {
    let demand = bench.store.demand().await.unwrap();
    assert_eq!(demand, bench.store.snapshot().await.unwrap().demand, "a plan begins with the same demand");
    demand.into_iter().map(|demand| (demand.key, demand.waiting)).collect()
}

async fn of(bench: &Bench, key: &DemandKey) -> Demand {
    let demand = bench.store.demand().await.unwrap();
    demand.into_iter().find(|demand| demand.key == *key).unwrap()
}

pub async fn a_report_replaces_the_demand_of_its_proxy_only(bench: Bench) {
    let (one, two) = (key("t_1"), DemandKey { pool: Some(PoolName::new("rp_1").unwrap()), ..key("t_1") });
    assert_eq!(recorded(&bench, report("p-1", 1, &[(one.clone(), 3)])).await, DemandRecorded::Increased);
    assert_eq!(
        recorded(&bench, report("p-2", 1, &[(one.clone(), 2), (two.clone(), 1)])).await,
        DemandRecorded::Increased
    );
    assert_eq!(waiting(&bench).await, [(one.clone(), 5), (two.clone(), 1)], "the proxies are added up");
    assert_eq!(recorded(&bench, report("p-2", 2, &[(one.clone(), 1)])).await, DemandRecorded::Recorded, "fewer wait");
    assert_eq!(waiting(&bench).await, [(one.clone(), 4)]);
    assert_eq!(recorded(&bench, report("p-2", 3, &[(one.clone(), 1)])).await, DemandRecorded::Recorded, "as many wait");
    assert_eq!(recorded(&bench, report("p-2", 4, &[(two.clone(), 1)])).await, DemandRecorded::Increased, "another key");
    assert_eq!(recorded(&bench, report("p-1", 2, &[])).await, DemandRecorded::Recorded);
    assert_eq!(waiting(&bench).await, [(two, 1)]);
}

pub async fn a_late_report_brings_no_demand_back(bench: Bench) {
    let (old, new) = (key("t_1"), key("t_2"));
    recorded(&bench, report("p-1", 7, &[(new.clone(), 1)])).await;
    for seq in [1, 6, 7] {
        let late = report("p-1", seq, &[(old.clone(), 9), (new.clone(), 9)]);
        assert_eq!(recorded(&bench, late).await, DemandRecorded::Superseded, "{seq}");
    }
    recorded(&bench, report("p-1", 8, &[])).await;
    assert_eq!(recorded(&bench, report("p-1", 7, &[(new.clone(), 1)])).await, DemandRecorded::Superseded);
    assert_eq!(waiting(&bench).await, []);
    assert_eq!(recorded(&bench, report("p-2", 1, &[(new.clone(), 1)])).await, DemandRecorded::Increased);
    assert_eq!(waiting(&bench).await, [(new, 1)], "the numbers of another proxy are its own");
}

pub async fn demand_ends_with_its_lease_and_is_renewed_by_any_report(bench: Bench) {
    let (key, other) = (key("t_1"), key("t_2"));
    let ended = DemandReport { lease_ms: 0, ..report("p-1", 1, &[(key.clone(), 2)]) };
    assert_eq!(recorded(&bench, ended).await, DemandRecorded::Increased);
    assert_eq!(waiting(&bench).await, [], "the lease has ended");
    let waited = WaitingSessions { key: key.clone(), sessions: 2, waited_ms: 60_000 };
    let first = DemandReport { demand: vec![waited.clone()], ..report("p-2", 1, &[]) };
    recorded(&bench, first.clone()).await;
    let before = of(&bench, &key).await;
    assert!(before.until_ms - before.since_ms >= LONG_MS + 60_000, "{before:?}");
    // The renewal names a shorter wait, and another key is new.
    let renewed = WaitingSessions { waited_ms: 5, ..waited };
    let second = WaitingSessions { key: other.clone(), ..renewed.clone() };
    recorded(&bench, DemandReport { seq: 2, demand: vec![renewed, second], lease_ms: 2 * LONG_MS, ..first }).await;
    let after = of(&bench, &key).await;
    assert_eq!((after.since_ms, after.waiting), (before.since_ms, 2), "the age is that of the first report");
    assert!(after.until_ms >= before.until_ms + LONG_MS && of(&bench, &other).await.until_ms == after.until_ms);
}

pub async fn a_key_has_all_its_columns_and_any_length(bench: Bench) {
    let long = |letter: &str| Some(letter.repeat(300));
    let full = DemandKey {
        pool: Some(PoolName::new("rp_1").unwrap()),
        unit: Some(model::name::UnitName::new("uc_1").unwrap()),
        engine_type: Some("spark-3.5".to_owned()),
        user: Some("änn".to_owned()),
        group: Some("Analysts".to_owned()),
        session: Some("0123".to_owned()),
        ..key("t_1")
    };
    recorded(&bench, report("p-1", 1, &[(full.clone(), 1)])).await;
    assert_eq!(waiting(&bench).await, [(full.clone(), 1)]);
    let longer = DemandKey { user: long("u"), group: long("g"), ..full };
    recorded(&bench, report("p-1", 2, &[(longer.clone(), 4)])).await;
    let [(cut, 4)] = &waiting(&bench).await[..] else { panic!("one key") };
    assert_eq!(cut.user.as_deref().map(str::len), Some(255));
    recorded(&bench, report("p-1", 3, &[(longer, 4)])).await;
    assert_eq!(waiting(&bench).await.len(), 1, "the key is recognized by its digest");
}

pub async fn a_report_has_a_limited_number_of_keys(bench: Bench) {
    let of_number = |number: usize| (DemandKey { user: Some(format!("u{number}")), ..key("t_1") }, 1);
    let most: Vec<(DemandKey, u64)> = (0..MAX_DEMAND_KEYS).map(of_number).collect();
    recorded(&bench, report("p-1", 1, &most)).await;
    assert_eq!(waiting(&bench).await.len(), MAX_DEMAND_KEYS);
    let more: Vec<(DemandKey, u64)> = (0..=MAX_DEMAND_KEYS).map(of_number).collect();
    bench.store.record_demand(&report("p-1", 2, &more)).await.unwrap_err();
    assert_eq!(recorded(&bench, report("p-1", 3, &[])).await, DemandRecorded::Recorded);
    assert_eq!(waiting(&bench).await, []);
}

pub async fn concurrent_reports_of_a_proxy_leave_the_newest(bench: Bench) {
    // Of several proxies: which reports meet is the database's choice.
    let proxies: Vec<String> = (1..=8).map(|number| format!("p-{number}")).collect();
    let mut calls = tokio::task::JoinSet::new();
    for (proxy, seq) in proxies.iter().flat_map(|proxy| (1..=8).map(move |seq| (proxy, seq))) {
        let (store, report) = (bench.store.clone(), report(proxy, seq, &[(key("t_1"), seq.unsigned_abs())]));
        calls.spawn(async move {
            // As a proxy does. MariaDB refuses some of many first reports again and again, although each call repeats a few times.
            for _ in 0..MOST_REPORTS {
                match store.record_demand(&report).await {
                    Err(error) if error.kind() == StoreErrorKind::Conflict => {}
                    other => return other.unwrap(),
                }
            }
            panic!("a report was refused {MOST_REPORTS} times: {report:?}");
        });
    }
    assert!(calls.join_all().await.contains(&DemandRecorded::Increased));
    assert_eq!(waiting(&bench).await, [(key("t_1"), 8 * proxies.len() as u64)]);
}

pub async fn demand_of_a_proxy_that_stopped_is_deleted(bench: Bench) {
    recorded(&bench, report("p-1", 1, &[(key("t_1"), 1), (key("t_2"), 1)])).await;
    recorded(&bench, report("p-2", 1, &[(key("t_1"), 1)])).await;
    bench.raw("UPDATE demand SET until_ms = until_ms - 10000000 WHERE proxy = 'p-1'").await;
    let deleted = bench.store.housekeep(AUDIT_KEEP, Duration::from_hours(1)).await.unwrap();
    assert_eq!(deleted.demand, 3, "two keys and the number");
    assert_eq!(waiting(&bench).await, [(key("t_1"), 1)]);
}

pub async fn unmet_demand_is_that_of_the_last_report_with_some(bench: Bench) {
    let unmet = |sessions, reason: &str| UnmetDemand {
        key: key("t_1"),
        sessions,
        reason: reason.to_owned(),
        position: Some(3),
        is_futile: false,
        generation: Generation(7),
    };
    let publish = async |unmet: Option<Vec<UnmetDemand>>| {
        let publication = Publication { unmet, ..Publication::default() };
        bench.store.publish(bench.epoch().await, &publication).await.unwrap();
    };
    let read = async || bench.store.proxy_snapshot().await.unwrap().unmet;
    assert_eq!(read().await, []);
    let first = vec![unmet(4, "resource pool \"rp_1\" has 0.5 CPU left, 2 requested")];
    publish(Some(first.clone())).await;
    publish(None).await;
    assert_eq!(read().await, first);
    recorded(&bench, report("p-1", 1, &[(key("t_1"), 6)])).await;
    let (demand, unmet) = bench.store.demand_overview().await.unwrap();
    assert_eq!((demand[0].waiting, unmet), (6, first));
    publish(Some(Vec::new())).await;
    assert_eq!(read().await, []);
}

pub async fn a_database_of_schema_11_receives_the_tables_of_demand(bench: Bench) {
    let bench = bench.founded(1).await;
    let before = bench.store.snapshot().await.unwrap();
    let spec = asked(&bench.settings, "SELECT spec FROM resource_unit").await;
    for option in ["start_on_demand", "sessions_per_engine", "spare_engines", "idle_timeout"] {
        assert!(!spec.contains(option), "the unit is as schema 11 wrote it: {spec}");
    }
    bench.without_demand().await;
    bench.raw("UPDATE schema_version SET version = 11").await;
    let settings = bench.settings.clone();
    bench.store.close().await;
    drop(bench);
    for _ in 0..2 {
        assert_eq!(Store::migrate(&settings).await.unwrap(), SCHEMA_VERSION);
    }
    let store = Store::open(&settings, Rules::default(), SystemClock::shared()).await.unwrap();
    let after = store.snapshot().await.unwrap();
    assert_eq!((after.slots, after.engines), (before.slots, before.engines), "no engine is replaced");
    assert_eq!(after.catalog.units, before.catalog.units);
    assert_eq!(store.demand_overview().await.unwrap(), (vec![], vec![]));
    store.record_demand(&report("p-1", 1, &[(key("t_1"), 3)])).await.unwrap();
    assert_eq!(store.demand().await.unwrap()[0].waiting, 3);
}
