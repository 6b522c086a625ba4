//! The real program, as one process with its engines as local processes, and clients over its port.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use hs2::{Auth, Client, ClientOptions, Session};

/// The longest that a statement may take.
pub const WITHIN: Duration = Duration::from_mins(2);

/// The program with a folder of its own; it is ended when this is dropped.
pub struct Standalone {
    child: Child,
    address: String,
    _folder: tempfile::TempDir,
}

impl Standalone {
    /// With these lines in its configuration file.
    pub fn start(configuration: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("enginehouse.toml");
        std::fs::write(&file, configuration.join("\n")).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_enginehouse"))
            .args(["standalone", "--listen", "127.0.0.1:0", "--data-dir"])
            .arg(folder.path().join("data"))
            .arg("--config")
            .arg(&file)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let ready =
            lines.find_map(|line| Some(line.unwrap().strip_prefix("ready: jdbc:hive2://")?.to_owned())).unwrap();
        Self { child, address: ready.trim_end_matches('/').to_owned(), _folder: folder }
    }

    pub async fn session(&self, user: &str) -> Session {
        let options = ClientOptions::new(self.address.clone(), Auth::user(user, ""));
        Session::open_as(Client::connect(&options).await.unwrap(), Some((user, "")), &[]).await.unwrap()
    }
}

impl Drop for Standalone {
    fn drop(&mut self) {
        // SIGTERM lets it end its engines.
        let pid = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.child.wait();
    }
}

pub async fn run(session: &mut Session, text: &str) -> hs2::session::Table {
    session.run(text, WITHIN).await.unwrap()
}
