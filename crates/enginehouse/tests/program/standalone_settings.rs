//! `standalone` is configured by a file, the environment and its command line, and refuses what it would not use.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use tests::resident_set::peak_bytes;

use crate::installation::{Installation, ONE_ENGINE, eventually, program, text};

/// What it refuses to start with.
fn refusal(data: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> String {
    let mut command = program();
    command.args(["standalone", "--listen", "127.0.0.1:0", "--data-dir"]).arg(data).args(arguments);
    let output = command.envs(environment.iter().copied()).output().unwrap();
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(!error.contains("panicked"), "{error}");
    error
}

fn chmod(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn a_folder_that_is_allowed_is_read_and_the_hint_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    let (mine, other) = (root.join("mine"), root.join("other"));
    for folder in [&mine, &other] {
        std::fs::create_dir(folder).unwrap();
        std::fs::write(folder.join("x.csv"), "id\n1\n2\n").unwrap();
    }
    let mut installation = Installation::not_started();
    let file = root.join("settings.toml");
    std::fs::write(&file, "[access]\nadmins = [\"admin\", \"root\"]\n").unwrap();
    installation.with_arguments(&["--allow", mine.to_str().unwrap(), "--config", file.to_str().unwrap()]);
    installation.set("ENGINEHOUSE_ORCHESTRATOR_MAX_ENGINES", "7");
    installation.start_again();
    installation.say_all(&ONE_ENGINE);
    let create = |folder: &Path| {
        let location = folder.join("x.csv").display().to_string();
        installation.try_say(&format!(
            "CREATE EXTERNAL TABLE x STORED AS CSV LOCATION '{location}' OPTIONS ('format.has_header' 'true')"
        ))
    };
    let error = create(&other).unwrap_err();
    assert!(error.contains("42501") && error.contains(mine.to_str().unwrap()) && error.contains("--allow"), "{error}");
    create(&mine).unwrap();
    assert_eq!(installation.say("SELECT sum(id) FROM x"), "3");
    // What the file and the environment set is there, for the doctor too.
    let kept = std::fs::read_to_string(installation.data().join("configuration.toml")).unwrap();
    assert!(kept.contains("max_engines = 7") && kept.contains("\"root\""), "{kept}");
    assert_eq!(mode(&installation.data().join("configuration.toml")), 0o600);
    assert!(installation.stop().success());
}

#[test]
fn a_setting_that_would_have_no_effect_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    for (variable, value, expected) in [
        ("ENGINEHOUSE_BOGUS_KEY", "1", "names no section"),
        ("ENGINEHOUSE_CONFIG", "x", "names no section"),
        ("ENGINEHOUSE_PROXY_LISEN", "x", "has no key lisen"),
        ("ENGINEHOUSE_DATABASE_URL", "postgres://h/d", "database.url is not for a standalone"),
    ] {
        let error = refusal(&data, &[], &[(variable, value)]);
        assert!(error.contains(expected), "{variable}: {error}");
    }
    let inside = data.join("data").display().to_string();
    for (allowed, expected) in [
        ("/nowhere/at/all", "No such file"),
        (folder.path().to_str().unwrap(), "contain one another"),
        (&*inside, "contain one another"),
    ] {
        std::fs::create_dir_all(&inside).unwrap();
        chmod(&data, 0o700);
        let error = refusal(&data, &["--allow", allowed], &[]);
        assert!(error.contains(expected), "{allowed}: {error}");
    }
}

#[test]
fn other_users_read_neither_the_data_directory_nor_what_is_in_it() {
    let mut installation = Installation::not_started();
    let data = installation.data().to_owned();
    std::fs::create_dir(&data).unwrap();
    chmod(&data, 0o755);
    std::fs::write(data.join("stranger"), "x").unwrap();
    let error = refusal(&data, &[], &[]);
    assert!(error.contains("mode 755") && error.contains("chmod 700"), "{error}");
    std::fs::remove_file(data.join("stranger")).unwrap();
    std::fs::create_dir_all(data.join("data")).unwrap();
    // With a folder of its own in it, it is still not known to be ours.
    let error = refusal(&data, &[], &[]);
    assert!(error.contains("chmod 700"), "{error}");
    chmod(&data, 0o700);
    chmod(&data.join("data"), 0o755);
    installation.start_again();
    installation.say_all(&ONE_ENGINE);
    for folder in ["", "data", "engines", "samples", "zookeeper", "data/catalog/t", "data/scratch"] {
        assert_eq!(mode(&data.join(folder)), 0o700, "{folder}");
    }
    assert!(installation.stop().success());
    // A directory that it has run in is taken back.
    chmod(&data, 0o755);
    installation.start_again();
    assert_eq!(mode(&data), 0o700);
    assert!(installation.stop().success());
}

#[test]
fn an_engine_limits_its_own_address_space_and_is_killed_before_others() {
    let installation = Installation::with_an_engine();
    let [engine] = installation.engines()[..] else { panic!("{:?}", installation.engines()) };
    let read = |name: &str| std::fs::read_to_string(format!("/proc/{engine}/{name}")).unwrap();
    assert_eq!(read("oom_score_adj").trim(), "1000");
    let limits = read("limits");
    let line = limits.lines().find(|line| line.starts_with("Max address space")).unwrap();
    let bytes: usize = line.split_whitespace().nth(3).unwrap().parse().unwrap_or_else(|_| panic!("{line}"));
    // Three times its 512 MiB, and what does not depend on them.
    assert!(bytes > 3 * (512 << 20) && bytes < 64 << 30, "{line}");
    // A result of 2 GB is refused, or ends this engine and nothing else.
    let asked = installation.try_say("SELECT length(repeat('x', 2000000000))");
    let peak = peak_bytes(engine).unwrap_or(0);
    assert!(peak < bytes, "{peak} of {bytes}; {asked:?}");
    eventually("queries are answered", || installation.try_say("SELECT 1").is_ok_and(|rows| rows.contains('1')));
}
