//! The JSON files of an engine's directory.

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

/// The size limit of a record.
pub(super) const MAX_RECORD_BYTES: u64 = 1 << 20;
/// The version of `engine.json`.
pub(super) const VERSION: u32 = 1;

/// `engine.json`: written once, before the engine starts. Its labels may be edited by hand.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct EngineRecord {
    pub(super) version: u32,
    pub(super) name: EngineName,
    pub(super) uid: String,
    pub(super) labels: LabelMap,
    pub(super) annotations: BTreeMap<String, String>,
    pub(super) node: String,
    pub(super) created_at_ms: i64,
    pub(super) log_keep_bytes: u64,
    /// The command line; informational.
    pub(super) argv: Vec<String>,
}

/// `process.json`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct ProcessRecord {
    #[serde(flatten)]
    pub(super) leader: Identity,
    pub(super) started_at_ms: i64,
}

/// `ending.json`: irrevocable; a later one may only shorten the grace.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct DeletionRecord {
    /// Informational.
    pub(super) asked_at_ms: i64,
    /// On the clock that counts from the machine's boot: no process outlives that clock.
    #[serde(rename = "asked_boottime_ms", with = "model::millis")]
    pub(super) asked_boottime: Duration,
    #[serde(rename = "grace_ms", with = "model::millis")]
    pub(super) grace: Duration,
}

impl DeletionRecord {
    /// Whether the grace is over.
    pub(super) fn is_due(&self, boottime: Duration) -> bool {
        boottime >= self.deadline()
    }

    pub(super) fn deadline(&self) -> Duration {
        self.asked_boottime.saturating_add(self.grace)
    }
}

/// `exit.json`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[allow(clippy::struct_field_names)] // As in `Exit`, which it becomes.
pub(super) struct ExitRecord {
    pub(super) code: Option<i32>,
    pub(super) signal: Option<i32>,
    pub(super) ended_at_ms: i64,
}

impl From<ExitRecord> for Exit {
    fn from(exit: ExitRecord) -> Self {
        Self { code: exit.code, signal: exit.signal, ended_at_ms: exit.ended_at_ms }
    }
}

/// Reads a record; `None` if it does not exist.
pub(super) fn read<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    let Some(content) = layout::read_limited(path, MAX_RECORD_BYTES)? else { return Ok(None) };
    serde_json::from_slice(&content).map(Some).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

pub(super) fn text<T: Serialize>(record: &T) -> io::Result<Vec<u8>> {
    let mut text = serde_json::to_vec_pretty(record).map_err(io::Error::other)?;
    text.push(b'\n');
    Ok(text)
}
