//! Checks of the database: reachable, schema version, round trips, clock, timeouts, durability.

use std::cmp::Ordering;
use std::path::Path;
use std::time::Duration;

use metadata::{Diagnosis, Error, SCHEMA_VERSION, Store, StoreSettings, StoredSecrets};
use model::span;

use super::checks::{CLOCK, DURABILITY, MIGRATIONS, REACHABLE, ROUND_TRIPS, TIMEOUTS};
use super::durability;
use super::report::{Finding, Report};
use super::target::{CALL_DEADLINE, Target, bounded};

/// A median above this is a warning: each statement takes several round trips.
const SLOW: Duration = Duration::from_millis(100);
/// A larger difference of clocks is a warning, because people compare times. No decision compares clocks of two machines.
const APART_MS: i64 = 2_000;

const NO_RESPONSE: &str = "the database does not respond";
const UNREADABLE: &str = "the file cannot be read";

/// What the check has found out about the database.
#[derive(Debug)]
pub struct Found {
    /// Whether this program can read the desired state from it.
    pub is_readable: bool,
    /// How secret properties are stored, or why that was not read.
    pub secrets: Result<StoredSecrets, String>,
}

impl Found {
    fn nothing(reason: impl Into<String>) -> Self {
        Self { is_readable: false, secrets: Err(reason.into()) }
    }
}

/// Why nothing more than its version is read of a database.
fn another_version(schema: i64) -> String {
    format!("the database has version {schema}, and this program reads version {SCHEMA_VERSION}")
}

/// Checks the database.
pub async fn check(target: &Target, report: &mut Report) -> Found {
    const REST: [super::checks::Check; 5] = [MIGRATIONS, ROUND_TRIPS, CLOCK, TIMEOUTS, DURABILITY];
    if let Some(why) = &target.no_database {
        report.skip(&[REACHABLE], why);
        report.skip(&REST, why);
        return Found::nothing(why);
    }
    if let Some(file) = &target.file_of_database {
        return Found { is_readable: false, secrets: sqlite_file(target, file, report).await };
    }
    let shown = crate::configuration::without_password(&target.configuration.database.url);
    let settings = target.database();
    // Every step has its own deadline; this one is a backstop.
    let diagnosis = tokio::time::timeout(CALL_DEADLINE * 3, Store::diagnose(&settings, &target.clock)).await;
    let diagnosis = diagnosis.unwrap_or_else(|_| {
        Err(Error::Unavailable(format!("no response within {} s", CALL_DEADLINE.as_secs() * 3).into()))
    });
    match diagnosis {
        Ok(seen) => {
            let tls = if settings.is_encrypted().is_ok_and(|encrypted| encrypted) { ", TLS" } else { "" };
            report.checked(REACHABLE, format!("{shown} ({}{tls})", seen.backend.as_str()), Vec::new());
            connection_settings(target, &seen, report);
            let is_readable = seen.schema == SCHEMA_VERSION;
            let secrets =
                if is_readable { stored_secrets(target, &settings).await } else { Err(another_version(seen.schema)) };
            Found { is_readable, secrets }
        }
        Err(error) => {
            let mend = match &error {
                Error::Untrusted(distrust) => distrust.hint(),
                _ => "start the database, or correct database.url; engines and sessions continue without it",
            };
            report.checked(REACHABLE, "it does not respond", vec![Finding::problem(shown, error.to_string(), mend)]);
            report.skip(&REST, NO_RESPONSE);
            Found::nothing(NO_RESPONSE)
        }
    }
}

async fn stored_secrets(target: &Target, settings: &StoreSettings) -> Result<StoredSecrets, String> {
    let read = async {
        let store = Store::open_to_read(settings, target.clock.clone()).await?;
        let secrets = store.stored_secrets().await;
        store.close().await;
        secrets
    };
    bounded("reading how secret properties are stored", read).await
}

/// Checks an SQLite file that another process owns; returns how secret properties are stored there.
async fn sqlite_file(target: &Target, file: &Path, report: &mut Report) -> Result<StoredSecrets, String> {
    let shown = file.display().to_string();
    let secrets = match Store::diagnose_read_only(&target.database()).await {
        Ok(seen) => {
            let damaged = (!seen.damage.is_empty()).then(|| {
                Finding::problem(
                    &shown,
                    format!("the file is damaged: {}", seen.damage.join("; ")),
                    "stop its process, keep a copy of the file, and restore it from a backup; running engines continue meanwhile",
                )
            });
            let summary = if damaged.is_some() { "is readable" } else { "is readable and intact" };
            report.checked(REACHABLE, format!("{shown} (sqlite) {summary}"), damaged.into_iter().collect());
            migrations(target, seen.schema, report);
            round_trips(&seen.round_trips, report);
            if seen.schema == SCHEMA_VERSION { Ok(seen.secrets) } else { Err(another_version(seen.schema)) }
        }
        Err(error) => {
            let mend = "put the file back while its process runs, which still has it open, or restore it from a backup";
            report.checked(REACHABLE, "it cannot be read", vec![Finding::problem(shown, error.to_string(), mend)]);
            report.skip(&[MIGRATIONS, ROUND_TRIPS], UNREADABLE);
            Err(UNREADABLE.to_owned())
        }
    };
    report.skip(&[CLOCK], "does not apply: SQLite uses this machine's clock");
    report.skip(&[TIMEOUTS], "does not apply: nothing between a process and its file could reset timeouts");
    report.skip(&[DURABILITY], "does not apply: every connection to a file waits for the disk (synchronous = FULL)");
    secrets
}

fn connection_settings(target: &Target, seen: &Diagnosis, report: &mut Report) {
    migrations(target, seen.schema, report);
    round_trips(&seen.round_trips, report);
    clock(seen.ahead_ms, report);
    let findings: Vec<Finding> = seen
        .timeouts
        .iter()
        .filter(|timeout| timeout.found != timeout.expected)
        .map(|timeout| {
            let found = if timeout.found.is_zero() { "no limit".to_owned() } else { span::print(timeout.found) };
            Finding::problem(
                timeout.name,
                format!("a connection has {found} although {} was set", span::print(timeout.expected)),
                "a pooler or the settings of the role reset it: let SET through",
            )
        })
        .collect();
    let summary: Vec<String> =
        seen.timeouts.iter().map(|timeout| format!("{} {}", timeout.name, span::print(timeout.found))).collect();
    report.checked(TIMEOUTS, summary.join(", "), findings);
    durability::check(&seen.durability, report);
}

fn migrations(target: &Target, found: i64, report: &mut Report) {
    let subject = format!("schema version {found}");
    let findings = match found.cmp(&SCHEMA_VERSION) {
        Ordering::Greater => vec![Finding::problem(
            subject,
            format!("the database is newer than this program, which has version {SCHEMA_VERSION}"),
            "run the program that migrated it",
        )],
        Ordering::Less => vec![Finding::problem(
            subject,
            format!("the database is behind this program, which needs version {SCHEMA_VERSION}"),
            target.migrate(),
        )],
        Ordering::Equal => Vec::new(),
    };
    let summary = match found {
        0 => "the database has no tables of Enginehouse".to_owned(),
        _ if findings.is_empty() => format!("up to date: schema version {found}"),
        _ => format!("schema version {found}, and this program has {SCHEMA_VERSION}"),
    };
    report.checked(MIGRATIONS, summary, findings);
}

fn round_trips(trips: &[Duration], report: &mut Report) {
    let (Some(least), Some(most)) = (trips.first(), trips.last()) else {
        return report.skip(&[ROUND_TRIPS], "no round trip was measured");
    };
    let median = trips[trips.len() / 2];
    let summary =
        format!("min {}, median {}, max {} of {}", span::age(*least), span::age(median), span::age(*most), trips.len());
    let slow = (median > SLOW).then(|| {
        Finding::warning(
            "round trips",
            format!(
                "the median of {} is above {}: every control statement takes several",
                span::age(median),
                span::age(SLOW)
            ),
            "check the load of the database and the network",
        )
    });
    report.checked(ROUND_TRIPS, summary, slow.into_iter().collect());
}

fn clock(ahead_ms: i64, report: &mut Report) {
    let word = if ahead_ms < 0 { "behind" } else { "ahead of" };
    let apart = span::age(Duration::from_millis(ahead_ms.unsigned_abs()));
    let summary = format!("{apart} {word} this machine's");
    let far = (ahead_ms.abs() > APART_MS).then(|| {
        Finding::warning(
            "clock",
            format!(
                "the database's clock is {summary}: times in SHOW are the database's, times in logs this machine's"
            ),
            "synchronize both clocks with one time service; no decision compares them",
        )
    });
    report.checked(CLOCK, summary, far.into_iter().collect());
}
