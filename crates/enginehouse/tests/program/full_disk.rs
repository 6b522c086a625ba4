//! A disk without room below a running installation: what needs it is refused with 53100, everything else goes on in the
//! same processes, and once there is room everything is as it was.
//!
//! The disk is a small tmpfs that the test mounts, so it must be root, as `tests/run` is, and is left to it. Without root,
//! the limit of file sizes stands for the disk: a process that has reached it fails every write to a file.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::installation::{Installation, catalog, eventually, run};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};

/// Room for the database, the logs, and what an engine leaves; far from what the statement below spills.
const DISK_BYTES: usize = 48 << 20;
/// More than fits into what the database has reserved.
const MOST_TENANTS: usize = 200;
/// Sorts more than the engine's memory holds.
const SPILLS: &str =
    "SELECT value, repeat('x', 200) AS pad FROM generate_series(1, 2000000) ORDER BY value * 7919 % 1000003";
/// One engine with little memory.
const OBJECTS: [&str; 4] = [
    "CREATE RESOURCE UNIT u DRIVER_CPU 1, DRIVER_MEMORY '64M', MAX_ENGINES 4",
    "CREATE RESOURCE POOL p UNIT_LIST ('u')",
    "CREATE TENANT t RESOURCE_POOL_LIST ('p')",
    "START ENGINE t p u WAIT '1m'",
];

/// A disk of its own.
struct Disk {
    /// Where it is mounted.
    path: PathBuf,
    /// The folder, if it is its own; it goes when the disk is gone.
    folder: Option<tempfile::TempDir>,
}

impl Disk {
    fn new() -> Self {
        Self::of(&format!("size={DISK_BYTES}"))
    }

    /// With these options.
    fn of(options: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut disk = Self::over(folder.path().to_owned(), options);
        disk.folder = Some(folder);
        disk
    }

    /// In the place of a folder.
    fn over(path: PathBuf, options: &str) -> Self {
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(&path).status();
        assert!(mounted.is_ok_and(|status| status.success()), "cannot mount a tmpfs: this test needs root");
        Self { path, folder: None }
    }

    fn path(&self) -> &Path {
        &self.path
    }

    /// Takes all the room there is.
    fn fill(&self) -> Filler {
        let path = self.path().join("filler");
        let mut file = File::create(&path).unwrap();
        for size in [1 << 20, 4_096, 1] {
            while file.write_all(&vec![0; size]).is_ok() {}
        }
        Filler(path)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg("--lazy").arg(&self.path).status();
        assert!(unmounted.is_ok_and(|status| status.success()), "{} is left mounted", self.path.display());
    }
}

/// What takes the room, until it goes.
struct Filler(PathBuf);

impl Drop for Filler {
    fn drop(&mut self) {
        std::fs::remove_file(&self.0).unwrap();
    }
}

/// Sets how long a file of a running process may become; `None`: as long as it likes.
fn may_write(pid: u32, bytes: Option<u64>) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    let maximum = getrlimit(Resource::Fsize).maximum;
    prlimit(Some(pid), Resource::Fsize, Rlimit { current: bytes, maximum }).unwrap();
}

#[test]
fn a_process_that_can_write_no_file_refuses_what_needs_it_and_lives() {
    let mut server = Installation::with_an_engine();
    assert_eq!(server.say("SELECT 1"), "1");
    let before = catalog(&server);
    let pid = server.pid();
    may_write(pid, Some(0));
    for statement in ["CREATE TENANT x", "START ENGINE t p u"] {
        let error = server.try_say(statement).unwrap_err();
        println!("{statement}: {error}");
        // Whether an alteration took effect is known once it can be settled.
        let state = ["57P03", "40001", "08007"].into_iter().find(|state| error.contains(&format!("error {state}")));
        let why = ["disk I/O error", "database or disk is full", "unable to open database file"];
        assert!(state.is_some() && why.iter().any(|why| error.contains(why)), "{error}");
        // What needs no file goes on: statements of sessions old and new.
        assert_eq!(server.say("SELECT 2"), "2");
    }
    assert_eq!(server.pid(), pid);
    may_write(pid, getrlimit(Resource::Fsize).current);
    // The master settles what was left open, and nothing of it took effect.
    eventually("a statement is taken again", || server.try_say("CREATE TENANT y RESOURCE_POOL_LIST ('p')").is_ok());
    server.say("DROP TENANT y");
    assert_eq!(catalog(&server), before);
    assert_eq!(server.say("SELECT 3"), "3");
    assert!(server.stop().success());
}

/// The doctor's verdict on the disk, and its findings.
fn doctor_on_disk(data: &Path) -> (String, String) {
    let output = run(&["doctor", "--data-dir", data.to_str().unwrap(), "--format", "json"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let disk = report["checks"].as_array().unwrap().iter().find(|check| check["check"] == "disk").unwrap();
    assert_eq!(output.status.success(), disk["verdict"] != "problem", "{report:#}");
    (disk["verdict"].as_str().unwrap().to_owned(), disk["findings"].to_string())
}

#[test]
#[ignore = "needs root: it mounts small disks"]
fn the_doctor_reports_each_disk_with_little_free_space() {
    let disk = Disk::new();
    let mut server = Installation::start_in(disk.path());
    let engines = server.data().join("engines");
    let (verdict, found) = doctor_on_disk(server.data());
    assert_eq!(verdict, "problem", "{found}");
    assert!(found.contains(engines.to_str().unwrap()) && found.contains("less than 256.0 MiB"), "{found}");
    assert!(server.stop().success());
    // Enough for bytes that are few, and no room for files.
    let disk = Disk::of("size=1G,nr_inodes=500");
    let mut server = Installation::start_in(disk.path());
    let (verdict, found) = doctor_on_disk(server.data());
    assert!(verdict == "problem" && found.contains("more files can be created: fewer than 1000"), "{found}");
    assert!(server.stop().success());
    // A disk of its own for what engines spill.
    let mut server = Installation::start();
    assert!(server.stop().success());
    let spilled = Disk::over(server.data().join("data"), "size=1G");
    server.start_again();
    let (verdict, found) = doctor_on_disk(server.data());
    assert_eq!(verdict, "warning", "{found}");
    assert!(found.contains(spilled.path().to_str().unwrap()) && found.contains("less than 2.0 GiB"), "{found}");
    assert!(server.stop().success());
}

#[test]
#[ignore = "needs root: it mounts a small disk"]
fn a_full_disk_refuses_what_needs_room_and_nothing_else() {
    let disk = Disk::new();
    let mut server = Installation::start_in(disk.path());
    server.say_all(&OBJECTS);
    assert_eq!(server.say("SELECT 1"), "1");
    let before = catalog(&server);
    let mut accepted = Vec::new();
    {
        let _full = disk.fill();
        // The database's files have some room of their own; beyond that what must be written down is refused, and says why.
        // Whether it took effect is known once it can be settled.
        let error = loop {
            assert!(accepted.len() < MOST_TENANTS, "so much fits on a full disk");
            let tenant = format!("x{}", accepted.len());
            match server.try_say(&format!("CREATE TENANT {tenant} COMMENT '{}'", "x".repeat(4_000))) {
                Ok(_) => accepted.push(tenant),
                Err(error) => break error,
            }
        };
        println!("{} tenants fitted, then: {error}", accepted.len());
        let state = ["53100", "57P03", "40001"].into_iter().find(|state| error.contains(&format!("error {state}")));
        assert!(state.is_some() && error.contains("full") && !error.contains("panicked"), "{error}");
        let error = server.try_say(SPILLS).unwrap_err();
        assert!(error.contains("error 53100"), "{error}");
        // What needs no room goes on: what reads, and statements of sessions old and new.
        assert_eq!(server.say("SELECT 2"), "2");
        assert_eq!(server.say("SHOW TENANTS").lines().count(), 1 + accepted.len());
    }
    // The master settles what was left open, and nothing of it took effect.
    eventually("a statement is taken again", || server.try_say("CREATE TENANT y RESOURCE_POOL_LIST ('p')").is_ok());
    for tenant in accepted.iter().map(String::as_str).chain(["y"]) {
        server.say(&format!("DROP TENANT {tenant}"));
    }
    assert_eq!(catalog(&server), before);
    assert_eq!(server.say("SELECT 3"), "3");
    server.say("START ENGINE t p u WAIT '1m'");
    let two = server.engines();
    assert!(two.len() == 2 && two.contains(&before.0[0]), "{two:?} without {:?}", before.0);
    eventually("both are ready", || server.say("SHOW ENGINES t").matches(",ready,").count() == 2);
    assert!(server.stop().success());
}
