//! Cases of the look that an operator's tool takes.

use std::time::Duration;

use metadata::{Examination, ROUND_TRIPS, SCHEMA_VERSION, Settings, Store};
use model::change::Rules;
use model::clock::SystemClock;

use super::bench::Bench;

/// A database and this process are on one machine here; a round trip may be interrupted.
const SAME_CLOCK_MS: i64 = 2_000;

/// Looks after the case's store is gone: an `SQLite` file has one at a time.
async fn examined(settings: &Settings) -> Examination {
    Store::examine(settings, &SystemClock::shared()).await.unwrap()
}

pub async fn a_database_is_examined_with_its_clock_and_its_time_outs(bench: Bench) {
    let bench = bench.founded(1).await;
    let (before, mut settings) = (bench.store.snapshot().await.unwrap(), bench.settings.clone());
    // Other ones than the defaults, so that what is found is what was told.
    (settings.lock_timeout, settings.statement_timeout) = (Duration::from_secs(3), Duration::from_secs(7));
    settings.idle_timeout = Duration::from_secs(9);
    bench.store.close().await;
    drop(bench);
    let seen = examined(&settings).await;
    assert_eq!((seen.schema, seen.backend), (SCHEMA_VERSION, settings.backend().unwrap()));
    assert_eq!(seen.round_trips.len(), ROUND_TRIPS);
    assert!(seen.round_trips.is_sorted(), "{:?}", seen.round_trips);
    assert!(seen.ahead_ms.abs() < SAME_CLOCK_MS, "{} ms", seen.ahead_ms);
    assert!(!seen.time_outs.is_empty());
    for time_out in &seen.time_outs {
        assert_eq!(time_out.found, time_out.wanted, "{}", time_out.name);
        let told = [settings.lock_timeout, settings.statement_timeout, settings.idle_timeout];
        assert!(told.contains(&time_out.wanted), "{time_out:?}");
    }
    let store = Store::open(&settings, Rules::default(), SystemClock::shared()).await.unwrap();
    assert_eq!(store.snapshot().await.unwrap().slots, before.slots);
}

pub async fn a_database_of_any_version_is_examined_and_left_as_it_is(bench: Bench) {
    let settings = bench.settings.clone();
    bench.raw(&format!("UPDATE schema_version SET version = {}", SCHEMA_VERSION + 5)).await;
    drop(bench);
    assert_eq!(examined(&settings).await.schema, SCHEMA_VERSION + 5);
    super::bench::raw(&settings, "UPDATE schema_version SET version = 1").await;
    assert_eq!(examined(&settings).await.schema, 1);
    super::bench::raw(&settings, "DROP TABLE schema_version").await;
    assert_eq!(examined(&settings).await.schema, 0);
    assert_eq!(examined(&settings).await.schema, 0, "a look has made a table");
}
