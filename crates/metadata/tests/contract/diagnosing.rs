//! Cases of the diagnosis for `doctor`.

use std::time::Duration;

use metadata::{Backend, Diagnosis, ROUND_TRIPS, SCHEMA_VERSION, Store, StoreSettings};
use model::change::Rules;
use model::clock::SystemClock;

use super::bench::Bench;

/// The database and this process share a machine here; a round trip may be interrupted.
const SAME_CLOCK_MS: i64 = 2_000;

/// Diagnoses after the store of the case is closed, because an `SQLite` file allows only one.
async fn diagnosed(settings: &StoreSettings) -> Diagnosis {
    Store::diagnose(settings, &SystemClock::shared()).await.unwrap()
}

pub async fn a_diagnosis_shows_clock_and_timeouts(bench: Bench) {
    let bench = bench.founded(1).await;
    let (before, mut settings) = (bench.store.snapshot().await.unwrap(), bench.settings.clone());
    // Not the defaults, so that the values found are those that were set.
    (settings.lock_timeout, settings.statement_timeout) = (Duration::from_secs(3), Duration::from_secs(7));
    settings.idle_timeout = Duration::from_secs(9);
    bench.store.close().await;
    drop(bench);
    let seen = diagnosed(&settings).await;
    assert_eq!((seen.schema, seen.backend), (SCHEMA_VERSION, settings.backend().unwrap()));
    assert_eq!(seen.round_trips.len(), ROUND_TRIPS);
    assert!(seen.round_trips.is_sorted(), "{:?}", seen.round_trips);
    assert!(seen.ahead_ms.abs() < SAME_CLOCK_MS, "{} ms", seen.ahead_ms);
    assert!(!seen.timeouts.is_empty());
    for timeout in &seen.timeouts {
        assert_eq!(timeout.found, timeout.expected, "{}", timeout.name);
        let configured = [settings.lock_timeout, settings.statement_timeout, settings.idle_timeout];
        assert!(configured.contains(&timeout.expected), "{timeout:?}");
    }
    let store = Store::open(&settings, Rules::default(), SystemClock::shared()).await.unwrap();
    assert_eq!(store.snapshot().await.unwrap().slots, before.slots);
}

pub async fn a_diagnosis_changes_no_database_of_any_version(bench: Bench) {
    let settings = bench.settings.clone();
    bench.raw(&format!("UPDATE schema_version SET version = {}", SCHEMA_VERSION + 5)).await;
    drop(bench);
    assert_eq!(diagnosed(&settings).await.schema, SCHEMA_VERSION + 5);
    super::bench::raw(&settings, "UPDATE schema_version SET version = 1").await;
    assert_eq!(diagnosed(&settings).await.schema, 1);
    super::bench::raw(&settings, "DROP TABLE schema_version").await;
    assert_eq!(diagnosed(&settings).await.schema, 0);
    assert_eq!(diagnosed(&settings).await.schema, 0, "the diagnosis has created a table");
}

/// Test servers may be configured without durability; the diagnosis must show it.
pub async fn a_diagnosis_shows_the_effective_durability_settings(bench: Bench) {
    let mut settings = bench.settings.clone();
    let backend = settings.backend().unwrap();
    drop(bench);
    if backend == Backend::Postgres {
        // A role or server that does not wait for the disk; our connections do.
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
    let durability = diagnosed(&settings).await.durability;
    let of = |name: &str| durability.iter().find(|setting| setting.name == name).unwrap_or_else(|| panic!("{name}"));
    for (name, question) in asked {
        let expected = super::bench::asked(&settings, question).await;
        assert_eq!(of(name).found, expected, "{name}");
        assert_eq!(of(name).risk.is_none(), matches!(expected.as_str(), "on" | "1" | "no log"), "{name} = {expected}");
    }
    // Each connection sets what it can.
    let configured: &[(&str, &str)] = match backend {
        Backend::Sqlite => &[("journal_mode", "wal"), ("synchronous", "full")],
        Backend::Postgres => &[("synchronous_commit", "on")],
        Backend::Mariadb => &[],
    };
    for (name, found) in configured {
        assert_eq!((of(name).found.as_str(), of(name).risk), (*found, None), "{name}");
    }
    assert_eq!(durability.len(), asked.len() + configured.len(), "{durability:?}");
}
