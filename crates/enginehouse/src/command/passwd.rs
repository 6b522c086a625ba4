//! `enginehouse passwd`: adds, changes or deletes a user of a users file.
//!
//! The file is replaced as a whole by a new one of mode 0600, with the owner of the old one. The new file has a fixed
//! name until then, so that of two commands at the same time one fails and none loses the other's change.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, IsTerminal as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, fchown};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use authentication::{PasswordHash, Users};
use model::user_name::is_group_name;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

use crate::cli::PasswdArguments;
use crate::output::print_line;

pub fn run(arguments: &PasswdArguments) -> anyhow::Result<ExitCode> {
    let PasswdArguments { file, groups, delete, user } = arguments;
    if !Users::is_valid_name(user) {
        bail!(
            "invalid user name\nHint: A name has at most 255 bytes, no colon and no control characters, and begins with neither @ nor #."
        );
    }
    if let Some(group) = groups.iter().flatten().find(|group| !is_group_name(group)) {
        bail!("invalid group name \"{}\"\nHint: Write groups as --groups a,b, without @.", group.escape_debug());
    }
    if *delete {
        edit(file, |users| users.remove(user).then_some(()).with_context(|| format!("no user \"{user}\"")))?;
        print_line(&format!("deleted user \"{user}\" from {}", file.display()));
        return Ok(ExitCode::SUCCESS);
    }
    let password = read_password()?;
    if password.is_empty() || password.contains('\0') {
        bail!("the password must not be empty or contain a zero byte");
    }
    let hash = PasswordHash::of(&password)?;
    edit(file, |users| {
        users.set(user, hash, groups.clone());
        Ok(())
    })?;
    print_line(&format!("set the password of user \"{user}\" in {}", file.display()));
    Ok(ExitCode::SUCCESS)
}

/// Replaces the file by one with the change; a missing file has no users.
fn edit(path: &Path, change: impl FnOnce(&mut Users) -> anyhow::Result<()>) -> anyhow::Result<()> {
    // A symbolic link stays one.
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let new = new_name(&path);
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new).map_err(|error| {
        let exists = error.kind() == io::ErrorKind::AlreadyExists;
        let hint = if exists { "\nHint: If no other passwd is running, delete that file." } else { "" };
        anyhow::anyhow!("cannot create {}: {error}{hint}", new.display())
    })?;
    let replaced = write(&path, file, change).and_then(|()| Ok(std::fs::rename(&new, &path)?));
    if replaced.is_err() {
        // The error before this one is the cause.
        let _ = std::fs::remove_file(&new);
    }
    replaced.with_context(|| format!("the users file {} is unchanged", path.display()))
}

fn write(path: &Path, mut new: File, change: impl FnOnce(&mut Users) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let mut users = match std::fs::read_to_string(path) {
        Ok(text) => Users::parse(&text)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Users::default(),
        Err(error) => return Err(error.into()),
    };
    change(&mut users)?;
    if let Ok(old) = std::fs::metadata(path)
        && old.uid() != new.metadata()?.uid()
    {
        fchown(&new, Some(old.uid()), Some(old.gid()))?;
    }
    new.write_all(users.to_string().as_bytes())?;
    Ok(new.sync_all()?)
}

fn new_name(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    name.into()
}

/// The password from the terminal, typed twice without echo, or the first line of another standard input.
fn read_password() -> anyhow::Result<String> {
    if !io::stdin().is_terminal() {
        return read_line();
    }
    let password = prompt("Password: ")?;
    if prompt("Repeat the password: ")? != password {
        bail!("the passwords do not match");
    }
    Ok(password)
}

fn prompt(text: &str) -> anyhow::Result<String> {
    let silent = SilentTerminal::new()?;
    eprint!("{text}");
    let line = read_line();
    eprintln!();
    drop(silent);
    line
}

fn read_line() -> anyhow::Result<String> {
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line).context("cannot read the password")?;
    let end = line.trim_end_matches(['\r', '\n']).len();
    line.truncate(end);
    Ok(line)
}

/// Standard input without echo, until it is dropped.
struct SilentTerminal(Termios);

impl SilentTerminal {
    fn new() -> io::Result<Self> {
        let modes = tcgetattr(io::stdin())?;
        let mut silent = modes.clone();
        silent.local_modes.remove(LocalModes::ECHO);
        tcsetattr(io::stdin(), OptionalActions::Flush, &silent)?;
        Ok(Self(modes))
    }
}

impl Drop for SilentTerminal {
    fn drop(&mut self) {
        // The terminal is gone, or its user can run `stty echo`.
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.0);
    }
}
