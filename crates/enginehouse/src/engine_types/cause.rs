//! Why a server in Java ended, from its log: an exit status names no cause.
//!
//! The cause is the innermost exception of the last chain in the log: that one names what is wrong with a property or the
//! memory. If there is none, the exit status and the log must do.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;

/// Bytes at the end of the log that are searched at most.
const SEARCHED_BYTES: u64 = 256 << 10;
/// What the virtual machine prints after the reason why it does not start.
const NO_JVM: &str = "Could not create the Java Virtual Machine.";
/// Characters of a cause at most.
const MAX_CHARS: usize = 400;

/// The cause that the log names.
pub fn cause(log: &str) -> Option<String> {
    in_text(log).map(|cause| cause.chars().take(MAX_CHARS).collect())
}

/// The end of the log in the file, not before that position.
pub fn read(path: &Path, from: u64) -> io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    // A log that was cut meanwhile begins at its beginning.
    let from = if from > length { 0 } else { from };
    file.seek(SeekFrom::Start(from.max(length.saturating_sub(SEARCHED_BYTES))))?;
    let mut bytes = Vec::new();
    file.take(SEARCHED_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn in_text(text: &str) -> Option<String> {
    let lines: Vec<&str> = text.lines().collect();
    let (at, cause) = lines.iter().enumerate().rev().find_map(|(at, line)| Some((at, named_by(line)?)))?;
    // The virtual machine names the invalid option before.
    let before = at.checked_sub(1).map(|at| lines[at].trim()).filter(|line| cause == NO_JVM && !line.is_empty());
    Some(before.unwrap_or(cause).to_owned())
}

/// The cause that a line names: the head of an exception, or what the scripts and the virtual machine print.
fn named_by(line: &str) -> Option<&str> {
    let line = line.trim_end();
    if let Some(cause) = line.strip_prefix("Caused by: ") {
        return Some(cause);
    }
    if let Some((_, exception)) = line.strip_prefix("Exception in thread ").and_then(|rest| rest.split_once("\" ")) {
        return Some(exception);
    }
    if let Some(cause) = line.strip_prefix("Error: ") {
        return Some(cause).filter(|cause| !cause.starts_with("A fatal exception has occurred"));
    }
    let (class, _) = line.split_once(": ")?;
    let is_class =
        class.contains('.') && class.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '$'));
    (is_class && (class.ends_with("Exception") || class.ends_with("Error"))).then_some(line)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_innermost_cause_of_the_last_exception_is_named() {
        for (log, expected) in [
            (
                "24/01/01 ERROR SparkContext: Error initializing SparkContext.\njava.lang.IllegalArgumentException: System \
                 memory 106430464 must be at least 471859200.\n\tat org.apache.spark.X.y(X.scala:1)\n24/01/01 INFO \
                 ShutdownHookManager: Shutdown hook called\n",
                Some("java.lang.IllegalArgumentException: System memory 106430464 must be at least 471859200."),
            ),
            (
                "Exception in thread \"main\" org.apache.spark.SparkException: no context\n\tat a.b.c(D.scala)\nCaused by: \
                 java.lang.ClassNotFoundException: no.such.Serializer\n\tat e.f(G.java)\n\t... 7 more\n",
                Some("java.lang.ClassNotFoundException: no.such.Serializer"),
            ),
            (
                "Error: Could not create the Java Virtual Machine.\nError: A fatal exception has occurred. Program will \
                 exit.\n",
                Some("Could not create the Java Virtual Machine."),
            ),
            (
                "Invalid maximum heap size: -Xmxabc\nError: Could not create the Java Virtual Machine.\nError: A fatal \
                 exception has occurred. Program will exit.\n",
                Some("Invalid maximum heap size: -Xmxabc"),
            ),
            ("24/01/01 WARN Utils: Service 'x' could not bind: Address already in use\nready: yes\n", None),
            ("", None),
        ] {
            assert_eq!(in_text(log).as_deref(), expected, "{log}");
        }
    }

    #[test]
    fn only_what_was_written_since_the_start_counts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let before = "Error: of an earlier start\n";
        std::fs::write(&path, before).unwrap();
        let cause_since = |from: &str| cause(&read(&path, from.len() as u64).unwrap());
        assert_eq!(cause_since(before), None);
        std::fs::write(&path, format!("{before}Error: {}\n", "x".repeat(1_000))).unwrap();
        assert_eq!(cause_since(before), Some("x".repeat(MAX_CHARS)));
        assert!(read(&folder.path().join("none"), 0).is_err());
    }
}
