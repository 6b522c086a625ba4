//! The log of an engine: its tail and its size limit.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom};

use model::observation::MAX_LOG_TAIL_BYTES;

use super::layout::EngineDir;

/// The last lines of the log, at most `MAX_LOG_TAIL_BYTES`; invalid UTF-8 is replaced.
pub(super) fn tail(directory: &EngineDir) -> Option<String> {
    let mut bytes = last_bytes(&directory.log(), MAX_LOG_TAIL_BYTES).unwrap_or_default();
    if bytes.len() < MAX_LOG_TAIL_BYTES {
        let mut before = last_bytes(&directory.old_log(), MAX_LOG_TAIL_BYTES - bytes.len()).unwrap_or_default();
        before.append(&mut bytes);
        bytes = before;
    }
    let text = String::from_utf8_lossy(&bytes);
    let text = model::text::tail(text.trim_end(), MAX_LOG_TAIL_BYTES);
    (!text.is_empty()).then(|| text.to_owned())
}

fn last_bytes(path: &std::path::Path, count: usize) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(count as u64)))?;
    let mut bytes = Vec::new();
    file.take(count as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Keeps the log below its limit: its content becomes the old log, and the engine, which only appends, continues at the
/// beginning. Output that is written at the same moment may be lost. The caller holds the directory lock.
pub(super) fn limit(directory: &EngineDir, keep_bytes: u64) -> io::Result<()> {
    let path = directory.log();
    let length = match fs::metadata(&path) {
        // The engine was removed since its log was found to be too long.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found?.len(),
    };
    if length <= keep_bytes {
        return Ok(());
    }
    let mut log = OpenOptions::new().read(true).write(true).open(&path)?;
    log.seek(SeekFrom::Start(length - keep_bytes))?;
    let mut old = File::create(directory.old_log())?;
    io::copy(&mut (&log).take(keep_bytes), &mut old)?;
    log.set_len(0)
}
