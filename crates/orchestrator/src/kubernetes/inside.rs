//! The engine's own side: what the program in a pod is told, and how it leaves its last words.
//!
//! A pod is told to go by SIGTERM; nothing else there says that it is unwanted, so nothing is asked.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use model::observation::{MAX_REASON_BYTES, cut, tail};

use super::read::LAST_WORDS_MARK;
use super::render::{ADDRESS_VARIABLE, PORT_VARIABLE};
use crate::UID_VARIABLE;

/// Where a kubelet looks for the last words of a container.
const TERMINATION_LOG: &str = "/dev/termination-log";
/// What a kubelet reads of it, from the end.
const MAX_MESSAGE_BYTES: usize = 4_096;

/// The pod that this process runs in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inside {
    uid: String,
    listen: SocketAddr,
    last_words: PathBuf,
}

impl Inside {
    /// What the environment says; `None` if this process was not started by the orchestrator of pods.
    pub fn from_environment() -> Option<Result<Self, String>> {
        let of = |name: &str| std::env::var(name).ok();
        Some(Self::new(of(UID_VARIABLE)?, &of(ADDRESS_VARIABLE)?, &of(PORT_VARIABLE)?))
    }

    fn new(uid: String, address: &str, port: &str) -> Result<Self, String> {
        let ip: IpAddr = address.parse().map_err(|_| format!("{ADDRESS_VARIABLE} is \"{address}\", no address"))?;
        let port: u16 = port.parse().map_err(|_| format!("{PORT_VARIABLE} is \"{port}\", no port"))?;
        Ok(Self { uid, listen: SocketAddr::new(ip, port), last_words: PathBuf::from(TERMINATION_LOG) })
    }

    /// The pod's uid.
    pub fn uid(&self) -> &str {
        &self.uid
    }

    /// The pod's own address, which proxies reach, and no other of the machine.
    pub fn listen(&self) -> SocketAddr {
        self.listen
    }

    /// Leaves the reason for which the program is about to exit, and what it logged last; they become reason and log of the
    /// ended engine.
    pub fn leave_reason(&self, reason: &str, log: &str) -> io::Result<()> {
        std::fs::write(&self.last_words, message(reason, log))
    }
}

fn message(reason: &str, log: &str) -> String {
    let reason = reason.replace(['\n', '\r'], " ");
    let mut message = format!("{LAST_WORDS_MARK}{}\n", cut(&reason, MAX_REASON_BYTES));
    message.push_str(tail(log, MAX_MESSAGE_BYTES - message.len()));
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_listens_on_its_own_address() {
        let inside = Inside::new("u".to_owned(), "10.0.0.7", "10021").unwrap();
        assert_eq!((inside.uid(), inside.listen().to_string().as_str()), ("u", "10.0.0.7:10021"));
        assert_eq!(Inside::new("u".to_owned(), "fd00::7", "1").unwrap().listen().to_string(), "[fd00::7]:1");
        for (address, port) in [("", "1"), ("10.0.0.7", ""), ("name", "1"), ("10.0.0.7", "70000")] {
            assert!(Inside::new("u".to_owned(), address, port).unwrap_err().starts_with("ENGINEHOUSE_ENGINE_"));
        }
    }

    #[test]
    fn the_last_words_are_one_marked_line_and_the_log_has_what_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let mut inside = Inside::new("u".to_owned(), "10.0.0.7", "1").unwrap();
        inside.last_words = folder.path().join("log");
        inside.leave_reason("it broke\nin two", "line 1\nline 2\n").unwrap();
        let left = std::fs::read_to_string(&inside.last_words).unwrap();
        assert_eq!(left, "enginehouse: it broke in two\nline 1\nline 2\n");
        let long = message(&"ä".repeat(MAX_REASON_BYTES), &"log\n".repeat(MAX_MESSAGE_BYTES));
        assert!(long.len() <= MAX_MESSAGE_BYTES && long.len() > MAX_MESSAGE_BYTES - 4, "{}", long.len());
        assert!(long.starts_with("enginehouse: ä") && long.ends_with("log\n"));
    }
}
