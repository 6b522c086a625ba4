//! The database itself: reachable, its version, how quick it answers, its clock, its time-outs, what a crash takes back.

use std::cmp::Ordering;
use std::path::Path;
use std::time::Duration;

use metadata::{Diagnosis, Error, SCHEMA_VERSION, Store};
use model::span;

use super::checks::{CLOCK, DURABILITY, MIGRATIONS, REACHABLE, ROUND_TRIPS, TIME_OUTS};
use super::durability;
use super::patient::{CALL_DEADLINE, Patient};
use super::report::{Finding, Report};

/// A median above this is worth knowing: each statement is a handful of round trips.
const SLOW: Duration = Duration::from_millis(100);
/// A clock further away than this makes the times that people compare misleading. Nothing is decided by comparing
/// clocks of two machines.
const APART_MS: i64 = 2_000;

/// Looks at the database. True if it can be read by this program.
pub async fn look(patient: &Patient, report: &mut Report) -> bool {
    const REST: [super::checks::Check; 5] = [MIGRATIONS, ROUND_TRIPS, CLOCK, TIME_OUTS, DURABILITY];
    if let Some(why) = &patient.no_database {
        report.unseen(&[REACHABLE], why);
        report.unseen(&REST, why);
        return false;
    }
    if let Some(file) = &patient.file_of_database {
        beside(patient, file, report).await;
        return false;
    }
    let shown = crate::configuration::without_password(&patient.configuration.database.url);
    let settings = patient.database();
    // A connection and why there is none, each within its own deadline; this one is for what nobody thought of.
    let looked = tokio::time::timeout(CALL_DEADLINE * 3, Store::diagnose(&settings, &patient.clock)).await;
    let looked =
        looked.unwrap_or_else(|_| Err(Error::Unavailable(format!("no answer in {} s", CALL_DEADLINE.as_secs() * 3))));
    match looked {
        Ok(seen) => {
            report.tell(REACHABLE, format!("{shown} ({})", seen.backend.as_str()), Vec::new());
            tell(patient, &seen, report);
            seen.schema == SCHEMA_VERSION
        }
        Err(error) => {
            let mend = "start the database, or correct database.url; what runs goes on without it";
            report.tell(REACHABLE, "it does not answer", vec![Finding::problem(shown, error.to_string(), mend)]);
            report.unseen(&REST, "the database does not answer");
            false
        }
    }
}

/// Looks at a file that another process has.
async fn beside(patient: &Patient, file: &Path, report: &mut Report) {
    let shown = file.display().to_string();
    match Store::examine_beside(&patient.database()).await {
        Ok(seen) => {
            let damaged = (!seen.damage.is_empty()).then(|| {
                Finding::problem(
                    &shown,
                    format!("the file is damaged: {}", seen.damage.join("; ")),
                    "end its process, keep a copy of the file, and restore it from a backup; engines that run go on meanwhile",
                )
            });
            let said = if damaged.is_some() { "can be read" } else { "can be read and is whole" };
            report.tell(REACHABLE, format!("{shown} (sqlite) {said}"), damaged.into_iter().collect());
            migrations(patient, seen.schema, report);
            round_trips(&seen.round_trips, report);
        }
        Err(error) => {
            let mend = "put the file back while its process runs, which still has it open, or restore it from a backup";
            report.tell(REACHABLE, "it can't be read", vec![Finding::problem(shown, error.to_string(), mend)]);
            report.unseen(&[MIGRATIONS, ROUND_TRIPS], "the file can't be read");
        }
    }
    report.unseen(&[CLOCK], "does not apply: SQLite has this machine's clock");
    report.unseen(&[TIME_OUTS], "does not apply: nothing between a process and its file could take time-outs back");
    report.unseen(&[DURABILITY], "does not apply: every connection to a file waits for the disk (synchronous = FULL)");
}

fn tell(patient: &Patient, seen: &Diagnosis, report: &mut Report) {
    migrations(patient, seen.schema, report);
    round_trips(&seen.round_trips, report);
    clock(seen.ahead_ms, report);
    let findings: Vec<Finding> = seen
        .timeouts
        .iter()
        .filter(|it| it.found != it.wanted)
        .map(|it| {
            let found = if it.found.is_zero() { "without end".to_owned() } else { span::print(it.found) };
            Finding::problem(
                it.name,
                format!("a connection has {found} where {} was asked for", span::print(it.wanted)),
                "something between here and the database (a pooler, a role's settings) takes it back: let SET through",
            )
        })
        .collect();
    let said: Vec<String> = seen.timeouts.iter().map(|it| format!("{} {}", it.name, span::print(it.found))).collect();
    report.tell(TIME_OUTS, said.join(", "), findings);
    durability::tell(&seen.durability, report);
}

fn migrations(patient: &Patient, found: i64, report: &mut Report) {
    let subject = format!("schema version {found}");
    let findings = match found.cmp(&SCHEMA_VERSION) {
        Ordering::Greater => vec![Finding::problem(
            subject,
            format!("the database is newer than this program, which knows version {SCHEMA_VERSION}"),
            "run the program that migrated it",
        )],
        Ordering::Less => vec![Finding::problem(
            subject,
            format!("the database is behind this program, which needs version {SCHEMA_VERSION}"),
            patient.migrate(),
        )],
        Ordering::Equal => Vec::new(),
    };
    let said = match found {
        0 => "the database has none of our tables".to_owned(),
        _ if findings.is_empty() => format!("up to date: schema version {found}"),
        _ => format!("schema version {found}, this program has {SCHEMA_VERSION}"),
    };
    report.tell(MIGRATIONS, said, findings);
}

fn round_trips(trips: &[Duration], report: &mut Report) {
    let (Some(least), Some(most)) = (trips.first(), trips.last()) else {
        return report.unseen(&[ROUND_TRIPS], "none was measured");
    };
    let median = trips[trips.len() / 2];
    let said =
        format!("min {}, median {}, max {} of {}", span::age(*least), span::age(median), span::age(*most), trips.len());
    let slow = (median > SLOW).then(|| {
        Finding::warning(
            "round trips",
            format!(
                "the median of {} is above {}: every control statement takes several",
                span::age(median),
                span::age(SLOW)
            ),
            "look at the load of the database, and at the way to it",
        )
    });
    report.tell(ROUND_TRIPS, said, slow.into_iter().collect());
}

fn clock(ahead_ms: i64, report: &mut Report) {
    let word = if ahead_ms < 0 { "behind" } else { "ahead of" };
    let apart = span::age(Duration::from_millis(ahead_ms.unsigned_abs()));
    let said = format!("{apart} {word} this machine's");
    let far = (ahead_ms.abs() > APART_MS).then(|| {
        Finding::warning(
            "clock",
            format!("the database's clock is {said}: times in SHOW are the database's, times in logs this machine's"),
            "set both clocks by one time service; nothing is decided by comparing them",
        )
    });
    report.tell(CLOCK, said, far.into_iter().collect());
}
