//! The engine's own side: the environment of the program in a pod, and the reason that it leaves when it exits.
//!
//! SIGTERM is the only sign that the pod is no longer wanted, so there is nothing to poll.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use model::observation::MAX_REASON_BYTES;
use model::text::{cut, tail};

use super::names::OWNER_UID;
use super::read::LAST_WORDS_PREFIX;
use super::render::{ADDRESS_VARIABLE, PORT_VARIABLE};
use crate::UID_VARIABLE;

/// Where a kubelet reads the termination message of a container.
const TERMINATION_LOG: &str = "/dev/termination-log";
/// How much of it a kubelet reads, from the end.
const MAX_MESSAGE_BYTES: usize = 4_096;

/// The pod that this process runs in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guest {
    uid: String,
    listen: SocketAddr,
    last_words: PathBuf,
}

impl Guest {
    /// Reads the environment; `None` if this process was not started by the orchestrator of pods.
    pub fn from_environment() -> Option<Result<Self, String>> {
        let variable = |name: &str| std::env::var(name).ok();
        Some(Self::new(variable(UID_VARIABLE)?, &variable(ADDRESS_VARIABLE)?, &variable(PORT_VARIABLE)?))
    }

    fn new(uid: String, address: &str, port: &str) -> Result<Self, String> {
        let ip: IpAddr = address.parse().map_err(|_| format!("{ADDRESS_VARIABLE}: invalid address \"{address}\""))?;
        let port: u16 = port.parse().map_err(|_| format!("{PORT_VARIABLE}: invalid port \"{port}\""))?;
        Ok(Self { uid, listen: SocketAddr::new(ip, port), last_words: PathBuf::from(TERMINATION_LOG) })
    }

    pub fn uid(&self) -> &str {
        &self.uid
    }

    /// Whether the files in that folder are those of this pod; with the uid of the other one if they are not. A Secret of this name
    /// may be left of an earlier pod. A master of version 0.1.0 gives a pod its files without a Secret.
    pub fn check_files(&self, folder: &Path) -> Result<(), String> {
        match std::fs::read_to_string(folder.join(OWNER_UID)) {
            Ok(owner) if owner != self.uid => Err(owner),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// The pod's own address, which the proxies reach; no other address of the machine.
    pub fn listen(&self) -> SocketAddr {
        self.listen
    }

    /// Leaves the reason for the exit of the program and the end of its log; they become the reason and the log of the ended
    /// engine.
    pub fn leave_reason(&self, reason: &str, log: &str) -> io::Result<()> {
        std::fs::write(&self.last_words, message(reason, log))
    }
}

fn message(reason: &str, log: &str) -> String {
    let reason = reason.replace(['\n', '\r'], " ");
    let mut message = format!("{LAST_WORDS_PREFIX}{}\n", cut(&reason, MAX_REASON_BYTES));
    message.push_str(tail(log, MAX_MESSAGE_BYTES - message.len()));
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_listens_on_its_own_address() {
        let guest = Guest::new("u".to_owned(), "10.0.0.7", "10021").unwrap();
        assert_eq!((guest.uid(), guest.listen().to_string().as_str()), ("u", "10.0.0.7:10021"));
        assert_eq!(Guest::new("u".to_owned(), "fd00::7", "1").unwrap().listen().to_string(), "[fd00::7]:1");
        for (address, port) in [("", "1"), ("10.0.0.7", ""), ("name", "1"), ("10.0.0.7", "70000")] {
            assert!(Guest::new("u".to_owned(), address, port).unwrap_err().starts_with("ENGINEHOUSE_ENGINE_"));
        }
    }

    #[test]
    fn the_files_of_another_pod_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let guest = Guest::new("u".to_owned(), "10.0.0.7", "1").unwrap();
        assert_eq!(guest.check_files(folder.path()), Ok(()));
        for (owner, expected) in [("u", Ok(())), ("v", Err("v".to_owned())), ("", Err(String::new()))] {
            std::fs::write(folder.path().join(OWNER_UID), owner).unwrap();
            assert_eq!(guest.check_files(folder.path()), expected);
        }
    }

    #[test]
    fn the_reason_is_one_marked_line_and_the_log_fills_the_rest() {
        let folder = tempfile::tempdir().unwrap();
        let mut guest = Guest::new("u".to_owned(), "10.0.0.7", "1").unwrap();
        guest.last_words = folder.path().join("log");
        guest.leave_reason("it broke\nin two", "line 1\nline 2\n").unwrap();
        let left = std::fs::read_to_string(&guest.last_words).unwrap();
        assert_eq!(left, "enginehouse: it broke in two\nline 1\nline 2\n");
        let long = message(&"ä".repeat(MAX_REASON_BYTES), &"log\n".repeat(MAX_MESSAGE_BYTES));
        assert!(long.len() <= MAX_MESSAGE_BYTES && long.len() > MAX_MESSAGE_BYTES - 4, "{}", long.len());
        assert!(long.starts_with("enginehouse: ä") && long.ends_with("log\n"));
    }
}
