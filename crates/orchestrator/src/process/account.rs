//! The account of this machine that an engine runs as: looked up by the user's name, never root.
//!
//! What this process, which is root, reads and writes of such an engine is in folders that only root can change; the engine's own
//! folders are created for it, and afterwards only removed. A program may do there what it likes: a link that it leaves is followed by
//! no other account.

use std::ffi::CString;
use std::fs::{self, DirBuilder, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _, chown, lchown};
use std::path::{Path, PathBuf};

use nix::unistd::{Gid, User, getgrouplist};
use rustix::process::geteuid;

use crate::{Error, RunAs};

/// Where `setpriv(1)` may be. It belongs to the same package as `setsid(1)`.
const PROGRAMS: [&str; 3] = ["/usr/bin/setpriv", "/bin/setpriv", "/usr/local/bin/setpriv"];
/// The mode of a folder that others may pass through, but not list.
const PASSABLE: u32 = 0o711;
/// The mode of a folder of one account.
const PRIVATE: u32 = 0o700;

/// An account that exists and is not root.
#[derive(Debug)]
pub(super) struct Account {
    name: String,
    uid: u32,
    gid: u32,
    /// All its groups, the primary one included.
    groups: Vec<u32>,
    home: PathBuf,
    /// The program that changes to the account.
    program: PathBuf,
}

impl Account {
    /// Looks up the account with exactly this name. May block for as long as the machine's name service takes.
    pub(super) fn of(user: &str, min_uid: u32) -> Result<Self, Error> {
        if !geteuid().is_root() {
            return Err(Error::refused(format!("only root can start an engine as user \"{user}\"")));
        }
        let failed = |errno: nix::Error| {
            Error::transient(format!("could not look up the account of user \"{user}\""))
                .caused_by(io::Error::from(errno))
        };
        let account = User::from_name(user).map_err(failed)?;
        // A name service that ignores case would give two users one account.
        let Some(account) = account.filter(|account| account.name == user) else {
            return Err(Error::refused(format!("user \"{user}\" has no account on this machine")));
        };
        if account.uid.is_root() {
            return Err(Error::refused(format!("account \"{user}\" has uid 0, and no engine runs as root")));
        }
        if account.uid.as_raw() < min_uid {
            let uid = account.uid;
            let reason = format!("account \"{user}\" has uid {uid}, below orchestrator.min_uid, which is {min_uid}");
            return Err(Error::refused(reason));
        }
        let name = CString::new(user).map_err(|error| Error::refused(error.to_string()))?;
        let groups = getgrouplist(&name, account.gid).map_err(failed)?;
        let program = PROGRAMS.iter().map(PathBuf::from).find(|path| super::state_dir::is_executable(path));
        Ok(Self {
            name: account.name,
            uid: account.uid.as_raw(),
            gid: account.gid.as_raw(),
            groups: groups.into_iter().map(Gid::as_raw).collect(),
            home: account.dir,
            program: program
                .ok_or_else(|| Error::refused(format!("none of the programs {} exists", PROGRAMS.join(", "))))?,
        })
    }

    /// Checks that the account may run the program and enter the folder, and creates the folders that belong to it.
    pub(super) fn prepare(&self, program: &Path, engines: &Path, run_as: &RunAs) -> Result<(), Error> {
        let failed = |path: &Path| {
            let what = format!("could not prepare \"{}\" for account \"{}\"", path.display(), self.name);
            move |error: io::Error| Error::refused(what).caused_by(error)
        };
        let found = fs::metadata(program).map_err(failed(program))?;
        if !self.may_execute(&found) {
            let reason = format!("account \"{}\" may not execute \"{}\"", self.name, program.display());
            return Err(Error::refused(reason));
        }
        let mut folders = vec![engines.to_owned()];
        folders.extend(program.parent().map(Path::to_owned));
        for folder in &run_as.folders {
            self.take(folder).map_err(failed(folder))?;
            folders.extend(folder.parent().map(Path::to_owned));
        }
        let mut closed = Vec::new();
        for folder in folders {
            for path in fs::canonicalize(&folder).map_err(failed(&folder))?.ancestors() {
                if !self.may_execute(&fs::metadata(path).map_err(failed(path))?) {
                    closed.push(path.display().to_string());
                }
            }
        }
        closed.sort();
        closed.dedup();
        let Some(first) = closed.first() else { return Ok(()) };
        Err(Error::refused(format!(
            "account \"{}\" may not enter folder \"{first}\"; to allow that, run chmod o+x {}",
            self.name,
            closed.join(" ")
        )))
    }

    /// Whether the permission bits let the account run the file or enter the folder.
    fn may_execute(&self, metadata: &Metadata) -> bool {
        let class = match metadata {
            of if of.uid() == self.uid => 0o100,
            of if self.groups.contains(&of.gid()) => 0o010,
            _ => 0o001,
        };
        metadata.mode() & class != 0
    }

    /// Creates the folder for the account, or finds that it is the account's own.
    fn take(&self, folder: &Path) -> io::Result<()> {
        if let Some(parent) = folder.parent() {
            make_passable(parent)?;
        }
        match DirBuilder::new().mode(PRIVATE).create(folder) {
            Ok(()) => return lchown(folder, Some(self.uid), Some(self.gid)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
        let found = fs::symlink_metadata(folder)?;
        if found.is_dir() && found.uid() == self.uid && found.mode().trailing_zeros() >= 6 {
            return Ok(());
        }
        if found.is_dir() && found.uid() == geteuid().as_raw() && fs::read_dir(folder)?.next().is_none() {
            // Created by a process that died before it gave it away.
            return lchown(folder, Some(self.uid), Some(self.gid));
        }
        Err(io::Error::other(format!("it is no folder of mode 0700 that belongs to uid {}", self.uid)))
    }

    /// Gives a folder and all that it contains to the account. The caller has just created both, where the account cannot get at them
    /// before: the folder itself comes last.
    pub(super) fn give(&self, folder: &Path) -> io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                self.give(&entry.path())?;
            } else {
                lchown(entry.path(), Some(self.uid), Some(self.gid))?;
            }
        }
        chown(folder, Some(self.uid), Some(self.gid))
    }

    pub(super) fn give_file(&self, file: &fs::File) -> io::Result<()> {
        std::os::unix::fs::fchown(file, Some(self.uid), Some(self.gid))
    }

    /// The words before a command line that run it as the account, with its groups, without capabilities, and without any way to gain
    /// privileges. The program replaces itself by that command.
    pub(super) fn command_line(&self, argv: &[String]) -> Vec<String> {
        let groups: Vec<String> = self.groups.iter().map(u32::to_string).collect();
        let own = [
            self.program.display().to_string(),
            format!("--reuid={}", self.uid),
            format!("--regid={}", self.gid),
            format!("--groups={}", groups.join(",")),
            "--inh-caps=-all".to_owned(),
            "--no-new-privs".to_owned(),
            "--".to_owned(),
        ];
        own.into_iter().chain(argv.iter().cloned()).collect()
    }

    /// The variables that name the account. Of those that an engine inherits, `TMPDIR` may be a folder of the service's own.
    pub(super) fn environment(&self) -> [(&'static str, &Path); 3] {
        [("HOME", &self.home), ("USER", Path::new(&self.name)), ("LOGNAME", Path::new(&self.name))]
    }
}

/// The variables of the service that an engine of another account does not inherit.
pub(super) const WITHHELD: [&str; 2] = ["HOME", "TMPDIR"];

/// Lets other accounts pass through a folder that was just created, whatever the umask.
pub(super) fn let_pass(folder: &Path) -> io::Result<()> {
    fs::set_permissions(folder, Permissions::from_mode(PASSABLE))
}

/// Creates missing folders so that other accounts can pass through them. One that exists stays as it is, but must be of this account:
/// its owner could replace what is in it.
fn make_passable(folder: &Path) -> io::Result<()> {
    match fs::metadata(folder) {
        Ok(found) if found.uid() == geteuid().as_raw() && found.mode() & 0o022 == 0 => Ok(()),
        Ok(_) => Err(io::Error::other(format!("others than its owner may write to \"{}\"", folder.display()))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if let Some(parent) = folder.parent() {
                make_passable(parent)?;
            }
            DirBuilder::new().mode(PRIVATE).create(folder)?;
            let_pass(folder)
        }
        Err(error) => Err(error),
    }
}
