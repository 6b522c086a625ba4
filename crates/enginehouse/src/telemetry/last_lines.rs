//! The newest lines of this process's log: the termination message of a failed pod, whose log may not be readable any more.

use std::io::{self, Write};
use std::sync::Arc;

use parking_lot::Mutex;

/// The number of bytes that are kept; temporarily twice as many.
const KEEP_BYTES: usize = 8_192;

/// A writer to standard error that keeps the newest lines.
#[derive(Debug, Clone, Default)]
pub struct LastLines(Arc<Mutex<Vec<u8>>>);

impl LastLines {
    /// The newest complete lines.
    pub fn text(&self) -> String {
        let kept = self.0.lock();
        String::from_utf8_lossy(newest(&kept)).into_owned()
    }

    fn keep(&self, event: &[u8]) {
        let mut kept = self.0.lock();
        kept.extend_from_slice(event);
        if kept.len() > 2 * KEEP_BYTES {
            *kept = newest(&kept).to_vec();
        }
    }
}

/// At most [`KEEP_BYTES`] from the end, from the start of a line.
fn newest(kept: &[u8]) -> &[u8] {
    let Some(from) = kept.len().checked_sub(KEEP_BYTES).filter(|from| *from > 0) else { return kept };
    // The previous line may end exactly here.
    let begins = kept[from - 1..].iter().position(|byte| *byte == b'\n').map_or(kept.len(), |at| from + at);
    &kept[begins..]
}

impl Write for LastLines {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        self.keep(event);
        // A closed standard error does not affect the kept lines.
        io::stderr().write_all(event)?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_lines_are_kept_and_each_is_whole() {
        let kept = LastLines::default();
        kept.keep(b"first\n");
        assert_eq!(kept.text(), "first\n");
        for number in 0..10_000 {
            kept.keep(format!("line {number}\n").as_bytes());
        }
        let text = kept.text();
        assert!(text.len() <= KEEP_BYTES && text.len() > KEEP_BYTES - 20, "{}", text.len());
        assert!(text.starts_with("line ") && text.ends_with("line 9999\n"));
        kept.keep(&vec![b'x'; 3 * KEEP_BYTES]);
        assert_eq!(kept.text(), "", "there is no whole line");
    }
}
