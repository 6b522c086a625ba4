//! Cases of the look that an operator's tool takes.

use std::time::Duration;

use metadata::{Backend, Diagnosis, ROUND_TRIPS, SCHEMA_VERSION, Store, StoreSettings};
use model::change::Rules;
use model::clock::SystemClock;

use super::bench::Bench;

/// A database and this process are on one machine here; a round trip may be interrupted.
const SAME_CLOCK_MS: i64 = 2_000;

/// Looks after the case's store is gone: an `SQLite` file has one at a time.
async fn examined(settings: &StoreSettings) -> Diagnosis {
    Store::diagnose(settings, &SystemClock::shared()).await.unwrap()
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
    assert!(!seen.timeouts.is_empty());
    for time_out in &seen.timeouts {
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

/// The servers of tests may be told to forget: what counts is that it is seen.
pub async fn what_an_acknowledged_commit_hangs_on_is_told_as_the_database_has_it(bench: Bench) {
    let mut settings = bench.settings.clone();
    let backend = settings.backend().unwrap();
    drop(bench);
    if backend == Backend::Postgres {
        // A role or server that does not wait for the disk: a connection of ours does all the same.
        settings.url += "&options[synchronous_commit]=off";
    }
    let asked: &[(&str, &str)] = match backend {
        Backend::Sqlite => &[],
        Backend::Postgres => &[("fsync", "SHOW fsync"), ("full_page_writes", "SHOW full_page_writes")],
        Backend::Mariadb => &[
            ("innodb_flush_log_at_trx_commit", "SELECT CAST(@@global.innodb_flush_log_at_trx_commit AS CHAR)"),
            ("innodb_doublewrite", "SELECT IF(@@global.innodb_doublewrite, 'on', 'off')"),
            ("sync_binlog", "SELECT IF(@@global.log_bin, CAST(@@global.sync_binlog AS CHAR), 'no log')"),
        ],
    };
    let durability = examined(&settings).await.durability;
    let of = |name: &str| durability.iter().find(|it| it.name == name).unwrap_or_else(|| panic!("{name}"));
    for (name, question) in asked {
        let said = super::bench::asked(&settings, question).await;
        assert_eq!(of(name).found, said, "{name}");
        assert_eq!(of(name).risk.is_none(), matches!(said.as_str(), "on" | "1" | "no log"), "{name} = {said}");
    }
    // What a connection may say for itself, it says.
    let told: &[(&str, &str)] = match backend {
        Backend::Sqlite => &[("journal_mode", "wal"), ("synchronous", "full")],
        Backend::Postgres => &[("synchronous_commit", "on")],
        Backend::Mariadb => &[],
    };
    for (name, found) in told {
        assert_eq!((of(name).found.as_str(), of(name).risk), (*found, None), "{name}");
    }
    assert_eq!(durability.len(), asked.len() + told.len(), "{durability:?}");
}
