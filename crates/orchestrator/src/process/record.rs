//! The files of an engine's directory as values.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::Duration;

use model::EngineName;
use model::labels::LabelMap;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::identity::Identity;
use super::layout;
use crate::Exit;

/// The longest file of these that is read.
pub(super) const MAX_RECORD_BYTES: u64 = 1 << 20;
/// The version of `engine.json`.
pub(super) const VERSION: u32 = 1;

/// `engine.json`: written once, before the engine starts. Its labels may be edited by hand.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) version: u32,
    pub(super) name: EngineName,
    pub(super) uid: String,
    pub(super) labels: LabelMap,
    pub(super) annotations: BTreeMap<String, String>,
    pub(super) node: String,
    pub(super) created_at_ms: i64,
    pub(super) log_keep_bytes: u64,
    /// For people: the command line.
    pub(super) argv: Vec<String>,
}

/// `process.json`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Started {
    #[serde(flatten)]
    pub(super) leader: Identity,
    pub(super) started_at_ms: i64,
}

/// `ending.json`: irrevocable; only the grace may become shorter.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[allow(clippy::struct_field_names)] // The unit stands last in every name.
pub(super) struct Ending {
    /// For people.
    pub(super) asked_at_ms: i64,
    /// On the clock that counts from the machine's boot: a process can't outlive that clock.
    pub(super) asked_boottime_ms: u64,
    pub(super) grace_ms: u64,
}

impl Ending {
    /// Whether the grace is over.
    pub(super) fn is_due(&self, boottime: Duration) -> bool {
        boottime >= self.deadline()
    }

    pub(super) fn deadline(&self) -> Duration {
        Duration::from_millis(self.asked_boottime_ms.saturating_add(self.grace_ms))
    }
}

/// `exit.json`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[allow(clippy::struct_field_names)] // As in `Exit`, which it becomes.
pub(super) struct Ended {
    pub(super) code: Option<i32>,
    pub(super) signal: Option<i32>,
    pub(super) ended_at_ms: i64,
}

impl From<Ended> for Exit {
    fn from(ended: Ended) -> Self {
        Self { code: ended.code, signal: ended.signal, ended_at_ms: ended.ended_at_ms }
    }
}

/// Reads a record; `None` if it is not there.
pub(super) fn read<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    let Some(content) = layout::read_limited(path, MAX_RECORD_BYTES)? else { return Ok(None) };
    serde_json::from_slice(&content).map(Some).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// The text of a record.
pub(super) fn text<T: Serialize>(record: &T) -> io::Result<Vec<u8>> {
    let mut text = serde_json::to_vec_pretty(record).map_err(io::Error::other)?;
    text.push(b'\n');
    Ok(text)
}
