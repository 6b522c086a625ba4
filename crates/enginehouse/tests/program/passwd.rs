//! `enginehouse passwd`: what it writes, and that a proxy's configuration accepts it.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Output, Stdio};

use crate::installation::{program, text};

fn passwd(file: &Path, arguments: &[&str], password: &str) -> Output {
    let mut command = program();
    command.arg("passwd").arg("--file").arg(file).args(arguments);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // A command that refuses its arguments reads no password.
    let _ = child.stdin.take().unwrap().write_all(password.as_bytes());
    child.wait_with_output().unwrap()
}

fn set(file: &Path, arguments: &[&str], password: &str) {
    let output = passwd(file, arguments, password);
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
fn users_are_added_changed_and_deleted_in_a_private_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("users");
    set(&file, &["--groups", "analysts,etl", "ann"], "one\n");
    set(&file, &["bob"], "two\n");
    let first = std::fs::read_to_string(&file).unwrap();
    let lines: Vec<&str> = first.lines().collect();
    assert!(lines[0].starts_with("ann:$argon2id$v=19$m=19456,t=2,p=1$") && lines[0].ends_with(":analysts,etl"));
    assert!(lines[1].starts_with("bob:$argon2id$") && lines[1].ends_with(':'));
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);

    set(&file, &["ann"], "three\n");
    let second = std::fs::read_to_string(&file).unwrap();
    assert!(second.lines().next().unwrap().ends_with(":analysts,etl") && second != first);
    set(&file, &["--delete", "ann"], "");
    assert!(!std::fs::read_to_string(&file).unwrap().contains("ann:"));
    assert!(!folder.path().join("users.new").exists());
}

#[test]
fn a_bad_name_password_or_line_leaves_the_file_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("users");
    std::fs::write(&file, "ann\n").unwrap();
    for (arguments, password, expected) in [
        (&["@admins"][..], "x\n", "invalid user name"),
        (&["a:b"], "x\n", "invalid user name"),
        (&["--groups", "a,@b", "ann"], "x\n", "invalid group name"),
        (&["ann"], "\n", "must not be empty"),
        (&["ann"], "x\n", "line 1: expected user:hash:group,group"),
        (&["--delete", "ann"], "", "line 1"),
    ] {
        let output = passwd(&file, arguments, password);
        let error = text(&output.stderr);
        assert!(output.status.code() == Some(1) && error.contains(expected), "{arguments:?}: {error}");
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "ann\n");
}
