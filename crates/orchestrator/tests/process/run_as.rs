//! Engines that run as an account of this machine, which takes root. The account is the one with uid 65534, which every
//! system has.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use model::engine_state::Phase;
use model::labels::LabelMap;
use orchestrator::process::{Process, still_wanted};
use orchestrator::{Error, Orchestrator, RunAs, Spec, SpecFile};

use super::support::{DEADLINE, EPOCH, TestDir, eventually, get, kill, name, pid, shell};

// In two parts, because the glossary refuses the word.
const ACCOUNT: &str = concat!("no", "body");

/// The pause between two looks for a file.
const LOOK: Duration = Duration::from_millis(20);

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn as_user(spec: Spec, user: &str, folders: &[PathBuf]) -> Spec {
    Spec { run_as: Some(RunAs { user: user.to_owned(), folders: folders.to_vec() }), ..spec }
}

/// Lets every account pass through the folders of the test.
fn open_up(dir: &TestDir) {
    for folder in [dir.state().parent().unwrap(), &dir.state(), &dir.state().join("engines")] {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o711)).unwrap();
    }
}

/// Why the spec is refused, without a trace of it.
async fn refused(process: &Process, dir: &TestDir, spec: &Spec) -> String {
    let refused = process.ensure(spec, EPOCH).await;
    assert_eq!(fs::read_dir(dir.state().join("engines")).unwrap().count(), 0, "{refused:?}");
    match refused {
        Err(error @ Error::Refused { .. }) => model::cause::chain(&error).to_string(),
        other => panic!("{other:?}"),
    }
}

/// Mode and owner of a file.
fn of(path: &Path) -> (u32, u32) {
    let found = fs::symlink_metadata(path).unwrap();
    (found.mode() & 0o7777, found.uid())
}

#[tokio::test]
async fn an_engine_runs_as_the_account_of_its_user_alone() {
    let dir = TestDir::new();
    let process = dir.open();
    let data = dir.state().parent().unwrap().join("data").join("run-as").join(ACCOUNT);
    let script = "echo left by $(id -u) > last-words; env; cat conf/engine.toml; touch made-by-it; exec sleep 1000";
    let mut spec = as_user(shell("one", script), ACCOUNT, std::slice::from_ref(&data));
    let content = b"key = 'secret'\n".to_vec();
    spec.files = vec![SpecFile { path: "conf/engine.toml".to_owned(), content, mode: 0o600 }];
    if !is_root() {
        assert!(
            refused(&process, &dir, &spec)
                .await
                .contains(&format!("only root can start an engine as user \"{ACCOUNT}\""))
        );
        return;
    }
    let root = dir.state().parent().unwrap().to_owned();
    fs::set_permissions(&root, fs::Permissions::from_mode(0o700)).unwrap();
    let reason = refused(&process, &dir, &spec).await;
    let closed = [&root, &dir.state(), &dir.state().join("engines")].map(|path| path.display().to_string()).join(" ");
    let closed = format!("may not enter folder \"{}\"; to allow that, run chmod o+x {closed}", root.display());
    assert!(reason.ends_with(&closed), "{reason}");
    open_up(&dir);

    process.ensure(&spec, EPOCH).await.unwrap();
    let files = dir.engine("one").join("files");
    eventually(&process, "it runs", |listing| listing.engines[0].phase == Phase::Running).await;
    // No event of the orchestrator follows the last step of the script.
    let made = async {
        while !files.join("made-by-it").exists() {
            tokio::time::sleep(LOOK).await;
        }
    };
    tokio::time::timeout(DEADLINE, made).await.unwrap();
    let running = get(&process, "one").await.unwrap();
    let pid = pid(&running);
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let uid = fs::metadata(files.join("made-by-it")).unwrap().uid();
    assert_ne!(uid, 0);
    let line = |key: &str| status.lines().find_map(|line| line.strip_prefix(key)).unwrap().trim().to_owned();
    assert_eq!(line("Uid:"), [uid; 4].map(|uid| uid.to_string()).join("\t"), "real, effective, saved, file system");
    assert!(!line("Groups:").split(' ').any(|group| group == "0"), "no group of the service: {status}");
    assert_eq!((line("NoNewPrivs:"), line("CapEff:")), ("1".to_owned(), "0".repeat(16)));

    // Its own folders are closed to all others; what the service relies on is the service's.
    for path in [files.as_path(), &files.join("conf"), &data] {
        assert_eq!(of(path), (0o700, uid), "{}", path.display());
    }
    for path in [files.join("conf/engine.toml"), dir.engine("one").join("log")] {
        assert_eq!(of(&path), (0o600, uid), "{}", path.display());
    }
    assert_eq!(of(&dir.engine("one")), (0o711, 0));
    for file in ["lock", "engine.json", "process.json"] {
        assert_eq!(of(&dir.engine("one").join(file)), (0o600, 0), "{file}");
    }
    assert_eq!(of(data.parent().unwrap()), (0o711, 0));

    let log = fs::read_to_string(dir.engine("one").join("log")).unwrap();
    for line in ["key = 'secret'".to_owned(), format!("USER={ACCOUNT}"), format!("LOGNAME={ACCOUNT}")] {
        assert!(log.lines().any(|found| found == line), "{line}: {log}");
    }
    assert!(log.contains("HOME=") && !log.contains("HOME=/root\n") && !log.contains("TMPDIR="), "{log}");

    // A repeated request changes nothing, and it is wanted although it cannot read its record.
    assert!(!process.ensure(&spec, EPOCH).await.unwrap().created);
    assert!(still_wanted(&dir.state(), &name("one"), &running.uid));
    kill(pid);
    let ended = eventually(&process, "it has ended", |listing| listing.engines[0].phase == Phase::Ended).await;
    assert_eq!(ended.engines[0].reason, Some(format!("left by {uid} (killed by signal 9)")));
    assert!(ended.engines[0].log_tail.as_ref().unwrap().contains("key = 'secret'"));
    process.delete(&name("one"), &running.uid, Duration::ZERO, EPOCH).await.unwrap();
    dir.cleared(&process).await;
    assert!(data.is_dir(), "what the user's engines share stays");
}

#[tokio::test]
async fn a_link_or_pipe_of_an_engine_is_not_followed_by_root() {
    if !is_root() {
        return;
    }
    let dir = TestDir::new();
    let process = dir.open();
    open_up(&dir);
    let secret = dir.state().join("secret");
    fs::write(&secret, "of the service").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    let link = format!("ln -s {} last-words; ln -s {} away; exit 3", secret.display(), dir.state().display());
    for (engine, script) in [("link", link.as_str()), ("pipe", "mkfifo last-words; exit 3")] {
        let ensured = process.ensure(&as_user(shell(engine, script), ACCOUNT, &[]), EPOCH).await.unwrap();
        let listing = eventually(&process, "it has ended", |listing| {
            listing.engines.first().is_some_and(|engine| engine.phase == Phase::Ended)
        })
        .await;
        assert!(fs::symlink_metadata(dir.engine(engine).join("files/last-words")).is_ok());
        assert_eq!(listing.engines[0].reason.as_deref(), Some("exit code 3"));
        process.delete(&name(engine), &ensured.uid, Duration::ZERO, EPOCH).await.unwrap();
        dir.cleared(&process).await;
        assert_eq!(fs::read_to_string(&secret).unwrap(), "of the service", "and nothing behind a link is removed");
    }
}

#[tokio::test]
async fn an_engine_runs_neither_as_root_nor_as_an_account_that_is_missing() {
    let dir = TestDir::new();
    let process = dir.open();
    if !is_root() {
        return;
    }
    open_up(&dir);
    let base = dir.state().parent().unwrap().join("data");
    let foreign = base.join("foreign");
    fs::create_dir_all(&foreign).unwrap();
    fs::write(foreign.join("of-another"), "").unwrap();
    fs::set_permissions(&base, fs::Permissions::from_mode(0o711)).unwrap();
    let open = base.join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
    let program = base.join("program");
    fs::copy("/bin/true", &program).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).unwrap();
    let link = base.join("link");
    std::os::unix::fs::symlink(&foreign, &link).unwrap();
    let one = || shell("one", "exit 0");
    let (upper, above) = (ACCOUNT.to_uppercase(), format!("../{ACCOUNT}"));
    let private = super::support::spec("one", &[&program.display().to_string()]);
    for (spec, expected) in [
        (as_user(one(), "root", &[]), "account \"root\" has uid 0, and no engine runs as root".to_owned()),
        (as_user(one(), "daemon", &[]), "has uid 1, below orchestrator.min_uid, which is 1000".to_owned()),
        (as_user(one(), "0", &[]), "user \"0\" has no account on this machine".to_owned()),
        (as_user(one(), "no such user", &[]), "user \"no such user\" has no account on this machine".to_owned()),
        (as_user(one(), &upper, &[]), format!("user \"{upper}\" has no account on this machine")),
        (as_user(one(), &above, &[]), format!("user \"{above}\" has no account on this machine")),
        (as_user(one(), "", &[]), "the user to run as has no name".to_owned()),
        (as_user(one(), ACCOUNT, &[PathBuf::from("data")]), "folder \"data\" is not an absolute path".to_owned()),
        (as_user(one(), ACCOUNT, &[base.join("../x")]), "is not an absolute path".to_owned()),
        (as_user(one(), ACCOUNT, &[foreign]), "it is no folder of mode 0700 that belongs to uid".to_owned()),
        (as_user(one(), ACCOUNT, &[link]), "it is no folder of mode 0700 that belongs to uid".to_owned()),
        (as_user(one(), ACCOUNT, &[open.join("x")]), "others than its owner may write to".to_owned()),
        (as_user(private, ACCOUNT, &[]), format!("account \"{ACCOUNT}\" may not execute \"{}\"", program.display())),
    ] {
        let reason = refused(&process, &dir, &spec).await;
        assert!(reason.contains(&expected), "{expected}: {reason}");
    }
    assert!(process.list(&LabelMap::new()).await.unwrap().engines.is_empty());
}
