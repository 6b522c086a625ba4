//! Checks of the orchestrator: the state directory of local processes, its disk and capacity; or the cluster.

mod cluster;

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use model::engine_state::Phase;
use orchestrator::Listing;
use orchestrator::process::{Disk, StateDirDiagnosis};

use super::checks::{API_SERVER, CAPACITY, DISK, ENTRIES, FOREIGN, RIGHTS, STATE_DIRECTORY};
use super::facts::{Desired, RunningEngines, Source};
use super::report::{Finding, Report, count as plural};
use super::target::Target;
use crate::machine;

/// Less free space than this is a problem: logs, spilled data and records no longer fit.
const LEAST_BYTES: u64 = 256 << 20;
/// Less free space than this is a warning.
const LITTLE_BYTES: u64 = 2 << 30;
/// Fewer free files than this is a problem: an engine needs some dozens.
const LEAST_FILES: u64 = 1_000;
/// The part of the limit, in percent, from which on it is a warning.
const NEARLY_FULL_PERCENT: usize = 90;

pub fn check(
    target: &Target,
    running: &Result<RunningEngines, String>,
    desired: Option<&Desired>,
    report: &mut Report,
) {
    let directory = target.configuration.orchestrator.state_dir.display().to_string();
    let (listing, seen) = match running {
        Ok(RunningEngines { listing, source: Source::Directory(seen) }) => (listing, seen),
        Ok(RunningEngines { listing, source: Source::Cluster(missing) }) => {
            return cluster::check(target, listing, missing, report);
        }
        Err(why) if target.no_orchestrator.is_some() => {
            not_a_cluster(report);
            return report.skip(&[STATE_DIRECTORY, DISK, CAPACITY, ENTRIES], why);
        }
        Err(reason) if target.cluster.is_some() => return cluster::unreachable(reason, report),
        Err(reason) => {
            not_a_cluster(report);
            let mend = "a proxy that is a candidate for master creates it when it starts, if permitted; or correct orchestrator.state_dir";
            report.checked(STATE_DIRECTORY, "it cannot be read", vec![Finding::problem(directory, reason, mend)]);
            return report.skip(&[DISK, CAPACITY, ENTRIES], "the state directory cannot be read");
        }
    };
    not_a_cluster(report);
    state_directory(seen, report);
    disk(target, seen, report);
    let most = target.configuration.orchestrator.max_engines;
    let count = listing.engines.len() + listing.unreadable.len() + seen.leftovers.len();
    room(count, most, "orchestrator.max_engines", memory(desired), report);
    entries(listing, seen, report);
}

fn not_a_cluster(report: &mut Report) {
    report.leave_out(&[API_SERVER, RIGHTS, FOREIGN]);
}

fn state_directory(seen: &StateDirDiagnosis, report: &mut Report) {
    let directory = seen.state_dir.display().to_string();
    let what = match (seen.disk.read_only, seen.writable) {
        (true, _) => Some("its file system is mounted read-only: no engine can be started or ended"),
        (_, false) => Some("this user may not write there"),
        _ => None,
    };
    let finding = what.map(|what| {
        let mend = "mount it read-write and make the user of the proxies its owner; run the doctor as that user";
        Finding::problem(&directory, what, mend)
    });
    report.checked(STATE_DIRECTORY, format!("{directory} is readable and writable"), finding.into_iter().collect());
}

fn disk(target: &Target, seen: &StateDirDiagnosis, report: &mut Report) {
    let mut findings = Vec::new();
    let mut summary = Vec::new();
    for (folder, disk) in disks(target, seen) {
        let subject = folder.display().to_string();
        let free = format!("{} of {} are free", size(disk.free_bytes), size(disk.total_bytes));
        let mend = "free space: logs of engines, spilled data below engines.data_dir, and other files there";
        if disk.free_bytes < LEAST_BYTES {
            findings.push(Finding::problem(&subject, format!("{free}: less than {}", size(LEAST_BYTES)), mend));
        } else if disk.free_bytes < LITTLE_BYTES {
            findings.push(Finding::warning(&subject, format!("{free}: less than {}", size(LITTLE_BYTES)), mend));
        }
        if let Some(files) = disk.free_files.filter(|files| *files < LEAST_FILES) {
            let what = format!("only {files} more files can be created: fewer than {LEAST_FILES}");
            findings.push(Finding::problem(format!("{subject}: files"), what, mend));
        }
        summary.push(if summary.is_empty() { free } else { format!("{free} in {subject}") });
    }
    report.checked(DISK, summary.join("; "), findings);
}

/// The file systems with growing data, each once: those of the state directory, of the engines' data and of an SQLite file.
fn disks(target: &Target, seen: &StateDirDiagnosis) -> Vec<(PathBuf, Disk)> {
    let device = |folder: &Path| std::fs::metadata(folder).ok().map(|metadata| metadata.dev());
    let mut known = vec![device(&seen.state_dir)];
    let mut disks = vec![(seen.state_dir.clone(), seen.disk)];
    let others = [Some(target.configuration.engines.data_dir.clone()), target.file_of_database.clone()];
    for path in others.into_iter().flatten() {
        let of = device(&path);
        // A missing folder is created by the first engine, or reported by another check.
        if of.is_some()
            && !known.contains(&of)
            && let Ok(disk) = Disk::of(&path)
        {
            known.push(of);
            disks.push((path, disk));
        }
    }
    disks
}

/// Bytes in the largest unit.
fn size(bytes: u64) -> String {
    let units = [("GiB", 1_u64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match units.into_iter().find(|(_, unit)| bytes >= *unit) {
        Some((word, unit)) => format!("{}.{} {word}", bytes / unit, bytes % unit * 10 / unit),
        None => format!("{bytes} B"),
    }
}

/// Units whose engines may take more memory than this machine has.
fn memory(desired: Option<&Desired>) -> Vec<Finding> {
    let total = machine::memory_bytes();
    let units = desired.into_iter().flat_map(|desired| &desired.snapshot.catalog.units);
    let large = units.filter(|(_, unit)| unit.spec.driver_memory.bytes() > total);
    large
        .map(|(name, unit)| {
            Finding::warning(
                format!("resource unit {name}"),
                format!(
                    "DRIVER_MEMORY is {}, and this machine has {}",
                    size(unit.spec.driver_memory.bytes()),
                    size(total)
                ),
                format!("ALTER RESOURCE UNIT {name} DRIVER_MEMORY '…', well below the memory of this machine"),
            )
            .about_set_up()
        })
        .collect()
}

fn room(count: usize, most: usize, key: &str, also: Vec<Finding>, report: &mut Report) {
    let what = format!("{} of at most {most}", plural(count, "engine"));
    let mend = format!("STOP ENGINE for engines that are not needed, or raise {key} and restart the proxies");
    let finding = if count >= most {
        Some(Finding::problem(key, format!("{what}: no engine can be started, not even a replacement"), mend))
    } else if count * 100 >= most * NEARLY_FULL_PERCENT {
        Some(Finding::warning(key, format!("{what}: nearly full"), mend))
    } else {
        None
    };
    report.checked(CAPACITY, what, finding.into_iter().chain(also).collect());
}

fn entries(listing: &Listing, seen: &StateDirDiagnosis, report: &mut Report) {
    let engines = seen.state_dir.join("engines");
    let mut findings: Vec<Finding> = listing
        .unreadable
        .iter()
        .map(|engine| {
            let path = engines.join(&engine.name).display().to_string();
            let mend = format!(
                "masters cannot terminate an unreadable engine: repair its engine.json, or find its process (fuser {path}), kill it, and rm -r {path}"
            );
            Finding::problem(&path, format!("it cannot be read: {}", engine.reason), mend)
        })
        .collect();
    findings.extend(seen.leftovers.iter().map(|name| {
        let mend = "any proxy that is a candidate for master removes it when it starts";
        Finding::warning(name.clone(), "it was terminated, but its files still exist", mend)
    }));
    report.checked(ENTRIES, counted(listing), findings);
}

/// The numbers of running and of ended engines.
fn counted(listing: &Listing) -> String {
    let ended = listing.engines.iter().filter(|engine| engine.phase == Phase::Ended).count();
    let live = plural(listing.engines.len() - ended, "running engine");
    if ended == 0 { live } else { format!("{live}, {ended} have ended") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_printed_in_the_largest_unit() {
        for (bytes, text) in [(0, "0 B"), (1_023, "1023 B"), (1_536, "1.5 KiB"), (5 << 30, "5.0 GiB")] {
            assert_eq!(size(bytes), text);
        }
    }
}
